//! Left out: messages to a service manager.
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::time::Duration;

use crate::sys::pid::Pid;

#[derive(Debug)]
pub struct Notifier {
    pub address: OsString,
    never: Infallible,
}

impl Notifier {
    pub fn open() -> io::Result<Option<Self>> {
        Ok(None)
    }
    pub fn send_messages(&self, _: Option<Pid>) {
        match self.never {}
    }
    pub fn retry_at(&self) -> Option<Duration> {
        match self.never {}
    }
    pub fn finish(&self, _: Option<Pid>) {
        match self.never {}
    }
}
