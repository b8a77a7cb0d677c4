//! How long agents of this home continue without a control loop: as long as the loop that ran last has granted them.
//!
//! Each loop writes its lease down when it begins. That file outlives it, so a command that finds no loop knows what a killed
//! one had granted.

use std::io::ErrorKind;

use domain::Duration;
use server::Home;
use server::control::LEASE;

use crate::error::Error;

/// The lease that a server grants: it may be replaced, or its machine restarted, meanwhile.
pub const SERVED: Duration = Duration::from_secs(1_800);

/// The file with the lease of the loop that ran last.
const FILE: &str = "loop.lease";

/// Writes down the lease that the loop which begins here grants.
///
/// # Errors
/// [`Error::File`].
pub fn note(home: &Home, lease: Duration) -> Result<(), Error> {
    let path = home.root().join(FILE);
    node::durable::replace(&path, lease.to_string().as_bytes()).map_err(Error::file("write", &path))
}

/// How long agents continue at most after the end of the loop that ran last; budget and deadline may allow less.
pub fn granted(home: &Home) -> Duration {
    match std::fs::read_to_string(home.root().join(FILE)) {
        Ok(text) => text.trim().parse().unwrap_or(SERVED),
        // A loop of an earlier version writes nothing down.
        Err(error) if error.kind() == ErrorKind::NotFound && !crate::local::machine::was_served(home) => LEASE,
        Err(_) => SERVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_of_the_last_loop_is_the_one_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        assert_eq!(granted(&home), LEASE, "no loop ever ran");
        for (lease, expected) in [(SERVED, "30m"), (LEASE, "1m"), (SERVED, "30m")] {
            note(&home, lease).unwrap();
            assert_eq!(granted(&home).to_string(), expected);
        }
        // The shorter one must not be promised where it is not certain.
        std::fs::write(home.root().join(FILE), "").unwrap();
        assert_eq!(granted(&home), SERVED);
    }

    #[test]
    fn a_server_of_an_earlier_version_granted_the_lease_of_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        crate::local::machine::note_price(&home, domain::Rate::default()).unwrap();
        assert_eq!(granted(&home), SERVED);
    }
}
