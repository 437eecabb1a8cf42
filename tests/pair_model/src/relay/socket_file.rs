//! The file of a socket: whether it is there. No other process replaces it.
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::actor::{Op, call};
use crate::sys::stream::{self, Socket};

pub struct SocketPath;

#[derive(Debug)]
pub struct SocketFile(Socket);

impl SocketPath {
    pub fn open(_: &Path) -> Result<Self, String> {
        Ok(Self)
    }

    pub fn make(self) -> Result<(SocketFile, Socket), String> {
        call(Op::MakeSocket);
        Ok((SocketFile(stream::socket()), stream::socket()))
    }
}

impl SocketFile {
    pub fn folder(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub fn remove(&self) {
        call(Op::RemoveSocket);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}
