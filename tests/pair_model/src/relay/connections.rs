//! Left out: the writers other than the host. None connects.
use std::time::Duration;

use crate::relay::peer::Family;
use crate::relay::turns::Turns;
use crate::relay::wanted::Wanted;
use crate::relay::words::Words;
use crate::sys::stream::Socket;

pub const MAX_CONNECTIONS: usize = 1;

pub struct ListeningSocket {
    pub name: String,
    pub listener: Socket,
}

#[derive(Debug)]
pub struct Connections;

impl Connections {
    pub fn new(_: Vec<ListeningSocket>, _: Family, _: Words) -> Self {
        Self
    }
    pub fn list(&self, _: &mut Wanted, _: Duration) {}
    pub fn deadline(&self, _: Duration) -> Option<Duration> {
        None
    }
    pub fn read(&mut self, place: usize, _: &mut Turns) {
        unreachable!("writer {place} has not connected")
    }
    pub fn accept(&mut self, source: usize, _: Duration) {
        unreachable!("no process connects to socket {source}")
    }
    pub fn message(&self, _: usize) -> Option<&[u8]> {
        None
    }
    pub fn written(&mut self, place: usize, _: usize, _: &mut Turns) -> bool {
        unreachable!("writer {place} has not connected")
    }
    pub fn close(&mut self, _: &str) {}
}
