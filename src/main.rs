//! treaper: runs a server, and stops everything that it started. See `run`.
#![no_main]

treaper::entry_point!(treaper::run::main);
