//! How long agents of this home continue without a control loop: as long as the loop that answered them last has granted them.
//!
//! Each loop writes its lease down when it begins. That file outlives it, so a command that finds no loop knows what a killed
//! one had granted. An agent holds the lease of an earlier loop until the new one answers it. So a longer one stays in the file
//! beside the new one until it has expired: by then, every agent was answered or has ended.

use std::io::ErrorKind;

use domain::{Duration, Timestamp};
use server::control::LEASE;
use server::{Home, clock};

use crate::error::Error;
use crate::local::machine;

/// The lease that a server grants: it may be replaced, or its machine restarted, meanwhile.
pub const SERVED: Duration = Duration::from_secs(1_800);

/// The file with the lease of the loop that ran last.
const FILE: &str = "loop.lease";

/// The leases that agents of a home may hold. In the file, each value is a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GrantedLeases {
    /// That of the loop that began last.
    newest: Duration,
    /// A longer one of an earlier loop, held by agents that were not answered since.
    earlier: Option<EarlierLease>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EarlierLease {
    length: Duration,
    /// When the last agent that holds it has ended.
    until: Timestamp,
}

impl GrantedLeases {
    /// Those of a home where no agent holds an earlier one.
    const fn only(newest: Duration) -> GrantedLeases {
        GrantedLeases { newest, earlier: None }
    }

    /// Those once another loop begins at `now`.
    fn followed_by(self, newest: Duration, now: Timestamp) -> GrantedLeases {
        let until = Timestamp(now.0.saturating_add_unsigned(self.newest.micros()));
        let held = self.earlier.into_iter().chain([EarlierLease { length: self.newest, until }]);
        let longer = held.filter(|earlier| earlier.length > newest && now < earlier.until);
        GrantedLeases { newest, earlier: longer.max_by_key(|earlier| earlier.until) }
    }

    /// The longest that an agent may hold at `now`.
    fn longest(self, now: Timestamp) -> Duration {
        let held = self.earlier.filter(|earlier| now < earlier.until);
        held.map_or(self.newest, |earlier| earlier.length.max(self.newest))
    }

    fn parse(text: &str) -> Option<GrantedLeases> {
        let mut lines = text.lines().map(str::trim);
        let newest: Duration = lines.next()?.parse().ok()?;
        let Some(length) = lines.next() else { return Some(GrantedLeases::only(newest)) };
        let (length, until) = (length.parse().ok()?, Timestamp(lines.next()?.parse().ok()?));
        Some(GrantedLeases { newest, earlier: Some(EarlierLease { length, until }) })
    }

    fn text(self) -> String {
        match self.earlier {
            None => self.newest.to_string(),
            Some(EarlierLease { length, until }) => format!("{}\n{length}\n{}", self.newest, until.0),
        }
    }
}

/// Writes down the lease that the loop which begins here grants; `has_agents` is whether agents may be at work.
///
/// # Errors
/// [`Error::File`].
pub fn note(home: &Home, lease: Duration, has_agents: bool) -> Result<(), Error> {
    let path = home.root().join(FILE);
    let leases = match has_agents {
        true => noted(home).followed_by(lease, clock::now()),
        false => GrantedLeases::only(lease),
    };
    node::durable::replace(&path, leases.text().as_bytes()).map_err(Error::file("write", &path))
}

/// Forgets what earlier loops have granted, where the lease of the one that begins here cannot be written down.
pub fn forget(home: &Home) {
    // On a full disk, files can be removed.
    let _ = std::fs::remove_file(home.root().join(FILE));
}

/// How long agents continue at most after the end of the loop that ran last; budget and deadline may allow less.
pub fn granted(home: &Home) -> Duration {
    noted(home).longest(clock::now())
}

fn noted(home: &Home) -> GrantedLeases {
    match std::fs::read_to_string(home.root().join(FILE)) {
        Ok(text) => GrantedLeases::parse(&text).unwrap_or(GrantedLeases::only(SERVED)),
        // A loop of an earlier version writes nothing down.
        Err(error) if error.kind() == ErrorKind::NotFound && !machine::was_served(home) => GrantedLeases::only(LEASE),
        Err(_) => GrantedLeases::only(SERVED),
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
            note(&home, lease, false).unwrap();
            assert_eq!(granted(&home).to_string(), expected);
        }
        // The shorter one must not be promised where it is not certain.
        for damaged in ["", "1m\n30m", "1m\n30m\nsoon"] {
            std::fs::write(home.root().join(FILE), damaged).unwrap();
            assert_eq!(granted(&home), SERVED, "{damaged:?}");
        }
    }

    #[test]
    fn a_shorter_lease_counts_once_the_longer_one_has_expired() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let check = |leases: GrantedLeases, now: i64, expected: Duration| {
            assert_eq!(GrantedLeases::parse(&leases.text()), Some(leases));
            assert_eq!(leases.longest(at(now)), expected, "{leases:?} at {now}");
        };
        // A server was killed, and a command runs the loop from 1,000 s on.
        let command = GrantedLeases::only(SERVED).followed_by(LEASE, at(1_000));
        check(command, 1_000, SERVED);
        check(command, 2_799, SERVED);
        check(command, 2_800, LEASE);
        // Another one begins before all agents of the server were answered or have ended.
        let next = command.followed_by(LEASE, at(2_000));
        check(next, 2_799, SERVED);
        check(next, 2_800, LEASE);
        check(command.followed_by(LEASE, at(2_800)), 2_800, LEASE);
        // A longer lease counts at once.
        check(next.followed_by(SERVED, at(2_100)), 2_100, SERVED);
        check(next.followed_by(SERVED, at(2_100)), 9_000, SERVED);
    }

    #[test]
    fn the_file_keeps_a_longer_lease_while_agents_may_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        note(&home, SERVED, true).unwrap();
        note(&home, LEASE, true).unwrap();
        let leases = noted(&home);
        assert_eq!((leases.newest, leases.earlier.map(|earlier| earlier.length)), (LEASE, Some(SERVED)));
        note(&home, LEASE, false).unwrap();
        assert_eq!(noted(&home), GrantedLeases::only(LEASE));
    }

    #[test]
    fn a_server_of_an_earlier_version_granted_the_lease_of_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        machine::note_price(&home, domain::Rate::default()).unwrap();
        assert_eq!(granted(&home), SERVED);
    }
}
