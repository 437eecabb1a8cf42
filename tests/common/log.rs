//! The FIFO into which the actors of a scene write, one line for each thing that happens to them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{patience, sys};

/// A line `NAME EVENT key=value...`.
#[derive(Debug, Clone)]
pub struct Line {
    pub name: String,
    pub event: String,
    fields: HashMap<String, String>,
}

impl Line {
    fn parse(text: &str) -> Line {
        let mut words = text.split(' ');
        let name = words.next().unwrap_or("").to_owned();
        let event = words.next().unwrap_or("").to_owned();
        let fields = words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Line {
            name,
            event,
            fields,
        }
    }

    pub fn text(&self, key: &str) -> &str {
        self.fields
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    pub fn number(&self, key: &str) -> i64 {
        self.text(key)
            .parse()
            .unwrap_or_else(|_| panic!("no number {key} in {self:?}"))
    }

    pub fn pid(&self) -> i32 {
        self.number("pid") as i32
    }
}

pub struct Log {
    pub path: PathBuf,
    fifo: File,
    partial: Vec<u8>,
    pub lines: Vec<Line>,
}

impl Log {
    pub fn new(directory: &Path) -> Log {
        let path = directory.join("log");
        sys::mkfifo(&path);
        // Actors of any uid write to it, so the umask must not count.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let fifo = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
        sys::widen_pipe(fifo.as_raw_fd());
        Log {
            path,
            fifo,
            partial: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Reads what is there, without waiting.
    pub fn drain(&mut self) {
        let mut buffer = vec![0; 65536];
        while let Ok(n) = self.fifo.read(&mut buffer) {
            self.partial.extend_from_slice(&buffer[..n]);
        }
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.lines
                .push(Line::parse(String::from_utf8_lossy(&line).trim_end()));
        }
    }

    pub fn all(&mut self, name: &str, event: &str) -> Vec<Line> {
        self.drain();
        self.lines
            .iter()
            .filter(|line| line.name == name && line.event == event)
            .cloned()
            .collect()
    }

    /// Waits until `count` such lines have come, and returns all that have come.
    pub fn wait_for(&mut self, count: usize, name: &str, event: &str) -> Vec<Line> {
        self.wait_until(count, name, event, patience())
            .unwrap_or_else(|| {
                panic!(
                    "waited too long for {count} `{name} {event}`; came: {:#?}",
                    self.lines
                )
            })
    }

    pub fn wait(&mut self, name: &str, event: &str) -> Line {
        self.wait_for(1, name, event)[0].clone()
    }

    /// The pid of a node that is ready.
    pub fn ready(&mut self, name: &str) -> i32 {
        self.wait(name, "ready").pid()
    }

    /// Whether such a line comes within the time. Only for a line that must not come.
    pub fn comes_within(&mut self, time: Duration, name: &str, event: &str) -> bool {
        self.wait_until(1, name, event, Instant::now() + time)
            .is_some()
    }

    fn wait_until(
        &mut self,
        count: usize,
        name: &str,
        event: &str,
        deadline: Instant,
    ) -> Option<Vec<Line>> {
        loop {
            let found = self.all(name, event);
            if found.len() >= count {
                return Some(found);
            }
            if Instant::now() >= deadline {
                return None;
            }
            sys::poll(&[(self.fifo.as_raw_fd(), libc::POLLIN)], Some(deadline));
        }
    }
}
