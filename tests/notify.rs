//! `Type=notify`: systemd is asked to accept the server's messages, if it can be asked. treaper passes none on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use common::arena::Run;
use common::scene::Directory;
use common::{Scene, TREAPER, sys, unique};
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, sockopt};

/// Set by systemd since version 254, which can be asked.
const NEWER: &str = "MEMORY_PRESSURE_WATCH=/dev/null";
const OLDER: &str = "-uMEMORY_PRESSURE_WATCH";
/// The server, which writes its socket.
const SERVER: &str = r#"echo "at ${NOTIFY_SOCKET-none}"; exit 7"#;

/// A socket that adds the sender's pid to each message, as systemd's does.
struct Manager {
    socket: UnixDatagram,
    /// Its `NOTIFY_SOCKET`.
    name: String,
}

impl Manager {
    fn with_address(name: String, address: &SocketAddr) -> Manager {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        sockopt::set_socket_passcred(&socket, true).unwrap();
        socket.set_nonblocking(true).unwrap();
        Manager { socket, name }
    }

    fn new() -> Manager {
        let name = format!("treaper-manager-{}", unique());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Manager::with_address(format!("@{name}"), &address)
    }

    fn at_a_path(directory: &Directory) -> Manager {
        let path = directory.0.join("manager");
        let name = path.to_str().unwrap().to_owned();
        Manager::with_address(name, &SocketAddr::from_pathname(&path).unwrap())
    }

    /// The message that has come first, and the pid of its sender; `None` if there is none by now.
    fn next(&self) -> Option<(String, i32)> {
        let mut text = [0; 100];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut pieces = [IoSliceMut::new(&mut text)];
        let got = net::recvmsg(&self.socket, &mut pieces, &mut control, RecvFlags::empty());
        let length = got.ok()?.bytes;
        let sender = control.drain().find_map(|more| match more {
            RecvAncillaryMessage::ScmCredentials(its) => Some(its.pid.as_raw_nonzero().get()),
            _ => None,
        });
        let text = std::str::from_utf8(&text[..length]).unwrap();
        Some((text.to_owned(), sender.unwrap()))
    }

    /// Leaves no room for a further message.
    fn fill(&self) {
        let address = self.socket.local_addr().unwrap();
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = filler.send_to_addr(b"FILLER=1", &address) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
}

/// treaper with this option, started by a manager at `socket`, in an environment that this changes. `main_pid`: that of
/// the main process, `$$` for treaper.
fn start(socket: &str, version: &str, main_pid: &str, option: &str) -> Run {
    let treaper = format!(
        r#"SYSTEMD_EXEC_PID={main_pid} exec env "$0" NOTIFY_SOCKET="$1" "$2" {option} -- sh -c "$3""#
    );
    Scene::new().start(&["sh", "-c", &treaper, version, socket, TREAPER, SERVER])
}

#[test]
fn a_newer_manager_is_asked_once_before_the_server_runs() {
    let directory = Directory::new();
    for manager in [Manager::new(), Manager::at_a_path(&directory)] {
        for option in ["", "--no-guard"] {
            let mut run = start(&manager.name, NEWER, "$$", option);
            assert_eq!(run.whole_line(), format!("at {}\n", manager.name));
            let asked = manager.next();
            assert_eq!(asked, Some(("NOTIFYACCESS=all".to_owned(), run.main)));
            assert_eq!(run.wait_clean().code(), Some(7), "{option}");
            assert_eq!(manager.next(), None, "{option}");
            assert_eq!(run.stderr(), "", "{option}");
        }
    }
}

/// An older one would not understand it, and takes nothing from other processes.
#[test]
fn no_other_manager_is_asked_and_the_server_has_the_same_socket() {
    let manager = Manager::new();
    for (version, main_pid) in [(OLDER, "$$"), (OLDER, "1"), (NEWER, "1"), (NEWER, "")] {
        let mut run = start(&manager.name, version, main_pid, "");
        assert_eq!(run.wait_clean().code(), Some(7));
        assert_eq!(run.stdout(), format!("at {}\n", manager.name));
        assert_eq!(manager.next(), None, "{version} {main_pid}");
        assert_eq!(run.stderr(), "", "{version} {main_pid}");
    }
}

#[test]
fn a_manager_that_does_not_read_delays_no_start() {
    let manager = Manager::new();
    manager.fill();
    let mut run = start(&manager.name, NEWER, "$$", "");
    assert_eq!(run.wait_clean().code(), Some(7));
    assert_eq!(run.stdout(), format!("at {}\n", manager.name));
    let words = run.stderr();
    assert!(words.contains("the unit needs NotifyAccess=all"), "{words}");
}

#[test]
fn the_server_runs_also_if_the_manager_cannot_be_reached() {
    for socket in [
        "/no/such/socket",
        "@treaper-nobody",
        "manager",
        "vsock:2:1",
        "@",
        "",
    ] {
        for (version, is_asked) in [(NEWER, true), (OLDER, false)] {
            let mut run = start(socket, version, "$$", "");
            assert_eq!(run.wait_clean().code(), Some(7), "{socket}");
            assert_eq!(run.stdout(), format!("at {socket}\n"));
            let words = run.stderr();
            assert_eq!(
                words.contains("NotifyAccess=all"),
                is_asked,
                "{socket}: {words}"
            );
        }
    }
}
