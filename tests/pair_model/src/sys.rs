//! The calls of the project's `sys`, as far as the pair uses them. Each one is a step of the model, see `kernel.rs`.
//! Types without a call are the project's own.
pub use treaper::sys::Errno;

pub mod apart {
    pub fn give_up(_: i32, _: &mut Vec<i32>) {}
    pub fn wait_for(_: &[i32]) {}
}

pub mod arrival {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    pub use treaper::sys::arrival::{Arrival, Origin};

    use crate::actor::{self, Object, Op, Reply, call};
    use crate::sys::signal::{self, Signal};
    use crate::sys::{Errno, clock};

    pub fn signal_fd() -> Result<OwnedFd, Errno> {
        Ok(actor::open(Object::Signals))
    }

    pub fn wait_any(timeout: Option<Duration>) -> Result<Option<Arrival>, Errno> {
        let until = timeout.map(clock::from_now);
        match call(Op::TakeSignal { until }) {
            Reply::Signal(info) => Ok(info.map(actor::arrival)),
            other => other.unexpected(),
        }
    }

    pub fn forget_job(_: &dyn Fn(&Arrival) -> bool) {
        if call(Op::TakeResumption).number() == 1 {
            signal::kill_self(Signal::CHLD);
        }
    }
}

pub mod clock {
    use std::time::Duration;

    use crate::actor::{Op, call};

    pub fn now() -> Duration {
        Duration::from_nanos(call(Op::Now).number())
    }

    /// No process of the model is born during a stop.
    pub fn ticks() -> u64 {
        1
    }

    pub fn pause(time: Duration) {
        call(Op::Pause {
            until: from_now(time),
        });
    }

    pub fn from_now(time: Duration) -> u64 {
        (now() + time).as_nanos() as u64
    }
}

pub mod clone {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::AtomicU64;

    use crate::actor::{self, MONITOR, Object, Op, Reply, SERVER, call};
    use crate::sys::Errno;
    use crate::sys::exec::Failure;
    use crate::sys::pid::Pid;
    use crate::sys::signal::Signal;
    use crate::sys::startup::Inherited;

    pub enum Fork {
        Parent(Pid),
        Child,
    }

    pub fn fork(_: bool) -> Result<Fork, Errno> {
        let of = MONITOR;
        match call(Op::Fork { of }) {
            Reply::Number(0) => {
                actor::become_process(of);
                Ok(Fork::Child)
            }
            _ => Ok(Fork::Parent(actor::pid(of))),
        }
    }

    /// Left out: `--finally`.
    pub fn fork_plainly() -> Result<Fork, Errno> {
        Err(Errno::NOSYS)
    }

    pub fn exit_now(status: i32) -> ! {
        actor::exit(status as u8)
    }

    pub use treaper::sys::clone::Spawned;
    use treaper::sys::startup::Standing;

    #[derive(Debug)]
    pub struct Setup<'a> {
        pub inherited: Inherited,
        pub leaves: Option<&'a std::path::Path>,
        pub standing: Standing,
        pub parent_death_signal: Signal,
        pub no_new_privs: bool,
        pub announce: &'static AtomicU64,
        pub leader: &'static AtomicU64,
        pub failure: &'static AtomicU64,
    }

    pub fn spawn(
        _: &Setup<'_>,
        _: Option<BorrowedFd<'_>>,
        _: impl FnOnce() -> Failure,
    ) -> Result<Spawned, Errno> {
        call(Op::Spawn);
        let pidfd = actor::scene().pidfds;
        let pidfd = pidfd.then(|| actor::open(Object::Process(SERVER)));
        let (pid, leader) = (actor::pid(SERVER), None);
        Ok(Spawned { pid, pidfd, leader })
    }
}

pub mod exec {
    pub use treaper::sys::exec::{Failure, SHELL};
}

pub mod fd {
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

    pub use treaper::sys::fd::{Kind, STDERR, STDIN, STDOUT};

    pub use crate::actor::keep;

    pub const fn pipe(_: i32) -> Option<u64> {
        None
    }

    pub const fn stdin_is_over(_: i32, _: Option<u64>) -> bool {
        false
    }

    pub const fn may_wait(_: i32) -> bool {
        false
    }

    use crate::actor::{self, Object, Op, call};
    use crate::sys::Errno;

    pub fn inherited() -> Vec<i32> {
        Vec::new()
    }

    pub fn kind(_: i32) -> Kind {
        Kind::Other
    }

    pub fn redirect(_: BorrowedFd<'_>, _: i32) {}

    pub use treaper::sys::fd::Resource;

    pub fn raise_limit(_: Resource) {}

    pub fn leave_directory() {}

    /// The server reads at once.
    pub fn unread(_: i32) -> u64 {
        0
    }

    pub fn last_write(_: i32) -> (i64, u32) {
        (0, 0)
    }

    pub fn resuming_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
        Ok((actor::open(Object::Bell), actor::open(Object::Bell)))
    }

    pub fn write_at_once(pipe: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        assert_eq!(actor::object(pipe.as_raw_fd()), Object::Bell);
        call(Op::Ring).result().map(|_| bytes.len())
    }

    pub fn empty(pipe: BorrowedFd<'_>, _: &mut dyn FnMut(u8)) -> bool {
        assert_eq!(actor::object(pipe.as_raw_fd()), Object::Bell);
        call(Op::Silence).number() == 1
    }
}

pub mod namespace {
    pub fn own_ids() -> (u32, u32) {
        (0, 0)
    }
}

#[path = "../../../src/sys/parent.rs"]
pub mod parent;

pub mod pid {
    pub use treaper::sys::pid::Pid;

    use crate::actor::{self, Op, call};
    use crate::sys::Errno;

    pub fn own() -> i32 {
        actor::pid(actor::own()).get()
    }

    pub fn parent() -> i32 {
        actor::number(call(Op::Parent).number())
    }

    /// With job control all but the monitor are in one group.
    pub fn group_of(pid: i32) -> Result<i32, Errno> {
        Ok(actor::group(actor::index(pid)))
    }

    pub fn group() -> i32 {
        actor::group(actor::own())
    }

    /// Left out: the names of daemons.
    pub fn session(_: i32) -> Result<i32, Errno> {
        Err(Errno::PERM)
    }
}

pub mod pidfd {
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

    use crate::actor::{self, Object, Op, call};
    use crate::sys::Errno;
    use crate::sys::signal::{self, Signal};

    pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
        if !actor::scene().pidfds {
            return Err(Errno::NOSYS);
        }
        let of = actor::index(pid);
        call(Op::Exists { of }).result()?;
        Ok(actor::open(Object::Process(of)))
    }

    fn of(fd: BorrowedFd<'_>) -> u8 {
        match actor::object(fd.as_raw_fd()) {
            Object::Process(of) => of,
            other => panic!("a pidfd was expected, not {other:?}"),
        }
    }

    pub fn send(fd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
        signal::to(of(fd), signal)
    }

    pub fn send_value(fd: BorrowedFd<'_>, signal: Signal, _: Option<u64>) -> Result<(), Errno> {
        send(fd, signal)
    }

    pub fn is_unreaped(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(call(Op::Exists { of: of(fd) }).result().is_ok())
    }

    pub fn has_ended(fd: BorrowedFd<'_>) -> bool {
        call(Op::HasEnded { of: of(fd) }).number() == 1
    }

    pub fn send_group(leader: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
        let of = of(leader);
        call(Op::SignalGroup { of, signal }).result().map(drop)
    }

    pub fn parent(fd: BorrowedFd<'_>) -> Result<i32, Errno> {
        let state = call(Op::State { of: of(fd) }).result()?;
        Ok(actor::number(state >> 8))
    }
}

pub mod poll {
    use std::os::fd::{AsRawFd, RawFd};
    use std::time::Duration;

    pub use treaper::sys::poll::{Events, HANG_UP};

    use crate::actor::{self, ERR, HUP, IN, OUT, Object, Op, call};
    use crate::sys::{Errno, clock, fd};

    #[derive(Clone, Copy, Debug)]
    pub struct Polled {
        fd: RawFd,
        asked: Events,
        reported: Events,
    }

    impl Polled {
        pub const fn new(fd: RawFd, asked: Events) -> Self {
            let reported = Events::empty();
            Self {
                fd,
                asked,
                reported,
            }
        }

        pub const fn reported(&self) -> Events {
            self.reported
        }
    }

    pub fn poll(fds: &mut [Polled], timeout: Option<Duration>) -> Result<usize, Errno> {
        let until = timeout.map(clock::from_now);
        let object = |polled: &Polled| -> Option<(Object, u8)> {
            let asks = |events, bit| {
                if polled.asked.contains(events) {
                    bit
                } else {
                    0
                }
            };
            let asked = asks(Events::IN, IN) | asks(Events::OUT, OUT);
            (polled.fd >= 0).then(|| (actor::object(polled.fd), asked))
        };
        let objects = fds.iter().filter_map(object).collect();
        let mut ready = call(Op::Poll { objects, until }).number();
        let mut count = 0;
        for polled in fds {
            polled.reported = Events::empty();
            if polled.fd < 0 {
                continue;
            }
            // A hang-up of one direction is reported only if that is asked for.
            let hung_up = Events::HUP | (polled.asked & Events::RDHUP);
            let names = [
                (IN, Events::IN),
                (OUT, Events::OUT),
                (ERR, Events::ERR),
                (HUP, hung_up),
            ];
            for (bit, events) in names {
                if ready as u8 & bit != 0 {
                    polled.reported |= events;
                }
            }
            count += usize::from(!polled.reported.is_empty());
            ready >>= 4;
        }
        Ok(count)
    }

    pub fn poll_one(fd: RawFd, events: Events, timeout: Duration) -> Events {
        let mut one = [Polled::new(fd, events)];
        let _ = poll(&mut one, Some(timeout));
        one[0].reported()
    }

    pub fn has_hung_up(of: RawFd) -> bool {
        of == fd::STDIN && actor::scene().watches_stdin && call(Op::HasHungUp).number() == 1
    }

    pub fn peer_can_send(_: RawFd) -> bool {
        false
    }

    #[derive(Debug)]
    pub struct Writes(std::convert::Infallible);

    impl Writes {
        pub fn never(&self) -> ! {
            match self.0 {}
        }
    }

    impl AsRawFd for Writes {
        fn as_raw_fd(&self) -> RawFd {
            self.never()
        }
    }

    #[derive(Debug)]
    pub struct News;

    impl News {
        pub fn of(_: RawFd, _: Events) -> Result<Self, Errno> {
            Err(Errno::NOSYS)
        }

        pub fn take(&self) -> Events {
            Events::empty()
        }
    }

    impl AsRawFd for News {
        fn as_raw_fd(&self) -> RawFd {
            -1
        }
    }
}

pub mod prctl {
    use crate::actor::{Op, call};
    use crate::sys::Errno;
    use crate::sys::signal::Signal;

    pub const fn keeps_code_at() -> Option<std::time::Duration> {
        None
    }

    pub const fn keep_code() {}

    pub fn become_subreaper() -> Result<(), Errno> {
        call(Op::BecomeSubreaper).result().map(drop)
    }

    pub fn signal_on_parent_exit(signal: Signal) -> Result<(), Errno> {
        call(Op::SignalOnParentExit { signal }).result().map(drop)
    }

    pub fn new_session() -> Result<(), Errno> {
        Ok(())
    }

    pub fn new_group() -> Result<(), Errno> {
        Ok(())
    }
}

pub mod proc {
    pub use treaper::sys::proc::{FOREIGN, Name, is_dead};

    use crate::actor::{self, Op, call};
    use crate::sys::Errno;

    pub struct View;

    pub fn view() -> Result<View, Errno> {
        Ok(View)
    }

    impl View {
        pub fn owner(&self, _: i32) -> Result<u32, Errno> {
            Ok(0)
        }
    }

    pub const fn is_in_memory_group_of_v1() -> bool {
        false
    }

    pub struct Stat {
        pub name: Name,
        pub state: u8,
        /// A process of the model ends at once.
        pub exiting: bool,
        pub is_kernel: bool,
        pub is_copy: bool,
        pub parent: i32,
        pub group: i32,
        pub foreground: i32,
        pub started: u64,
    }

    pub fn stat(pid: i32) -> Result<Stat, Errno> {
        let of = actor::index(pid);
        let found = call(Op::State { of }).result()?;
        Ok(Stat {
            name: Name::default(),
            state: found as u8,
            exiting: false,
            is_kernel: false,
            is_copy: false,
            parent: actor::number(found >> 8),
            group: actor::group(of),
            foreground: actor::group(actor::SHIM),
            started: 0,
        })
    }

    pub fn shown_name(_: i32, command: Name) -> Name {
        command
    }

    pub fn may_be_suspended(pid: i32) -> bool {
        stat(pid).is_ok_and(|stat| stat.state == b'T')
    }

    pub fn child_above(_: i32) -> Result<Option<i32>, Errno> {
        Err(Errno::SRCH)
    }

    pub fn children(pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        let of = actor::index(pid);
        let found = call(Op::Children { of });
        found.pids().for_each(|pid| each(pid.get()));
        Ok(())
    }
}

pub mod shared {
    use std::sync::atomic::AtomicU64;

    use crate::actor::{Op, call};
    use crate::kernel::FIRST_TIME;

    /// The names of the words.
    pub trait Named {
        const NAMES: &'static [&'static str];
    }

    /// As the project's own, but a word is a number: the words are in the model of the kernel.
    macro_rules! shared_words {
        ($(#[$doc:meta])* pub struct $name:ident {
            $($(#[$field_doc:meta])* $field_vis:vis $field:ident: $type:ty,)+
        }) => {
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                $($field_vis $field: $type,)+
            }

            impl $crate::sys::shared::Named for $name {
                const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];
            }

            impl $name {
                pub fn shared() -> Result<Self, $crate::sys::Errno> {
                    let count = <Self as $crate::sys::shared::Named>::NAMES.len();
                    let mut next = $crate::actor::map(count)..;
                    Ok(Self { $($field: <$type>::nth(next.next().unwrap_or(0)),)+ })
                }
            }
        };
    }
    pub(crate) use shared_words;

    #[derive(Clone, Copy, Debug)]
    pub struct Word(u8);

    impl Word {
        pub const fn nth(at: u8) -> Self {
            Self(at)
        }

        /// The words that the new process writes: its model knows them by their number.
        pub fn atomic(self) -> &'static AtomicU64 {
            static NONE: AtomicU64 = AtomicU64::new(0);
            &NONE
        }

        pub fn get(self) -> u64 {
            call(Op::Get { word: self.0 }).number()
        }

        pub fn set(self, value: u64) {
            let word = self.0;
            call(Op::Set { word, value });
        }

        pub fn replace(self, value: u64) -> u64 {
            let word = self.0;
            call(Op::Swap { word, value }).number()
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Flag(Word);

    impl Flag {
        pub const fn nth(at: u8) -> Self {
            Self(Word::nth(at))
        }

        pub fn get(self) -> bool {
            self.0.get() != 0
        }

        pub fn set(self, value: bool) {
            self.0.set(value.into());
        }

        pub fn take(self) -> bool {
            self.0.replace(0) != 0
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Words<const N: usize>(pub &'static [AtomicU64; N]);

    impl Words<8> {
        pub fn nth(_: u8) -> Self {
            static NONE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
            Self(&NONE)
        }

        /// Only the times of the plan are read and written in this way.
        pub fn get(self, at: usize) -> u64 {
            Word((FIRST_TIME + at) as u8).get()
        }

        pub fn set(self, at: usize, value: u64) {
            Word((FIRST_TIME + at) as u8).set(value);
        }
    }
}

pub mod signal {
    pub use treaper::sys::signal::Signal;

    use crate::actor::{self, Op, call};
    use crate::sys::Errno;
    use crate::sys::pid::{self, Pid};

    pub fn to(to: u8, signal: Signal) -> Result<(), Errno> {
        call(Op::Signal { to, signal }).result().map(drop)
    }

    pub fn kill(pid: Pid, signal: Signal) -> Result<(), Errno> {
        to(actor::index(pid.get()), signal)
    }

    pub fn kill_parent(parent: i32, signal: Signal) -> Result<(), Errno> {
        if pid::parent() != parent {
            return Err(Errno::SRCH);
        }
        to(actor::index(parent), signal)
    }

    pub fn send(pid: Pid, signal: Signal, _: Option<u64>) -> Result<(), Errno> {
        kill(pid, signal)
    }

    pub fn kill_group(leader: Pid, signal: Signal) -> Result<(), Errno> {
        let of = actor::index(leader.get());
        call(Op::SignalGroup { of, signal }).result().map(drop)
    }

    pub fn die_of(_: Signal) {}

    pub fn is_ignored(_: Signal) -> bool {
        false
    }

    pub fn set_mask(_: treaper::sys::signal::Mask) {}

    pub fn kill_self(signal: Signal) {
        let _ = to(actor::own(), signal);
    }

    pub fn let_pending_act(signal: Signal) {
        call(Op::Deliver { signal });
    }

    pub fn waiting_job_stop() -> Option<Signal> {
        let waits = call(Op::JobStopWaits).number();
        Signal::from_number(waits as i32)
    }
}

pub mod startup {
    pub use treaper::sys::startup::{Inherited, Standing};

    pub fn set_names(_: &std::ffi::CStr) {}
}

/// The line to the process in front of treaper.
pub mod stream {
    use std::os::fd::BorrowedFd;

    use crate::actor::{Op, call};
    use crate::sys::Errno;

    pub fn send(_: BorrowedFd<'_>, _: &[u8]) {
        call(Op::Send);
    }

    pub fn receive(_: BorrowedFd<'_>) -> Result<Option<u8>, Errno> {
        let byte = call(Op::Receive).result()?;
        Ok((byte > 0).then_some(byte as u8))
    }
}

pub mod tty {
    pub fn front_group() -> Option<i32> {
        None
    }

    pub fn move_foreground(_: i32, _: i32) {}

    pub fn reclaim_foreground(_: i32) {}
}

pub mod wait {
    pub use treaper::sys::wait::{Change, DYING, Ended};

    use crate::actor::{self, Op, Reply, call};
    use crate::sys::Errno;
    use crate::sys::pid::Pid;

    pub const ENDED: u8 = 1;
    pub const SUSPENDED: u8 = 2;
    pub const RESUMED: u8 = 4;

    #[derive(Clone, Copy)]
    pub struct Wait {
        child: Option<Pid>,
        kinds: u8,
    }

    impl Wait {
        pub const fn any() -> Self {
            let (child, kinds) = (None, 0);
            Self { child, kinds }
        }

        pub const fn child(pid: Pid) -> Self {
            let (child, kinds) = (Some(pid), 0);
            Self { child, kinds }
        }

        pub const fn ended(self) -> Self {
            self.with(ENDED)
        }

        pub const fn suspended(self) -> Self {
            self.with(SUSPENDED)
        }

        pub const fn resumed(self) -> Self {
            self.with(RESUMED)
        }

        const fn with(self, more: u8) -> Self {
            Self {
                kinds: self.kinds | more,
                ..self
            }
        }

        pub fn take(self) -> Result<Option<(i32, Change)>, Errno> {
            self.call(true)
        }

        pub fn peek(self) -> Result<Option<(i32, Change)>, Errno> {
            self.call(false)
        }

        pub fn has_come(self) -> bool {
            matches!(self.peek(), Ok(Some(_)))
        }

        fn call(self, take: bool) -> Result<Option<(i32, Change)>, Errno> {
            let of = self.child.map(|pid| actor::index(pid.get()));
            let kinds = self.kinds;
            match call(Op::Wait { of, kinds, take }) {
                Reply::Change(change) => {
                    Ok(change.map(|(of, change)| (actor::pid(of).get(), change.into())))
                }
                Reply::Failed(errno) => Err(errno),
                other => other.unexpected(),
            }
        }
    }

    pub fn is_child(pid: Pid) -> bool {
        Wait::child(pid).ended().peek().is_ok()
    }

    pub fn children() -> impl Iterator<Item = Pid> {
        std::iter::empty()
    }
}
