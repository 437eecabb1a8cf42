//! What a process of treaper gives up for the server, and the way in which treaper ends.

use crate::origin::place::Place;
use crate::output::stderr;
use crate::pair::context::Context;
use crate::sys::wait::Ended;
use crate::sys::{apart, signal, tty};

/// Closes the inherited descriptors, once the server has its own copies. Otherwise sockets and
/// pipes would stay open after the server has closed them. `helpers`: see [`apart::give_up`].
pub fn release_inherited(place: &Place, helpers: &mut Vec<i32>) {
    for descriptor in &place.server_descriptors {
        apart::give_up(*descriptor, helpers);
    }
}

/// Ends treaper as the shell or the manager expects it, in its last process. A shell gets its
/// terminal back, whose foreground group may be a group of the tree that is gone. Only if the job
/// is in the foreground: then the shell waits for the job, and does nothing with the terminal
/// meanwhile. While a job in the background ends, the shell may take the terminal at any moment.
///
/// If a signal has ended the server, the same signal ends treaper: so a shell prints "Terminated"
/// or ends a loop at Ctrl-C, and systemd can distinguish a crash from a stop. `$?` is 128 + n in
/// both cases.
pub fn end_treaper(context: &Context<'_>, status: u8) {
    stderr::write_deferred();
    let (board, place) = (context.board, &context.place);
    if board.in_foreground.get() {
        tty::reclaim_foreground(place.group);
    }
    let dies = |ended: &Ended| place.dies_as_server && ended.code() == status;
    let ended = board.ended().filter(dies);
    if let Some(signal) = ended.and_then(Ended::signal) {
        signal::die_of(signal);
    }
}
