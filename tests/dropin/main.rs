//! Under the name of another init we are that init, but that nothing is left.
//!
//! Each check runs on the real program too, where its package can be had: what it does is what is
//! expected of us. Where we differ on purpose, the test says so and why. What the suites of tini and
//! dumb-init check is among it: statuses (`-e`, exec failures), forwarding and rewriting, process
//! groups, suspension, reaping, signal masks, usage texts, the working directory, a terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod catatonit;
mod dumb_init;
mod oracle;
mod terminal;
mod tini;

// What the shared parts call it, which the actor has too.
use common::sys;
