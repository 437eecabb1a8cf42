//! The relay is another process, in front of treaper. What is left of it is the line, on which a trigger can come, and
//! which hangs up when that process is gone.
use crate::actor::{self, Object};
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::pair::context::Front;
use crate::settings::config::Config;
use crate::sys::fd;
use crate::sys::parent::Parent;

pub fn start(_: &Config, _: &Place, _: Option<Parent>) -> Result<(Front, ()), Error> {
    // It is never suspended, so it has no pid.
    let line = fd::keep(actor::open(Object::Line));
    Ok((Front { pid: None, line }, ()))
}
