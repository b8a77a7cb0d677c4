//! `cargo xtask`: the one door to building, testing and measuring gradus.

mod setup;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        Some("setup") => setup::setup(root, &|line| eprintln!("{line}")),
        _ => {
            eprintln!("usage: cargo xtask setup");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
