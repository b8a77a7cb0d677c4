//! `gradus home`: check the databases of the home folder, and start over with those that are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use server::{Home, Series, State};

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus home`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Subcommand {
    /// Read the event log and all measurements, and list the models on disk
    Check,
    /// Rename damaged databases and start new ones; models, checkpoints and logs stay
    Rebuild,
}

/// A database of the home, and why it cannot be read.
struct Checked {
    path: PathBuf,
    holds: &'static str,
    fault: Option<Error>,
}

/// Checks the home, or replaces damaged databases.
///
/// # Errors
/// [`Error::Code`] if something is damaged and `rebuild` was not requested.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let checked = [
        Checked { path: home.state(), holds: "event log", fault: log_fault(&home).err() },
        Checked { path: home.series(), holds: "measurements", fault: series_fault(&home).err() },
    ];
    for one in &checked {
        let state = one.fault.as_ref().map_or("ok".to_owned(), |fault| format!("damaged: {}", in_words(fault)));
        match printer.is_json() {
            true => printer.json(&serde_json::json!({ "path": one.path, "holds": one.holds, "state": state })),
            false => printer.data(format!("{:<13} {}: {state}", one.holds, one.path.display())),
        }
    }
    let models = models(home.root());
    for model in &models {
        match printer.is_json() {
            true => printer.json(&serde_json::json!({ "model": model })),
            false => printer.data(format!("{:<13} {}", "model", model.display())),
        }
    }
    let damaged: Vec<&Checked> = checked.iter().filter(|one| one.fault.is_some()).collect();
    match args.command {
        Subcommand::Check if damaged.is_empty() => Ok(exit::DONE),
        Subcommand::Check => {
            let names: Vec<String> = damaged.iter().map(|one| format!("`{}`", one.path.display())).collect();
            let hint = "put a copy back, or start new ones with `gradus home rebuild`; models and checkpoints stay";
            let message = format!("damaged: {}", names.join(", "));
            Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
        }
        Subcommand::Rebuild => rebuild(&home, &damaged, printer),
    }
}

fn rebuild(home: &Home, damaged: &[&Checked], printer: &mut Printer) -> Result<u8, Error> {
    let Some(_lock) = home.try_loop()? else {
        let message = "nothing was changed: a run uses this home".to_owned();
        return Err(Error::Usage { message, hint: "end its process first".to_owned() });
    };
    for one in damaged {
        let kept = aside(&one.path)?;
        printer.say(format!("renamed the damaged {} to `{}`", one.holds, kept.display()));
    }
    // Made anew, so that the next command finds them.
    State::open(home)?;
    Series::open(home)?;
    Ok(exit::DONE)
}

/// Renames a database with SQLite's auxiliary files, to the first free name.
fn aside(path: &Path) -> Result<PathBuf, Error> {
    let named = |number: u32, end: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{name}.damaged-{number}{end}"))
    };
    let number = (1..).find(|number| !named(*number, "").exists()).unwrap_or(u32::MAX);
    for end in ["", "-wal", "-shm"] {
        let mut from = path.as_os_str().to_owned();
        from.push(end);
        if Path::new(&from).exists() {
            fs::rename(&from, named(number, end)).map_err(Error::file("rename", PathBuf::from(&from)))?;
        }
    }
    Ok(named(number, ""))
}

fn log_fault(home: &Home) -> Result<(), Error> {
    let state = State::open(home)?;
    for run in state.world().runs.keys() {
        state.records(run, 0)?;
    }
    Ok(())
}

fn series_fault(home: &Home) -> Result<(), Error> {
    let series = Series::open(home)?;
    // Runs that are not in the log are listed too, because the log itself may be damaged.
    let runs = fs::read_dir(home.root().join("runs")).into_iter().flatten().flatten();
    for run in runs {
        series.points(&domain::RunId::new(run.file_name().to_string_lossy().into_owned()), 0)?;
    }
    Ok(())
}

/// Exported models, which are independent of the log.
pub fn models(root: &Path) -> Vec<PathBuf> {
    let runs = fs::read_dir(root.join("runs")).into_iter().flatten().flatten();
    let mut models: Vec<PathBuf> = runs.map(|run| run.path().join("export/model.safetensors")).collect();
    models.retain(|path| path.is_file());
    models.sort();
    models
}

fn in_words(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}
