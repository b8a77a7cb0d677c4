//! `gradus`: words to calls, results to words.
//!
//! Each command is one file in `command`, its arguments and one function. Nothing is decided here.

mod attend;
mod command;
mod error;
mod exit;
mod file_fault;
mod machine;
mod narrator;
mod printer;
mod progress;
mod settings;
mod sweep;
mod table;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::command::Command;
use crate::printer::Printer;
use crate::settings::Settings;

/// Trains deep-learning models: a job file goes in; a plan with hours and dollars comes back; then the trained model and
/// an exact bill come out, whatever fails in between. Today it rents the machine it runs on.
#[derive(Debug, Parser)]
#[command(
    name = "gradus",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 our fault, 2 wrong words: also a file, folder or bucket that is not there or of another\nkind, 3 what is there refuses: rights, room, damage, network, 100 the run failed, 101 not finished,\n102 no such run, 103 stopped, 130 interrupted.\nStart with: gradus run examples/digits.yaml"
)]
struct Arguments {
    /// Folder of all state [default: `GRADUS_HOME`, else the platform's data folder]
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
    /// Print JSON to stdout: one value; where something is listed or followed, one a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// A damaged file that a parser panics over is told as an error; the panic itself would only frighten.
fn hush_expected_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !data::caught::expected() {
            loud(panic);
        }
    }));
}

fn main() -> ExitCode {
    hush_expected_panics();
    let arguments = Arguments::parse();
    let mut printer = Printer::new(arguments.json, true);
    let settings = match Settings::gather(arguments.home) {
        Ok(settings) => settings,
        Err(error) => {
            printer.error(&error);
            return ExitCode::from(error.code());
        }
    };
    printer = Printer::new(arguments.json, settings.color);
    let result = arguments.command.run(&settings, &mut printer);
    match result.and_then(|code| printer.failure().map_or(Ok(code), Err)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            printer.error(&error);
            ExitCode::from(error.code())
        }
    }
}
