//! What a request to resume a run changes of it.

use domain::job::Budget;
use domain::run::RunState;
use domain::sweep::Setting;
use domain::train::Stop;
use domain::{Duration, Money, RunId, Work};

use super::World;

impl World {
    /// The run is queued again, within these limits and with these values of its keys.
    pub(super) fn resume_requested(
        &mut self,
        id: &RunId,
        budget: Option<Money>,
        deadline: Option<Duration>,
        epochs: Option<u32>,
        set: &[Setting],
    ) -> Result<(), String> {
        let run = self.run_mut(id)?;
        let changed = crate::resume::changed(run, set)?;
        if !crate::resume::is_resumable(run, epochs, changed.as_ref()) {
            return Err(format!("run `{id}` is {} and needs no resume", run.state.word()));
        }
        if let Some(train) = changed {
            run.plan.share = run.plan.share.map(|share| share.among(train.processes));
            run.job.work = Work::Train(train);
        }
        if let Some(max) = budget {
            run.job.budget = Some(Budget { max, ..run.job.budget.unwrap_or_default() });
            run.alerted = false;
        }
        run.job.deadline = deadline.or(run.job.deadline);
        if let (Some(epochs), Work::Train(train)) = (epochs, &mut run.job.work) {
            let (accuracy, patience) = train.stop.map_or((None, None), |stop| (stop.accuracy, stop.patience));
            train.stop = Some(Stop { epochs: Some(epochs), accuracy, patience });
        }
        run.settled = run.attempts.len();
        run.state = RunState::Queued;
        run.ended = None;
        run.bill = None;
        run.forget_failures();
        run.error_restarts = 0;
        run.waits = 0;
        if let Some(trial) = run.trial.clone()
            && let Some(sweep) = self.sweeps.get_mut(&trial.sweep)
        {
            sweep.paused.remove(id);
        }
        Ok(())
    }
}
