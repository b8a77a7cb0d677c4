//! Data that a command reads: a local path, or an address of an object store or a web server.
//!
//! Remote data is read in ranges, of which a gigabyte is cached in a separate folder from the cache of runs. Data that
//! cannot be read in ranges, or that is packed, is downloaded completely into the folder that runs download into, and
//! only once: packing resumes after a kill only if the files are unchanged.

use std::path::{Path, PathBuf};

use store::{Limits, Location, Places, Served};
use tempfile::TempDir;

use super::transfer::{Transfer, left_out};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Bytes of ranges that are cached.
const KEPT: u64 = 1 << 30;

/// Data that can be opened by a local path while this value lives.
pub struct OpenedData {
    given: PathBuf,
    path: PathBuf,
    /// The server of its ranges, and the folder of the sparse files.
    _served: Option<(Served, TempDir)>,
}

impl OpenedData {
    /// Opens data: in ranges if possible, else downloaded completely.
    ///
    /// # Errors
    /// As [`OpenedData::in_ranges`].
    pub fn opened(named: &Path, settings: &GlobalSettings, printer: &mut Printer) -> Result<OpenedData, Error> {
        match OpenedData::in_ranges(named, ("cache/looks", KEPT), settings, printer) {
            Err(Error::Store(store::Error::Usage { .. } | store::Error::NoRanges { .. })) => {
                OpenedData::fetched(named, settings, printer)
            }
            other => other,
        }
    }

    /// Opens data in ranges, with a cache of so many bytes in a folder of the home.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::File`], if no temporary folder can be made.
    pub fn in_ranges(
        named: &Path,
        (kept, budget): (&str, u64),
        settings: &GlobalSettings,
        printer: &mut Printer,
    ) -> Result<OpenedData, Error> {
        let Some((uri, location)) = remote(named)? else { return OpenedData::fetched(named, settings, printer) };
        let folder = tempfile::tempdir().map_err(Error::file("make", "a temporary folder"))?;
        let (data, socket) = (folder.path().join("data"), folder.path().join("socket"));
        let cache = settings.home.join(kept);
        let (places, access) = (Places { folder: &data, cache: &cache, socket: &socket }, &settings.access);
        let serve = |_: &store::Meter| store::serve(uri, budget, places, access, Limits::attended());
        let served = Transfer::fetching(&location).watch(printer, serve)?;
        left_out(&served.unreadable).into_iter().for_each(|note| printer.say(note));
        Ok(OpenedData { given: named.to_owned(), path: served.path.clone(), _served: Some((served, folder)) })
    }

    /// Opens data as local files.
    ///
    /// # Errors
    /// [`Error::Store`]. Downloaded data is retained for the next call.
    pub fn fetched(named: &Path, settings: &GlobalSettings, printer: &mut Printer) -> Result<OpenedData, Error> {
        let path = match remote(named)? {
            None => local(named)?,
            Some((uri, location)) => {
                let (cache, access) = (settings.home.join("cache/data"), &settings.access);
                let stage = |meter: &store::Meter| store::stage(uri, &cache, access, Limits::attended(), meter);
                let staged = Transfer::fetching(&location).watch(printer, stage)?;
                left_out(&staged.pulled.unreadable).into_iter().for_each(|note| printer.say(note));
                staged.path
            }
        };
        Ok(OpenedData { given: named.to_owned(), path, _served: None })
    }

    /// The path or address as it was given.
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The local path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The address of remote data; `None` for a local path.
fn remote(named: &Path) -> Result<Option<(&str, Location)>, Error> {
    let Some(uri) = address(named) else { return Ok(None) };
    let location: Location = uri.parse()?;
    Ok(location.is_remote().then_some((uri, location)))
}

/// The path of local data: `file:///data` is `/data`.
fn local(named: &Path) -> Result<PathBuf, Error> {
    let Some(uri) = address(named) else { return Ok(named.to_owned()) };
    let location: Location = uri.parse()?;
    Ok(location.local().unwrap_or(named).to_owned())
}

/// The text of a name that looks like an address and is no file or folder.
fn address(named: &Path) -> Option<&str> {
    named.to_str().filter(|text| text.contains("://") && !named.exists())
}
