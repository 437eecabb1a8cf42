//! The mistake that tokio invites: the body of an async `main` runs beside the threads of the runtime.

#[path = "command.rs"]
mod command;

#[tokio::main]
async fn main() {
    treaper::dispatch();
    let mut command = tokio::process::Command::from(command::command());
    let status = command.status().await.unwrap();
    std::process::exit(status.code().unwrap());
}
