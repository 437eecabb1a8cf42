//! A host with the standard library alone. `kill`: kills its child when that has written a line, and stays.

#[path = "command.rs"]
mod command;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn main() {
    treaper::dispatch();
    let mut command = command::command();
    if command::wants("kill") {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout)
            .read_line(&mut String::new())
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        println!("killed");
        std::thread::park();
    }
    let status = command.status().unwrap();
    let of_signal = |signal| 128 + signal;
    std::process::exit(status.code().or(status.signal().map(of_signal)).unwrap());
}
