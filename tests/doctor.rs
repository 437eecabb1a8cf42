//! `--doctor`: what this place offers, for people and for programs. The status says whether the level that was asked
//! for can be used.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Scene, TREAPER, Wrap, sys};
use serde_json::Value;

const USER: u32 = 65534;
const LEVELS: [&str; 3] = ["group", "cgroup", "pidns"];

/// Its output, and its exit status.
fn ask(scene: Scene, options: &[&str]) -> (String, Option<i32>) {
    let words = [&[TREAPER], options].concat();
    let mut run = scene.start(&words);
    let code = run.wait_clean().code();
    assert_eq!(run.stderr(), "", "{options:?}");
    (run.stdout(), code)
}

fn json(scene: Scene, options: &[&str]) -> (Value, Option<i32>) {
    let (text, code) = ask(scene, &[&["--doctor=json"], options].concat());
    (serde_json::from_str(&text).unwrap(), code)
}

#[test]
fn the_table_names_every_check_level_and_event() {
    let (text, code) = ask(Scene::new(), &["--doctor"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    let (report, _) = json(Scene::new(), &[]);
    for part in ["checks", "levels", "left"] {
        for key in report[part].as_object().unwrap().keys() {
            assert!(text.contains(key.as_str()), "{key}: {text}");
        }
    }
}

#[test]
fn the_json_has_what_a_program_decides_by() {
    let (report, code) = json(Scene::new(), &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel"], kernel.trim());
    assert_eq!(report["chosen"], "group");
    assert_eq!(report["available"], true);
    for check in [
        "subreaper",
        "pidfd_open",
        "/proc",
        "children files",
        "parent",
    ] {
        assert!(report["checks"][check]["ok"].is_boolean(), "{check}");
        assert!(report["checks"][check]["detail"].is_string(), "{check}");
    }
    for level in LEVELS {
        assert!(report["levels"][level]["available"].is_boolean(), "{level}");
    }
    assert_eq!(report["levels"]["group"]["available"], true);
}

#[test]
fn the_status_says_whether_a_level_can_be_used_and_a_start_agrees() {
    for user in [None, sys::is_root().then_some(USER)] {
        let scene = || user.map_or_else(Scene::new, |uid| Scene::new().uid(uid));
        for level in LEVELS {
            let contain = format!("--contain={level}");
            let (report, code) = json(scene(), &[&contain]);
            let available = report["levels"][level]["available"] == true;
            assert_eq!(report["chosen"], level);
            assert_eq!(report["available"], available, "{level}");
            assert_eq!(code, Some(if available { 0 } else { 125 }), "{level}");
            // A start works if and only if the doctor says so.
            let wrap = [contain.as_str()];
            let mut run = scene().start(&Wrap::Treaper(&wrap).command(&["true"]));
            assert_eq!(run.wait_clean().code(), code, "{level}: {}", run.stderr());
            let reason = report["levels"][level]["reason"].as_str();
            assert_eq!(reason.is_none(), available, "{level}");
            assert!(run.stderr().contains(reason.unwrap_or_default()), "{level}");
        }
    }
}

#[test]
fn a_user_without_a_group_of_its_own_gets_the_reason() {
    if !sys::is_root() {
        return common::skip("needs a user without a group of its own");
    }
    let (report, code) = json(Scene::new().uid(USER), &["--contain=cgroup"]);
    assert_eq!(code, Some(125));
    let reason = report["levels"]["cgroup"]["reason"].as_str().unwrap();
    assert!(reason.contains("Delegate=yes"), "{reason}");
    let (root, _) = json(Scene::new(), &[]);
    let (user, _) = json(Scene::new().uid(USER), &[]);
    let others = "processes of another uid";
    assert_eq!(root["left"][others], "nothing");
    assert_ne!(user["left"][others], "nothing");
}

#[test]
fn as_pid_1_it_reports_that_no_process_outside_can_be_watched() {
    let (report, code) = json(Scene::new().pidns(), &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["checks"]["parent"]["ok"], false);
    let two = report["checks"]["two processes"]["detail"]
        .as_str()
        .unwrap();
    assert!(two.contains("PID 1"), "{two}");
    assert_eq!(report["checks"]["/proc"]["ok"], true);
}

#[test]
fn it_leaves_no_group_behind() {
    let Some(place) = common::place::Place::new() else {
        return common::skip("no cgroup v2 that this user may change");
    };
    ask(place.scene(), &["--doctor"]);
    assert!(place.groups().is_empty());
}
