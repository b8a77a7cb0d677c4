//! Imports of newer prices, other clouds and the user's own machines from a file.
//!
//! Two formats are read: our own CSV ([`own`]) and SkyPilot's ([`skypilot`]). Either becomes listings, which are stored
//! in the home folder in our own format, one file per import, so that imports remain readable. A table of GPUs that the
//! catalog does not know ([`described`]) is imported the same way.

pub mod own;
pub mod skypilot;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use domain::file::nearest::nearest;
use domain::gpu::GpuSpec;
use domain::listing::Listing;

use crate::Catalog;
use crate::catalog::{Error, described};

/// Folder of imports, below the home folder.
pub const FOLDER: &str = "catalog";

/// One import that is part of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its file's name in the home folder.
    pub name: String,
    pub listings: usize,
}

/// Defaults for fields that a file does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Of rows that name no cloud.
    pub cloud: Option<String>,
    /// Of prices without a date.
    pub dated: String,
    /// Of prices without a source.
    pub source: String,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Read {
    pub listings: Vec<Listing>,
    /// Described GPUs by name, of a table of GPUs.
    pub gpus: BTreeMap<String, GpuSpec>,
    /// Number of skipped rows, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// Columns of a table of ours that nothing is read from, each with the column that its name is like.
    pub unread: BTreeMap<String, Option<String>>,
}

impl Read {
    fn leave_out(&mut self, reason: impl Into<String>) {
        *self.left_out.entry(reason.into()).or_default() += 1;
    }
}

/// Reads a file of either format, determined by its columns.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(file: &str, text: &str, catalog: &Catalog, defaults: &Defaults) -> Result<Read, Error> {
    let columns = columns(text);
    let read = if described::is_table_of_gpus(&columns) {
        let unread = unread(&columns, &described::columns());
        Read { gpus: described::read(file, text)?, unread, ..Read::default() }
    } else if columns.contains(&"InstanceType") {
        skypilot::read(file, text, catalog, defaults)?
    } else if columns.contains(&"instance_type") {
        let unread = unread(&columns, &own::COLUMNS);
        Read { unread, ..own::read(file, text, catalog, defaults)? }
    } else {
        let message = match text.trim().is_empty() {
            true => "it is empty".to_owned(),
            false => {
                "its first line names neither `instance_type` (our form) nor `InstanceType` (SkyPilot's)".to_owned()
            }
        };
        return Err(Error::File { doing: "import", file: file.to_owned(), message, hint: Some(own::hint()) });
    };
    if read.listings.is_empty() && read.gpus.is_empty() {
        let reasons: Vec<String> = read.left_out.iter().map(|(why, count)| format!("{count} × {why}")).collect();
        let message = match reasons.is_empty() {
            true => "it has no rows".to_owned(),
            false => format!("no row can be used: {}", reasons.join("; ")),
        };
        let hint = if described::is_table_of_gpus(&columns) { described::hint() } else { own::hint() };
        return Err(Error::File { doing: "import", file: file.to_owned(), message, hint: Some(hint) });
    }
    Ok(read)
}

/// Reads what an import is kept as.
///
/// # Errors
/// [`Error`] with file and line.
pub fn again(file: &str, text: &str, catalog: &Catalog) -> Result<Read, Error> {
    match described::is_table_of_gpus(&columns(text)) {
        true => Ok(Read { gpus: described::read(file, text)?, ..Read::default() }),
        false => own::read(file, text, catalog, &Defaults::default()),
    }
}

impl Catalog {
    /// Adds the GPUs that imports of a home describe, but for the import that one under `name` replaces: prices may spell
    /// them, and no second import can describe them.
    ///
    /// # Errors
    /// [`Error`] with the file that cannot be used, and the command that removes it.
    pub fn describe_imported(&mut self, home: &Path, name: &str) -> Result<(), Error> {
        for (file, text) in kept(home)? {
            if stem(&file) != tame(name) && described::is_table_of_gpus(&columns(&text)) {
                let gpus = described::read(&file, &text).map_err(|error| error.of_kept(&file))?;
                self.describe_kept(&gpus, &file)?;
            }
        }
        Ok(())
    }
}

/// The names in the first line.
fn columns(text: &str) -> Vec<&str> {
    let head = text.lines().next().unwrap_or_default();
    head.trim_start_matches('\u{feff}').split(',').map(|name| name.trim().trim_matches('"')).collect()
}

/// The columns that are none of `known`, each with the known one that its name is like.
fn unread(columns: &[&str], known: &[&str]) -> BTreeMap<String, Option<String>> {
    let others = columns.iter().filter(|name| !name.is_empty() && !known.contains(name));
    others.map(|name| ((*name).to_owned(), nearest(name, known.iter().copied()).map(str::to_owned))).collect()
}

/// Name and text of all imports of a home, oldest first.
///
/// # Errors
/// [`Error::File`] for a file that cannot be read.
pub fn kept(home: &Path) -> Result<Vec<(String, String)>, Error> {
    let folder = home.join(FOLDER);
    let read = |name: String| {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path).map_err(failed("read", &path)).map_err(|error| error.of_kept(&name))?;
        Ok((name, text))
    };
    names(home)?.into_iter().map(read).collect()
}

/// The names of the files of everything that was imported into a home, the oldest first.
///
/// # Errors
/// [`Error::File`] when the folder cannot be read.
pub fn names(home: &Path) -> Result<Vec<String>, Error> {
    let folder = home.join(FOLDER);
    let mut names = Vec::new();
    match fs::read_dir(&folder) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(failed("read", &folder))?.file_name().to_string_lossy().into_owned();
                if name.ends_with(".csv") {
                    names.push(name);
                }
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", &folder)(error)),
    }
    names.sort();
    Ok(names)
}

/// Keeps what was imported in a home under a name; an earlier import of that name gives way. Returns the file.
///
/// # Errors
/// [`Error::File`] when the folder cannot be written.
pub fn keep_read(home: &Path, name: &str, read: &Read) -> Result<PathBuf, Error> {
    match read.gpus.is_empty() {
        true => keep(home, name, &read.listings),
        false => keep_text(home, name, &described::text(&read.gpus)),
    }
}

/// Keeps listings in a home, as [`keep_read`] does.
///
/// # Errors
/// [`Error::File`] when the folder cannot be written.
pub fn keep(home: &Path, name: &str, listings: &[Listing]) -> Result<PathBuf, Error> {
    keep_text(home, name, &own::text(listings))
}

fn keep_text(home: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let folder = home.join(FOLDER);
    fs::create_dir_all(&folder).map_err(failed("make the folder", &folder))?;
    let there = names(home)?;
    let last = there.iter().filter_map(|name| name.split_once('-')?.0.parse::<u32>().ok()).max().unwrap_or(0);
    let file = format!("{:04}-{}.csv", last + 1, tame(name));
    let path = folder.join(&file);
    let unfinished = folder.join(format!("{file}.new"));
    fs::write(&unfinished, text).map_err(failed("write", &unfinished))?;
    fs::rename(&unfinished, &path).map_err(failed("write", &path))?;
    for older in there.iter().filter(|older| stem(older) == stem(&file)) {
        let path = folder.join(older);
        fs::remove_file(&path).map_err(failed("remove", &path))?;
    }
    Ok(path)
}

/// Removes an import by its name, with or without its number and `.csv`. Returns whether there was one.
///
/// # Errors
/// [`Error::File`] when it cannot be removed.
pub fn forget(home: &Path, name: &str) -> Result<bool, Error> {
    let bare = |file: &str| file.strip_suffix(".csv").unwrap_or(file).to_owned();
    let wanted = bare(name);
    let mut found = false;
    for file in names(home)?.iter().filter(|file| bare(file) == wanted || stem(file) == wanted) {
        let path = home.join(FOLDER).join(file);
        fs::remove_file(&path).map_err(failed("remove", &path))?;
        found = true;
    }
    Ok(found)
}

/// `0003-aws-vms.csv` is `aws-vms`.
pub fn stem(file: &str) -> &str {
    let bare = file.trim_end_matches(".csv");
    match bare.split_once('-') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        Some(_) | None => bare,
    }
}

/// A name that is a file's everywhere.
fn tame(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let tame: String = name.chars().map(letter).collect();
    let tame = tame.trim_matches('-');
    if tame.is_empty() { "import".to_owned() } else { tame.to_owned() }
}

pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let file = path.display().to_string();
    move |error| Error::File { doing, file, message: error.to_string(), hint: None }
}
