//! From the arguments to the exit status: treaper itself, `--doctor`, or the place of another init.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use crate::dropin::{self, Answer, Program};
use crate::output::error::{self, Error, Shown};
use crate::output::progress::{Own, Voice};
use crate::output::{status, stderr};
use crate::pair::context::Request;
use crate::settings::cli::{self, Parsed};
use crate::settings::config::{Config, Manner, PREFIX};
use crate::sys::startup::{self, Inherited};
use crate::sys::{errno, fd};
use crate::{doctor, pause, start};

/// Runs treaper. Returns the exit status of this process, which may be the shim or the monitor.
pub fn main(arguments: &[OsString]) -> i32 {
    let inherited = startup::capture();
    let status = match arguments.first().and_then(|name| Program::named(name)) {
        Some(program) => run_as(program, arguments, &inherited),
        None => run(arguments, &inherited)
            .unwrap_or_else(|error| Own.report_failure(&error, OsStr::new(""))),
    };
    stderr::write_deferred();
    status.into()
}

fn run(arguments: &[OsString], inherited: &Inherited) -> Result<u8, Error> {
    let config = match cli::parse(arguments, &startup::variables_with(PREFIX))? {
        Parsed::Run(config) => config,
        Parsed::Print(text) => return print(&text).map(|()| 0),
    };
    if config.doctor.is_some() {
        start_log(&config);
        let (text, available) = doctor::examine(&config, arguments, inherited);
        return print(&text).map(|()| if available { 0 } else { status::OWN_FAILURE });
    }
    open_stderr(&config)?;
    start::run(Request {
        config: &config,
        manner: Manner::default(),
        voice: &Own,
        inherited,
    })
}

fn run_as(program: Program, arguments: &[OsString], inherited: &Inherited) -> u8 {
    let start = match program.parse(arguments, &std::env::vars_os().collect::<Vec<_>>()) {
        Ok(start) => start,
        Err(Answer::Stdout(text)) => return u8::from(print(&text).is_err()),
        Err(Answer::Stderr(status, text)) => return dropin::complain(status, &text),
    };
    let voice = &*start.voice;
    let result = start.config.and_then(|config| {
        open_stderr(&config)?;
        let run = if start.pauses { pause::run } else { start::run };
        run(Request {
            config: &config,
            manner: start.manner,
            voice,
            inherited,
        })
    });
    result.unwrap_or_else(|error| voice.report_failure(&error, &start.command[0]))
}

/// Opens the file of `--stderr`, before any other descriptor, and starts the log.
fn open_stderr(config: &Config) -> Result<(), Error> {
    if let Some(path) = &config.stderr {
        fd::append_stderr_to(path).map_err(|errno| {
            let (path, why) = (Shown(path), error::why_not_opened(errno));
            let text = format!("--stderr or TREAPER_STDERR: cannot append to '{path}': {why}");
            Error::new(text)
        })?;
    }
    start_log(config);
    Ok(())
}

fn start_log(config: &Config) {
    stderr::init(config.verbosity, config.log.as_deref());
    if !config.unknown_variables.is_empty() {
        let names = config.unknown_variables.join(", ");
        log::warn!("ignored {names}: no option has such a variable; see treaper --help");
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(text.as_bytes());
    let written = written.and_then(|()| stdout.flush());
    written.map_err(|error| Error::kernel("write to stdout", errno(error)))
}
