//! What the hosts do alike: `HOST bare|treaper PROGRAM [ARGUMENT]...`, with what else is wanted in `$SETUP`, by words.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub fn wants(word: &str) -> bool {
    std::env::var("SETUP").is_ok_and(|setup| setup.split(' ').any(|known| known == word))
}

/// `find`: prints the installed treaper. `wait`: first reads a byte from stdin. `closed`: the program has no stdin. `clear`: it
/// has one variable. `cwd`: it runs in `/usr`, as its own process group. `uid`: it runs as another user.
pub fn command() -> Command {
    if wants("find") {
        println!("{:?}", treaper::find());
    }
    if wants("wait") {
        std::io::stdin().read_exact(&mut [0]).unwrap();
    }
    let mut words = std::env::args_os().skip(1);
    let kind = words.next().unwrap();
    let program = words.next().unwrap();
    let mut command = if kind == "treaper" {
        treaper::command(program)
    } else {
        Command::new(program)
    };
    command.args(words);
    if wants("closed") {
        // SAFETY: close is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::close(0);
                Ok(())
            })
        };
    }
    if wants("clear") {
        command.env_clear().env("ONLY", "this");
    }
    if wants("cwd") {
        command.current_dir("/usr").process_group(0);
    }
    if wants("uid") {
        command.uid(65534);
    }
    command
}
