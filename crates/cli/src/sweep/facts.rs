//! What is known of a sweep: from the state of its home, or from a server. The same functions print both.

use std::collections::BTreeMap;

use domain::{Elapsed, InstanceId, Money, SweepId};
use plan::sweep::TrialRow;
use plan::{SweepRecord, World};
use server::Home;

use crate::error::Error;
use crate::follow::liveness::meters;
use crate::remote::KnownSweep;

/// The facts about a sweep.
pub struct SweepFacts<'a> {
    /// Its name.
    pub id: &'a SweepId,
    /// The sweep with all of its trials, and their machines.
    pub world: &'a World,
    /// The sweep itself.
    pub record: &'a SweepRecord,
    /// Rented time of every machine that is not released.
    pub meters: BTreeMap<InstanceId, Elapsed>,
    /// The home that it is in; `None` if that is a server's.
    pub home: Option<&'a Home>,
}

impl<'a> SweepFacts<'a> {
    /// The facts about a sweep of a home.
    ///
    /// # Errors
    /// [`server::Error::NoRun`] if there is none of this name.
    pub fn of_home(home: &'a Home, world: &'a World, id: &'a SweepId) -> Result<SweepFacts<'a>, Error> {
        let record = world.sweeps.get(id).ok_or_else(|| server::Error::NoRun(id.to_string()))?;
        Ok(SweepFacts { id, world, record, meters: meters(home, world), home: Some(home) })
    }

    /// The facts about a sweep of a server, which supervises all of them.
    ///
    /// # Errors
    /// As [`SweepFacts::of_home`].
    pub fn of_server(known: &'a KnownSweep) -> Result<SweepFacts<'a>, Error> {
        let KnownSweep { id, world, .. } = known;
        Ok(SweepFacts { id, world, record: known.record()?, meters: known.meters(), home: None })
    }

    /// Its trials, best first.
    pub fn rows(&self) -> Vec<TrialRow> {
        plan::sweep::rows(self.world, self.record, &self.meters)
    }

    /// Its cost until now.
    pub fn spent(&self) -> Money {
        plan::sweep::spent(self.world, self.record, &self.meters)
    }
}
