//! treaper runs a server and guarantees that nothing it ever started outlives its reason to run.
//!
//! This library is the program's own: it promises no API. Data flows one way:
//! arguments (`cli`) → `config` → `hosts` → `spawn` → loop (`supervise`: `watch` → `plan` → `kill`, `reap`) → `status`.

pub mod board;
pub mod contain;
pub mod context;
pub mod doctor;
pub mod dropin;
pub mod event;
pub mod forward;
pub mod guard;
pub mod hosts;
pub mod job;
pub mod kill;
pub mod linux;
pub mod output;
pub mod pause;
pub mod place;
pub mod plan;
pub mod reap;
pub mod relay;
pub mod run;
pub mod serve;
pub mod settings;
pub mod spawn;
pub mod supervise;
pub mod sys;
pub mod tree;
pub mod watch;
