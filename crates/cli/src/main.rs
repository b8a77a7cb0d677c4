//! The executable `gradus`: parses the command line, calls the crates below, and prints results.
//!
//! Each command is one file in `command`: its arguments, whose doc comments are the help text, and one function. Shared
//! modules are below them, and modules use only those to their left:
//!
//! `error`, `settings`, `wrap` → `printer`, `table`, `figures` → `rank`, `fetch`, `remote` → `local` → `follow` → `sweep` → `command`
//!
//! `rank` runs `gradus-rank` for single tasks, `fetch` opens data at an address, `remote` is a client of a server,
//! `local` plans a job on this machine, `follow` runs the control loop and prints progress, and `sweep` does so for all
//! trials of a sweep.

mod command;
mod doctor;
mod error;
mod fetch;
mod figures;
mod follow;
mod local;
mod printer;
mod rank;
mod remote;
mod settings;
mod sweep;
mod table;
mod wrap;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use clap::error::ContextKind;

use crate::command::Commands;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// What ends the main `--help` page.
const EXIT_CODES: &str = "\
Exit codes:
    0  success
    1  internal error: a bug in gradus
    2  usage error: arguments, job file, missing path
    3  environment error: permissions, disk, data, network
  100  the run failed
  101  the run has not finished
  102  no such run
  103  the run was stopped
  104  `doctor`: a warning
  105  `doctor`: something makes jobs fail
  130  interrupted

Get started: gradus run examples/digits.yaml";

/// Train deep-learning models from a job file: plan time and cost, run, recover from failures, and get the trained model
/// with an exact bill. Runs on this machine, on machines you can ssh to, and on machines rented from clouds.
#[derive(Debug, Parser)]
#[command(
    name = "gradus",
    version,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
struct Arguments {
    /// Folder that holds all state [default: `GRADUS_HOME`, else the platform's data folder]
    #[arg(long, global = true, value_name = "FOLDER", help_heading = "Global options")]
    home: Option<PathBuf>,
    /// Server to talk to, such as `http://127.0.0.1:7070`, or `local` for this machine's own home
    /// [default: `GRADUS_SERVER`, else that of `gradus login`]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    server: Option<String>,
    /// Print JSON to stdout: one value, or one value per line for lists and followed runs
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Show the values of `envs` in JSON output; secrets stay hidden
    #[arg(long, global = true, help_heading = "Global options")]
    show_values: bool,
    #[command(subcommand)]
    command: Commands,
}

/// A parser that panics over a damaged file is reported as an error, so the panic message itself is suppressed.
fn silence_expected_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !plugin::caught::expected() {
            print(panic);
        }
    }));
}

/// Becomes `cargo xtask run` with everything built, for the job that this process was started with by its first build.
fn build_all(xtask: &Path, what: &str, printer: &mut Printer) -> ExitCode {
    printer.say(format!("this job needs {what}, which the first build leaves out; building all of gradus"));
    // The first two are the program and `run`.
    let failed = Command::new(xtask).args(["run", "--whole"]).args(std::env::args_os().skip(2)).exec();
    let error = Error::file("start", xtask)(failed);
    printer.error(&error);
    ExitCode::from(error.code())
}

/// Prints what is wrong with the arguments, or the help that they ask for; as JSON where they say so.
fn refused(mut error: clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|word| word == "--json");
    // These pass on what stands after `--`; elsewhere that tip is no help to who meant a flag.
    if !std::env::args_os().any(|word| word == "launch" || word == "ssh") {
        if let Some(error) = error::arguments::instead(&error) {
            Printer::new(wants_json, true).error(&error);
            return ExitCode::from(error.code());
        }
        error.remove(ContextKind::Suggested);
    }
    if !error.use_stderr() || !wants_json {
        error.exit();
    }
    let text = error.render().to_string();
    let mut parts = text.trim().splitn(2, "\n\n");
    let message = parts.next().unwrap_or_default().trim_start_matches("error: ").replace('\n', " ");
    let hint = parts.next().unwrap_or_default().trim().to_owned();
    let error = Error::Usage { message, hint };
    Printer::new(true, false).error(&error);
    ExitCode::from(error.code())
}

fn main() -> ExitCode {
    formats::install();
    silence_expected_panics();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(error),
    };
    let mut printer = Printer::new(arguments.json, true);
    let settings = match GlobalSettings::gather(arguments.home, arguments.server) {
        Ok(settings) => settings,
        Err(error) => {
            printer.error(&error);
            return ExitCode::from(error.code());
        }
    };
    printer = Printer::new(arguments.json, settings.color);
    if arguments.show_values {
        printer.show_values();
    }
    let result = arguments.command.run(&settings, &mut printer);
    if let (Err(error), Some(xtask)) = (&result, &settings.xtask)
        && std::env::args_os().nth(1).is_some_and(|word| word == "run")
        && let Some(what) = error.left_out()
    {
        return build_all(xtask, what, &mut printer);
    }
    match result.and_then(|code| printer.failure().map_or(Ok(code), Err)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            printer.error(&error);
            ExitCode::from(error.code())
        }
    }
}
