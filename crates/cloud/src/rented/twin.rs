//! A test's ground for providers over a cloud's API: a home, a clock that the test moves, and the suite of all providers.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use domain::{Elapsed, InstanceId, Timestamp};

use super::{CloudApi, ReachSettings, Rented};
use crate::conformance::{self, Awaited, ProviderWorld};
use crate::ssh::Executables;

/// Now, in microseconds; tests share it, and it only moves on.
static CLOCK: AtomicI64 = AtomicI64::new(1_763_980_000_000_000);

/// The time of tests.
pub fn clock() -> Timestamp {
    Timestamp(CLOCK.load(Ordering::SeqCst))
}

/// A provider with a home of its own, whose machines nobody can reach.
pub fn provider<C: CloudApi>(home: &Path, api: C) -> Rented<C> {
    let unreachable = home.join("unreachable");
    std::fs::write(&unreachable, "Host *\n  ProxyCommand false\n").unwrap();
    let program = Executables { gradus: "/bin/true".into(), rank: "/bin/true".into(), libtorch: None };
    let socket = home.join("loop.sock");
    let settings = ReachSettings { owner: "Me of Tests".into(), socket, program, ssh_config: Some(unreachable) };
    Rented::with_clock(home.to_owned(), settings, api, clock)
}

/// A world in which each look is a minute later, and the cloud advances by one step.
pub struct SteppedWorld<F> {
    pub step: F,
    pub started: Timestamp,
    pub passed: AtomicU32,
}

impl<F: Fn()> ProviderWorld for SteppedWorld<F> {
    fn pass(&self, _awaited: Awaited) -> bool {
        CLOCK.fetch_add(60_000_000, Ordering::SeqCst);
        (self.step)();
        // What has not come by then does not come.
        self.passed.fetch_add(1, Ordering::SeqCst) < 100
    }

    fn is_metered(&self) -> bool {
        self.passed.load(Ordering::SeqCst) > 0
    }

    fn longest_rent(&self) -> Elapsed {
        // Other tests move the clock too.
        Elapsed(clock().since(self.started).0.saturating_add(3_600_000_000))
    }
}

/// Runs the suite; `step` moves the cloud on.
pub fn conforms<C: CloudApi>(api: C, step: impl Fn()) {
    let home = tempfile::tempdir().unwrap();
    let provider = provider(home.path(), api);
    let world = SteppedWorld { step, started: clock(), passed: AtomicU32::new(0) };
    conformance::check(&provider, &InstanceId::new("digits-0193f2a1-i1"), &world);
}
