//! What happens to attempts, and how failures of a run without progress are counted: in the log, so that neither a restart of
//! the loop nor the loss of a row that follows from the log gives a run more of them.

use domain::run::{AttemptEnd, InstanceState, RunState};
use domain::{AttemptId, Cause, Elapsed, Event, InstanceId, Record, RunId, Timestamp, Work};

use super::lifecycle::{is_stopping, refuse_final};
use super::{AttemptState, Run, RunAttempt, World};

/// A program that reports no steps has come forward when it has run for so long.
const LONG: Elapsed = Elapsed(3_600_000_000);

impl World {
    pub(super) fn attempt_intended(&mut self, id: &AttemptId, attempt: RunAttempt) -> Result<(), String> {
        for instance in attempt.instances() {
            if self.instances.get(instance).is_none_or(|known| known.state != InstanceState::Up) {
                return Err(format!("instance `{instance}` is not up"));
            }
            if self.instances.get(instance).is_some_and(|known| known.reclaim.is_some()) {
                return Err(format!("instance `{instance}` is about to be taken back"));
            }
        }
        let run = self.run_mut(&attempt.run)?;
        refuse_final(run)?;
        if attempt.fence.0 != run.attempts.len() as u64 + 1 {
            return Err(format!("attempt `{id}` is out of order"));
        }
        run.attempts.push(id.clone());
        if !is_stopping(run) {
            run.state = RunState::Staging { attempt: id.clone() };
        }
        self.attempts.insert(id.clone(), attempt);
        Ok(())
    }

    pub(super) fn attempt_ready(&mut self, id: &AttemptId, ready: Option<&domain::rank::Ready>) -> Result<(), String> {
        let attempt = self.attempts.get_mut(id).ok_or_else(|| format!("attempt `{id}` is unknown"))?;
        if attempt.state != AttemptState::Intended {
            return Err(format!("attempt `{id}` is past being ready"));
        }
        attempt.state = AttemptState::Ready { step: ready.map(|ready| ready.step) };
        let run = self.runs.get_mut(&attempt.run).ok_or("its run is unknown")?;
        let step_before = run.ready.as_ref().map_or(0, |ready| ready.step);
        run.was_ready = true;
        if let Some(ready) = ready {
            // Restarts count only while they bring nothing forward.
            if ready.step > step_before {
                run.forget_failures();
                // Its checkpoint is of the data that was accepted; what changes from now on was not.
                let is_same = run.ready.as_ref().is_some_and(|before| before.data == ready.data);
                run.accept_data_change &= !is_same;
            }
            run.ready = Some(ready.clone());
        }
        if matches!(&run.state, RunState::Staging { attempt } if attempt == id) {
            run.state = RunState::Running { attempt: id.clone() };
        }
        Ok(())
    }

    pub(super) fn attempt_ended(&mut self, at: Timestamp, id: &AttemptId, end: &AttemptEnd) -> Result<(), String> {
        let attempt = self.attempts.get_mut(id).ok_or_else(|| format!("attempt `{id}` is unknown"))?;
        if matches!(attempt.state, AttemptState::Ended { .. }) {
            return Err(format!("attempt `{id}` has ended before"));
        }
        let is_long = matches!(attempt.state, AttemptState::Ready { step: None }) && at.since(attempt.intended) >= LONG;
        attempt.state = AttemptState::Ended { end: end.clone(), at };
        let run = self.runs.get_mut(&attempt.run).ok_or("its run is unknown")?;
        if is_long {
            run.forget_failures();
        }
        let stays = run.state.is_final() || is_stopping(run);
        match end {
            AttemptEnd::Trained { .. } | AttemptEnd::Succeeded => {}
            // Nobody asked for the stop: the agent's lease was over. The run waits for somebody to attend to it.
            AttemptEnd::Stopped { .. } if !stays => run.state = RunState::Queued,
            AttemptEnd::Stopped { .. } => {}
            AttemptEnd::Failed { finding, exit_code } => {
                match exit_code {
                    Some(_) => run.error_restarts += 1,
                    None => run.note_failure(finding.cause),
                }
                if !stays {
                    run.state = RunState::Recovering { finding: finding.clone(), exit_code: *exit_code };
                }
            }
        }
        Ok(())
    }

    /// Its ranks save and end, so that the next attempt can have more machines.
    pub(super) fn attempt_resizing(&mut self, id: &AttemptId) -> Result<(), String> {
        let attempt = self.attempts.get_mut(id).ok_or_else(|| format!("attempt `{id}` is unknown"))?;
        if matches!(attempt.state, AttemptState::Ended { .. }) {
            return Err(format!("attempt `{id}` has ended before"));
        }
        attempt.is_resizing = true;
        Ok(())
    }

    /// A straggler was found, and perhaps given up.
    pub(super) fn straggler(&mut self, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::StragglerFound { attempt, instance, is_replaced: true, .. } => {
                self.straggler_replaced(record.at, attempt, instance)
            }
            Event::StragglerFound { attempt, instance, .. } => self.straggler_found(attempt, instance),
            _ => Ok(()),
        }
    }

    /// One of its machines is slower than the others.
    fn straggler_found(&mut self, id: &AttemptId, instance: &InstanceId) -> Result<(), String> {
        let attempt = self.attempts.get_mut(id).ok_or_else(|| format!("attempt `{id}` is unknown"))?;
        if matches!(attempt.state, AttemptState::Ended { .. }) {
            return Err(format!("attempt `{id}` has ended before"));
        }
        if !attempt.instances().any(|one| one == instance) {
            return Err(format!("instance `{instance}` is none of attempt `{id}`"));
        }
        attempt.stragglers.push(instance.clone());
        Ok(())
    }

    /// Another takes the place of a slow one: the ranks save and end, and no new work is started on it.
    fn straggler_replaced(&mut self, at: Timestamp, id: &AttemptId, instance: &InstanceId) -> Result<(), String> {
        self.straggler_found(id, instance)?;
        self.attempt_resizing(id)?;
        self.instance_mut(instance)?.reclaim = Some(at);
        Ok(())
    }

    pub(super) fn micro_batch_halved(&mut self, id: &RunId, accumulate: u32) -> Result<(), String> {
        let run = self.run_mut(id)?;
        refuse_final(run)?;
        let Work::Train(train) = &mut run.job.work else { return Err(format!("run `{id}` has no micro-batches")) };
        if accumulate <= train.accumulate {
            return Err(format!("run `{id}` divides its steps into {} micro-batches already", train.accumulate));
        }
        train.accumulate = accumulate;
        // It is another try, and not the same one again.
        run.forget_failures();
        run.state = RunState::Queued;
        Ok(())
    }
}

impl Run {
    /// Counts a failure since it last came forward.
    pub(super) fn note_failure(&mut self, cause: Cause) {
        self.restarts += 1;
        *self.failures.entry(cause).or_default() += 1;
    }

    /// It has come forward, or is told to go on.
    pub(super) fn forget_failures(&mut self) {
        self.restarts = 0;
        self.failures.clear();
    }
}
