//! Which writer's message goes to the server next. Pure.

/// The number of the host among the writers.
pub const HOST: usize = 0;

/// The next writer that has a message, in a circle after `last`, the one that has had its message.
/// So between two messages of the host, each other writer has one. `writers`: how many there are,
/// with the host.
pub fn next(last: usize, writers: usize, has_message: impl Fn(usize) -> bool) -> Option<usize> {
    let circle = (last + 1..writers).chain(0..=last);
    circle.into_iter().find(|writer| has_message(*writer))
}
