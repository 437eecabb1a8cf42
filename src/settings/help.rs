//! The text of `--help`, on one screen. That of clap has one line for each option, and costs 52
//! KiB.

use std::fmt::Write;

use clap::ArgAction;

use crate::settings::options::{self, GROUPS};

/// What treaper does, in one line.
pub const ABOUT: &str = "run a server, and stop it with everything it ever started";

/// The column in which the texts of the options begin.
const TEXT_COLUMN: usize = 31;

/// The greatest length of a line of names.
const WIDTH: usize = 99;

pub fn text() -> String {
    let mut text = format!("treaper: {ABOUT}\nUsage: treaper [OPTIONS] [--] COMMAND [ARG]...\n");
    for (heading, options) in GROUPS {
        let _ = write!(text, "\n{heading}:\n");
        for option in options.iter().filter(|option| !option.rare) {
            let arg = option.argument();
            let short = option.short.map(|short| format!("-{short},"));
            let name = arg.get_value_names().and_then(|names| names.first());
            let value = match (arg.get_action(), name) {
                (ArgAction::Count, _) => "...".to_owned(),
                (_, None) => String::new(),
                (_, Some(name)) if arg.is_require_equals_set() => format!("[=<{name}>]"),
                (_, Some(name)) => format!(" <{name}>"),
            };
            let words = format!("  {:3} --{}{value}", short.unwrap_or_default(), option.long);
            let _ = writeln!(text, "{words:TEXT_COLUMN$}{}", option.help);
        }
    }
    text.push_str("  -h, --help                   Print help\n");
    text.push_str("  -V, --version                Print version\n");
    let mut line = "Rarely needed:".to_owned();
    for option in options::all().filter(|option| option.rare) {
        if line.len() + " --".len() + option.long.len() > WIDTH {
            let _ = write!(text, "\n{line}");
            " ".clone_into(&mut line);
        }
        let _ = write!(line, " --{}", option.long);
    }
    let _ = writeln!(text, "\n{line}");
    text.push_str(
        "\nVariables: TREAPER_KILL_MODE and so on; the command line wins. TIME: 500ms, 5s, 2m, 1h, 1d.\n\
         Exit status: the server's, or 128+n for signal n; 123 survivors, 124 cancel-timeout,\n\
         125 treaper failed, 126 cannot execute, 127 not found. Manual: treaper(1).\n",
    );
    text
}
