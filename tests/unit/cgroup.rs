//! What only `src/contain/cgroup.rs` itself can see of its work.

use super::*;

#[test]
fn a_group_that_is_not_found_has_a_reason() {
    let bound = "33 30 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 none rw\n";
    let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
    for (mounts, groups, reason) in [
        (bound, "0::/docker/abcd\n", "outside"),
        (pure, "0::/../outside\n", "outside"),
        ("", "0::/\n", "mounted"),
        (bound, "1:cpu:/\n", "no cgroup v2"),
    ] {
        let error = find(mounts.as_bytes(), groups.as_bytes()).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn only_groups_of_ended_instances_are_swept() {
    let (pid, started) = (pid::own(), proc::stat(pid::own()).unwrap().started);
    for (name, is_dead) in [
        (format!("treaper-{pid}-{started}"), false),
        (format!("treaper-{pid}-{started}-3"), false),
        (format!("treaper-{pid}-{}", started + 1), true),
        (format!("treaper-{pid}-{}-3", started + 1), true),
        ("treaper-x-1".to_owned(), false),
        ("system.slice".to_owned(), false),
    ] {
        assert_eq!(maker_is_dead(name.as_bytes()), is_dead, "{name}");
    }
}
