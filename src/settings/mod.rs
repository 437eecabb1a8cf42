//! What the user asked for: by options, by variables, and by the name under which treaper was
//! started.

pub mod cli;
pub mod config;
pub mod options;
pub mod value;
