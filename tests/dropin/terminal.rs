//! On a terminal, under the names that give their command one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use crate::common::proc::state;
use crate::common::{ACTOR, Scene, special, until, until_state};
use crate::oracle::{both, treaper_as};

/// Everything that comes from the terminal until the run has ended.
fn read_all(master: &mut File) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_command_has_the_terminal() {
    for program in [both("tini"), both("dumb-init"), both("catatonit")].concat() {
        let (scene, master) = Scene::new().terminal();
        let mut master = File::from(master);
        let mut run = scene.start(&program.words(&["tac"]));
        master.write_all(b"1\n2\n3\n\x04\x04").unwrap();
        let text = read_all(&mut master);
        assert_eq!(run.wait().code(), Some(0));
        assert!(text.ends_with("3\r\n2\r\n1\r\n"), "{program:?}: {text}");
    }
}

/// dumb-init makes a session for its command. That has the terminal only if dumb-init leads its own session (a
/// container). Started from a shell, the command is without job control.
#[test]
fn a_shell_has_job_control() {
    for program in ["tini", "dumb-init", "catatonit"].map(treaper_as) {
        let (scene, master) = Scene::new().terminal();
        let mut master = File::from(master);
        let mut run = scene.start(&program.words(&["--", "bash", "--norc", "-m"]));
        master
            .write_all(b"echo \"flags: [[$-]]\"\nsleep 1000 &\nfg\n")
            .unwrap();
        // Ctrl-Z, once the job is in front.
        until("the job in front", || {
            let front = special::foreground_group(master.as_raw_fd());
            run.named("sleep").iter().any(|p| p.pgid == front)
        });
        master.write_all(b"\x1a").unwrap();
        until("a suspended job", || {
            run.named("sleep").iter().any(|p| p.state == 'T')
        });
        master.write_all(b"kill %1\nexit 4\nexit 4\n").unwrap();
        let text = read_all(&mut master);
        assert_eq!(run.wait().code(), Some(4), "{program:?}: {text}");
        let flags = text
            .split("[[")
            .last()
            .and_then(|rest| rest.split("]]").next());
        assert!(flags.is_some_and(|flags| flags.contains('m')), "{text}");
    }
}

/// With `--single-child`, a process can suspend dumb-init by a signal, whatever its child does with that signal. The
/// keyboard suspends both, since they are one job.
#[test]
fn dumb_init_is_suspended_by_a_process_at_a_terminal_as_well() {
    for program in both("dumb-init") {
        let (scene, _master) = Scene::new().terminal();
        let mut run = program.start_in(scene, &["-c"], "server:record");
        run.signal(libc::SIGTSTP);
        let signalled = run.log.wait("server", "signal");
        assert_eq!(
            signalled.number("sig"),
            i64::from(libc::SIGTSTP),
            "{program:?}"
        );
        until_state(&[run.main], 'T');
        assert_ne!(state(signalled.pid()), 'T', "{program:?}");
        run.signal(libc::SIGCONT);
        until("a dumb-init that goes on", || state(run.main) != 'T');
    }
}

/// As with `docker run -t`: PID 1 leads the session of the terminal. dumb-init gives the terminal to its command, and
/// treaper keeps it for both. Either way the kernel sends SIGWINCH to the command itself.
#[test]
fn a_rewrite_of_dumb_init_keeps_no_signal_of_the_terminal_from_the_command() {
    let (rewritten, winch, last) = (libc::SIGUSR1, libc::SIGWINCH, libc::SIGUSR2);
    for program in both("dumb-init") {
        for (options, twice) in [
            (&[][..], false),
            (&["-r", "28:0"], false),
            (&["-r", "28:10"], false),
            (&["-c", "-r", "28:0"], false),
            // dumb-init gets it as well, and forwards it. treaper takes it as delivered.
            (&["-c", "-r", "28:10"], !program.is_treaper),
        ] {
            let (master, slave) = special::pty();
            let scene = Scene::new().pidns().no_capture().with(|command| {
                command.stdin(slave.try_clone().unwrap());
                command.stdout(slave.try_clone().unwrap()).stderr(slave);
            });
            let words = [options, &["--", ACTOR, "tree", "server:record"]].concat();
            let words = [
                &["setsid".to_owned(), "-c".to_owned()],
                &*program.words(&words),
            ]
            .concat();
            let mut run = scene.start(&words).ready(&["server"]);
            special::set_window_size(master.as_raw_fd(), 33, 77);
            let mut expected = vec![winch, last];
            if twice {
                expected.push(rewritten);
            }
            run.log.wait_for(expected.len() - 1, "server", "signal");
            run.signal(last);
            run.log.wait_for(expected.len(), "server", "signal");
            let mut got = run.received("server");
            expected.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, expected, "{program:?} {options:?}");
        }
    }
}
