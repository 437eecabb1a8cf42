//! What goes out: messages, the steps of a run, errors and exit statuses.

pub mod error;
pub mod ledger;
pub mod progress;
pub mod report;
pub mod status;
pub mod stderr;
