//! Writers that run beside each other, and the reader of what came out.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use crate::common::{patience, sys};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Lines,
    Headers,
}

impl Framing {
    pub fn word(self) -> &'static str {
        match self {
            Framing::Lines => "lines",
            Framing::Headers => "headers",
        }
    }

    fn frame(self, body: &str) -> String {
        match self {
            Framing::Lines => format!("{body}\n"),
            Framing::Headers => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        }
    }

    /// The bodies, and how many bytes are not of one.
    fn split(self, mut text: &[u8]) -> (Vec<String>, usize) {
        let (mut bodies, mut stray) = (Vec::new(), 0);
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if self == Framing::Lines {
            return (
                text.split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                    .map(string)
                    .collect(),
                0,
            );
        }
        while !text.is_empty() {
            let head = text.strip_prefix(b"Content-Length: ").and_then(|rest| {
                let end = rest
                    .windows(4)
                    .take(20)
                    .position(|four| four == b"\r\n\r\n")?;
                let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
                Some((&rest[end + 4..], length))
            });
            match head {
                Some((rest, length)) if length <= rest.len() => {
                    bodies.push(string(&rest[..length]));
                    text = &rest[length..];
                }
                _ => {
                    stray += 1;
                    text = &text[1..];
                }
            }
        }
        (bodies, stray)
    }
}

/// The message `number` of a writer: so long, and nothing in it is like another writer's.
fn body(writer: &str, number: usize, size: usize) -> String {
    let start = format!("{writer}:{number}:");
    let fill = writer.chars().next().unwrap();
    let len = size.saturating_sub(start.len());
    start + &fill.to_string().repeat(len)
}

/// Writes `count` messages of `size` bytes, each in one call, and gives the writer back.
pub fn write_all<W: Write + Send + 'static>(
    mut to: W,
    framing: Framing,
    writer: &str,
    (count, size): (usize, usize),
) -> JoinHandle<W> {
    let writer = writer.to_owned();
    std::thread::spawn(move || {
        for number in 0..count {
            let text = framing.frame(&body(&writer, number, size));
            to.write_all(text.as_bytes()).unwrap();
        }
        to
    })
}

/// The same through a connection of its own, until all of it is acknowledged.
pub fn inject(
    path: PathBuf,
    framing: Framing,
    writer: &str,
    (count, size): (usize, usize),
) -> JoinHandle<()> {
    let writer = writer.to_owned();
    std::thread::spawn(move || {
        let mut socket = connect(&path);
        for number in 0..count {
            let text = framing.frame(&body(&writer, number, size));
            socket.write_all(text.as_bytes()).unwrap();
        }
        acknowledged(socket);
    })
}

pub fn connect(path: &PathBuf) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

/// Waits until the relay has written all to the server.
pub fn acknowledged(mut socket: UnixStream) {
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    socket
        .set_read_timeout(Some(crate::common::PATIENCE))
        .unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

/// Everything until the end; `slow`: a piece each millisecond.
pub fn read_all(mut from: File, slow: bool) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let deadline = patience();
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let found = sys::poll(&[(from.as_raw_fd(), libc::POLLIN)], Some(deadline));
                assert!(found[0] != 0, "no end of the output");
            }
            Err(error) => panic!("{error}"),
        }
        if slow {
            sys::pause_for(std::time::Duration::from_millis(1));
        }
    }
}

/// How many messages are not as they were written: torn, lost, or out of order.
pub fn torn(text: &[u8], framing: Framing, writers: &[(&str, usize, usize)]) -> usize {
    let (bodies, stray) = framing.split(text);
    let mut next: HashMap<String, usize> = HashMap::new();
    let mut bad = usize::from(stray > 0);
    for found in &bodies {
        let name = found.split(':').next().unwrap();
        let Some((writer, _, size)) = writers.iter().find(|(writer, ..)| *writer == name) else {
            bad += 1;
            continue;
        };
        let number = next.entry((*writer).to_owned()).or_default();
        if *found == body(writer, *number, *size) {
            *number += 1;
        } else {
            bad += 1;
        }
    }
    let missing =
        |(writer, count, _): &(&str, usize, usize)| count - next.get(*writer).unwrap_or(&0);
    bad + writers.iter().map(missing).sum::<usize>()
}

/// A pair of connected sockets, as descriptors.
pub fn sockets() -> (OwnedFd, OwnedFd) {
    let (near, far) = UnixStream::pair().unwrap();
    (near.into(), far.into())
}
