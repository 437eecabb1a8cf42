//! What only `src/sys/proc.rs` itself can see of its work.

use super::*;

#[test]
fn a_path_that_does_not_fit_is_cut_and_not_a_crash() {
    let long = "x".repeat(100);
    assert!(Path::new(i32::MAX, &long).as_c_str().to_bytes().len() < 64);
}
