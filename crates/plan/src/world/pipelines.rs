//! Pipelines that a server runs: a fold over their events, and what is to be done about one now.
//!
//! A task starts once the one before has succeeded. The name of its run follows from its place ([`PipelineId::task`]): a
//! server that was killed after it had submitted the run, and before it had written that down, finds the run again.

use domain::event::PipelineSubmitted;
use domain::job::Budget;
use domain::pipeline::PipelineEnd;
use domain::run::{Outcome, RunState, StopBy};
use domain::{Event, Money, PipelineId, Record, RunId, SweepId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{RunOrSweep, World};

/// What a name on the command line may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedWork {
    /// A run.
    Run(RunId),
    /// A sweep.
    Sweep(SweepId),
    /// A pipeline.
    Pipeline(PipelineId),
}

impl From<RunOrSweep> for NamedWork {
    fn from(work: RunOrSweep) -> NamedWork {
        match work {
            RunOrSweep::Run(run) => NamedWork::Run(run),
            RunOrSweep::Sweep(sweep) => NamedWork::Sweep(sweep),
        }
    }
}

/// A pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineRecord {
    /// The names of its tasks, in their order.
    pub tasks: Vec<String>,
    /// The most that all tasks may cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Its file with its overrides, sealed.
    pub request: String,
    /// The file as the user named it.
    pub file: String,
    /// Who has asked for it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Number of its first event.
    pub order: u64,
    /// The runs of the tasks that were submitted, in their order.
    pub runs: Vec<RunId>,
    /// Runs of an earlier pipeline of its schedule, with whose results its tasks start; empty where they do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_runs: Vec<RunId>,
    /// When it ended or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Where it stands.
    pub state: PipelineState,
}

/// Where a pipeline stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PipelineState {
    /// Its tasks are run.
    Running,
    /// Told to stop; the task that runs saves its state.
    Stopping,
    /// At its end.
    Ended {
        /// The outcome. Nested, because its tag has a different name.
        how: PipelineEnd,
    },
}

/// What is to be done about a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineDecision {
    /// Nothing: it has ended, or a task of it runs.
    Wait,
    /// The task at this place, from 0, is to be submitted.
    Submit {
        /// The place.
        place: usize,
    },
    /// The run of a task is to stop.
    Stop {
        /// The run.
        run: RunId,
    },
    /// It is at its end.
    End {
        /// How.
        end: PipelineEnd,
    },
}

impl PipelineState {
    /// The state's name, as on the command line.
    pub fn word(&self) -> &'static str {
        match self {
            PipelineState::Running => "running",
            PipelineState::Stopping => "stopping",
            PipelineState::Ended { how: PipelineEnd::Done } => "done",
            PipelineState::Ended { how: PipelineEnd::Stopped { .. } } => "stopped",
            PipelineState::Ended { how: PipelineEnd::Failed { .. } } => "failed",
        }
    }
}

/// What resuming a pipeline begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineResumption {
    /// The run of its newest task, which has not succeeded.
    Run(RunId),
    /// The pipeline alone: its runs so far have succeeded, or the newest one is resumed already.
    Next,
    /// Nothing: it runs already.
    Running,
    /// It was told to stop, and has not ended yet.
    Stopping,
    /// It has ended with its result.
    Complete,
}

impl PipelineRecord {
    /// What resuming it begins with now. `last` is the state of its newest run, if any.
    pub fn resumption(&self, last: Option<&RunState>) -> PipelineResumption {
        match (&self.state, last, self.runs.last()) {
            (PipelineState::Running, ..) => PipelineResumption::Running,
            (PipelineState::Stopping, ..) => PipelineResumption::Stopping,
            (PipelineState::Ended { how: PipelineEnd::Done }, ..) => PipelineResumption::Complete,
            (
                PipelineState::Ended { .. },
                Some(RunState::Stopped { .. } | RunState::Done { outcome: Outcome::Failed { .. } }),
                Some(run),
            ) => PipelineResumption::Run(run.clone()),
            (PipelineState::Ended { .. }, ..) => PipelineResumption::Next,
        }
    }

    /// What is to be done now. `last` is the state of its newest run, if any.
    pub fn decide(&self, last: Option<&RunState>) -> PipelineDecision {
        let is_stopping = match self.state {
            PipelineState::Ended { .. } => return PipelineDecision::Wait,
            PipelineState::Stopping => true,
            PipelineState::Running => false,
        };
        let place = self.runs.len();
        let end = |end| PipelineDecision::End { end };
        match last {
            Some(state) if !state.is_final() => match (is_stopping, state, self.runs.last()) {
                (false, _, _) | (true, RunState::Stopping { .. }, _) | (true, _, None) => PipelineDecision::Wait,
                (true, _, Some(run)) => PipelineDecision::Stop { run: run.clone() },
            },
            Some(RunState::Done { outcome: Outcome::Failed { finding } }) => {
                let task = place.checked_sub(1).and_then(|place| self.tasks.get(place)).cloned().unwrap_or_default();
                end(PipelineEnd::Failed { task, message: finding.message.clone() })
            }
            Some(RunState::Stopped { by }) => end(PipelineEnd::Stopped { by: *by }),
            _ if place >= self.tasks.len() => end(PipelineEnd::Done),
            _ if is_stopping => end(PipelineEnd::Stopped { by: StopBy::User }),
            _ => PipelineDecision::Submit { place },
        }
    }

    /// The job file as the run of the task at this place has it: `FILE#TASK`, as `gradus run` names it, which can start with a
    /// later task.
    pub fn task_file(&self, place: usize) -> String {
        format!("{}#{}", self.file, self.tasks.get(place).map_or("", String::as_str))
    }

    /// What its tasks so far, which have cost this much, have left of the budget of all; `None` without a budget.
    ///
    /// # Errors
    /// A message where nothing is left.
    pub fn left(&self, cost: Money) -> Result<Option<Budget>, String> {
        let Some(budget) = self.budget else { return Ok(None) };
        let rest = budget.max.micros().saturating_sub(cost.micros());
        if rest <= 0 {
            return Err(format!("the budget of the pipeline, {}, is spent: its tasks have cost {cost}", budget.max));
        }
        Ok(Some(Budget { max: Money::from_micros(rest), ..budget }))
    }

    /// Its end where the run of the task at this place was refused.
    pub fn refused(&self, place: usize, message: &str, hint: Option<&str>) -> PipelineEnd {
        let hint = hint.map_or(String::new(), |hint| format!(" (hint: {hint})"));
        PipelineEnd::Failed {
            task: self.tasks.get(place).cloned().unwrap_or_default(),
            message: format!("{message}{hint}"),
        }
    }
}

impl World {
    /// The pipeline of which a run is a task, also where its submission is not written down as that of the task yet.
    pub fn pipeline_of(&self, run: &RunId) -> Option<&PipelineId> {
        let is_of = |(id, known): &(&PipelineId, &PipelineRecord)| {
            known.runs.contains(run) || id.task(known.runs.len() + 1) == *run
        };
        self.pipelines.iter().find(is_of).map(|(id, _)| id)
    }

    /// Moves the world by one event of a pipeline; other events change nothing here.
    pub(super) fn follow_pipeline(&mut self, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::PipelineSubmitted(submitted) => self.pipeline_submitted(record, submitted),
            Event::PipelineAdvanced { pipeline, run } => {
                let known = self.open_pipeline(pipeline)?;
                if known.runs.contains(run) {
                    return Err(format!("run `{run}` is one of pipeline `{pipeline}` already"));
                }
                known.runs.push(run.clone());
                Ok(())
            }
            Event::PipelineStopRequested { pipeline } => {
                self.open_pipeline(pipeline)?.state = PipelineState::Stopping;
                Ok(())
            }
            Event::PipelineResumeRequested { pipeline } => self.resume_pipeline(pipeline),
            Event::PipelineEnded { pipeline, end } => {
                let known = self.open_pipeline(pipeline)?;
                known.state = PipelineState::Ended { how: end.clone() };
                known.ended = Some(record.at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn pipeline_submitted(&mut self, record: &Record, submitted: &PipelineSubmitted) -> Result<(), String> {
        if self.pipelines.contains_key(&submitted.pipeline) {
            return Err(format!("pipeline `{}` was submitted before", submitted.pipeline));
        }
        let pipeline = PipelineRecord {
            tasks: submitted.tasks.clone(),
            budget: submitted.budget,
            request: submitted.request.clone(),
            file: submitted.file.clone(),
            user: submitted.user.clone(),
            submitted: record.at,
            order: record.seq,
            runs: Vec::new(),
            last_runs: submitted.last_runs.clone(),
            ended: None,
            state: PipelineState::Running,
        };
        self.pipelines.insert(submitted.pipeline.clone(), pipeline);
        Ok(())
    }

    fn resume_pipeline(&mut self, id: &PipelineId) -> Result<(), String> {
        let known = self.pipelines.get_mut(id).ok_or_else(|| format!("pipeline `{id}` is unknown"))?;
        match known.state {
            PipelineState::Ended { how: PipelineEnd::Stopped { .. } | PipelineEnd::Failed { .. } } => {
                known.state = PipelineState::Running;
                known.ended = None;
                Ok(())
            }
            _ => Err(format!("pipeline `{id}` is {}", known.state.word())),
        }
    }

    fn open_pipeline(&mut self, id: &PipelineId) -> Result<&mut PipelineRecord, String> {
        let known = self.pipelines.get_mut(id).ok_or_else(|| format!("pipeline `{id}` is unknown"))?;
        match known.state {
            PipelineState::Running | PipelineState::Stopping => Ok(known),
            PipelineState::Ended { .. } => Err(format!("pipeline `{id}` is {}", known.state.word())),
        }
    }
}
