//! Lists the processes of the tree that are left: while a stop waits for them, and after SIGKILL has not ended them.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::output::ledger::{Ledger, List, Process};
use crate::sys::clock;
use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, Name};
use crate::tree::pid_set::PidSet;
use crate::tree::{Tree, walk};

/// How many processes are named in a message.
pub const MAX_NAMED: usize = 4;

/// How long the processes may be counted, since a stop goes on only after that.
const COUNT_WALKS: Duration = Duration::from_millis(5);
/// The processes that [`Tree::count_signalled`] has counted.
static COUNTED: PidSet = PidSet::new();

impl Tree {
    /// The first few living processes, and how many there are in all.
    pub fn living(&mut self) -> ([Option<(Pid, Name)>; MAX_NAMED], usize) {
        let (mut named, mut count) = ([None; MAX_NAMED], 0);
        self.each(&mut |member| match proc::stat(member.pid.get()) {
            Ok(stat) if is_dead(stat.state) => {}
            Ok(stat) => {
                if let Some(slot) = named.get_mut(count) {
                    *slot = Some((member.pid, stat.name));
                }
                count += 1;
            }
            Err(proc::FOREIGN) => count += 1,
            Err(_) => {}
        });
        (named, count)
    }

    /// How many processes have just got the stop signal, or will get it: the living, and children that have ended
    /// since then. Processes are ending and get other parents, so they are counted again while one may have been missed.
    pub fn count_signalled(&mut self) -> u64 {
        let (mut count, own) = (0, pid::own());
        walk::repeat(&clock::now, COUNT_WALKS, &mut || {
            self.each_closely(&mut |member| {
                let counts = match proc::stat(member.pid.get()) {
                    Ok(stat) => !is_dead(stat.state) || stat.parent == own,
                    Err(errno) => errno == proc::FOREIGN,
                };
                count += u64::from(counts && COUNTED.insert(member.pid));
            })
        });
        count
    }

    /// Notes the survivors: the living, or if there are none, the dead.
    pub fn note_survivors(&mut self, ledger: Ledger) {
        for dead in [false, true] {
            self.each(&mut |member| {
                let process = Process::look(member.pid);
                if let Some(process) = process.filter(|process| process.is_dead() == dead) {
                    ledger.add(List::Survivors, &process);
                }
            });
            if ledger.list(List::Survivors).next().is_some() {
                return;
            }
        }
    }

    /// Lists each process that is left: the living ones, or if there are none, the dead ones. Those cannot be reaped
    /// while a tracer has not reaped them.
    pub fn name_survivors(&mut self) {
        if self.name_those(&|state| !is_dead(state)) == 0 && self.name_those(&is_dead) == 0 {
            log::error!("some processes could not be killed; treaper cannot see which");
        }
    }

    /// Lists the processes in a `wanted` state. Returns how many there are.
    fn name_those(&mut self, wanted: &dyn Fn(u8) -> bool) -> usize {
        let mut count = 0;
        self.each(&mut |member| {
            let (name, state) = match proc::stat(member.pid.get()) {
                Ok(stat) => (stat.name, stat.state),
                Err(proc::FOREIGN) if member.has_ended() => (Name::default(), b'Z'),
                Err(proc::FOREIGN) => (Name::default(), b'?'),
                Err(_) => return,
            };
            if !wanted(state) {
                return;
            }
            count += 1;
            let (pid, state) = (member.pid, char::from(state));
            match proc::owner(pid.get()) {
                Ok(uid) => log::error!("survivor: pid {pid} '{name}', state {state}, uid {uid}"),
                Err(_) => log::error!("survivor: pid {pid} '{name}', state {state}"),
            }
        });
        count
    }
}

/// Whether it is a zombie, or is just being reaped.
fn is_dead(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}
