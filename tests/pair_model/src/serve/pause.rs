//! Left out: no pair.
