//! The on-disk state of an instance on this machine: whether its agent lives, its rented time, and its reports.
//!
//! Unlike [`crate::Provider::sight`] it ends nothing, so read-only commands can use it at any time.

use std::io;
use std::path::Path;

use domain::InstanceId;
use domain::run::Usage;
use domain::wire::Entry;
use node::Folder;

/// The state of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Whether an agent holds the lock of the instance.
    pub is_alive: bool,
    /// The rented time; `None` before the agent's first line in the meter.
    pub usage: Option<Usage>,
}

/// Reads the state of an instance of the home; `None` if it was never launched.
///
/// # Errors
/// If a file of the instance cannot be read.
pub fn probe(home: &Path, instance: &InstanceId) -> io::Result<Option<Probe>> {
    let folder = Folder::new(super::folder(home, instance));
    if folder.launch_spec()?.is_none() {
        return Ok(None);
    }
    // The lock is checked first: what is read after it was free is final.
    let is_alive = folder.is_held()?;
    Ok(Some(Probe { is_alive, usage: folder.usage()? }))
}

/// The reports of the agent of an instance of the home that are on the disk, delivered and pending, oldest first.
///
/// # Errors
/// If a file of the instance cannot be read.
pub fn spooled(home: &Path, instance: &InstanceId) -> io::Result<Vec<Entry>> {
    Folder::new(super::folder(home, instance)).unacknowledged()
}

#[cfg(test)]
mod tests {
    use domain::{Elapsed, Timestamp};
    use node::{LaunchSpec, SCHEMA};

    use super::*;

    #[test]
    fn an_agent_that_is_gone_has_a_final_meter() {
        let home = tempfile::tempdir().unwrap();
        let instance = InstanceId::new("digits-1-i1");
        assert_eq!(probe(home.path(), &instance).unwrap(), None);
        let folder = Folder::new(super::super::folder(home.path(), &instance));
        std::fs::create_dir_all(folder.path()).unwrap();
        let spec = LaunchSpec {
            schema: SCHEMA,
            instance: instance.clone(),
            token: "t".into(),
            owner: "o".into(),
            socket: "/home/loop.sock".into(),
            rank_program: "/usr/bin/gradus-rank".into(),
            libtorch: None,
            is_remote: false,
            address: None,
            first_answer: None,
            server: None,
        };
        folder.write_launch_spec(&spec).unwrap();
        let lock = folder.lock().unwrap().unwrap();
        folder.meter(Timestamp(7)).unwrap().write(Elapsed(3)).unwrap();
        let usage = Some(Usage { started: Timestamp(7), elapsed: Elapsed(3) });
        let seen = probe(home.path(), &instance).unwrap().unwrap();
        assert_eq!((seen.is_alive, seen.usage), (true, usage));
        assert_eq!(spooled(home.path(), &instance).unwrap(), []);
        drop(lock);
        // A process that another test is about to start has a copy of the lock until it executes its program.
        let mut seen = probe(home.path(), &instance).unwrap().unwrap();
        while seen.is_alive {
            std::thread::yield_now();
            seen = probe(home.path(), &instance).unwrap().unwrap();
        }
        assert_eq!((seen.is_alive, seen.usage), (false, usage));
    }
}
