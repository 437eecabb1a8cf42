//! A delay at every system call, and in it an event.
//!
//! Each process of treaper is held before and after each of its system calls, by ptrace. While it is held, an event
//! comes: another process dies, a signal arrives, a key is pressed. So the event comes exactly in that window, however
//! short the window is. After 1, 20 or 300 ms the process is released, and is not traced any more.
//!
//! `tests/delays/run` plays every window with every event. The test here plays a part.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::large_stack_arrays,
    clippy::match_same_arms,
    clippy::similar_names,
    clippy::struct_excessive_bools,
    clippy::too_many_lines,
    reason = "a test, which says what it has played"
)]

mod common;
#[path = "delays/play.rs"]
mod play;
#[path = "delays/stages.rs"]
mod stages;
#[path = "delays/trace.rs"]
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use common::rng::Rng;
use common::scene::Directory;
use common::{family, place, proc, skip, sys};
use play::{Outcome, Play, Spec};
use stages::{EVENTS, Event, STAGES, Stage};
use trace::Window;

const HOLDS: [u64; 3] = [1, 20, 300];

/// A value that `tests/delays/run` sets.
fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Plays one run in a process of its own. Returns what that process has written.
fn in_a_process(act: impl FnOnce(&Directory) -> String) -> Option<String> {
    let directory = Directory::new();
    let (mut read, mut write) = sys::pipe().unwrap();
    let pid = sys::fork();
    if pid == 0 {
        drop(read);
        let text = act(&directory);
        write.write_all(text.as_bytes()).unwrap();
        sys::exit(0);
    }
    drop(write);
    let mut text = Vec::new();
    let end = Instant::now() + Duration::from_secs(90);
    let mut buffer = [0; 65536];
    loop {
        if sys::poll(&[(read.as_raw_fd(), libc::POLLIN)], Some(end))[0] == 0 {
            break;
        }
        match read.read(&mut buffer) {
            Ok(n @ 1..) => text.extend_from_slice(&buffer[..n]),
            _ => break,
        }
    }
    // This process is the first one of a PID namespace: nothing of the run may outlive it.
    loop {
        let others: Vec<_> = proc::all()
            .into_iter()
            .filter(|p| p.pid != sys::getpid())
            .collect();
        while let sys::Waited::Status(..) = sys::wait(libc::WNOHANG) {}
        if others.iter().all(|p| !p.is_alive()) {
            break;
        }
        for process in &others {
            process.kill();
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty())
}

fn enter(stage: &Stage, place: Option<&place::Place>) {
    if let Some(place) = place.filter(|_| stage.has("cgroup")) {
        std::fs::write(place.0.join("cgroup.procs"), "0").unwrap();
    }
}

/// Every window of the stage. A few runs, since not each run makes the same calls.
fn windows(stage: &'static Stage, place: Option<&place::Place>) -> BTreeSet<Window> {
    let spec = Spec { stage, at: None };
    let mut found = BTreeSet::new();
    for _ in 0..3 {
        let recorded = in_a_process(|directory| {
            enter(stage, place);
            let mut play = Play::start(&spec, &directory.0);
            let outcome = play.run();
            if matches!(outcome, Outcome::Wrong(_)) {
                return format!("{outcome:?}\n");
            }
            let line = |w: &Window| format!("{} {} {} {}\n", w.process, w.call, w.count, w.after);
            play.windows.iter().map(line).collect()
        });
        for line in recorded.expect("a recording").lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [process, call, count, after] = words[..] else {
                panic!("{}: {line}", stage.name);
            };
            found.insert(Window {
                process: process.to_owned(),
                call: call.parse().unwrap(),
                count: count.parse().unwrap(),
                after: after.parse().unwrap(),
            });
        }
    }
    found
}

fn play(spec: &Spec, place: Option<&place::Place>) -> Outcome {
    let text = in_a_process(|directory| {
        enter(spec.stage, place);
        match Play::start(spec, &directory.0).run() {
            Outcome::Right => "right".to_owned(),
            Outcome::Missed => "missed".to_owned(),
            Outcome::NoTarget => "no-target".to_owned(),
            Outcome::Wrong(what) => what.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    });
    match text.as_deref() {
        Some("right") => Outcome::Right,
        Some("missed") => Outcome::Missed,
        Some("no-target") => Outcome::NoTarget,
        Some(what) => Outcome::Wrong(what.to_owned()),
        None => Outcome::Wrong("the player failed".to_owned()),
    }
}

fn name(spec: &Spec) -> String {
    let (window, event, hold) = spec.at.as_ref().unwrap();
    format!(
        "{} {window} {event:?} {}",
        spec.stage.name,
        hold.as_millis()
    )
}

/// Of all windows with all events: those of this shard, or the sample.
fn chosen(stage: &'static Stage, windows: &BTreeSet<Window>, random: &mut Rng) -> Vec<Spec> {
    let events: Vec<Event> = EVENTS
        .into_iter()
        .filter(|event| event.fits(stage))
        .collect();
    let spec = |window: &Window, event, hold| Spec {
        stage,
        at: Some((window.clone(), event, Duration::from_millis(hold))),
    };
    if given("DELAYS_SAMPLE").is_some() {
        // Each call of each process once on either side, and the events in turn.
        let mut classes: BTreeMap<(&str, u64, bool), Vec<&Window>> = BTreeMap::new();
        for window in windows {
            let class = (&*window.process, window.call, window.after);
            classes.entry(class).or_default().push(window);
        }
        let first = random.below(events.len() as u64) as usize;
        let pick = |(at, class): (usize, Vec<&Window>)| {
            let window = class[random.below(class.len() as u64) as usize];
            let event = events[(first + at) % events.len()];
            spec(
                window,
                event,
                HOLDS[usize::from(event.is_key() || random.percent(50))],
            )
        };
        return classes.into_values().enumerate().map(pick).collect();
    }
    let mut all = Vec::new();
    for window in windows {
        for event in &events {
            for hold in HOLDS {
                all.push(spec(window, *event, hold));
            }
        }
    }
    all
}

/// The shard of a run, from its name: it does not depend on what else is played.
fn hash(text: &str) -> u64 {
    let fold = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Whether the first word is the stage of the run, and all others are in its name.
fn matches(wanted: &str, name: &str) -> bool {
    let mut words = wanted.split(' ');
    words.next() == name.split(' ').next() && words.all(|word| name.contains(word))
}

#[test]
#[ignore = "the first process of a PID namespace, started by the other tests and by tests/delays/run"]
fn inside() {
    let number = |name, or: u64| given(name).map_or(or, |text| text.parse().unwrap());
    let (shard, shards) = (number("DELAYS_SHARD", 0), number("DELAYS_SHARDS", 1));
    let limit = Duration::from_secs(number("DELAYS_LIMIT", 1 << 30));
    let holds = given("DELAYS_HOLDS");
    let seed = number("DELAYS_SEED", 1);
    let only = given("DELAYS_ONLY").unwrap_or_default();
    let list = given("DELAYS_LIST");
    let out = given("DELAYS_OUT");
    let done = out
        .as_ref()
        .and_then(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_default();
    let done: BTreeSet<&str> = done
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    let mut out = out.map(|path| {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap()
    });
    let place = place::Place::new();
    let mut specs = Vec::new();
    for stage in STAGES {
        if !only.is_empty()
            && !only
                .split(',')
                .any(|word| word.split(' ').next() == Some(stage.name))
        {
            continue;
        }
        if let Some(why) = stage.missing() {
            skip(&format!("{}: {why}", stage.name));
            continue;
        }
        let windows = windows(stage, place.as_ref());
        println!("{}: {} windows", stage.name, windows.len());
        let mut random = Rng::new(seed ^ hash(stage.name));
        specs.extend(chosen(stage, &windows, &mut random));
    }
    let is_chosen = |spec: &Spec| {
        let name = name(spec);
        let hold = spec.at.as_ref().unwrap().2.as_millis().to_string();
        hash(&name) % shards == shard
            && holds
                .as_ref()
                .is_none_or(|list| list.split(',').any(|one| one == hold))
            && (only.is_empty() || only.split(',').any(|one| matches(one, &name)))
            && !done.contains(&*name)
    };
    specs.retain(is_chosen);
    // In an order of its own, so that a run which is ended early has played a part of everything.
    specs.sort_by_key(|spec| hash(&format!("{seed} {}", name(spec))));
    if list.is_some() {
        for spec in &specs {
            println!("{}", name(spec));
        }
    }
    let begin = Instant::now();
    let mut counts = [0; 4];
    for spec in specs.iter().filter(|_| list.is_none()) {
        if begin.elapsed() > limit {
            break;
        }
        let mut outcome = play(spec, place.as_ref());
        if let Outcome::Wrong(what) = &outcome {
            // On a busy machine a run can be late. A defect comes again.
            let again: Vec<_> = (0..2).map(|_| play(spec, place.as_ref())).collect();
            let repeated = again
                .iter()
                .filter(|o| matches!(o, Outcome::Wrong(_)))
                .count();
            let late = what.starts_with("late");
            println!("{}: {what} ({repeated} of 2 again)", name(spec));
            if late && repeated == 0 {
                outcome = Outcome::Right;
            }
        }
        let (at, text) = match &outcome {
            Outcome::Right => (0, "right"),
            Outcome::Missed => (1, "missed"),
            Outcome::NoTarget => (2, "no target"),
            Outcome::Wrong(what) => (3, &**what),
        };
        counts[at] += 1;
        if let Some(out) = &mut out {
            writeln!(out, "{}\t{text}", name(spec)).unwrap();
        }
    }
    let [right, missed, targetless, wrong] = counts;
    let seconds = begin.elapsed().as_secs();
    println!(
        "{right} right, {missed} missed, {targetless} without target, {wrong} wrong, {seconds} s"
    );
    assert_eq!(wrong, 0);
}

/// Plays a sample of these stages: each call of each process on either side, and the events in turn.
fn sample(stages: &str) {
    for (name, value) in [
        ("DELAYS_SAMPLE", "1"),
        ("DELAYS_ONLY", stages),
        ("DELAYS_LIMIT", "80"),
    ] {
        trace::set_variable(name, std::path::Path::new(value));
    }
    family::play("inside");
}

/// The other stages are played by `tests/delays/run`. One test, since the variables are those of the process.
#[test]
#[ignore = "on a busy machine some stages miss their short deadlines"]
fn a_sample_of_windows_with_each_event() {
    sample("obstinate,obedient,alone,cgroup");
    sample("relay,courier,pidns,terminal");
}
