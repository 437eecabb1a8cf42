//! The life of the only process, which has both roles.
#![forbid(unsafe_code)]

use crate::output::error::Error;
use crate::pair::context::Context;
use crate::pair::monitor::Role;
use crate::plan::machine::Plan;
use crate::serve::finish;
use crate::serve::prepare::Prepared;
use crate::serve::server;

/// Starts the server, and stops everything that it has started. Returns the exit status.
///
/// # Errors
/// The server was not started.
pub fn run(context: &Context<'_>, prepared: Prepared) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: prepared.hosts.parent,
    };
    let strangers = context.place.strangers.clone();
    let mut monitor = server::start(context, prepared, role, strangers)?;
    let plan = Plan::new(context.place.policy);
    let (_, status) = finish::run_loop(context, &mut monitor, plan, None)?;
    finish::end_treaper(context, status);
    Ok(status)
}
