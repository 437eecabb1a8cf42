//! Writes each message as one line to stderr, without waiting or allocating.

use std::fmt::{self, Write};
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};

use crate::sys::pid::Pid;
use crate::sys::wait::Wait;
use crate::sys::{apart, clock, fd};

/// Whether each line is written by a process of its own, if the write may wait.
static APART: AtomicBool = AtomicBool::new(false);
/// The last ones of these processes; 0: none. The next one takes the place of the oldest.
static WRITERS: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];
/// How many of them there were.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// From now on this process, which must not wait, writes its messages at once all the same.
pub fn write_apart() {
    APART.store(true, Relaxed);
}

/// To be called at the end of this process, so that its last lines are there when it is gone. It
/// waits for 2 s at most: a file system that hangs does not let the writers end.
pub fn finish_apart() {
    let end = clock::now() + Duration::from_secs(2);
    for writer in WRITERS.iter().filter_map(|pid| Pid::new(pid.load(Relaxed))) {
        while matches!(Wait::child(writer).ended().take(), Ok(None)) && clock::now() < end {
            clock::pause(Duration::from_millis(1));
        }
    }
}

/// With the filter of `--log`.
struct Stderr(Option<env_logger::Logger>);

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.as_ref().is_none_or(|own| own.enabled(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        if self.0.as_ref().is_none_or(|own| own.matches(record)) {
            line(*record.args());
        }
    }

    fn flush(&self) {}
}

/// `filter` takes precedence over `verbosity`.
pub fn init(verbosity: u8, filter: Option<&str>) {
    let level = match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    let filter = filter.map(|filter| env_logger::Builder::new().parse_filters(filter).build());
    log::set_max_level(filter.as_ref().map_or(level, env_logger::Logger::filter));
    let _ = log::set_logger(Box::leak(Box::new(Stderr(filter))));
}

pub fn line(text: fmt::Arguments<'_>) {
    bare_line(format_args!("treaper: {text}"));
}

/// Without the name of treaper.
pub fn bare_line(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = line.write_fmt(text);
    let bytes = line.finish();
    if APART.load(Relaxed) {
        if let Some(writer) = apart::write_message_apart(bytes) {
            let at = COUNT.fetch_add(1, Relaxed) % WRITERS.len();
            WRITERS[at].store(writer.get(), Relaxed);
        }
    } else if let (true, Ok(mut lines)) = (DEFERS.load(Relaxed), DEFERRED.try_lock()) {
        lines.add(bytes);
    } else {
        fd::write_message(bytes);
    }
}

const ROOM: usize = 32 << 10;

/// The lines of a stop, if stderr is a file, whose file system might keep the SIGKILL waiting.
struct Deferred {
    bytes: [u8; ROOM],
    len: usize,
    /// How many lines had no room.
    lost: usize,
}

static DEFERRED: Mutex<Deferred> = Mutex::new(Deferred {
    bytes: [0; ROOM],
    len: 0,
    lost: 0,
});

static DEFERS: AtomicBool = AtomicBool::new(false);

impl Deferred {
    fn add(&mut self, line: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + line.len()) {
            Some(room) => {
                room.copy_from_slice(line);
                self.len += line.len();
            }
            None => self.lost += 1,
        }
    }
}

/// From now on no message waits for a file system.
pub fn defer() {
    DEFERS.store(fd::may_wait(fd::STDERR), Relaxed);
}

/// The stop is over.
pub fn write_deferred() {
    let lines = DEFERS.load(Relaxed).then(|| DEFERRED.try_lock());
    let Some(Ok(mut lines)) = lines else { return };
    DEFERS.store(false, Relaxed);
    let (len, lost) = (mem::take(&mut lines.len), mem::take(&mut lines.lost));
    let kept = lines.bytes[..len].split_inclusive(|byte| *byte == b'\n');
    kept.for_each(fd::write_message);
    if lost > 0 {
        line(format_args!(
            "{lost} more messages of the stop are lost: there was no room to keep them"
        ));
    }
}

/// A line of at most 1 KiB. The rest is cut off.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            bytes: [0; 1024],
            len: 0,
        }
    }

    fn finish(&mut self) -> &[u8] {
        let len = self.len.min(self.bytes.len() - 1);
        self.bytes[len] = b'\n';
        &self.bytes[..=len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            // Names come from other programs: their control characters must not reach the terminal,
            // and those of C1 neither: U+009B begins an escape sequence, as ESC [ does.
            let char = if char.is_control() { '?' } else { char };
            let end = self.len + char.len_utf8();
            if end >= self.bytes.len() {
                // The error ends the formatting, so the line ends after a whole character.
                return Err(fmt::Error);
            }
            char.encode_utf8(&mut self.bytes[self.len..end]);
            self.len = end;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/stderr.rs"]
mod tests;
