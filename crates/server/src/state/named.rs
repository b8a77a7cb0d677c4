//! Queries of one run, sweep or pipeline by its name, without what belongs to it.

use domain::{PipelineId, SweepId};
use plan::{NamedWork, PipelineRecord, SweepRecord};
use rusqlite::OptionalExtension;

use super::{StateReader, rows};
use crate::error::Error;

impl StateReader {
    /// A pipeline; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn pipeline(&self, pipeline: &PipelineId) -> Result<Option<PipelineRecord>, Error> {
        self.ask(|db| rows::pipeline(db, pipeline))
    }

    /// A sweep without its trials; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn sweep_alone(&self, sweep: &SweepId) -> Result<Option<SweepRecord>, Error> {
        let found = self.ask(|db| rows::sweeps(db, "WHERE id = ?1", [sweep.as_str()]))?;
        Ok(found.into_iter().next().map(|(_, sweep)| sweep))
    }

    /// The state of a run, sweep or pipeline, as one word; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn word(&self, work: &NamedWork) -> Result<Option<String>, Error> {
        match work {
            NamedWork::Run(run) => self.ask(|db| {
                let mut statement = db.prepare_cached("SELECT state FROM run_rows WHERE id = ?1")?;
                statement.query_row([run.as_str()], |row| row.get(0)).optional()
            }),
            NamedWork::Sweep(id) => Ok(self.sweep_alone(id)?.map(|sweep| sweep.state.word().to_owned())),
            NamedWork::Pipeline(id) => Ok(self.pipeline(id)?.map(|pipeline| pipeline.state.word().to_owned())),
        }
    }
}
