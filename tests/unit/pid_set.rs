//! What only `src/tree/pid_set.rs` itself can see of its work.

use super::*;

#[test]
fn a_pid_is_new_in_the_set_only_once() {
    static SET: PidSet = PidSet(3);
    let highest = 4 * 1024 * 1024 - 1;
    let pids = (2..300).chain([70_000, 1_000_000, highest]);
    let pids: Vec<Pid> = pids.filter_map(Pid::new).collect();
    for before in [false, true] {
        for pid in &pids {
            let found = (SET.contains(*pid), SET.insert(*pid));
            assert_eq!(found, (before, !before), "{pid}");
        }
    }
    // There is no such pid.
    let beyond = Pid::new(highest + 1).unwrap();
    assert!(SET.insert(beyond) && SET.insert(beyond));
}
