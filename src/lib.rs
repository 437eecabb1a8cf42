//! treaper runs a server and guarantees that nothing it ever started outlives its reason to run.
//!
//! This library is the program's own: it promises no API. Data flows one way: `settings` → `origin` → `spawn` → the loop
//! (`plan::supervise`: `streams` → `plan` → `tree`) → `output`.

pub mod contain;
pub mod doctor;
pub mod dropin;
pub mod job_control;
pub mod origin;
pub mod output;
pub mod pair;
pub mod pause;
pub mod plan;
pub mod run;
pub mod serve;
pub mod settings;
pub mod spawn;
pub mod streams;
pub mod sys;
pub mod tree;
