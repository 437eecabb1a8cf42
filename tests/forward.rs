//! Every signal that does not begin a stop is forwarded to the server, once.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::proc::Process;
use common::{ACTOR, Scene, Wrap, hold, is_quiet, signals, special, sys, treaper, until};
use treaper::plan::event::Trigger;
use treaper::settings::cli;
use treaper::settings::config::{Config, SignalUse};
use treaper::streams::forward::{Route, Rules};
use treaper::sys::arrival::{Arrival, Origin};
use treaper::sys::signal::Signal;

/// The signals that treaper forwards. Not among them: SIGTERM and SIGHUP, which begin a stop; SIGCHLD, which is about
/// children of treaper; faults, which are about the program itself; SIGSTOP and SIGKILL, which cannot be caught.
fn forwardable() -> Vec<i32> {
    let kept = [
        "HUP", "ILL", "TRAP", "BUS", "FPE", "SEGV", "SYS", "ABRT", "TERM", "CHLD",
    ];
    let terminal = ["TSTP", "TTIN", "TTOU", "STKFLT"];
    let left_out: Vec<i32> = kept
        .iter()
        .chain(&terminal)
        .map(|name| signals::number(name))
        .collect();
    signals::catchable()
        .into_iter()
        .filter(|n| !left_out.contains(n))
        .collect()
}

#[test]
fn every_signal_reaches_the_server_once() {
    for options in [&[][..], &["--no-guard"]] {
        let mut run = treaper(options, "server:record", &["server"]);
        for (number, &signal) in forwardable().iter().enumerate() {
            run.signal(signal);
            let came = run.log.wait_for(number + 1, "server", "signal");
            assert_eq!(
                came[number].number("sig"),
                i64::from(signal),
                "{}",
                run.stderr()
            );
        }
        // A signal that came twice came before this one.
        run.signal(libc::SIGUSR1);
        run.log
            .wait_for(forwardable().len() + 1, "server", "signal");
        let mut all = run.received("server");
        all.pop();
        assert_eq!(all, forwardable());
    }
}

#[test]
fn signals_to_a_suspended_server_and_its_sigcont_arrive() {
    let mut run = treaper(&[], "server:record", &["server"]);
    let server = run.log.ready("server");
    sys::kill(server, libc::SIGSTOP).unwrap();
    run.signal(libc::SIGUSR1);
    run.signal(libc::SIGCONT);
    run.log.wait_for(2, "server", "signal");
    let mut all = run.received("server");
    all.sort_unstable();
    assert_eq!(all, [libc::SIGUSR1, libc::SIGCONT]);
}

#[test]
fn real_time_signals_are_queued_and_none_is_lost() {
    let mut run = treaper(&[], "server:queue", &["server"]);
    for value in 0..200 {
        let signal = signals::RTMIN + (value % 5) as i32;
        sys::queue(run.main, signal, value).unwrap();
    }
    run.log.wait_for(200, "server", "signal");
    // Sent after the others. When it has come, a signal that comes twice has come, too.
    run.signal(signals::RTMAX);
    let came = run.log.wait_for(201, "server", "signal");
    assert_eq!(came.len(), 201);
    assert_eq!(came[200].number("sig"), i64::from(signals::RTMAX));
    for step in 0..5 {
        let signal = i64::from(signals::RTMIN + step);
        assert_eq!(
            came.iter()
                .filter(|line| line.number("sig") == signal)
                .count(),
            40
        );
    }
}

#[test]
fn real_time_signals_arrive_in_the_order_in_which_they_were_sent() {
    for before in [
        &[][..],
        &[ACTOR, "faults", "pidfd_open=ENOSYS", "--"],
        &[ACTOR, "faults", "pidfd_send_signal=ENOSYS", "--"],
    ] {
        for options in [&[][..], &["--no-guard"]] {
            let mut words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
            words.extend(Wrap::Treaper(options).tree("server:queue"));
            let mut run = Scene::new().start(&words);
            run.log.ready("server");
            let treaper = run.shim();
            let sent: Vec<(i64, i64)> = (1..=200)
                .map(|value| {
                    if value % 2 == 0 {
                        sys::kill(treaper, signals::RTMIN).unwrap();
                        (libc::SI_USER.into(), 0)
                    } else {
                        sys::queue(treaper, signals::RTMIN, value).unwrap();
                        (libc::SI_QUEUE.into(), value as i64)
                    }
                })
                .collect();
            let came = run.log.wait_for(sent.len(), "server", "signal");
            // A plain signal has no value: these bytes are those of the sender.
            let came: Vec<(i64, i64)> = came
                .iter()
                .map(|line| (line.number("code"), line.number("value")))
                .map(|(code, value)| (code, if code == 0 { 0 } else { value }))
                .collect();
            assert_eq!(came, sent, "{before:?} {options:?}");
        }
    }
}

#[test]
fn only_the_server_gets_a_signal_by_default() {
    let mut run = treaper(&[], "server:record[worker:record]", &["server"]);
    run.log.ready("worker");
    run.signal(libc::SIGUSR1);
    run.log.wait("server", "signal");
    run.signal(libc::SIGUSR2);
    run.log.wait_for(2, "server", "signal");
    assert!(run.received("worker").is_empty());
}

#[test]
fn the_group_or_the_whole_tree_gets_a_signal_if_an_option_says_so() {
    let tree = "server:record[near:record,far:setsid:record,deep:daemon:record]";
    for (target, names) in [
        ("group", &["server", "near"][..]),
        ("tree", &["server", "near", "far", "deep"]),
    ] {
        let mut run = treaper(&["--forward-to", target], tree, &["server"]);
        for name in ["near", "far", "deep"] {
            run.log.ready(name);
        }
        run.signal(libc::SIGUSR1);
        for name in names {
            run.log.wait(name, "signal");
        }
        run.signal(libc::SIGUSR2);
        for name in names {
            run.log.wait_for(2, name, "signal");
        }
        for name in ["server", "near", "far", "deep"] {
            let expected: &[i32] = if names.contains(&name) {
                &[10, 12]
            } else {
                &[]
            };
            assert_eq!(run.received(name), expected, "{target}: {name}");
        }
    }
}

#[test]
fn the_group_of_a_server_that_has_exited_still_gets_a_signal() {
    if common::special::kernel() < (6, 9) {
        return common::skip(
            "before Linux 6.9 the group of a process that is gone cannot be signalled",
        );
    }
    for guard in [&[][..], &["--no-guard"]] {
        let options = [&["--until=tree", "--forward-to=group"], guard].concat();
        let mut run = treaper(
            &options,
            "server:exit=0[near:record,far:setsid:record]",
            &["near", "far"],
        );
        common::until("the end of the server", || run.named("server").is_empty());
        run.signal(libc::SIGUSR1);
        run.log.wait("near", "signal");
        assert_eq!(run.received("near"), [libc::SIGUSR1], "{guard:?}");
        assert!(run.received("far").is_empty(), "{guard:?}");
    }
}

#[test]
fn a_rewritten_signal_arrives_as_another_or_not_at_all() {
    let options = [
        "--rewrite",
        "USR1:USR2",
        "--rewrite",
        "SIGWINCH:0",
        "--rewrite",
        "34:35",
    ];
    let mut run = treaper(&options, "server:record", &["server"]);
    for (number, signal) in [libc::SIGUSR1, libc::SIGWINCH, 34, libc::SIGINT]
        .into_iter()
        .enumerate()
    {
        run.signal(signal);
        if signal != libc::SIGWINCH {
            run.log.wait_for([1, 1, 2, 3][number], "server", "signal");
        }
    }
    assert_eq!(run.received("server"), [libc::SIGUSR2, 35, libc::SIGINT]);
}

#[test]
fn a_forward_that_fails_ends_nothing() {
    // The server is gone. With `--until=tree`, treaper goes on after its end.
    let mut run = treaper(
        &["--until", "tree"],
        "server:exit=0[worker:setsid:record]",
        &["server"],
    );
    run.log.ready("worker");
    let server = run.log.ready("server");
    until("the end of the server", || Process::read(server).is_none());
    for signal in [libc::SIGUSR1, libc::SIGINT, 40] {
        run.signal(signal);
        assert!(!run.ends_within(Duration::from_millis(100)));
    }
    let worker = run.log.ready("worker");
    sys::kill(worker, libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().code(), Some(0));
}

#[test]
fn signals_that_were_blocked_by_the_host_are_forwarded_too() {
    let scene = Scene::new()
        .before_exec(|| _ = sys::mask(libc::SIG_BLOCK, &[libc::SIGUSR1, libc::SIGTERM]));
    let mut run = scene.start(&Wrap::Treaper(&["--grace", "200ms"]).tree("server:queue"));
    run.log.ready("server");
    run.signal(libc::SIGUSR1);
    assert_eq!(
        run.log.wait("server", "signal").number("sig"),
        i64::from(libc::SIGUSR1)
    );
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn with_vv_each_forwarded_or_dropped_signal_is_logged() {
    for guard in [&[][..], &["--no-guard"]] {
        let options = ["-vv", "--rewrite=WINCH:0", "--rewrite=USR2:INT"];
        let mut run = treaper(&[&options, guard].concat(), "server:record", &["server"]);
        for signal in [libc::SIGUSR1, libc::SIGWINCH, libc::SIGUSR2] {
            run.signal(signal);
        }
        for name in ["SIGUSR1", "SIGWINCH", "SIGINT"] {
            until(name, || run.stderr().contains(name));
        }
    }
}

#[test]
fn a_signal_reaches_the_server_without_the_monitor() {
    let mut run = treaper(&[], "server:queue", &["server"]);
    let _tracer = hold(run.monitor(), libc::SYS_ppoll);
    for value in 1..=3 {
        sys::queue(run.main, signals::RTMIN, value).unwrap();
        run.signal(libc::SIGUSR1);
        run.log.wait_for(2 * value, "server", "signal");
    }
}

#[test]
fn a_real_time_signal_does_not_overtake_one_that_had_to_go_through_the_monitor() {
    let mut run = treaper(&[], "server:queue", &["server"]);
    let (shim, monitor) = (run.main, run.monitor());
    until("a shim that waits", || is_quiet(shim));
    let tracer = hold(monitor, libc::SYS_ppoll);
    // Without a descriptor the shim cannot prove that the server's pid is its own.
    special::limit_of(shim, libc::RLIMIT_NOFILE, 0);
    sys::queue(shim, signals::RTMIN, 1).unwrap();
    until("a shim that waits", || is_quiet(shim));
    special::limit_of(shim, libc::RLIMIT_NOFILE, 64);
    sys::queue(shim, signals::RTMIN, 2).unwrap();
    until("a shim that waits", || is_quiet(shim));
    // Other signals have no order, so the shim sends them directly.
    run.signal(libc::SIGUSR1);
    run.log.wait("server", "signal");
    drop(tracer);
    let came = run.log.wait_for(3, "server", "signal");
    let signals: Vec<i64> = came.iter().map(|line| line.number("sig")).collect();
    let (usr1, first): (i64, i64) = (libc::SIGUSR1.into(), signals::RTMIN.into());
    assert_eq!(signals, [usr1, first, first]);
    let values = came[1..].iter().map(|line| line.number("value"));
    assert_eq!(values.collect::<Vec<i64>>(), [1, 2]);
}

/// What the pure decision gets of the options.
fn config(values: &[(&str, &str)]) -> Config {
    let variables = values.iter().map(|(n, v)| (n.into(), v.into()));
    cli::from_variables(&variables.collect::<Vec<_>>(), &["server".into()]).unwrap()
}

#[test]
fn options_and_rewrites_decide_what_a_signal_means() {
    use SignalUse::{Forward, Stop};
    let usr1 = Signal::parse("USR1").unwrap();
    let [terminate, hangup] = [Trigger::Terminate, Trigger::Hangup].map(Route::Trigger);
    let (plain, term) = (config(&[]), config(&[("TREAPER_TERM", "forward")]));
    let list = "USR1:TERM,TERM:USR1,HUP:0,CHLD:USR1";
    let rewrites = config(&[("TREAPER_REWRITE", list)]);
    for (signal, config, hup, expected) in [
        (Signal::TERM, &plain, Stop, terminate),
        (Signal::TERM, &plain, Forward, terminate),
        (Signal::TERM, &term, Stop, Route::Forward(Signal::TERM)),
        (Signal::HUP, &plain, Stop, hangup),
        (Signal::HUP, &plain, Forward, Route::Forward(Signal::HUP)),
        (usr1, &plain, Stop, Route::Forward(usr1)),
        (Signal::CHLD, &plain, Stop, Route::Child),
        // The new signal counts, and SIGCHLD is never rewritten.
        (usr1, &rewrites, Stop, terminate),
        (Signal::TERM, &rewrites, Stop, Route::Forward(usr1)),
        (Signal::HUP, &rewrites, Stop, Route::Drop),
        (Signal::CHLD, &rewrites, Stop, Route::Child),
    ] {
        let rules = Rules {
            config,
            hup,
            job_control: false,
            suspends_with_signals: false,
        };
        let (origin, value) = (Origin::Outside, None);
        let arrival = Arrival {
            signal,
            origin,
            value,
        };
        assert_eq!(rules.route(&arrival), expected, "{signal} {hup:?}");
    }
}

#[test]
fn the_processor_time_of_treaper_is_no_concern_of_the_server() {
    let config = config(&[]);
    let rules = Rules {
        config: &config,
        hup: SignalUse::Stop,
        job_control: false,
        suspends_with_signals: false,
    };
    for (origin, expected) in [
        (Origin::Kernel, Route::Drop),
        (Origin::Process(7), Route::Forward(Signal::XCPU)),
    ] {
        let (signal, value) = (Signal::XCPU, None);
        let arrival = Arrival {
            signal,
            origin,
            value,
        };
        assert_eq!(rules.route(&arrival), expected);
    }
}

#[test]
fn what_the_terminal_sends_to_the_job_is_neither_forwarded_nor_followed() {
    let config = config(&[]);
    let [usr1, stop] = ["USR1", "TSTP"].map(|name| Signal::parse(name).unwrap());
    for bits in 0..8 {
        let [job_control, from_terminal, suspends_with_signals] =
            [1, 2, 4].map(|bit| bits & bit != 0);
        let rules = Rules {
            config: &config,
            hup: SignalUse::Stop,
            job_control,
            suspends_with_signals,
        };
        let delivered = job_control && from_terminal;
        for signal in [Signal::INT, Signal::CONT, usr1, stop] {
            let arrival = Arrival {
                signal,
                value: None,
                origin: if from_terminal {
                    Origin::Terminal
                } else {
                    Origin::Outside
                },
            };
            let route = rules.route(&arrival);
            assert_eq!(route == Route::Delivered, delivered);
            assert_eq!(route == Route::Forward(signal), !delivered);
            let is_key = rules.is_interrupt_key(&arrival);
            assert_eq!(is_key, delivered && signal == Signal::INT);
            let suspends = rules.suspends_treaper(&arrival);
            let may_suspend = suspends_with_signals && !delivered;
            assert_eq!(suspends, may_suspend && signal == stop);
            let resumes = rules.is_resumption(&arrival);
            assert_eq!(resumes, job_control && signal == Signal::CONT);
        }
    }
}
