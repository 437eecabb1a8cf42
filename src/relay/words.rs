//! What the relay says to the pair: a few words of shared memory.

use crate::sys::shared::{Flag, Word, shared_words};

shared_words! {
    /// The words. The relay and its couriers alone write them.
    pub struct Words {
        /// It ends by itself, since there is nothing more to do.
        pub done: Flag,
        /// The server's stdin has ended for good.
        pub ended: Flag,
        /// A cancelled turn has not ended in time.
        pub timed_out: Flag,
        /// How many bytes of stdin it has taken that the server has not read.
        pub unread: Word,
        /// How many messages of other writers were written to the server.
        pub messages: Word,
        /// How often another writer was dropped, or a message of one.
        pub discarded: Word,
        /// How many bytes of the server's output were passed on.
        pub passed: Word,
        /// When bytes of another writer were last written to the server, in nanoseconds of the
        /// clock.
        pub injected: Word,
        /// The pids of its couriers. Zero: there is none.
        pub stdin_courier: Word,
        pub stdout_courier: Word,
    }
}
