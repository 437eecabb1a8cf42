//! Lists the processes that a stop waits for, that it leaves, and that SIGKILL has not ended.

use std::{fmt::Display, time::Duration};

use crate::output::ledger::{List, Process};
use crate::output::progress::Named;
use crate::sys::pid::{self, Pid};
use crate::sys::{clock, proc};
use crate::tree::Tree;
use crate::tree::pid_set::PidSet;
use crate::tree::walk::{self, Reach};

/// How long the processes may be counted, since a stop waits for that.
const COUNT_WALKS: Duration = Duration::from_millis(5);
static COUNTED: PidSet = PidSet(2);

impl Tree {
    pub fn living(&mut self) -> Named {
        let mut living = Named::default();
        self.each(&mut |member| {
            let process = Process::read(member.pid).filter(|found| !proc::is_dead(found.state));
            process.inspect(|found| living.add(member.pid, found.name));
        });
        living
    }

    /// Counts once, for the report, who got the stop signal, or will: the living, and the just ended.
    pub fn count_signalled(&mut self) {
        let ledger = self.ledger.filter(|ledger| ledger.signalled().is_none());
        let Some(ledger) = ledger else { return };
        let (mut count, own) = (0, pid::own());
        walk::repeat(&clock::now, COUNT_WALKS, &mut || {
            self.walk(Reach::WatchedTree, &mut |member| {
                let counts = match proc::stat(member.pid.get()) {
                    Ok(stat) => !proc::is_dead(stat.state) || stat.parent == own,
                    Err(errno) => errno == proc::FOREIGN,
                };
                count += u64::from(counts && COUNTED.insert(member.pid));
            })
        });
        ledger.set_signalled(count);
    }

    /// Lists what `--spare` leaves, by now children of this process, and notes it for the report.
    pub fn name_spared(&self) {
        let mut spared = Named::default();
        let _ = proc::children(pid::own(), &mut |child| {
            let is_spared = !self.strangers.contains(&child) && self.is_spared_child(child);
            let found = Pid::new(child).filter(|_| is_spared);
            let process = found.and_then(Process::read);
            let living = process.filter(|process| !proc::is_dead(process.state));
            if let Some((pid, process)) = found.zip(living) {
                spared.add(pid, process.name);
                self.ledger
                    .inspect(|ledger| ledger.add(List::Spared, &process));
            }
        });
        if spared.count > 0 {
            log::warn!("--spare: left running: {spared}");
        }
    }

    /// Lists each process that is left, and notes it for the report: the living ones, or if there
    /// are none, the dead ones. Those cannot be reaped while a tracer has not reaped them.
    pub fn name_survivors(&mut self) {
        for dead in [false, true] {
            let (mut count, ledger) = (0, self.ledger);
            self.each(&mut |member| {
                let Some(mut process) = Process::read(member.pid) else {
                    return;
                };
                if process.state == b'?' && member.has_ended() {
                    process.state = b'Z';
                }
                if proc::is_dead(process.state) != dead {
                    return;
                }
                count += 1;
                ledger.inspect(|ledger| ledger.add(List::Survivors, &process));
                let (pid, name, state) = (process.pid, process.name, char::from(process.state));
                let uid = process.uid.as_ref().map_or(&"?" as &dyn Display, |uid| uid);
                log::error!("survivor: pid {pid} '{name}', state {state}, uid {uid}");
            });
            if count > 0 {
                return;
            }
        }
        log::error!("some processes could not be killed; treaper cannot see which");
    }
}
