//! Where a scene runs: a control group of its own, which can be delegated to a user; setuid programs. Only root can
//! make these, so each can be missing.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::scene::copy_program;
use super::{ACTOR, Scene, sys, unique, until};

/// The mount point of cgroup v2.
pub fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// The directory of the control group of a process (`self` or a pid).
pub fn group_of(process: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount_point()?.join(own))
}

/// A control group below that of the test, empty at first. Processes that are in it when the test ends are killed.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Option<Place> {
        let path = group_of("self")?.join(format!("arena-{}", unique()));
        fs::create_dir(&path).ok()?;
        Some(Place(path))
    }

    /// Delegated to a user as service managers do it: the directory and three files. `cgroup.kill` is not one of them.
    pub fn delegated(uid: u32) -> Option<Place> {
        let place = Place::new()?;
        let files = [
            "",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
        ];
        for file in files {
            chown(place.0.join(file), Some(uid), Some(uid)).ok()?;
        }
        Some(place)
    }

    /// A scene whose arena, and so everything in it, starts in this group.
    pub fn scene(&self) -> Scene {
        let procs = CString::new(self.0.join("cgroup.procs").as_os_str().as_bytes()).unwrap();
        Scene::new().before_exec(move || sys::write_to(&procs, b"0"))
    }

    /// The names of the groups right below.
    pub fn groups(&self) -> Vec<String> {
        names_below(&self.0)
    }

    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

fn names_below(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn remove(path: &Path) {
    for name in names_below(path) {
        remove(&path.join(name));
    }
    let _ = fs::remove_dir(path);
}

impl Drop for Place {
    fn drop(&mut self) {
        until("a group without members", || {
            let _ = fs::write(self.0.join("cgroup.kill"), "1");
            remove(&self.0);
            !self.0.exists()
        });
    }
}

/// A setuid copy of the actor that belongs to root (the trait `setuid`).
pub fn setuid_actor(scene: &Scene) -> String {
    let path = scene.directory().join("setuid-actor");
    copy_program(ACTOR, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    path.to_string_lossy().into_owned()
}
