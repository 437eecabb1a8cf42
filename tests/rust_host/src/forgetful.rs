//! A host that never calls `dispatch`. Each process that runs its `main` writes a line.

#[path = "command.rs"]
mod command;

fn main() {
    eprintln!("main");
    let mut command = command::command();
    let error = command.spawn().unwrap_err();
    eprintln!("{:?} {command:?}", error.kind());
}
