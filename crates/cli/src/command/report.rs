//! `gradus report`: what a run was, for people and for TensorBoard.

use std::fs;
use std::path::Path;

use domain::RunId;
use domain::series::Point;
use serde_json::{Value, json};
use server::report::html;
use server::tensorboard::EventFile;
use server::{Home, Series, State};

use super::{Meant, find_any};
use crate::error::Error;
use crate::exit;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run or sweep: its name, the start of it, or `last`
    run: String,
}

/// Writes the report again and prints where it stands.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (state, series) = (State::open(&home)?, Series::open(&home)?);
    let id = match find_any(state.world(), &args.run)? {
        Meant::Run(id) => id,
        Meant::Sweep(id) => {
            crate::sweep::write_report(&home, &state, &id)?;
            told(printer, json!({ "sweep": id }), &home.sweep(&id));
            return Ok(exit::DONE);
        }
    };
    write(&home, &state, &series, &id)?;
    told(printer, json!({ "run": id }), &home.run(&id));
    Ok(exit::DONE)
}

/// Says where the report of a folder stands.
fn told(printer: &mut Printer, mut value: Value, folder: &Path) {
    let report = folder.join("report.html");
    if !printer.is_json() {
        return printer.data(report.display().to_string());
    }
    let board = folder.join("tensorboard");
    value["report"] = json!(report);
    value["tensorboard"] = json!(board.is_dir().then_some(board));
    printer.json(&value);
}

/// Writes `report.html` and the TensorBoard files of a run into its folder.
///
/// # Errors
/// [`Error`] when they cannot be written.
pub fn write(home: &Home, state: &State, series: &Series, run: &RunId) -> Result<(), Error> {
    let folder = home.run(run);
    let records = state.records(run, 0)?;
    let points: Vec<Point> = series.points(run, 0)?.into_iter().map(|(_, point)| point).collect();
    if let Some(page) = html(run, &records, &points) {
        write_page(&folder, &page)?;
    }
    if !points.is_empty() {
        EventFile::create(&folder.join("tensorboard"), &points)?;
    }
    Ok(())
}

/// Writes `report.html` into a folder, whole or not at all, whoever else does so at the same time.
///
/// # Errors
/// [`Error::File`] when it cannot be written.
pub fn write_page(folder: &Path, page: &str) -> Result<(), Error> {
    // What was stopped before it began has no folder yet.
    fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
    let draft = folder.join(format!("report.html.{}.partial", std::process::id()));
    let path = folder.join("report.html");
    fs::write(&draft, page).map_err(Error::file("write", &draft))?;
    fs::rename(&draft, &path).map_err(Error::file("write", &path))
}
