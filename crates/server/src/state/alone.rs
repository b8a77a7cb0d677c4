//! Databases on a disk without any space.
//!
//! The connections to a database share 32 KiB of memory, which SQLite has in a file beside it. Where there is no space for that
//! file nothing can be read either. A server then has its databases for itself: SQLite keeps that memory to the process, and lets
//! no other process in. This is so until the process ends, which a server does once there is space, to start again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};

use super::State;
use crate::error::Error;
use crate::home::Home;

/// SQLite's name for files as one process has them alone.
const ALONE: &str = "unix-excl";

/// The databases that this process has for itself.
static KEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Opens a database, as every connection of this process to it must be opened. Of one that it has for itself the first
/// connection must be one that may write, and must stay open.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    match is_kept(path) {
        false => Connection::open_with_flags(path, flags),
        true => Connection::open_with_flags_and_vfs(path, flags, ALONE),
    }
}

/// Whether this process has a database for itself.
pub(super) fn is_kept(path: &Path) -> bool {
    kept().contains(path)
}

fn kept() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens something of a database for a server; where the disk has no space for that, as one that this process has for itself, and
/// `lacked` says why.
pub(crate) fn opened<T>(
    home: &Home,
    path: &Path,
    lacked: &mut Option<String>,
    open: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    match open() {
        Err(error) if home.space().explains(&error) => {
            kept().insert(path.to_owned());
            let opened = open();
            match opened {
                Ok(opened) => {
                    lacked.get_or_insert_with(|| error.with_cause());
                    Ok(opened)
                }
                Err(_) => {
                    kept().remove(path);
                    Err(error)
                }
            }
        }
        opened => opened,
    }
}

impl State {
    /// Opens the log for a server, with unfinished work only. On a disk without space it can be read all the same: then `lacked`
    /// says what could not be written, and no other process can read it.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn open_for_server(home: &Home, lacked: &mut Option<String>) -> Result<State, Error> {
        opened(home, &home.state(), lacked, || State::open_lean(home))
    }
}

#[cfg(test)]
mod tests {
    use domain::event::PipelineSubmitted;
    use domain::{Event, PipelineId};
    use rusqlite::ffi;

    use super::*;
    use crate::series::Series;
    use crate::state::StateReader;

    fn failed(code: i32) -> Error {
        Error::sqlite("open", Path::new("state.db"))(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn a_server_has_a_database_for_itself_where_the_disk_has_no_space_to_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let path = home.root().join("full.db");
        let check = |shared: Result<u8, i32>, alone: Result<u8, i32>, expected: (Option<u8>, bool)| {
            let mut lacked = None;
            let open = || if is_kept(&path) { alone.map_err(failed) } else { shared.map_err(failed) };
            let found = opened(&home, &path, &mut lacked, open);
            assert_eq!((found.ok(), lacked.is_some()), expected, "{shared:?} {alone:?} {lacked:?}");
            assert_eq!(is_kept(&path), expected.1);
            kept().remove(&path);
        };
        check(Ok(1), Ok(2), (Some(1), false));
        check(Err(ffi::SQLITE_FULL), Ok(2), (Some(2), true));
        check(Err(ffi::SQLITE_FULL), Err(ffi::SQLITE_FULL), (None, false));
        check(Err(ffi::SQLITE_CORRUPT), Ok(2), (None, false));
        // The disk has space: something else is wrong with it.
        check(Err(ffi::SQLITE_IOERR_SHMOPEN), Ok(2), (None, false));
    }

    #[test]
    fn what_one_process_has_for_itself_needs_no_file_and_is_read_by_all_of_its_connections() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let event = Event::PipelineSubmitted(Box::new(PipelineSubmitted {
            pipeline: PipelineId::new("p-1"),
            tasks: vec!["first".into(), "second".into()],
            budget: None,
            request: String::new(),
            file: "pipeline.yaml".into(),
            user: None,
            last_runs: Vec::new(),
        }));
        State::open(&home).unwrap().append(vec![event]).unwrap();
        drop(Series::open(&home).unwrap());
        let memory = ["state.db-shm", "series.db-shm"].map(|name| home.root().join(name));
        assert!(!memory.iter().any(|path| path.exists()), "nobody has them open");
        kept().extend([home.state(), home.series()]);
        let (state, series) = (State::open_lean(&home).unwrap(), Series::open(&home).unwrap());
        assert_eq!(state.world().last_seq, 1);
        assert_eq!(StateReader::open(&home).unwrap().all_records(0, 10).unwrap().len(), 1);
        assert_eq!(State::open_lean(&home).unwrap().world().last_seq, 1);
        assert!(series.operations().unwrap().is_empty() && Series::open(&home).unwrap().operations().is_ok());
        assert!(!memory.iter().any(|path| path.exists()), "there may be no space for them");
    }
}
