//! Left out: couriers. stdin and stdout are pipes, which need none.
use crate::relay::words::Words;
use crate::sys::Errno;
use crate::sys::pid::Pid;
use crate::sys::stream::{self, Stream};

#[derive(Debug)]
pub struct HostStream {
    pub stream: Stream,
    pub courier: Option<Pid>,
}

impl HostStream {
    pub fn open(number: i32, _: Words) -> Result<Self, Errno> {
        Ok(Self {
            stream: stream::standard(number),
            courier: None,
        })
    }
}
