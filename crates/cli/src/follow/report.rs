//! `report.html` and TensorBoard's files, in the folder of a run or sweep.

use std::fs;
use std::path::Path;

use domain::RunId;
use domain::series::Point;
use server::report::{RunOrigin, html};
use server::tensorboard::EventFile;
use server::{Home, Series, State};

use crate::error::Error;

/// Writes `report.html` and the TensorBoard files of a run into its folder.
///
/// # Errors
/// [`Error`] when they cannot be written.
pub fn write(home: &Home, state: &State, series: &Series, run: &RunId) -> Result<(), Error> {
    let folder = home.run(run);
    let records = state.records(run, 0)?;
    let points: Vec<Point> = series.points(run, 0)?.into_iter().map(|(_, point)| point).collect();
    if let Some(page) = html(run, &records, &points, &series.operations()?, &RunOrigin::of(&folder)) {
        write_page(&folder, &page)?;
    }
    if !points.is_empty() {
        EventFile::create(&folder.join("tensorboard"), &points)?;
    }
    Ok(())
}

/// Writes `report.html` into a folder atomically, safe with concurrent writers.
///
/// # Errors
/// [`Error::File`] if it cannot be written.
pub fn write_page(folder: &Path, page: &str) -> Result<(), Error> {
    // A run that was stopped before it began has no folder yet.
    fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
    let draft = folder.join(format!("report.html.{}.partial", std::process::id()));
    let path = folder.join("report.html");
    fs::write(&draft, page).map_err(Error::file("write", &draft))?;
    fs::rename(&draft, &path).map_err(Error::file("write", &path))
}
