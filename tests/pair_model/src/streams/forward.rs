//! The project's own: it is pure.
pub use treaper::streams::forward::*;
