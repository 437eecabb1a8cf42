//! treaper runs a server, and stops it with everything it ever started once it is no longer needed.
//!
//! This library is only for the program: no API is promised. Data flows one way: `settings` →
//! `origin` → `spawn` → the loop (`plan::supervise`: `streams` → `plan` → `tree`) → `output`.

pub mod contain;
pub mod doctor;
pub mod dropin;
pub mod job_control;
pub mod origin;
pub mod output;
pub mod pair;
pub mod plan;
pub mod relay;
pub mod run;
pub mod serve;
pub mod settings;
pub mod spawn;
pub mod streams;
pub mod sys;
pub mod tree;
