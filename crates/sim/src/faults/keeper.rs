//! The keeper of schedules in a server, step by step as `server::api` has it: what is due is decided by
//! [`ScheduleRecord::decide`]; its run or sweep is submitted, and then written down as that of the schedule. It may die between
//! any two of these steps.

use control::ControllerInput;
use domain::run::StopBy;
use domain::schedule::{CatchUpPolicy, DueTimes, ScheduleChange, SkipReason};
use domain::{Event, RunId, Timestamp};
use plan::{LastDueRun, NamedWork, ScheduleDecision, ScheduleRecord};

use crate::job::schedule::schedule_id;
use crate::job::submitted;
use crate::job::sweep::due_sweep_submitted;
use crate::rule::Rule;
use crate::scenario::SECOND;
use crate::simulation::{ReplyTo, SimEvent, Simulation};

/// Interval between two looks at the schedules.
const LOOK: u64 = 5 * SECOND;

/// How long an answer is waited for.
const PATIENCE: u64 = 30 * SECOND;

/// How long planning takes at most.
const PLANNING: u64 = 20 * SECOND;

impl Simulation {
    /// The due times of the schedule.
    pub(crate) fn due_times(&self) -> Option<DueTimes> {
        self.scenario.schedule.times().times().ok()
    }

    /// The keeper looks what is due.
    pub(crate) fn keeper_looks(&mut self) {
        self.at(self.now + LOOK, SimEvent::KeeperLooks);
        let (life, until) = self.keeper.busy;
        if life == self.process.life && self.now < until {
            return;
        }
        let Some(controller) = &self.process.controller else { return };
        let Some(record) = controller.world().schedules.get(&schedule_id()).cloned() else { return };
        let Some(times) = self.due_times() else { return };
        let now = Timestamp(self.wall());
        let Some(due) = times.next(record.settled).filter(|due| *due <= now) else { return };
        // It was submitted before the loop died.
        let first = schedule_id().run(due);
        if self.due_standing(&record, &first, now).is_some() {
            return self.keeper_asks(Event::ScheduleFired { schedule: schedule_id(), due, run: first }, None);
        }
        self.keeper_decides(&record, &times, now);
    }

    fn keeper_decides(&mut self, record: &ScheduleRecord, times: &DueTimes, now: Timestamp) {
        let last = self.last_due_run(record, now).filter(|_| self.rule != Some(Rule::OverlapIsHeeded));
        let mut believed = record.clone();
        if self.rule == Some(Rule::CatchUpIsHeeded) {
            believed.times.catch_up = CatchUpPolicy::All;
        }
        let schedule = schedule_id();
        match believed.decide(times, last.as_ref(), now) {
            ScheduleDecision::Wait { .. } | ScheduleDecision::WaitFor { .. } => {}
            ScheduleDecision::Stop { run } => {
                let stop = match record.named(&run) {
                    NamedWork::Run(run) => Event::StopRequested { run, by: StopBy::User },
                    NamedWork::Sweep(sweep) => Event::SweepStopRequested { sweep, by: StopBy::User },
                    NamedWork::Pipeline(pipeline) => Event::PipelineStopRequested { pipeline },
                };
                self.keeper_asks(stop, None);
            }
            ScheduleDecision::Skip { due, count, why } => {
                self.keeper_asks(Event::ScheduleSkipped { schedule, due, count, why }, None);
            }
            ScheduleDecision::Submit { due } => {
                let took = self.draws.below(PLANNING) + 1;
                let life = self.process.life;
                self.keeper.busy = (life, self.now + took + 1);
                let before = Box::new(record.clone());
                self.at(self.now + took, SimEvent::KeeperHasPlanned { life, due, before });
            }
        }
    }

    /// A run is planned: it is submitted, unless the schedule has changed meanwhile.
    pub(crate) fn keeper_has_planned(&mut self, life: u64, due: Timestamp, before: &ScheduleRecord) {
        let Some(controller) = self.process.controller.as_ref().filter(|_| life == self.process.life) else { return };
        if controller.world().schedules.get(&schedule_id()) != Some(before) {
            return;
        }
        if self.chance(5) {
            let why = SkipReason::Refused { message: "nothing fits".into() };
            return self.keeper_asks(Event::ScheduleSkipped { schedule: schedule_id(), due, count: 1, why }, None);
        }
        let mut run = schedule_id().run(due);
        if self.rule == Some(Rule::DueTimesAreRunOnce) {
            run = RunId::new(format!("{run}-{life}"));
        }
        self.keeper.asked.insert(run.clone(), due);
        let event = match before.named(&run) {
            NamedWork::Sweep(sweep) => due_sweep_submitted(sweep, &self.scenario, self.now),
            NamedWork::Run(_) | NamedWork::Pipeline(_) => submitted(&run, &self.scenario, None, self.now),
        };
        self.keeper_asks(event, Some((due, run)));
    }

    /// Its request was answered; with the run that was submitted.
    pub(crate) fn keeper_is_answered(&mut self, of: Option<(Timestamp, RunId)>) {
        self.keeper.busy = (0, 0);
        if let Some((due, run)) = of {
            self.keeper_asks(Event::ScheduleFired { schedule: schedule_id(), due, run }, None);
        }
    }

    fn keeper_asks(&mut self, event: Event, of: Option<(Timestamp, RunId)>) {
        self.keeper.busy = (self.process.life, self.now + PATIENCE);
        let from = self.reply_id(ReplyTo::Keeper(of));
        self.deliver(ControllerInput::Request { from, event: Box::new(event) });
    }

    /// The newest run or sweep of the schedule, as it is on disk.
    fn last_due_run(&self, record: &ScheduleRecord, now: Timestamp) -> Option<LastDueRun> {
        record.runs.last().and_then(|name| self.due_standing(record, name, now))
    }

    /// Where what the schedule has submitted under this name stands on disk; `None` if there is nothing of this name.
    fn due_standing(&self, record: &ScheduleRecord, name: &RunId, now: Timestamp) -> Option<LastDueRun> {
        let archive = &self.process.archive;
        match record.named(name) {
            NamedWork::Run(run) => Some(LastDueRun::of_run(name, archive.runs.get(&run)?, now)),
            NamedWork::Sweep(sweep) => Some(LastDueRun::of_sweep(name, archive.sweeps.get(&sweep)?, now)),
            // No schedule here is of pipelines.
            NamedWork::Pipeline(_) => None,
        }
    }

    /// In the quiet after the storm the schedule is paused.
    pub(crate) fn user_pauses_schedule(&mut self) {
        let known = self.process.archive.schedules.get(&schedule_id());
        if known.is_some_and(|record| record.paused.is_none()) {
            self.user_asks(Event::ScheduleChanged { schedule: schedule_id(), change: ScheduleChange::Pause });
        }
    }
}
