//! The relay is another process, in front of treaper. What is left of it is the line, on which a trigger can come, and
//! which hangs up when that process is gone.
use std::convert::Infallible;

use crate::actor::{self, Object};
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::pair::context::Front;
use crate::settings::config::Config;
use crate::sys::parent::Parent;

pub fn start(
    _: &Config,
    _: &Place,
    _: Option<Parent>,
) -> Result<Option<(Front, Option<Infallible>)>, Error> {
    let line = || actor::open(Object::Line);
    // It is never suspended, so it has no pid.
    let front = actor::scene().relay.then(|| Front {
        pid: None,
        line: line(),
    });
    Ok(front.map(|front| (front, None)))
}
