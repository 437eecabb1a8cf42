//! What the user asked for: by options, by variables, and by the name under which treaper was
//! started.

pub mod cli;
pub mod config;
pub mod help;
pub mod manner;
pub mod options;
pub mod value;
pub mod writers;
