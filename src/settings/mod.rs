//! What the user asked for: by options, by variables, and by the name of the program.

pub mod cli;
pub mod config;
pub mod options;
pub mod value;
