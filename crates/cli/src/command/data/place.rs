//! Data that a command looks at: a path of this machine, or an address of an object store or a web server.
//!
//! What lies elsewhere is read by pieces, of which a gigabyte is kept in a folder of its own, so that a run's cache stays
//! as it is. What cannot be read so, or is packed, is fetched whole into the folder that runs fetch into, and not a second
//! time: packing goes on after a kill only where files are the same ones as before.

use std::path::{Path, PathBuf};

use store::{Limits, Location, Places, Served};
use tempfile::TempDir;

use super::transfer::Transfer;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Bytes of pieces that are kept.
const KEPT: u64 = 1 << 30;

/// Data that can be opened here, for as long as this lives.
pub struct Place {
    named: PathBuf,
    path: PathBuf,
    /// Who serves it by pieces, and the folder of its holes.
    _served: Option<(Served, TempDir)>,
}

impl Place {
    /// Makes the data that is named one that can be looked at: by pieces where that is possible, else whole.
    ///
    /// # Errors
    /// As [`Place::by_pieces`].
    pub fn looked_at(named: &Path, settings: &Settings, printer: &mut Printer) -> Result<Place, Error> {
        match Place::by_pieces(named, ("cache/looks", KEPT), settings, printer) {
            Err(Error::Store(store::Error::Usage { .. } | store::Error::NoRanges { .. })) => {
                Place::fetched(named, settings, printer)
            }
            other => other,
        }
    }

    /// Makes the data that is named one that can be opened here, by pieces: so many bytes of them are kept in a folder
    /// of the home folder.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::File`], if no temporary folder can be made.
    pub fn by_pieces(
        named: &Path,
        (kept, budget): (&str, u64),
        settings: &Settings,
        printer: &mut Printer,
    ) -> Result<Place, Error> {
        let Some((uri, location)) = elsewhere(named)? else { return Place::fetched(named, settings, printer) };
        let folder = tempfile::tempdir().map_err(Error::file("make", "a folder of its own"))?;
        let (data, socket) = (folder.path().join("data"), folder.path().join("socket"));
        let cache = settings.home.join(kept);
        let (places, access) = (Places { folder: &data, cache: &cache, socket: &socket }, &settings.access);
        let serve = |_: &store::Meter| store::serve(uri, budget, places, access, Limits::attended());
        let served = Transfer::fetching(&location).watch(printer, serve)?;
        Ok(Place { named: named.to_owned(), path: served.path.clone(), _served: Some((served, folder)) })
    }

    /// Makes the data that is named files of this machine.
    ///
    /// # Errors
    /// [`Error::Store`]. What was fetched stays for the next time.
    pub fn fetched(named: &Path, settings: &Settings, printer: &mut Printer) -> Result<Place, Error> {
        let path = match elsewhere(named)? {
            None => here(named)?,
            Some((uri, location)) => {
                let (cache, access) = (settings.home.join("cache/data"), &settings.access);
                let stage = |meter: &store::Meter| store::stage(uri, &cache, access, Limits::attended(), meter);
                Transfer::fetching(&location).watch(printer, stage)?.path
            }
        };
        Ok(Place { named: named.to_owned(), path, _served: None })
    }

    /// What was asked for, as it can be typed again.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Where it can be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The address that is meant, where it is not one of this machine.
fn elsewhere(named: &Path) -> Result<Option<(&str, Location)>, Error> {
    let Some(uri) = address(named) else { return Ok(None) };
    let location: Location = uri.parse()?;
    Ok(location.is_remote().then_some((uri, location)))
}

/// The path that is meant by what is not elsewhere: `file:///data` is `/data`.
fn here(named: &Path) -> Result<PathBuf, Error> {
    let Some(uri) = address(named) else { return Ok(named.to_owned()) };
    let location: Location = uri.parse()?;
    Ok(location.local().unwrap_or(named).to_owned())
}

/// The text of what looks like an address and is no file or folder.
fn address(named: &Path) -> Option<&str> {
    named.to_str().filter(|text| text.contains("://") && !named.exists())
}
