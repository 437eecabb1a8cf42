//! In each kind of place, a start does what `--doctor` says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{ACTOR, Scene, TREAPER, Wrap, place, skip, sys};
use serde_json::Value;

const USER: u32 = 65534;
const LEVELS: [&str; 3] = ["group", "cgroup", "pidns"];
const OTHERS: &str = "processes of another uid";

/// The machine's files below a root directory that is not a mount point.
const CHROOT: &str = "cd \"$0\" && for f in /*; do
    if [ -L $f ]; then cp -P $f .; elif [ -d $f ]; then mkdir .$f && mount --rbind $f .$f; fi
    done; exec chroot . \"$@\"";

struct Where {
    name: &'static str,
    before: &'static [&'static str],
    uid: Option<u32>,
}

const fn root(name: &'static str, before: &'static [&'static str]) -> Where {
    Where {
        name,
        before,
        uid: None,
    }
}

const PLACES: &[Where] = &[
    root("all that there is", &[]),
    root(
        "older kernel",
        &[ACTOR, "faults", "ioctl=ENOTTY", "clone3=ENOSYS", "--"],
    ),
    root("prctl is refused", &[ACTOR, "faults", "prctl=EPERM", "--"]),
    root(
        "no subreaper",
        &[ACTOR, "faults", "prctl:0=36=EINVAL", "--"],
    ),
    root(
        "signalfd is refused",
        &[ACTOR, "faults", "signalfd4=EPERM", "--"],
    ),
    root(
        "no namespaces",
        &[ACTOR, "faults", "clone3=EPERM", "clone=EPERM", "--"],
    ),
    root("a foreign /proc", &["unshare", "-pf"]),
    root(
        "no CAP_KILL",
        &["setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill"],
    ),
    Where {
        name: "a user",
        before: &[],
        uid: Some(USER),
    },
    Where {
        name: "a user without new privileges whose mounts are refused",
        before: &[ACTOR, "faults", "mount=EPERM", "--"],
        uid: Some(USER),
    },
];

impl Where {
    fn scene(&self) -> Scene {
        self.uid
            .map_or_else(Scene::new, |uid| Scene::new().uid(uid))
    }

    fn words(&self, command: &[String]) -> Vec<String> {
        let before = self.before.iter().map(|&word| word.to_owned());
        before.chain(command.iter().cloned()).collect()
    }

    fn report(&self) -> Value {
        let mut run = self
            .scene()
            .start(&self.words(&[TREAPER.into(), "--doctor=json".into()]));
        run.wait_empty();
        let text = run.stdout();
        serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{}: {text}{}", self.name, run.stderr()))
    }
}

/// Checks for each level that a start does what the report says.
fn compare(name: &str, report: &Value, start: impl Fn(&[String]) -> (Option<i32>, String)) {
    for level in LEVELS {
        let contain = format!("--contain={level}");
        let (code, message) = start(&Wrap::Treaper(&[&contain]).command(&["true"]));
        let available = report["levels"][level]["available"] == true;
        assert_eq!(
            code == Some(0),
            available,
            "{name}, {level}: {message}: {report:#}"
        );
        let reason = report["levels"][level]["reason"].as_str().unwrap_or("");
        assert!(
            message.contains(reason),
            "{name}, {level}: {message}: {reason}"
        );
    }
}

fn here() -> bool {
    let root = sys::is_root();
    if !root {
        skip("only root can make these places");
    }
    root
}

#[test]
fn a_level_is_available_if_and_only_if_a_start_with_it_works() {
    for place in PLACES.iter().filter(|_| here()) {
        compare(place.name, &place.report(), |command| {
            let mut run = place.scene().start(&place.words(command));
            (run.wait_empty().code(), run.stderr())
        });
    }
}

#[test]
fn in_a_root_directory_that_is_no_mount_point_too() {
    if !here() {
        return;
    }
    let start = |command: &[String]| {
        let scene = Scene::new();
        let root = scene.directory().join("root");
        std::fs::create_dir(&root).unwrap();
        let before = ["unshare", "-m", "sh", "-c", CHROOT, root.to_str().unwrap()];
        let words: Vec<&str> = before
            .into_iter()
            .chain(command.iter().map(String::as_str))
            .collect();
        let mut run = scene.start(&words);
        (run.wait_empty().code(), run.stderr(), run.stdout())
    };
    let (_, _, text) = start(&[TREAPER.into(), "--doctor=json".into()]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["levels"]["pidns"]["available"], false);
    let reason = report["levels"]["pidns"]["reason"].as_str().unwrap();
    for word in ["mount point", "mount --bind"] {
        assert!(reason.contains(word), "{reason}");
    }
    compare("a chroot", &report, |command| {
        let (code, stderr, _) = start(command);
        (code, stderr)
    });
}

#[test]
fn processes_of_another_uid_are_left_where_it_says_so_and_nowhere_else() {
    for place in PLACES.iter().filter(|_| here()) {
        let report = place.report();
        for level in LEVELS {
            if report["levels"][level]["available"] != true {
                continue;
            }
            let contain = format!("--doctor=json --contain={level}");
            let ask: Vec<String> = contain.split(' ').map(str::to_owned).collect();
            let ask = [vec![TREAPER.to_owned()], ask].concat();
            let mut run = place.scene().start(&place.words(&ask));
            run.wait_empty();
            let report: Value = serde_json::from_str(&run.stdout()).unwrap();
            let promised = report["left"][OTHERS] != "these";

            let scene = place.scene();
            let tree = if place.uid.is_some() {
                let setuid = place::setuid_actor(&scene);
                format!("server:ignore=TERM[other:via={setuid}:setuid:ignore=TERM]")
            } else {
                "server:ignore=TERM[other:uid=1234:ignore=TERM]".to_owned()
            };
            let options = [
                format!("--contain={level}"),
                "--grace=50ms".to_owned(),
                "--kill-timeout=300ms".to_owned(),
            ];
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let words = place.words(&Wrap::Treaper(&options).tree(&tree));
            let mut run = scene.start(&words);
            run.log.ready("other");
            sys::kill(run.shim(), libc::SIGTERM).unwrap();
            if promised {
                // At the latest they end with PID 1 of the namespace.
                run.wait_empty();
            } else {
                assert_eq!(run.wait().code(), Some(123), "{}, {level}", place.name);
                let left = run.named("other").len();
                assert_eq!(left, 1, "{}, {level}: {}", place.name, run.stderr());
            }
        }
    }
}

/// The calls that make a PID namespace fail in several ways. The remedy of each is another one.
#[test]
fn the_remedy_of_a_missing_namespace_fits_its_cause() {
    for (error, word) in [
        ("EPERM", "CAP_SYS_ADMIN"),
        ("EACCES", "CAP_SYS_ADMIN"),
        ("EINVAL", "this kernel has no PID or user namespaces"),
        ("ENOSPC", "user.max_pid_namespaces"),
    ] {
        let (old, new) = (format!("clone={error}"), format!("clone3={error}"));
        let words = [
            ACTOR,
            "faults",
            &old,
            &new,
            "--",
            TREAPER,
            "--contain=pidns",
            "true",
        ];
        let mut run = Scene::new().start(&words);
        let (code, printed) = (run.wait_clean().code(), run.stderr());
        assert_eq!(code, Some(125), "{error}: {printed}");
        assert!(printed.contains(word), "{error}: {printed}");
    }
}

/// Before Linux 5.14 a process of another uid is killed only with the right to signal it.
#[test]
fn without_the_call_that_kills_a_group_a_cgroup_promises_no_more_than_a_walk() {
    let Some(place) = place::Place::new().filter(|_| here()) else {
        return skip("no cgroup v2 that this user may change");
    };
    let left = |rules: &[&str]| {
        let start = [ACTOR, "faults"];
        let weak = [
            "--",
            "setpriv",
            "--bounding-set",
            "-kill",
            "--inh-caps",
            "-kill",
        ];
        let ask = [TREAPER, "--doctor=json", "--contain=cgroup"];
        let mut run = place
            .scene()
            .start(&[&start[..], rules, &weak, &ask].concat());
        run.wait_empty();
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let left =
            ["the server itself is SIGKILLed", OTHERS].map(|row| report["left"][row].clone());
        assert!(place.groups().is_empty(), "{}", run.stderr());
        left
    };
    assert_eq!(left(&[]), ["none", "none"]);
    assert_eq!(left(&["open~cgroup.kill=ENOENT"]), ["none", "these"]);
}
