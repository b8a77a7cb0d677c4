//! A server that is started on a disk without any space.
//!
//! What its start cannot write, the next start does: it reads its databases alone, answers what is only read, and starts again
//! once there is space.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use cloud::Provider;
use domain::Rate;
use server::Home;

use crate::error::Error;
use crate::follow::liveness::lease;
use crate::local::{disks, machine};
use crate::settings::GlobalSettings;

/// Writes down what the server that begins here can do, for commands. Where there is no space for that, `lacked` says so.
///
/// # Errors
/// [`Error::File`] if it cannot be written for another reason.
pub fn note_server(home: &Home, providers: &[Arc<dyn Provider>], lacked: &mut Option<String>) -> Result<(), Error> {
    let noted = machine::note_served(home, providers)
        .and_then(|()| lease::note(home, lease::SERVED, true))
        .and_then(|()| disks::note_stops(home));
    unless_full(home, noted, lacked)
}

/// Writes down the price of this machine with the server that begins here, as [`note_server`] does.
///
/// # Errors
/// As [`note_server`].
pub fn note_price(home: &Home, price: Rate, lacked: &mut Option<String>) -> Result<(), Error> {
    unless_full(home, machine::note_price(home, price), lacked)
}

/// The outcome of writing such a file down, where a full disk is no error.
fn unless_full(home: &Home, noted: Result<(), Error>, lacked: &mut Option<String>) -> Result<(), Error> {
    match noted {
        Err(Error::File { doing, path, source }) if home.space().refuses(&source) => {
            // It may be the shorter lease of a command.
            lease::forget(home);
            lacked.get_or_insert_with(|| format!("cannot {doing} `{}`: {source}", path.display()));
            Ok(())
        }
        noted => noted,
    }
}

/// Starts this server again in its process, which lets other processes read its databases; returns only if that fails.
pub fn start_again(settings: &GlobalSettings) -> Error {
    let failed = Command::new(&settings.program).args(std::env::args_os().skip(1)).exec();
    Error::file("run", &settings.program)(failed)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use server::control::LEASE;

    use super::*;

    #[test]
    fn a_full_disk_is_no_error_and_leaves_no_shorter_lease() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        machine::note_price(&home, Rate::default()).unwrap();
        lease::note(&home, LEASE, false).unwrap();
        assert_eq!(lease::granted(&home), LEASE);
        let full = Error::File { doing: "write", path: "loop.lease".into(), source: ErrorKind::StorageFull.into() };
        let mut lacked = None;
        unless_full(&home, Err(full), &mut lacked).unwrap();
        let why = lacked.unwrap_or_default();
        assert!(why.starts_with("cannot write `loop.lease`: "), "{why}");
        assert_eq!(lease::granted(&home), lease::SERVED);
    }

    #[test]
    fn what_a_start_cannot_write_for_another_reason_than_a_full_disk_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let mut lacked = None;
        note_server(&home, &[], &mut lacked).unwrap();
        assert_eq!(lacked, None);
        // A folder has the name of the file.
        let providers = home.root().join("server.providers");
        std::fs::remove_file(&providers).unwrap();
        std::fs::create_dir(providers).unwrap();
        let noted = note_server(&home, &[], &mut lacked);
        assert!(matches!(noted, Err(Error::File { .. })) && lacked.is_none(), "{noted:?} {lacked:?}");
    }
}
