//! treaper runs a server, and stops it with everything it ever started once it is no longer needed.
//!
//! A program that starts servers can use this crate instead of an installed `treaper`: its own
//! executable, started again, then acts as treaper.
//!
//! ```standalone_crate
//! fn main() -> std::io::Result<()> {
//!     treaper::dispatch();
//!     let mut server = treaper::command("sleep").arg("0.1").spawn()?;
//!     assert!(server.wait()?.success());
//!     Ok(())
//! }
//! ```
//!
//! When this program exits, crashes or is killed, the server and everything that it started is
//! stopped. The crate compiles on Linux alone.
//!
//! Semantic versioning covers [`dispatch`], [`command`] and [`find`], and what `TREAPER_*`
//! variables mean. The rest of the crate is hidden, and can change in any release.

#[doc(hidden)]
pub mod command;
#[doc(hidden)]
pub mod contain;
#[doc(hidden)]
pub mod doctor;
#[doc(hidden)]
pub mod dropin;
mod embed;
mod job_control;
#[doc(hidden)]
pub mod origin;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod pair;
mod pause;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod relay;
#[doc(hidden)]
pub mod run;
#[doc(hidden)]
pub mod settings;
mod start;
#[doc(hidden)]
pub mod streams;
#[doc(hidden)]
pub mod sys;
#[doc(hidden)]
pub mod tree;

pub use embed::{command, dispatch, find};
