//! The only place that acts: writes the intent, asks the provider, writes the outcome.

use cloud::{Launch, LaunchError, Provider};
use domain::event::{RentIntended, Submitted};
use domain::{Cause, Event, Finding, InstanceId};
use plan::Action;

use crate::error::Error;
use crate::home::Home;
use crate::state::State;
use crate::submit::{job_hash, token};

/// Does one thing.
///
/// # Errors
/// [`Error`] when the log cannot be written. What a provider refuses becomes an event, or is asked again later.
pub fn perform(state: &mut State, home: &Home, providers: &[Box<dyn Provider>], action: Action) -> Result<(), Error> {
    match action {
        Action::Rent { run, instance, offer, reserve } => {
            let token = token(home.owner(), &instance);
            let intent = RentIntended { run, instance: instance.clone(), token, offer, reserved: reserve };
            state.append(vec![Event::RentIntended(Box::new(intent))])?;
            launch(state, providers, &instance)
        }
        Action::Launch { instance } => launch(state, providers, &instance),
        Action::Start { run, attempt, fence, instance } => {
            append(state, Event::AttemptIntended { run, attempt, fence, instance })
        }
        Action::FailAttempt { attempt, finding } => {
            let end = domain::run::AttemptEnd::Failed { finding, exit_code: None };
            append(state, Event::AttemptEnded { attempt, end })
        }
        Action::End { run, end } => append(state, Event::Ended { run, end }),
        Action::Stop { run, by } => append(state, Event::StopRequested { run, by }),
        Action::Alert { run, spent } => append(state, Event::BudgetAlert { run, spent }),
        Action::Release { instance } => append(state, Event::ReleaseIntended { instance }),
        Action::Terminate { instance } => {
            // A provider that cannot be asked now is asked again; the instance counts as alive until it proves otherwise.
            if let Some(provider) = provider_of(state, providers, &instance) {
                let _ = provider.release(&instance);
            }
            Ok(())
        }
        Action::RecordRelease { instance, usage } => append(state, Event::Released { instance, usage }),
        Action::Bill { run, bill } => {
            chaos::point("bill");
            append(state, Event::Billed { run, bill })
        }
        Action::SubmitTrial(new) => {
            let plan::SubmitTrial { run, job, plan, file, trial } = *new;
            let job_hash = job_hash(&job, &plan);
            let submitted = Submitted { run, job, plan, job_hash, file, trial: Some(trial) };
            append(state, Event::Submitted(Box::new(submitted)))
        }
        Action::Resume { run, epochs } => {
            home.unmark_reported(&home.run(&run));
            let trial = state.world().runs.get(&run).and_then(|run| run.trial.as_ref());
            let sweep = trial.and_then(|trial| state.world().sweeps.get(&trial.sweep));
            let accept_data_change = sweep.is_some_and(|sweep| sweep.accept_data_change);
            let (budget, deadline) = (None, None);
            append(state, Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change })
        }
        Action::StopSweep { sweep, by } => append(state, Event::SweepStopRequested { sweep, by }),
        Action::AlertSweep { sweep, spent } => append(state, Event::SweepBudgetAlert { sweep, spent }),
        Action::EndSweep { sweep, end, total } => append(state, Event::SweepEnded { sweep, end, total }),
    }
}

fn append(state: &mut State, event: Event) -> Result<(), Error> {
    state.append(vec![event]).map(|_| ())
}

/// Asks the provider for an instance whose intent is on disk. Asked twice, it rents one.
fn launch(state: &mut State, providers: &[Box<dyn Provider>], id: &InstanceId) -> Result<(), Error> {
    let Some(instance) = state.world().instances.get(id).cloned() else { return Ok(()) };
    let Some(provider) = provider_of(state, providers, id) else {
        let message = format!("no provider is called `{}`", instance.offer.provider);
        return append(
            state,
            Event::RentFailed { instance: id.clone(), finding: Finding::new(Cause::Internal, message) },
        );
    };
    let launch = Launch { instance: id.clone(), token: instance.token, offer: instance.offer };
    match provider.launch(&launch) {
        Ok(()) => append(state, Event::Launched { instance: id.clone() }),
        Err(LaunchError::Refused(error)) => {
            let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            let finding = Finding::new(refusal(&error), format!("{error}{cause}"));
            append(state, Event::RentFailed { instance: id.clone(), finding })
        }
        // Asked again later, with the same token.
        Err(LaunchError::InDoubt(_)) => Ok(()),
    }
}

/// A full or read-only disk is the same at the next request; anything else may not be.
fn refusal(error: &cloud::Error) -> Cause {
    match error.source.kind() {
        std::io::ErrorKind::StorageFull => Cause::DiskFull,
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => Cause::ReadOnly,
        _ => Cause::InstanceLost,
    }
}

fn provider_of<'a>(state: &State, providers: &'a [Box<dyn Provider>], id: &InstanceId) -> Option<&'a dyn Provider> {
    let instance = state.world().instances.get(id)?;
    providers.iter().find(|provider| provider.name() == instance.offer.provider).map(AsRef::as_ref)
}
