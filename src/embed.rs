//! treaper in a host written in Rust: the host's own executable, started again as treaper.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::output::{status, stderr};
use crate::run;
use crate::sys::{clone, startup};

/// The file name of an installed treaper, and the `argv[0]` of a host that is started as treaper.
const NAME: &str = "treaper";

/// Its first argument, which no setting of a `Command` can replace, as `arg0` replaces its name.
const MARK: &str = "--treaper";

/// Names the file that this process runs, also after an update has replaced or deleted that.
const OWN_FILE: &str = "/proc/self/exe";

/// What [`command`] executes. [`dispatch`] sets it: without that, the child would be a second host.
static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Lets this executable act as treaper. Call it first in `main`.
///
/// In a process that [`command`] started, whose first argument is `--treaper`, this runs treaper
/// and exits with its status. In every other process it returns at once. Not for a setuid program.
///
/// treaper needs a process with a single thread, since it forks without an exec. Otherwise it
/// writes an error to stderr and exits with 125. An async `main` runs beside the threads of its
/// runtime, so move `#[tokio::main]` to a function that `main` calls after `dispatch()`.
#[allow(clippy::disallowed_methods, reason = "main does not go on")]
pub fn dispatch() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.len() > 2 && words[1] == MARK {
        clone::exit_now(run_treaper(&words));
    }
    EXECUTABLE.get_or_init(|| match startup::executable().map(std::path::absolute) {
        Some(Ok(path)) if fs::metadata(OWN_FILE).is_err() => path,
        _ => OWN_FILE.into(),
    });
}

fn run_treaper(words: &[OsString]) -> i32 {
    if fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
        let how = "call treaper::dispatch() first in main";
        stderr::line(format_args!("cannot run beside other threads: {how}"));
        return status::OWN_FAILURE.into();
    }
    // Otherwise it would be `exe`, the name of the link, or have a blank, which hides the fields.
    let _ = rustix::thread::set_name(c"treaper");
    startup::find_arguments();
    run::main(&[&[NAME.into(), "--".into()], &words[2..]].concat())
}

/// A command that runs `program` behind treaper, in this executable.
///
/// All that you add is for `program`, which runs as it would with `Command::new(program)`. For
/// tokio there is `tokio::process::Command::from(treaper::command(program))`.
///
/// - Options of treaper are variables, which `program` inherits: `.env("TREAPER_GRACE", "3s")`.
/// - `arg0` is ignored. `spawn()` also succeeds if `program` cannot be started: the status is then
///   127 (not found), 126 (not executable) or 125 (treaper failed), and the reason is on stderr.
/// - SIGTERM to [`Child::id`](std::process::Child::id), which is treaper, stops `program` and all
///   that it started, and so does [`Child::kill`](std::process::Child::kill).
/// - treaper stops `program` 5 s after a piped stdin closes, except in the first second. If that
///   only means that the input is complete, set `TREAPER_STDIN` to `ignore`.
///
/// If this process has not called [`dispatch`], as in a unit test, `spawn()` fails with
/// `NotADirectory`, and `Debug` of the command and an error in the `log` crate say why.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let executable = EXECUTABLE.get().cloned().unwrap_or_else(|| {
        let error = "treaper::dispatch() was not called first in main";
        log::error!("{error}");
        PathBuf::from("/dev/null").join(error)
    });
    let mut command = Command::new(executable);
    command.arg0(NAME).arg(MARK).arg(program);
    command
}

/// The installed `treaper` of the first directory in PATH that has one, without relative ones:
/// ```
/// std::process::Command::new(treaper::find().unwrap_or_default()).arg("some-server").spawn();
/// ```
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(NAME));
    let is_program = |found: fs::Metadata| found.is_file() && found.mode() & 0o111 != 0;
    files.find(|file| file.is_absolute() && fs::metadata(file).is_ok_and(is_program))
}
