//! The subject of an event.

use crate::event::Event;
use crate::id::{AttemptId, InstanceId, PipelineId, RunId, ScheduleId, SweepId};

/// The subject of an event, from which its run or sweep can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSubject<'a> {
    /// A run.
    Run(&'a RunId),
    /// A machine of a run.
    Instance(&'a InstanceId),
    /// An attempt of a run.
    Attempt(&'a AttemptId),
    /// A sweep.
    Sweep(&'a SweepId),
    /// A schedule.
    Schedule(&'a ScheduleId),
    /// A pipeline.
    Pipeline(&'a PipelineId),
}

impl Event {
    /// Its subject. That of a trial's submission is its run; its sweep changes with it.
    pub fn subject(&self) -> EventSubject<'_> {
        match self {
            Event::Submitted(submitted) => EventSubject::Run(&submitted.run),
            Event::RentIntended(intent) => EventSubject::Run(&intent.run),
            Event::MachineTaken(taken) => EventSubject::Run(&taken.run),
            Event::StopRequested { run, .. } | Event::ResumeRequested { run, .. } => EventSubject::Run(run),
            Event::AttemptIntended { run, .. } | Event::BudgetAlert { run, .. } => EventSubject::Run(run),
            Event::Ended { run, .. } | Event::Billed { run, .. } => EventSubject::Run(run),
            Event::BillAdjusted { run, .. } | Event::TrialMeasured { run, .. } => EventSubject::Run(run),
            Event::MicroBatchHalved { run, .. } | Event::KeeperChanged { run, .. } => EventSubject::Run(run),
            Event::Launched { instance, .. } | Event::RentFailed { instance, .. } => EventSubject::Instance(instance),
            Event::AgentUp { instance, .. } | Event::ReleaseIntended { instance, .. } => {
                EventSubject::Instance(instance)
            }
            Event::ReclaimNoticed { instance, .. } | Event::PeerCopyFailed { instance, .. } => {
                EventSubject::Instance(instance)
            }
            Event::Released { instance, .. } | Event::DoubleEnded { instance, .. } => EventSubject::Instance(instance),
            Event::AttemptReady { attempt, .. } | Event::AttemptEnded { attempt, .. } => EventSubject::Attempt(attempt),
            Event::MemberPrepared { attempt, .. } | Event::MemberEnded { attempt, .. } => {
                EventSubject::Attempt(attempt)
            }
            Event::AttemptResizing { attempt } | Event::StragglerFound { attempt, .. } => {
                EventSubject::Attempt(attempt)
            }
            Event::SweepSubmitted(submitted) => EventSubject::Sweep(&submitted.sweep),
            Event::SweepStopRequested { sweep, .. } | Event::SweepResumeRequested { sweep, .. } => {
                EventSubject::Sweep(sweep)
            }
            Event::SweepBudgetAlert { sweep, .. } | Event::SweepEnded { sweep, .. } => EventSubject::Sweep(sweep),
            Event::PipelineSubmitted(submitted) => EventSubject::Pipeline(&submitted.pipeline),
            Event::PipelineAdvanced { pipeline, .. }
            | Event::PipelineStopRequested { pipeline }
            | Event::PipelineResumeRequested { pipeline }
            | Event::PipelineEnded { pipeline, .. } => EventSubject::Pipeline(pipeline),
            Event::ScheduleAdded(added) => EventSubject::Schedule(&added.schedule),
            Event::ScheduleChanged { schedule, .. }
            | Event::ScheduleFired { schedule, .. }
            | Event::ScheduleSkipped { schedule, .. } => EventSubject::Schedule(schedule),
        }
    }

    /// The machines whose state it changes.
    pub fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        let (first, others) = match (self, self.subject()) {
            (Event::RentIntended(intent), _) => (Some(&intent.instance), &intent.others[..]),
            (Event::MachineTaken(taken), _) => (Some(&taken.instance), &[][..]),
            (_, EventSubject::Instance(instance)) => (Some(instance), &[][..]),
            (_, EventSubject::Run(_) | EventSubject::Attempt(_) | EventSubject::Sweep(_)) => (None, &[][..]),
            (_, EventSubject::Schedule(_) | EventSubject::Pipeline(_)) => (None, &[][..]),
        };
        first.into_iter().chain(others)
    }

    /// The attempt whose state it changes, if it changes one.
    pub fn attempt(&self) -> Option<&AttemptId> {
        match (self, self.subject()) {
            (Event::AttemptIntended { attempt, .. }, _) | (_, EventSubject::Attempt(attempt)) => Some(attempt),
            (_, EventSubject::Run(_) | EventSubject::Instance(_) | EventSubject::Sweep(_)) => None,
            (_, EventSubject::Schedule(_) | EventSubject::Pipeline(_)) => None,
        }
    }
}
