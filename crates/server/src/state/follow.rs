//! Events that other processes have appended, and the state of their subjects that had left memory.

use std::collections::BTreeSet;
use std::path::Path;

use domain::{Event, Record};
use plan::World;
use rusqlite::Connection;

use super::{log, rows};
use crate::error::Error;

/// Events of other processes, and the state, after all of them, of their subjects that had left memory.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// The events, in order.
    pub records: Vec<Record>,
    /// Runs and sweeps among them.
    pub recalled: World,
}

/// Brings a world up to date with the disk.
pub fn follow(db: &Connection, path: &Path, world: &mut World) -> Result<(), Error> {
    let Foreign { records, recalled } = foreign(db, path, world)?;
    Ok(world.catch_up(&records, recalled)?)
}

/// Events that `world` does not know, with their subjects that have left memory. Read in one transaction.
pub fn foreign(db: &Connection, path: &Path, world: &World) -> Result<Foreign, Error> {
    let doing = |doing| Error::sqlite(doing, path);
    let records = log::page(db, path, world.last_seq, usize::MAX)?;
    let mut recalled = World::default();
    let mut begun = BTreeSet::new();
    for record in &records {
        let event = &record.event;
        let is_first = match event {
            Event::Submitted(submitted) => submitted.trial.is_none(),
            Event::SweepSubmitted(_) => true,
            _ => false,
        };
        if is_first {
            begun.extend(world.work_of(event));
            continue;
        }
        let known = world.work_of(event).filter(|work| world.holds(work));
        if known.is_some() || recalled.work_of(event).is_some_and(|work| recalled.holds(&work)) {
            continue;
        }
        let Some(work) = rows::work_of(db, event).map_err(doing("read"))? else { continue };
        // Work in memory may have machines that these events have rented.
        if !begun.contains(&work)
            && !world.holds(&work)
            && let Some(part) = rows::load(db, &work).map_err(doing("read"))?
        {
            recalled.merge(part);
        }
    }
    Ok(Foreign { records, recalled })
}
