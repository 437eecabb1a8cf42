//! Writers that run beside each other, and the reader of what came out.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use crate::common::{PATIENCE, patience, sys};

/// The message `number` of a writer: so long, and nothing in it is like another writer's.
fn message(writer: &str, number: usize, size: usize) -> String {
    let start = format!("{writer}:{number}:");
    let fill = writer.chars().next().unwrap();
    let len = size.saturating_sub(start.len());
    format!("{start}{}\n", fill.to_string().repeat(len))
}

/// Writes `count` messages of `size` bytes, each in one call, and gives the writer back.
pub fn write_all<W: Write + Send + 'static>(
    mut to: W,
    writer: &str,
    (count, size): (usize, usize),
) -> JoinHandle<W> {
    let writer = writer.to_owned();
    std::thread::spawn(move || {
        for number in 0..count {
            let text = message(&writer, number, size);
            to.write_all(text.as_bytes()).unwrap();
        }
        to
    })
}

/// The same through a connection of its own, until all of it is acknowledged.
pub fn inject(path: &PathBuf, writer: &str, messages: (usize, usize)) -> JoinHandle<()> {
    let writer = write_all(connect(path), writer, messages);
    std::thread::spawn(move || acknowledged(writer.join().unwrap()))
}

pub fn connect(path: &PathBuf) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

/// The answer to a writer that writes no more.
pub fn answered(mut socket: UnixStream) -> String {
    let _ = socket.shutdown(Shutdown::Write);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = Vec::new();
    match socket.read_to_end(&mut text) {
        Ok(_) => {}
        // The relay has closed the socket before it had read everything.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(text).unwrap()
}

/// Waits until the relay has written all to the server.
pub fn acknowledged(socket: UnixStream) {
    assert_eq!(answered(socket), "ok\n");
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
            Err(error) => unreachable!("cannot read: {error}"),
        }
        if slow {
            sys::pause_for(std::time::Duration::from_millis(1));
        }
    }
}

/// How many messages are not as they were written: torn, lost, or out of order.
pub fn torn(text: &[u8], writers: &[(&str, usize, usize)]) -> usize {
    let text = String::from_utf8_lossy(text);
    let mut next: HashMap<String, usize> = HashMap::new();
    let mut bad = 0;
    for found in text.split_inclusive('\n') {
        let name = found.split(':').next().unwrap();
        let Some((writer, _, size)) = writers.iter().find(|(writer, ..)| *writer == name) else {
            bad += 1;
            continue;
        };
        let number = next.entry((*writer).to_owned()).or_default();
        if *found == message(writer, *number, *size) {
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
