//! Faults and users' actions: rounds of faults, crashes of the loop, requests to stop and resume.

mod keeper;

use control::{ControllerInput, ReplyId, SupervisorInput};
use domain::event::Event;
use domain::rental::MachineHandle;
use domain::run::{RunState, StopBy};

use domain::{Elapsed, Record, RunId, Timestamp};

use crate::job::schedule::{is_of_schedule, schedule_added};
use crate::job::submitted;
use crate::job::sweep::{is_of_sweep, sweep_submitted};
use crate::rule::Rule;
use crate::scenario::SECOND;
use crate::simulation::{ROUND, ReplyTo, SimEvent, Simulation, is_submission};

impl Simulation {
    pub(crate) fn user_submits(&mut self, run: RunId) {
        if self.acknowledged.contains(&run) {
            return;
        }
        if self.process.controller.is_some() {
            let from = self.reply_id(ReplyTo::User(run.clone()));
            let event = match (is_of_sweep(&run), is_of_schedule(&run)) {
                (true, _) => sweep_submitted(&self.scenario, self.sweep_budget, self.rule, self.now),
                (false, true) => schedule_added(&self.scenario),
                (false, false) => submitted(&run, &self.scenario, self.budget, self.now),
            };
            let event = Box::new(event);
            self.deliver(ControllerInput::Request { from, event });
        }
        // Until it was accepted.
        self.at(self.now + 5 * SECOND, SimEvent::UserSubmits(run));
    }

    /// A user sends a request once.
    pub(crate) fn user_asks(&mut self, event: Event) {
        if self.process.controller.is_some() {
            self.last_reply += 1;
            let from = ReplyId(self.last_reply);
            self.deliver(ControllerInput::Request { from, event: Box::new(event) });
        }
    }

    pub(crate) fn faults(&mut self) {
        if !self.is_stormy {
            return;
        }
        self.at(self.now + ROUND, SimEvent::Faults);
        if self.scenario.is_skewed && self.draws.below(4) == 0 {
            self.skew = self.draws.below(1_200 * SECOND) as i64 - (600 * SECOND) as i64;
        }
        let handles: Vec<MachineHandle> = self
            .cloud
            .machines
            .iter()
            .filter(|(_, machine)| machine.is_alive())
            .map(|(handle, _)| handle.clone())
            .collect();
        for handle in handles {
            if self.chance(self.scenario.machine_fault) {
                self.machine_fault(&handle);
            }
        }
        if self.chance(self.scenario.user) {
            let run = self.runs[self.draws.below(self.runs.len() as u64) as usize].clone();
            let is_stop = self.draws.below(2) == 0;
            let event = if is_stop { Event::StopRequested { run, by: StopBy::User } } else { resume(run) };
            match self.draws.below(2) {
                0 => self.user_asks(event),
                _ => self.other_process(event),
            }
        }
        if self.scenario.sweep.trials > 0 && self.chance(self.scenario.user) {
            self.user_of_sweep();
        }
        if self.draws.below(8) == 0 {
            self.deliver(ControllerInput::Audit);
        }
    }

    /// The provider announces on a machine that it will be reclaimed.
    pub(crate) fn notice(&mut self, handle: &MachineHandle) {
        let at = self.now + 30 * SECOND + self.draws.below(90 * SECOND);
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        if machine.reclaim.is_none() && !machine.is_anchor {
            machine.reclaim = Some(at);
            self.at(at, SimEvent::Reclaimed(handle.clone()));
            self.tell_notice(handle);
        }
    }

    /// What the agent finds when it polls for a notice.
    pub(crate) fn tell_notice(&mut self, handle: &MachineHandle) {
        let reclaim = self.cloud.machines.get(handle).and_then(|machine| machine.reclaim);
        if let Some(at) = reclaim.filter(|_| self.rule != Some(Rule::ReclaimIsHeeded)) {
            self.tell_agent(handle, SupervisorInput::ReclaimNotice(Elapsed(at.saturating_sub(self.now))));
        }
    }

    /// The provider reclaims a machine as announced.
    pub(crate) fn reclaimed(&mut self, handle: &MachineHandle) {
        let now = self.now;
        let Some(machine) = self.cloud.machines.get_mut(handle).filter(|machine| machine.is_alive()) else { return };
        let is_working = machine.rank.is_some() && machine.agent.is_some() && !machine.is_frozen;
        let instance = machine.instance.clone();
        machine.end(now);
        if is_working {
            self.violate(format!("{instance} was taken back at the announced time, and its ranks had not ended"));
        }
    }

    /// A user stops a run from another process, while the loop waits for its disk.
    pub(crate) fn stop_beside(&mut self) {
        let run = self.runs[self.draws.below(self.runs.len() as u64) as usize].clone();
        self.other_process(Event::StopRequested { run, by: StopBy::User });
    }

    /// Another process appends to the log. The loop sees it soon, or when it appends itself.
    pub(crate) fn other_process(&mut self, event: Event) {
        if self.process.file().is_err() {
            return;
        }
        let record = Record { seq: self.process.archive.last_seq + 1, at: Timestamp(self.wall()), event };
        if self.process.archive.apply(&record).is_err() {
            return;
        }
        self.process.disk.push(record.clone());
        let Some(controller) = &self.process.controller else { return };
        if self.process.unsynced.is_empty() {
            let work = self.process.archive.work_of(&record.event);
            let gone = work.filter(|work| !controller.world().holds(work));
            let recalled = gone.map(|work| self.process.archive.clone().take(&work)).unwrap_or_default();
            self.deliver(ControllerInput::Appended { records: vec![record], recalled: Box::new(recalled) });
        }
    }

    /// The loop dies. It is restarted some time later.
    pub(crate) fn crash(&mut self) {
        self.stats.crashes += 1;
        let kept = self.draws.below(self.process.unsynced.len() as u64 + 1) as usize;
        self.process.crash(kept);
        self.replies.clear();
        if self.scenario.is_restored && !self.is_restored && self.draws.below(2) == 0 {
            self.restore();
        }
        if !self.scenario.is_abandoned {
            let down = if self.draws.below(4) == 0 { 300 * SECOND } else { 5 * SECOND };
            let back = self.now + self.draws.below(down) + 1000;
            self.at(back, SimEvent::LoopStarts);
        }
    }

    /// The log is restored from an older backup.
    pub(crate) fn restore(&mut self) {
        self.is_restored = true;
        let lost = self.draws.below(self.process.disk.len() as u64 / 2 + 1) as usize;
        self.process.restore(self.process.disk.len() - lost);
        let is_known = |run: &RunId| self.process.disk.iter().any(|record| is_submission(&record.event, run));
        // Runs accepted after the backup are lost with it; their users submit again.
        let lost: Vec<RunId> = self.acknowledged.iter().filter(|run| !is_known(run)).cloned().collect();
        for run in lost {
            self.acknowledged.remove(&run);
            self.at(self.now + 30 * SECOND, SimEvent::UserSubmits(run));
        }
    }

    pub(crate) fn calm(&mut self) {
        self.is_stormy = false;
        self.calm_since = self.now;
        if !self.scenario.is_abandoned || self.stats.crashes == 0 {
            self.start_loop();
        }
        self.at(self.now + SECOND, SimEvent::UserResumes);
    }

    /// In the quiet after the storm every run is resumed until it ends.
    pub(crate) fn user_resumes(&mut self) {
        self.at(self.now + 30 * SECOND, SimEvent::UserResumes);
        if self.process.controller.is_none() {
            return;
        }
        let stopped = |run: &&RunId| {
            let state = self.process.archive.runs.get(*run).map(|run| &run.state);
            matches!(state, Some(RunState::Stopped { .. })) && self.budget.is_none()
        };
        let stopped: Vec<RunId> = self.runs.iter().filter(stopped).cloned().collect();
        for run in stopped {
            self.user_asks(resume(run));
        }
        self.user_resumes_sweep();
        self.user_pauses_schedule();
    }

    /// What the loop decided to write down.
    pub(crate) fn trace_records(&mut self, records: &[Record]) {
        let Some(trace) = &mut self.trace else { return };
        let lines = records.iter().map(|Record { seq, event, .. }| format!("{:>12}   writes {seq}: {event:.300?}", ""));
        trace.extend(lines);
    }
}

fn resume(run: RunId) -> Event {
    Event::ResumeRequested {
        run,
        budget: None,
        deadline: None,
        epochs: None,
        accept_data_change: false,
        set: Vec::new(),
    }
}
