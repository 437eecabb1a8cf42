//! The life of the only process, with `--no-guard` or as PID 1 under the name of another init: it
//! starts the server, and runs the loop.

use crate::output::error::Error;
use crate::pair::context::{Context, Prepared};
use crate::pair::supervisor::Role;
use crate::pair::{end, monitor};
use crate::plan::machine::Plan;

/// Starts the server, and stops everything that it has started. Returns the exit status of treaper.
///
/// # Errors
/// The server was not started.
pub fn run(context: &Context<'_>, prepared: Prepared) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: prepared.hosts.parent,
    };
    let strangers = context.place.strangers.clone();
    let mut supervisor = monitor::start_server(context, prepared, role, strangers)?;
    let plan = Plan::new(context.policy());
    let (_, status) = supervisor.run(plan, None)?;
    // It removes the control group.
    drop(supervisor);
    end::end_treaper(context, status);
    Ok(status)
}
