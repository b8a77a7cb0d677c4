//! The process of the control loop: the real controller, and a disk that loses unsynced data in a crash.

use std::collections::{BTreeMap, BTreeSet};

use control::{Controller, ControllerInput, Now};
use domain::rental::{BillingRule, ProviderTraits};
use domain::{Elapsed, Record, Timestamp};
use plan::{Illegal, Policy, World};

use crate::job::PROVIDER;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario};

#[derive(Debug)]
pub(crate) struct LoopProcess {
    /// `None` while it is down.
    pub controller: Option<Controller>,
    /// Incarnation number; messages for an earlier one are lost.
    pub life: u64,
    /// Records on disk.
    pub disk: Vec<Record>,
    /// The resulting world, including work that has left the controller's memory.
    pub archive: World,
    /// Records written but not synced.
    pub unsynced: Vec<Record>,
    /// Its requested wake-up time.
    pub wake: u64,
}

impl LoopProcess {
    pub(crate) fn new() -> LoopProcess {
        LoopProcess {
            controller: None,
            life: 0,
            disk: Vec::new(),
            archive: World::default(),
            unsynced: Vec::new(),
            wake: 0,
        }
    }

    /// Starts from the disk.
    ///
    /// # Errors
    /// If the log cannot be replayed.
    pub(crate) fn start(&mut self, scenario: &Scenario, rule: Option<Rule>, now: Now) -> Result<(), String> {
        let mut world = self.open_world().map_err(|illegal| illegal.to_string())?;
        self.life += 1;
        if rule == Some(Rule::StateIsTheLog) {
            world.runs.values_mut().for_each(|run| run.restarts = 0);
        }
        let providers = BTreeMap::from([(PROVIDER.to_owned(), believed_traits(scenario, rule))]);
        self.controller = Some(Controller::new(world, "owner", providers, policy(scenario, rule), now));
        Ok(())
    }

    /// The unfinished work on disk.
    ///
    /// # Errors
    /// If the log cannot be replayed.
    pub(crate) fn open_world(&mut self) -> Result<World, Illegal> {
        self.file()?;
        let mut world = self.archive.clone();
        world.find_open();
        world.evict_settled(&BTreeSet::new());
        Ok(world)
    }

    /// Brings the archive up to date with the disk.
    ///
    /// # Errors
    /// If the log cannot be replayed.
    pub(crate) fn file(&mut self) -> Result<(), Illegal> {
        self.disk[self.archive.last_seq as usize..].iter().try_for_each(|record| self.archive.apply(record))
    }

    /// The subject of an input that has left the controller's memory: a run, or the machine of an agent that calls.
    pub(crate) fn recall(&mut self, input: &ControllerInput) -> Option<World> {
        let controller = self.controller.as_ref()?;
        let work = match input {
            ControllerInput::Heartbeat { heartbeat, .. } => {
                let instance = &heartbeat.instance;
                if controller.world().holder(instance).is_some() {
                    return None;
                }
                self.archive.work_of_run(&self.archive.instances.get(instance)?.run)
            }
            ControllerInput::Request { event, .. } => self.archive.work_of(event),
            _ => None,
        };
        let work = work.filter(|work| !controller.world().holds(work) && self.archive.holds(work))?;
        Some(self.archive.clone().take(&work))
    }

    /// Crashes. The first `kept` of the unsynced records may have reached the disk anyway.
    pub(crate) fn crash(&mut self, kept: usize) {
        self.controller = None;
        self.life += 1;
        let kept = if self.is_overtaken() { 0 } else { kept };
        let lost = std::mem::take(&mut self.unsynced);
        self.disk.extend(lost.into_iter().take(kept));
    }

    /// Whether another process has appended since the unsynced records were decided.
    pub(crate) fn is_overtaken(&self) -> bool {
        let newest = self.disk.last().map_or(0, |record| record.seq);
        self.unsynced.first().is_some_and(|record| record.seq <= newest)
    }

    /// The log is restored from a backup that ends before `kept` more events.
    pub(crate) fn restore(&mut self, kept: usize) {
        self.disk.truncate(kept);
        self.archive = World::default();
    }

    /// A sync has ended.
    pub(crate) fn synced(&mut self, seq: u64) {
        let later = self.unsynced.iter().position(|record| record.seq > seq).unwrap_or(self.unsynced.len());
        self.disk.extend(self.unsynced.drain(..later));
    }
}

/// The lease that a server grants.
const SERVED: Elapsed = Elapsed(1_800 * SECOND);

/// The clocks as the loop reads them.
pub(crate) fn clocks(now: u64, skew: i64, rule: Option<Rule>) -> Now {
    let wall = now as i64 + skew;
    let monotonic = if rule == Some(Rule::WaitsAreMonotonic) { u64::try_from(wall.max(0)).unwrap_or(0) } else { now };
    Now { monotonic: Elapsed(monotonic), wall: Timestamp(wall) }
}

/// The provider's traits as believed by the loop.
fn believed_traits(scenario: &Scenario, rule: Option<Rule>) -> ProviderTraits {
    let mut traits = scenario.traits;
    match rule {
        Some(Rule::MissingIsNotGone) => traits.visible_within = Elapsed(0),
        Some(Rule::LateRequestsCount) => traits.effective_within = Elapsed(0),
        Some(Rule::LookBeforeAskingAgain) => traits.token_lifetime = Some(Elapsed(u64::MAX)),
        Some(Rule::BootingIsNotSilence) => traits.boots_within = Elapsed(0),
        Some(Rule::BootsAreBounded) => traits.boots_within = Elapsed(u64::MAX / 4),
        Some(Rule::LastEventsAreRead) => traits.keeps_events = false,
        Some(Rule::RentIsRounded) => traits.billing = BillingRule::EXACT,
        Some(Rule::AbandonedIsSettled) => traits.abandoned_within = None,
        Some(Rule::DesignOfBefore) => {
            let none = Elapsed(0);
            (traits.visible_within, traits.effective_within, traits.boots_within) = (none, none, none);
        }
        _ => {}
    }
    traits
}

pub(crate) fn policy(scenario: &Scenario, rule: Option<Rule>) -> Policy {
    let usual = Policy::default();
    let mut policy = Policy {
        lease: if scenario.is_served { SERVED } else { usual.lease },
        slots: 8,
        heartbeat: Elapsed(5 * SECOND),
        heartbeat_idle: Elapsed(SECOND),
        saving: Elapsed(20 * SECOND),
        incomplete: Elapsed(60 * SECOND),
        hands_over: scenario.hands_over,
        ..usual
    };
    let never = Elapsed(u64::MAX);
    match rule {
        Some(Rule::SilenceIsGivenUp) => (policy.silence, policy.silence_remote) = (never, never),
        Some(Rule::WaitingIsBounded) => policy.incomplete = never,
        Some(Rule::StrangersAreEnded) => policy.strangers = never,
        Some(Rule::SuspectsAreLookedAt) => policy.suspect = never,
        Some(Rule::LostIsReplaced) => policy.replace = never,
        Some(Rule::UnknownAgentsLeave) => policy.unknown = never,
        Some(Rule::EndsAreRepeatedSoon) => policy.ending_max = never,
        Some(Rule::LastEventsAreGivenUp) => policy.last_events_tries = u32::MAX,
        Some(Rule::WaitsAreBounded) => policy.backoff_max = never,
        Some(Rule::TriesAreSpaced) => policy.backoff = Elapsed(0),
        Some(Rule::SavingIsBounded) => policy.saving = Elapsed(u64::MAX / 4),
        Some(Rule::RentIsAdmitted) => policy.is_admitting = false,
        Some(Rule::EarlierCallsCount) => policy.doubts_earlier_calls = false,
        Some(Rule::ShortagesEnd) => (policy.shortage, policy.shortage_max) = (never, never),
        Some(Rule::ShrinkIsBounded) => policy.shrink = never,
        _ => {}
    }
    policy
}
