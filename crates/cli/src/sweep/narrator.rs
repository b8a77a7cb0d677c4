//! Prints what happens to a sweep: one line when a trial starts, resumes or ends. It reads the event log, so its output is
//! the same whichever process runs the control loop. It also writes the reports of the trials and of the sweep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::{Event, Record, SweepId};
use plan::RunOrSweep;
use server::{Home, Series, State};

use super::told;
use crate::error::Error;
use crate::follow::report;
use crate::printer::Printer;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Prints the progress of a sweep.
pub struct SweepNarrator<'a> {
    home: &'a Home,
    sweep: SweepId,
    /// Its source.
    pub state: State,
    series: Series,
    told: u64,
}

impl<'a> SweepNarrator<'a> {
    /// A narrator of events after `since`.
    ///
    /// # Errors
    /// [`Error::Server`] if the state cannot be opened.
    pub fn open(home: &'a Home, sweep: &SweepId, since: u64) -> Result<SweepNarrator<'a>, Error> {
        let (mut state, series) = (State::open_lean(home)?, Series::open(home)?);
        state.recall(&RunOrSweep::Sweep(sweep.clone()))?;
        Ok(SweepNarrator { home, sweep: sweep.clone(), state, series, told: since })
    }

    /// Prints until `ended`, and then the rest.
    ///
    /// # Errors
    /// [`Error`] when the state cannot be read or a report not be written.
    pub fn tell(&mut self, printer: &mut Printer, ended: &AtomicBool) -> Result<(), Error> {
        loop {
            let last = ended.load(Ordering::SeqCst);
            self.state.refresh()?;
            for record in self.state.records_after(self.told)? {
                self.told = record.seq;
                if told::concerns(self.state.world(), &self.sweep, &record.event) {
                    self.record(printer, &record)?;
                }
            }
            if last {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn record(&self, printer: &mut Printer, record: &Record) -> Result<(), Error> {
        told::tell(printer, self.state.world(), &self.sweep, record);
        if let Event::Billed { run, .. } = &record.event {
            report::write(self.home, &self.state, &self.series, run)?;
            self.home.mark_reported(&self.home.run(run))?;
            super::write_report(self.home, &self.state, &self.sweep)?;
        }
        Ok(())
    }
}
