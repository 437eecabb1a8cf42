//! A host with tokio. `kill`: drops its child when that has written a line, and stays.

#[path = "command.rs"]
mod command;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};

fn main() {
    treaper::dispatch();
    host();
}

#[tokio::main]
async fn host() {
    let mut command = tokio::process::Command::from(command::command());
    if command::wants("kill") {
        let mut child = command
            .kill_on_drop(true)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout)
            .read_line(&mut String::new())
            .await
            .unwrap();
        drop(child);
        println!("killed");
        std::future::pending::<()>().await;
    }
    let status = command.status().await.unwrap();
    let of_signal = |signal| 128 + signal;
    std::process::exit(status.code().or(status.signal().map(of_signal)).unwrap());
}
