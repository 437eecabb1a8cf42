//! One run of a stage. The player is the parent of everything: the tracer, the shell of the job, and the process that
//! adopts what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::common::log::Log;
use super::common::proc::{self, Process};
use super::common::sys::{self, Waited};
use super::common::{ACTOR, TREAPER, special};
use super::stages::{By, Event, Stage, Step};
use super::trace::{self, Go, Window};

/// Longer than any run takes on a busy machine, in seconds.
const LONGEST: u64 = 40;
/// A stop of a stage takes less than 0.2 s. A run that takes this long has missed something, and was ended by a later
/// deadline.
pub const LATE: Duration = Duration::from_secs(4);
const JOB_STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// What is played: the event comes while the process is held in the window, and the process is released after `hold`.
#[derive(Clone, Debug)]
pub struct Spec {
    pub stage: &'static Stage,
    pub at: Option<(Window, Event, Duration)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The event came in the window, and all was right.
    Right,
    /// All was right, but the process has not made this call in this run.
    Missed,
    /// The process was held, but there was no process to which the event could happen.
    NoTarget,
    Wrong(String),
}

/// A process that is traced.
struct Traced {
    /// `None` until the parent has reported its fork. Until then it stays in its first stop.
    path: Option<String>,
    forks: usize,
    /// The calls that it has made since treaper's own first one.
    counts: BTreeMap<u64, usize>,
    begun: bool,
    last: u64,
}

/// A process in its window.
struct Held {
    pid: i32,
    since: Instant,
    acts: Vec<(Duration, Act)>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Kill(i32, i32),
    CtrlZ,
    Foreground,
    CloseTerminal,
    Write,
    ReuseNumbers,
}

pub struct Play<'a> {
    spec: &'a Spec,
    directory: &'a Path,
    log: Log,
    traced: BTreeMap<i32, Traced>,
    /// Those of them that job control has suspended.
    suspended: BTreeSet<i32>,
    /// Every window of this run, if none is played.
    pub windows: Vec<Window>,
    held: Option<Held>,
    outcome: Outcome,
    host: i32,
    /// The process that the host has started: the shim, or the relay in front of it.
    shim: i32,
    shim_fd: Option<OwnedFd>,
    shim_killed: bool,
    shim_ended: bool,
    status: Option<i32>,
    bystanders: Vec<i32>,
    /// All pids that the tree has had.
    numbers: BTreeSet<i32>,
    terminal: Option<OwnedFd>,
    stdout: Option<File>,
    writers: Vec<UnixStream>,
    step: usize,
    begun: bool,
    /// The script has ended, or an event has ended it.
    over: bool,
    /// A reason to stop has come.
    stopping: bool,
    was_ready: bool,
    /// What the last key asks for: whether the job has to be suspended.
    want: Option<bool>,
    released: Option<Instant>,
}

impl<'a> Play<'a> {
    /// Starts the stage, in a process that does nothing else.
    pub fn start(spec: &'a Spec, directory: &'a Path) -> Self {
        sys::subreaper();
        sys::setsid();
        let log = Log::new(directory);
        let terminal = spec.stage.is_terminal().then(special::pty);
        let mask = sys::mask(
            libc::SIG_BLOCK,
            &[libc::SIGCHLD, libc::SIGHUP, libc::SIGTTOU],
        );
        let mut play = Self {
            spec,
            directory,
            log,
            traced: BTreeMap::new(),
            suspended: BTreeSet::new(),
            windows: Vec::new(),
            held: None,
            outcome: Outcome::Missed,
            host: 0,
            shim: 0,
            shim_fd: None,
            shim_killed: false,
            shim_ended: false,
            status: None,
            bystanders: Vec::new(),
            numbers: BTreeSet::new(),
            terminal: None,
            stdout: None,
            writers: Vec::new(),
            step: 0,
            begun: false,
            over: false,
            stopping: false,
            was_ready: false,
            want: None,
            released: None,
        };
        let command = play.command();
        let (mut gate, opener) = sys::pipe().unwrap();
        let (out, out_write) = sys::pipe().unwrap();
        let errors = File::create(directory.join("stderr")).unwrap();
        let file = spec.stage.by == By::HostWithFile;
        let bystander = special::shared_counter(0);
        if let Some((_, slave)) = &terminal {
            special::take_terminal(slave.as_raw_fd()).unwrap();
        }
        let main = sys::fork();
        if main == 0 {
            drop(opener);
            if terminal.is_none() {
                // A sibling of the shim.
                let pid = sys::fork();
                if pid == 0 {
                    stand_by();
                }
                bystander.store(pid.into(), SeqCst);
            }
            let _ = gate.read(&mut [0]);
            if let Some((_, slave)) = &terminal {
                for fd in 0..3 {
                    sys::dup2(slave.as_raw_fd(), fd);
                }
                special::foreground_job(0);
            } else {
                let stdin = File::open("/dev/null").unwrap();
                let stdout = if file {
                    File::create(directory.join("stdout")).unwrap()
                } else {
                    out_write
                };
                sys::dup2(stdin.as_raw_fd(), 0);
                sys::dup2(stdout.as_raw_fd(), 1);
                sys::dup2(errors.as_raw_fd(), 2);
            }
            trace::set_variable("ACTOR_LOG", &directory.join("log"));
            sys::restore_mask(&mask);
            let error = sys::exec(&command);
            eprintln!("cannot run {}: {error}", command[0]);
            sys::exit(127);
        }
        drop((gate, out_write));
        sys::set_nonblocking(out.as_raw_fd());
        play.stdout = Some(out);
        play.host = main;
        play.terminal = terminal.map(|(master, _)| master);
        if play.terminal.is_some() {
            // Another process of the job, as in a pipeline.
            let pid = sys::fork();
            if pid == 0 {
                sys::close_range(0, i32::MAX);
                trace::join_group(main);
                stand_by();
            }
            bystander.store(pid.into(), SeqCst);
        }
        // Before the tracer is there, which would also trace it.
        while bystander.load(SeqCst) == 0 {
            sys::pause_for(Duration::from_micros(100));
        }
        trace::seize(main);
        let traced = play.traced.entry(main).or_insert_with(unknown);
        traced.path = Some("h".to_owned());
        drop(opener);
        play.bystanders.push(bystander.load(SeqCst) as i32);
        play
    }

    fn command(&self) -> Vec<String> {
        let stage = self.spec.stage;
        let socket = self.directory.join("socket");
        let options = stage
            .options
            .iter()
            .map(|option| option.replace("SOCKET", socket.to_str().unwrap()));
        let host: &[&str] = match stage.by {
            By::Host | By::HostWithFile => {
                &[ACTOR, "host", "--stdin", "pipe", "--own-session", "--"]
            }
            By::Terminal => &[],
        };
        let mut words: Vec<String> = host.iter().map(|&word| word.to_owned()).collect();
        words.push(TREAPER.to_owned());
        words.extend(options);
        words.extend(["--", ACTOR, "tree", stage.tree].map(str::to_owned));
        words
    }

    /// Plays it to its end.
    pub fn run(&mut self) -> Outcome {
        let longest =
            std::env::var("DELAYS_PATIENCE").map_or(LONGEST, |text| text.parse().unwrap());
        let end = Instant::now() + Duration::from_secs(longest);
        let signals = sys::signalfd(&[libc::SIGCHLD]);
        loop {
            while sys::read_signalfd(&signals).is_some() {}
            self.reap();
            self.drain();
            self.act();
            if self.held.is_none() {
                self.look_at_shim();
                self.follow();
            }
            if self.wrong() || self.is_empty() {
                break;
            }
            if Instant::now() > end {
                let states = self.states();
                self.fail(&format!("a hang: {states}"));
                break;
            }
            // A state of a process that is no child has no event, so the player looks again soon.
            let soon = Instant::now() + Duration::from_millis(if self.shim_ended { 1 } else { 3 });
            let next = self.next_act().map_or(soon, |at| at.min(soon));
            sys::poll(&[(signals.as_raw_fd(), libc::POLLIN)], Some(next));
        }
        self.judge();
        self.outcome.clone()
    }

    fn fail(&mut self, what: &str) {
        if !self.wrong() {
            self.outcome = Outcome::Wrong(what.to_owned());
        }
    }

    fn wrong(&self) -> bool {
        matches!(self.outcome, Outcome::Wrong(_))
    }

    // The tracer.

    fn reap(&mut self) {
        while let Waited::Status(pid, status) = sys::wait(libc::WNOHANG | libc::WUNTRACED) {
            if libc::WIFSTOPPED(status) && !self.traced.contains_key(&pid) && status >> 16 == 0 {
                // A shell would say that the job is suspended. It did not exist when `fg` began.
                if pid == self.shim && self.want == Some(false) && !self.over {
                    self.fail("suspended again after fg");
                }
                continue;
            }
            if libc::WIFSTOPPED(status) {
                self.on_stop(pid, status);
                continue;
            }
            self.traced.remove(&pid);
            if self.held.as_ref().is_some_and(|held| held.pid == pid) {
                // The rest of the event still comes.
                self.held.as_mut().unwrap().pid = 0;
            }
            if self.bystanders.contains(&pid) {
                self.fail("a bystander was killed");
            }
            if pid == self.shim {
                self.status = Some(status);
            }
        }
    }

    fn on_stop(&mut self, pid: i32, status: i32) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let known = self.traced.entry(pid).or_insert_with(unknown);
        let has_path = known.path.is_some();
        self.suspended.remove(&pid);
        match event {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.on_fork(pid, trace::forked(pid));
            }
            libc::PTRACE_EVENT_EXEC => self.on_exec(pid),
            libc::PTRACE_EVENT_STOP if JOB_STOPS.contains(&signal) => {
                self.suspended.insert(pid);
                trace::go(pid, Go::Listen, 0);
            }
            libc::PTRACE_EVENT_STOP if !has_path => {}
            _ if signal == libc::SIGTRAP | 0x80 => self.on_call(pid),
            libc::PTRACE_EVENT_STOP => self.resume(pid, 0),
            _ => self.resume(pid, signal),
        }
    }

    fn is_wanted(&self, path: &str) -> bool {
        let window = self.spec.at.as_ref().map(|(window, ..)| &window.process);
        window.is_none_or(|wanted| wanted == path)
    }

    fn resume(&self, pid: i32, signal: i32) {
        let path = self.traced[&pid].path.as_deref().unwrap_or_default();
        let leads = |window: &Window| window.process.starts_with(&format!("{path}."));
        let go = match &self.spec.at {
            _ if path == "h" => Go::On,
            _ if self.is_wanted(path) => Go::ToCall,
            Some((window, ..)) if leads(window) => Go::On,
            _ => Go::Free,
        };
        trace::go(pid, go, signal);
    }

    fn on_fork(&mut self, parent: i32, child: i32) {
        let known = self.traced.get_mut(&parent).unwrap();
        known.forks += 1;
        let path = format!("{}.{}", known.path.as_deref().unwrap(), known.forks);
        let by_host = path.starts_with("h.");
        let target = self.spec.at.as_ref().map(|(window, ..)| &*window.process);
        // The process that was to be found is born, so its parent is not needed any more.
        let go = if by_host || target == Some(&*path) {
            Go::Free
        } else if self.is_wanted(path.rsplit_once('.').unwrap().0) {
            Go::ToCall
        } else {
            Go::On
        };
        trace::go(parent, go, 0);
        // If it is here already, it waits in its first stop.
        let waits = self.traced.contains_key(&child);
        let new = self.traced.entry(child).or_insert_with(unknown);
        new.begun = !by_host;
        new.path = Some(if by_host { "h".to_owned() } else { path });
        if waits {
            self.resume(child, 0);
        }
    }

    fn on_exec(&mut self, pid: i32) {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let known = self.traced.get_mut(&pid).unwrap();
        if program == Path::new(TREAPER) {
            known.path = Some("s".to_owned());
            self.shim = pid;
            self.shim_fd = sys::pidfd(pid).ok();
            self.begun = true;
            self.resume(pid, 0);
        } else if known.path.as_deref() == Some("h") {
            trace::go(pid, Go::On, 0);
        } else {
            // The server.
            trace::go(pid, Go::Free, 0);
        }
    }

    fn on_call(&mut self, pid: i32) {
        let entered = special::entered_call(pid);
        let known = self.traced.get_mut(&pid).unwrap();
        if let Some(call) = entered {
            // The first call of treaper itself. Those of the loader are not counted.
            known.begun |= call == libc::SYS_rt_sigprocmask as u64;
            known.last = call;
            if known.begun {
                *known.counts.entry(call).or_default() += 1;
            }
        }
        if !known.begun {
            return trace::go(pid, Go::ToCall, 0);
        }
        let window = Window {
            process: known.path.clone().unwrap(),
            call: known.last,
            count: known.counts.get(&known.last).copied().unwrap_or(0),
            after: entered.is_none(),
        };
        match &self.spec.at {
            Some((wanted, event, _)) if *wanted == window => self.hold(pid, *event),
            at => {
                let records = at.is_none();
                if records && window.count > 0 {
                    self.windows.push(window);
                }
                trace::go(pid, Go::ToCall, 0);
            }
        }
    }

    // The event.

    fn hold(&mut self, pid: i32, event: Event) {
        self.drain();
        self.learn_numbers();
        let acts = if self.is_known_gap(event) {
            Vec::new()
        } else {
            self.acts(event)
        };
        self.outcome = if acts.is_empty() {
            Outcome::NoTarget
        } else {
            self.over |= event.ends();
            Outcome::Right
        };
        self.held = Some(Held {
            pid,
            since: Instant::now(),
            acts,
        });
    }

    /// What this tool has found and is not repaired, so it is not played. A terminal that has hung up before treaper
    /// looks at its stdin is not seen as a terminal.
    fn is_known_gap(&self, event: Event) -> bool {
        !self.was_ready && event == Event::HangUp
    }

    fn acts(&mut self, event: Event) -> Vec<(Duration, Act)> {
        let hold = self.spec.at.as_ref().unwrap().2;
        let (none, shim) = (Duration::ZERO, Some(self.shim).filter(|_| !self.shim_ended));
        let kill = |pid: Option<i32>, signal| {
            let act = pid
                .filter(|pid| *pid > 1)
                .map(|pid| (none, Act::Kill(pid, signal)));
            act.into_iter().collect::<Vec<_>>()
        };
        match event {
            Event::HostDies => kill(Some(self.host), libc::SIGKILL),
            Event::ShimDies => {
                self.shim_killed = shim.is_some();
                let behind = self.relay().and_then(|relay| self.child_of(relay));
                kill(behind.or(shim), libc::SIGKILL)
            }
            Event::MonitorDies => kill(self.monitor(), libc::SIGKILL),
            Event::ServerDies => kill(self.server(), libc::SIGKILL),
            Event::RelayDies => {
                self.shim_killed = shim.is_some();
                kill(self.relay(), libc::SIGKILL)
            }
            Event::Terminate => kill(shim, libc::SIGTERM),
            Event::EndOfInput => {
                let is_up = !self.log.all("host", "spawned").is_empty();
                kill(Some(self.host).filter(|_| is_up), libc::SIGUSR1)
            }
            Event::ServerExits => kill(self.server().filter(|_| self.was_ready), libc::SIGUSR1),
            // The script waits for that child.
            Event::Orphan if !self.are_ready(&["z"]) => Vec::new(),
            Event::Orphan => kill(self.named("d"), libc::SIGKILL),
            Event::NumbersReused if !self.was_ready => Vec::new(),
            Event::NumbersReused => {
                let mut acts = kill(self.named("y"), libc::SIGKILL);
                if !self.numbers.is_empty() {
                    // The kernel frees the number of the process in the meantime.
                    acts.push((hold / 2, Act::ReuseNumbers));
                }
                acts
            }
            // The others may have done something before the key.
            Event::Suspend => vec![(hold / 2, Act::CtrlZ)],
            Event::SuspendResume => vec![(none, Act::CtrlZ), (hold / 2, Act::Foreground)],
            Event::SuspendTwice => vec![
                (none, Act::CtrlZ),
                (hold / 3, Act::Foreground),
                (hold * 2 / 3, Act::CtrlZ),
            ],
            Event::ResumeSuspend => vec![(none, Act::Foreground), (hold / 2, Act::CtrlZ)],
            Event::HangUp => vec![(none, Act::CloseTerminal)],
            Event::MonitorSuspended => kill(self.monitor(), libc::SIGSTOP),
            // Nothing else resumes the process that the host knows.
            Event::RelaySuspended => {
                let resumed = self
                    .relay()
                    .map(|pid| (hold / 2, Act::Kill(pid, libc::SIGCONT)));
                let mut acts = kill(self.relay(), libc::SIGSTOP);
                acts.extend(resumed);
                acts
            }
            // A monitor that ends meanwhile could not resume the shim.
            Event::PairSuspended if self.stopping => Vec::new(),
            Event::PairSuspended => match (shim, self.monitor()) {
                (Some(shim), Some(monitor)) => vec![
                    (none, Act::Kill(shim, libc::SIGSTOP)),
                    (none, Act::Kill(monitor, libc::SIGSTOP)),
                    (hold / 2, Act::Kill(monitor, libc::SIGCONT)),
                ],
                _ => Vec::new(),
            },
            Event::Writer => {
                let there = self.directory.join("socket").exists();
                let act = there.then_some((none, Act::Write));
                act.into_iter().collect()
            }
        }
    }

    fn next_act(&self) -> Option<Instant> {
        let held = self.held.as_ref()?;
        let hold = self.spec.at.as_ref().unwrap().2;
        Some(held.since + held.acts.first().map_or(hold, |(at, _)| *at))
    }

    /// Does what is due of the event. Then the process is released.
    fn act(&mut self) {
        while let Some(at) = self.next_act() {
            if Instant::now() < at {
                return;
            }
            let held = self.held.as_mut().unwrap();
            if held.acts.is_empty() {
                let pid = held.pid;
                if pid != 0 {
                    trace::go(pid, Go::Free, 0);
                    self.traced.remove(&pid);
                }
                self.held = None;
                self.released = Some(Instant::now());
                let event = self.spec.at.as_ref().unwrap().1;
                let resumes = matches!(
                    event,
                    Event::MonitorSuspended | Event::RelaySuspended | Event::PairSuspended
                );
                if resumes && self.want.is_none() && self.outcome == Outcome::Right {
                    self.want = Some(false);
                }
                return;
            }
            let (_, act) = held.acts.remove(0);
            self.perform(act);
        }
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Kill(pid, signal) => drop(sys::kill(pid, signal)),
            Act::CtrlZ => {
                // The terminal sends the signal a little later. The bystander of the job gets it as well, but if it has
                // one already, a second one is not seen.
                let signalled = || {
                    let set = proc::status(self.bystanders[0], "ShdPnd").unwrap_or_default();
                    u64::from_str_radix(&set, 16)
                        .is_ok_and(|set| set >> (libc::SIGTSTP - 1) & 1 == 1)
                };
                let unseen = signalled();
                let master = self.terminal.as_ref().unwrap().try_clone().unwrap();
                File::from(master).write_all(&[26]).unwrap();
                if unseen {
                    sys::pause_for(Duration::from_millis(20));
                }
                let end = Instant::now() + Duration::from_secs(5);
                while !signalled() && Instant::now() < end {
                    sys::pause_for(Duration::from_micros(100));
                }
                self.want = Some(true);
            }
            Act::Foreground => {
                trace::signal_group(self.shim, libc::SIGCONT);
                self.want = Some(false);
            }
            Act::CloseTerminal => self.terminal = None,
            Act::Write => {
                if let Ok(mut writer) = UnixStream::connect(self.directory.join("socket")) {
                    let _ = writer.write_all(b"{\"method\":\"hello\"}\n");
                    let _ = writer.shutdown(std::net::Shutdown::Write);
                    writer.set_nonblocking(true).unwrap();
                    self.writers.push(writer);
                }
            }
            Act::ReuseNumbers => self.reuse_numbers(),
        }
    }

    /// Makes bystanders of the numbers that were those of the tree.
    fn reuse_numbers(&mut self) {
        let free = |pid: &&i32| sys::kill(**pid, 0).is_err();
        let numbers: Vec<i32> = self.numbers.iter().filter(free).copied().collect();
        let mut reused = 0;
        for number in numbers {
            let last = (number - 1).to_string();
            if std::fs::write("/proc/sys/kernel/ns_last_pid", last).is_err() {
                break;
            }
            let pid = sys::fork();
            if pid == 0 {
                stand_by();
            }
            self.bystanders.push(pid);
            reused += usize::from(pid == number);
        }
        if reused == 0 {
            self.outcome = Outcome::NoTarget;
        }
    }

    // The script.

    /// Does what the script says next, if its time has come.
    fn follow(&mut self) {
        if !self.begun || self.shim_ended {
            return;
        }
        if self.want.is_some() && !self.over && !self.stopping {
            self.obey_keys();
            return;
        }
        self.want = None;
        if self.over {
            self.resume_for_signal();
            return;
        }
        let Some(step) = self.spec.stage.script.get(self.step).copied() else {
            return;
        };
        match step {
            Step::Ready(names) => {
                if !self.are_ready(names) {
                    return;
                }
                self.learn_numbers();
            }
            Step::Kill(name) => {
                let Some(pid) = self.named(name) else {
                    return self.fail(&format!("{name} is gone: {}", self.states()));
                };
                let _ = sys::kill(pid, libc::SIGKILL);
            }
            Step::Signal(signal) => {
                self.stopping |= signal == libc::SIGTERM;
                let _ = sys::kill(self.shim, signal);
            }
            Step::CloseStdin => {
                self.stopping = true;
                let _ = sys::kill(self.host, libc::SIGUSR1);
            }
            Step::Suspend => self.perform(Act::CtrlZ),
            Step::Resume => self.perform(Act::Foreground),
            Step::Write => {
                if self.writers.is_empty() {
                    self.perform(Act::Write);
                }
                let wrote = self
                    .writers
                    .iter()
                    .any(|w| answer(w).is_some_and(|a| a == "ok\n"));
                if !wrote {
                    return;
                }
            }
        }
        self.step += 1;
    }

    /// A signal to a suspended job waits until a shell resumes the job, also without treaper.
    fn resume_for_signal(&mut self) {
        let event = self.spec.at.as_ref().map(|at| at.1);
        let waits = match event {
            Some(Event::Terminate | Event::ServerExits) => true,
            // The one process of treaper is suspended, so it does not see that. A shell resumes its jobs when it ends.
            Some(Event::ServerDies | Event::HangUp) => self.spec.stage.has("no-guard"),
            _ => false,
        };
        if waits && self.spec.stage.is_terminal() && self.settled() && proc::state(self.shim) == 'T'
        {
            trace::signal_group(self.shim, libc::SIGCONT);
        }
    }

    fn are_ready(&mut self, names: &[&str]) -> bool {
        names
            .iter()
            .all(|name| !self.log.all(name, "ready").is_empty())
    }

    /// What the last key has asked for has to come, and to stay.
    fn obey_keys(&mut self) {
        let suspended = self.want == Some(true);
        let Some(&Step::Ready(names)) = self.spec.stage.script.first() else {
            return;
        };
        if !suspended && !self.are_ready(names) || !self.settled() {
            return;
        }
        let mut members = vec![Some(self.shim), self.server()];
        if !suspended {
            members.extend([self.monitor(), self.relay()]);
        }
        let states: Vec<char> = members
            .into_iter()
            .flatten()
            .map(|pid| self.state(pid))
            .collect();
        let is_stopped = |state: &char| *state == 'T';
        if suspended && !states.iter().all(is_stopped)
            || !suspended && states.iter().any(is_stopped)
        {
            return;
        }
        self.want = None;
        // A suspension by the script ends by its next step.
        if suspended && self.spec.stage.script.get(self.step) != Some(&Step::Resume) {
            self.perform(Act::Foreground);
        }
    }

    /// Its state without the tracer.
    fn state(&self, pid: i32) -> char {
        match proc::state(pid) {
            't' if self.suspended.contains(&pid) => 'T',
            state => state,
        }
    }

    /// Whether no process of treaper does anything, or is about to.
    fn settled(&self) -> bool {
        let members: Vec<i32> = [Some(self.shim), self.monitor(), self.server()]
            .into_iter()
            .flatten()
            .collect();
        let rests = |pid: &i32| {
            let pending =
                |key| proc::status(*pid, key).is_none_or(|set| set.bytes().all(|b| b == b'0'));
            match self.state(*pid) {
                'T' => true,
                'S' => pending("ShdPnd") && pending("SigPnd"),
                _ => false,
            }
        };
        let switches = || members.iter().map(|pid| switches(*pid)).collect::<Vec<_>>();
        let before = switches();
        members.iter().all(rests) && members.iter().all(rests) && before == switches()
    }

    // What is there.

    fn drain(&mut self) {
        self.was_ready = !self.log.all("server", "ready").is_empty();
        let mut buffer = [0; 4096];
        if let Some(stdout) = &mut self.stdout {
            while let Ok(1..) = stdout.read(&mut buffer) {}
        }
        if let Some(master) = &self.terminal {
            // What is echoed.
            let mut file = File::from(master.try_clone().unwrap());
            let readable =
                || sys::poll(&[(master.as_raw_fd(), libc::POLLIN)], Some(Instant::now()));
            while readable()[0] & libc::POLLIN != 0 && file.read(&mut buffer).is_ok_and(|n| n > 0) {
            }
        }
    }

    fn all(&self) -> Vec<Process> {
        let apart = |p: &Process| self.bystanders.contains(&p.pid);
        let found = proc::descendants(sys::getpid());
        found.into_iter().filter(|p| !apart(p)).collect()
    }

    fn named(&self, comm: &str) -> Option<i32> {
        self.all().iter().find(|p| p.comm == comm).map(|p| p.pid)
    }

    fn monitor(&self) -> Option<i32> {
        let shim = self.relay().map_or(Some(self.shim), |it| self.child_of(it));
        let of_shim = |p: &&Process| Some(p.ppid) == shim && p.comm == "tree-monitor";
        self.all().iter().find(of_shim).map(|p| p.pid)
    }

    /// The process that the host knows, if it is in front of the shim.
    fn relay(&self) -> Option<i32> {
        let is_there = self.spec.stage.has("inject") && !self.shim_ended;
        Some(self.shim).filter(|shim| is_there && *shim > 1)
    }

    /// The shim, as the child of the relay. A courier is another one.
    fn child_of(&self, relay: i32) -> Option<i32> {
        let is_it = |p: &&Process| p.ppid == relay && p.comm != "tree-courier";
        self.all().iter().find(is_it).map(|p| p.pid)
    }

    fn server(&self) -> Option<i32> {
        self.named("server")
    }

    fn learn_numbers(&mut self) {
        let apart = [self.host, self.shim];
        let found = self.all().into_iter().map(|p| p.pid);
        self.numbers
            .extend(found.filter(|pid| !apart.contains(pid)));
    }

    fn look_at_shim(&mut self) {
        let Some(fd) = &self.shim_fd else { return };
        let ended = sys::poll(&[(fd.as_raw_fd(), libc::POLLIN)], Some(Instant::now()))[0] != 0;
        if self.shim_ended || !ended {
            return;
        }
        self.shim_ended = true;
        let mut left = self.all();
        left.retain(|p| p.pid != self.host && p.pid != self.shim);
        if !left.is_empty() && !self.shim_killed {
            let left: Vec<_> = left.iter().map(|p| (p.pid, &*p.comm, p.state)).collect();
            let what = format!("left at the end of treaper: {left:?}");
            self.fail(&what);
        }
    }

    fn is_empty(&self) -> bool {
        let gone = self.shim_ended || !self.begun && sys::kill(self.host, 0).is_err();
        gone && self.held.is_none() && self.all().is_empty()
    }

    fn states(&self) -> String {
        let all = self.all();
        let line = |p: &Process| {
            let at = std::fs::read_to_string(format!("/proc/{}/wchan", p.pid)).unwrap_or_default();
            let pending = proc::status(p.pid, "ShdPnd").unwrap_or_default();
            format!(
                "{} {} {} of {}, {at}, {pending}",
                p.pid, p.comm, p.state, p.ppid
            )
        };
        let lines: Vec<String> = all.iter().map(line).collect();
        format!(
            "step {}, wanted {:?}: {}",
            self.step,
            self.want,
            lines.join("; ")
        )
    }

    // The verdict.

    fn judge(&mut self) {
        self.reap();
        self.drain();
        for &pid in &self.bystanders.clone() {
            let allowed = if self.terminal.is_some() || self.spec.stage.is_terminal() {
                [libc::SIGTSTP, libc::SIGCONT, libc::SIGHUP]
                    .iter()
                    .fold(0, |set, n| set | 1 << (n - 1))
            } else {
                0
            };
            let set =
                proc::status(pid, "ShdPnd").and_then(|set| u64::from_str_radix(&set, 16).ok());
            match set {
                None => self.fail("a bystander is gone"),
                Some(set) if set & !allowed != 0 => self.fail(&format!("a bystander got {set:x}")),
                Some(_) => {}
            }
        }
        let late = self.released.is_some_and(|at| at.elapsed() > LATE);
        if late {
            self.fail(&format!("late: {:?}", self.released.unwrap().elapsed()));
        }
        let relay_died = self
            .spec
            .at
            .as_ref()
            .is_some_and(|(_, event, _)| *event == Event::RelayDies);
        if !relay_died && !self.shim_killed && self.writers.iter().any(|w| answer(w).is_none()) {
            self.fail("a writer got no answer");
        }
        if let Some(status) = self.exit_status() {
            let allowed = self.allowed();
            if !allowed.contains(&status) {
                self.fail(&format!("status {status}, expected {allowed:?}"));
            }
        } else if !self.shim_killed
            && self
                .spec
                .at
                .as_ref()
                .is_none_or(|at| at.1 != Event::HostDies)
        {
            self.fail("no status");
        }
        if let Outcome::Wrong(what) = &mut self.outcome {
            let errors = std::fs::read_to_string(self.directory.join("stderr"));
            *what = format!("{what}; stderr: {}", errors.unwrap_or_default());
        }
    }

    /// As a shell shows it. `None` if the shim was killed, or its host.
    fn exit_status(&mut self) -> Option<i32> {
        let reported = self.log.all("host", "reaped");
        let status = match reported.first() {
            Some(line) => line.number("status") as i32,
            None => self.status?,
        };
        if self.shim_killed {
            return None;
        }
        Some(if libc::WIFSIGNALED(status) {
            128 + libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        })
    }

    fn allowed(&self) -> Vec<i32> {
        let stage = self.spec.stage;
        let mut allowed = Vec::new();
        let event = self
            .spec
            .at
            .as_ref()
            .map(|at| at.1)
            .filter(|_| self.outcome == Outcome::Right);
        match event {
            Some(Event::ServerDies) => allowed.push(137),
            Some(Event::ServerExits) => allowed.push(stage.ended),
            Some(Event::MonitorDies) if stage.has("pidns") => allowed.push(137),
            // The server reads the end of its input.
            Some(Event::RelayDies | Event::EndOfInput | Event::HostDies) if stage.has("inject") => {
                allowed.extend([stage.stopped, 5]);
            }
            _ => allowed.push(stage.stopped),
        }
        if self
            .spec
            .at
            .as_ref()
            .is_some_and(|at| at.2.as_millis() > 40)
        {
            // The grace of the stages ends while the process is held.
            allowed.push(137);
        }
        if event == Some(Event::RelayDies) {
            // The actor may write to the pipe that is gone, and a busy machine takes longer for its panic than the grace.
            allowed.push(137);
        }
        if event == Some(Event::MonitorDies) && self.spec.at.as_ref().unwrap().0.is_wait() {
            // The kernel has told the monitor how the server ended, and tells no other process.
            allowed.push(125);
        }
        if self.stopping {
            allowed.push(stage.stopped);
        }
        if !self.was_ready && event.is_some() {
            // The server was not started, or did not catch its signals yet.
            allowed.extend([
                125,
                128 + libc::SIGTERM,
                128 + libc::SIGKILL,
                128 + libc::SIGHUP,
                stage.stopped,
            ]);
        }
        allowed
    }
}

fn unknown() -> Traced {
    Traced {
        path: None,
        forks: 0,
        counts: BTreeMap::new(),
        begun: false,
        last: 0,
    }
}

fn switches(pid: i32) -> Option<String> {
    let key = |key| proc::status(pid, key);
    Some(key("voluntary_ctxt_switches")? + " " + &key("nonvoluntary_ctxt_switches")?)
}

/// The answer of the relay, without waiting for it. It stays in the socket.
fn answer(writer: &UnixStream) -> Option<String> {
    let mut buffer = [0; 256];
    let n = trace::peek(writer.as_raw_fd(), &mut buffer)?;
    Some(String::from_utf8_lossy(&buffer[..n]).into_owned()).filter(|text| !text.is_empty())
}

/// Blocks all signals, so that `/proc` shows which ones have come.
fn stand_by() -> ! {
    // It must not keep a pipe open.
    sys::close_range(0, i32::MAX);
    let all: Vec<i32> = (1..=64).filter(|n| ![9, 19, 32, 33].contains(n)).collect();
    sys::mask(libc::SIG_BLOCK, &all);
    loop {
        sys::pause_for(Duration::from_secs(60));
    }
}
