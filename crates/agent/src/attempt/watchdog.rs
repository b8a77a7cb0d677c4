//! Decides when a rank without reports counts as hung.

mod limits;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::StopReason;
use domain::rank::{Pause, Ready, Report, Step};
use domain::wire::AgentEvent;
use domain::{Elapsed, Job, Work};

use super::verdict::Role;
use super::{Attempt, Ending, Stage, Working};
use crate::event::{AttemptEvent, Wakeup};
use crate::{Patience, stacks, tools};
use limits::evaluation_limit;
pub use limits::{HangLimitInForce, SilenceLimits, time_of};

/// Number of steps whose times are the pace.
const RECENT: usize = 128;

/// So many first steps compile, tune or fill caches, and say nothing of the later ones.
const WARM_UP: usize = 3;

/// The pace is known after so many steps, and these no longer count.
const KNOWN: usize = 10;

/// So long before ranks are killed that have not noticed the loss of others, their stacks are written down.
const LOOKED_AT: Duration = Duration::from_secs(5);

/// The observed pace of a rank. Times are since the agent's start.
#[derive(Debug)]
pub struct Watchdog {
    last: Duration,
    limits: SilenceLimits,
    ready: Option<Shape>,
    recent: VecDeque<Duration>,
    /// Steps that were reported.
    heard: usize,
    /// The newest of them.
    step: u64,
    is_between_epochs: bool,
    /// What it does between two steps.
    pause: Option<Pause>,
    /// The step whose checkpoint is being written.
    saving: Option<u64>,
    longest_save: Duration,
}

#[derive(Debug)]
struct Shape {
    steps_per_epoch: u64,
    /// Training steps that see as many samples as the largest evaluation.
    evaluation: f64,
}

impl Watchdog {
    /// A rank that was started `now`.
    pub fn new(now: Duration, limits: SilenceLimits) -> Watchdog {
        Watchdog {
            last: now,
            limits,
            ready: None,
            recent: VecDeque::with_capacity(RECENT),
            heard: 0,
            step: 0,
            is_between_epochs: false,
            pause: None,
            saving: None,
            longest_save: Duration::ZERO,
        }
    }

    /// Takes in a report.
    pub fn hear(&mut self, report: &Report, now: Duration) {
        match report {
            Report::Ready(ready) => {
                self.ready = Some(shape(ready));
                self.step = ready.step;
                // A resumed rank may begin with the evaluation that its predecessor did not get to.
                self.is_between_epochs = ready.step > 0;
            }
            Report::Step(step) => self.stepped(step),
            Report::Pausing { pause } => {
                self.pause = Some(*pause);
                match pause {
                    Pause::Checkpoint => self.saving = Some(self.step),
                    Pause::SetUp => (self.heard, self.recent, self.saving) = (0, VecDeque::new(), None),
                    Pause::Evaluation | Pause::Export | Pause::Sending { .. } => {}
                }
            }
            Report::Checkpointed(saved) => {
                // One that was begun earlier may become durable after the next one has begun.
                self.saving = self.saving.filter(|step| saved.step < *step);
                let took = saved.stall_us.saturating_add(saved.commit_us);
                self.longest_save = self.longest_save.max(Duration::from_micros(took));
            }
            Report::Evaluated(_) | Report::Metrics(_) | Report::Exported(_) => {}
            Report::Preparing { .. } | Report::Result(_) => {}
            Report::Hello { .. } | Report::Trained | Report::Stopped { .. } | Report::Failed(_) => {}
            // A note can come from a thread that lives while training hangs.
            Report::Note { .. } => return,
            // Nor does it come from the rank what its devices do.
            Report::Devices { .. } => return,
        }
        self.last = now;
    }

    fn stepped(&mut self, step: &Step) {
        // The time of a program's first step is unknown.
        if step.step_us > 0 {
            self.time(step);
        }
        let per_epoch = self.ready.as_ref().map_or(0, |shape| shape.steps_per_epoch);
        self.is_between_epochs = per_epoch > 0 && step.step.is_multiple_of(per_epoch);
        self.step = step.step;
        self.pause = None;
    }

    /// Takes the time of a step into the pace.
    fn time(&mut self, step: &Step) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        // How long saves take is not the pace of steps.
        self.recent.push_back(Duration::from_micros(step.step_us.saturating_sub(step.checkpoint_us)));
        self.heard = self.heard.saturating_add(1);
        if self.heard == KNOWN {
            self.recent.drain(..WARM_UP);
        }
    }

    /// Notes that the rank waits for data that is being fetched, which ends by itself: with the data, or with an error.
    pub fn waits(&mut self, now: Duration) {
        self.last = now;
    }

    /// When the rank is killed as hanging, unless it reports before then.
    pub fn hangs_at(&self) -> Duration {
        self.last.saturating_add(self.limit())
    }

    /// Time since the last report.
    pub fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }

    /// The limits in force, whatever it does now.
    pub fn in_force(&self) -> Vec<HangLimitInForce> {
        let pace = (self.heard > 0).then(|| self.limits.pace(&self.recent));
        self.limits.in_force(pace.as_ref(), self.longest_save)
    }

    /// The limit of what it does now; where several things may be under way, the longest one.
    fn limit(&self) -> Duration {
        let limits = &self.limits;
        let Some(shape) = &self.ready else { return limits.before_first_step() };
        let pace = limits.pace(&self.recent);
        let step = match self.heard {
            0 => limits.before_first_step(),
            _ => limits.between_steps(&pace),
        };
        let evaluation = match self.is_between_epochs || self.pause == Some(Pause::Evaluation) {
            true => evaluation_limit(&pace, shape.evaluation, step),
            false => Duration::ZERO,
        };
        let writes = self.saving.is_some() || matches!(self.pause, Some(Pause::Checkpoint | Pause::Export));
        let checkpoint = match writes {
            true => limits.while_saving(self.longest_save),
            false => Duration::ZERO,
        };
        step.max(evaluation).max(checkpoint)
    }
}

/// When ranks are killed that are to be at `kill_at`, where their stacks are written down by `until` at the latest.
fn after_stacks(kill_at: Duration, until: Option<Duration>) -> Duration {
    let longest = stacks::WITHIN.saturating_sub(LOOKED_AT);
    until.map_or(kill_at, |until| kill_at.max(until.saturating_sub(longest)))
}

/// The limits on the silence of a job's ranks, or of its program where it states one, by its newest measurements, oldest first.
pub fn hang_limits(job: &Job, newest: &[Report]) -> Vec<HangLimitInForce> {
    let Work::Train(train) = &job.work else {
        return HangLimitInForce::of_program(job.hang_after).into_iter().collect();
    };
    let limits = SilenceLimits::of(&Patience::default(), job.hang_after, data::preloading(&train.data));
    let mut watchdog = Watchdog::new(Duration::ZERO, limits);
    // What an attempt before has measured says nothing of this one.
    let is_ready = |report: &Report| matches!(report, Report::Ready(_));
    let newest = newest.iter().skip(newest.iter().rposition(is_ready).unwrap_or(0));
    newest.for_each(|report| watchdog.hear(report, Duration::ZERO));
    watchdog.in_force()
}

fn shape(ready: &Ready) -> Shape {
    let [training, validation, test] = ready.samples;
    let largest = validation.max(test) as f64;
    let evaluation = largest / training.max(1) as f64 * ready.steps_per_epoch as f64;
    Shape { steps_per_epoch: ready.steps_per_epoch, evaluation }
}

impl Attempt {
    /// Ends a rank that has been silent for too long, unless it waits for data that is being fetched.
    pub(super) fn end_hanging(&mut self, now: Duration) {
        let is_recorded = self.stacks_until.is_some_and(|until| now >= until);
        match (self.silence(now), is_recorded) {
            (Some(silence), true) => self.end(StopReason::Hang(Elapsed::from_std(silence)), None, now),
            (Some(_), false) if self.stacks_until.is_none() => self.record_stacks(now),
            (Some(_), false) | (None, false) => {}
            // It has reported in the meantime, and continues.
            (None, true) if self.ending.is_none() => self.stacks_until = None,
            (None, true) => {}
        }
    }

    /// For how long the process has been silent, if that is too long.
    fn silence(&mut self, now: Duration) -> Option<Duration> {
        let (Stage::Running { role, .. }, None) = (&self.stage, &self.ending) else { return None };
        match &mut self.work {
            Working::Command { link: Some(link), .. } if *role == Role::Program => link.silence(now),
            Working::Command { .. } => None,
            Working::Train { watchdog, .. } => {
                // Rank 0 reports the steps of all.
                if now < watchdog.hangs_at() || self.start.member.is_some_and(|place| place.rank > 0) {
                    return None;
                }
                if self.served.as_ref().is_some_and(|serving| serving.served.silence().is_some()) {
                    watchdog.waits(now);
                    return None;
                }
                Some(watchdog.silence(now))
            }
        }
    }

    /// Writes down what the threads of ranks stand at that are about to be killed because those of another machine have failed:
    /// ranks that work notice that by themselves, and end sooner.
    pub(super) fn record_silent(&mut self, now: Duration) {
        let is_running = matches!(self.stage, Stage::Running { .. });
        let is_due =
            self.ending.as_ref().is_some_and(|ending| ending.why == StopReason::NodeLost && now >= self.ends_at());
        if is_running && is_due && self.stacks_until.is_none() {
            self.record_stacks(now);
        }
    }

    /// When something is due next of ranks that were asked to end.
    pub(super) fn ends_at(&self) -> Duration {
        let Some(ending) = &self.ending else { return Duration::MAX };
        let is_to_look = ending.why == StopReason::NodeLost && self.stacks_until.is_none();
        if is_to_look { ending.kill_at.saturating_sub(LOOKED_AT) } else { self.kills_at(ending) }
    }

    /// When ranks that were asked to end are killed: where their stacks are being written down, not before that, unless it
    /// takes too long.
    pub(super) fn kills_at(&self, ending: &Ending) -> Duration {
        after_stacks(ending.kill_at, self.stacks_until)
    }

    /// Writes down what its threads stand at, before it is ended.
    fn record_stacks(&mut self, now: Duration) {
        self.stacks_until = Some(now + stacks::WITHIN);
        let (attempt, path) = (self.start.attempt.clone(), self.stacks());
        let (secrets, events) = (self.start.job.secret_values(), self.tools.events.clone());
        let owner = self.tools.owner.clone();
        std::thread::spawn(move || {
            // Without them it is ended all the same.
            let _ = stacks::record(&tools::tags(&owner, &attempt), &secrets, &path);
            let _ = events.send(Wakeup::Attempt(attempt, AttemptEvent::StacksRecorded));
        });
    }

    /// They are written down, or cannot be.
    pub(super) fn stacks_recorded(&mut self, now: Duration) -> Vec<AgentEvent> {
        self.stacks_until = self.stacks_until.map(|until| until.min(now));
        Vec::new()
    }

    /// The path of the stack traces of a hang: next to the logs of the attempt, a file for each machine.
    pub(super) fn stacks(&self) -> PathBuf {
        let node = self.start.member.map_or(0, |place| place.rank);
        let node = if node > 0 { format!("-node-{node}") } else { String::new() };
        Path::new(&self.start.folder).join("logs").join(format!("{}{node}-stacks.txt", self.start.attempt))
    }
}

#[cfg(test)]
mod tests {
    use domain::hang::{HangLimit, HangLimits};
    use domain::rank::{Checkpointed, Fetching};

    use super::*;

    #[test]
    fn ranks_are_killed_once_their_stacks_are_written_down_and_not_much_later() {
        let seconds = Duration::from_secs;
        assert_eq!(after_stacks(seconds(11), None), seconds(11));
        // They are being written since 10 s, and are written at 12 s.
        assert_eq!(after_stacks(seconds(11), Some(seconds(10) + stacks::WITHIN)), seconds(15));
        assert_eq!(after_stacks(seconds(11), Some(seconds(12))), seconds(11));
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn watchdog() -> Watchdog {
        holding(HangLimits::default())
    }

    /// One of a job that states these limits.
    fn holding(stated: HangLimits) -> Watchdog {
        Watchdog::new(SECOND, SilenceLimits::of(&Patience::default(), stated, Duration::ZERO))
    }

    fn ready(step: u64, samples: [u64; 3]) -> Report {
        let ready = Ready {
            step,
            steps: 1000,
            steps_per_epoch: 500,
            samples,
            classes: vec![],
            parameters: 1,
            passed_over: vec![],
            sample: None,
            data: None,
        };
        Report::Ready(ready)
    }

    fn step(step: u64, seconds: u64, saving: u64) -> Report {
        Report::Step(Step {
            step,
            epoch: 0,
            loss: 1.0,
            lr: 0.1,
            samples: 8,
            step_us: seconds * 1_000_000,
            data_wait_us: 0,
            checkpoint_us: saving * 1_000_000,
            data: Fetching::default(),
        })
    }

    /// The limit in seconds after steps of so many seconds each, and then these reports.
    fn check(steps: &[u64], reports: &[Report], expected: u64) {
        let limit = limit(HangLimits::default(), steps, reports);
        assert_eq!(limit, SECOND * expected as u32, "after {steps:?} and {reports:?}");
    }

    fn limit(stated: HangLimits, steps: &[u64], reports: &[Report]) -> Duration {
        let mut watchdog = holding(stated);
        watchdog.hear(&ready(0, [4000, 400, 40]), SECOND);
        for (at, seconds) in (1..).zip(steps) {
            watchdog.hear(&step(at, *seconds, 0), SECOND);
        }
        for report in reports {
            watchdog.hear(report, SECOND);
        }
        watchdog.limit()
    }

    #[test]
    fn the_limit_of_a_step_follows_the_slowest_usual_ones() {
        check(&[1; 20], &[], 120);
        check(&[20; 20], &[], 400);
        // One of 20 counts, one of 128 does not, and two do.
        check(&[&[1; 19][..], &[30]].concat(), &[], 300);
        check(&[&[1; 150][..], &[30]].concat(), &[], 120);
        check(&[&[1; 150][..], &[30, 30]].concat(), &[], 300);
        // What was slow long ago no longer counts.
        check(&[&[1; 20][..], &[30], &[1; 128]].concat(), &[], 120);
    }

    #[test]
    fn the_first_steps_have_a_limit_of_their_own() {
        // Before the first step it is still being set up: it compiles.
        check(&[], &[], 1800);
        check(&[1], &[], 120);
        // The first step of a program has nothing that its time could be measured from.
        check(&[0], &[], 1800);
        check(&[0, 1], &[], 120);
        check(&[90, 1], &[], 1800);
        check(&[90, 40, 20, 1, 1, 1, 1, 1, 1], &[], 900);
        // What the first three took does not count once the pace is known.
        check(&[90, 40, 20, 1, 1, 1, 1, 1, 1, 1], &[], 120);
    }

    /// Whether it counts as hung when steps come after so many seconds each.
    fn hangs(seconds: &[u64]) -> bool {
        let (mut watchdog, mut now) = (watchdog(), SECOND);
        watchdog.hear(&ready(0, [4000, 400, 40]), now);
        (1..).zip(seconds).any(|(at, seconds)| {
            now += Duration::from_secs(*seconds);
            let is_late = now >= watchdog.hangs_at();
            watchdog.hear(&step(at, *seconds, 0), now);
            is_late
        })
    }

    #[test]
    fn only_a_rank_that_stands_still_hangs() {
        assert!(!hangs(&[1; 300]));
        assert!(!hangs(&[&[5; 150][..], &[45], &[5; 20]].concat()), "one step of nine times the 99th percentile");
        assert!(hangs(&[&[1; 20][..], &[121]].concat()), "it was stopped for two minutes");
        assert!(!hangs(&[&[1; 20][..], &[119]].concat()));
        assert!(!hangs(&[&[1200][..], &[1; 20]].concat()), "its first step compiles for 20 minutes");
        assert!(!hangs(&[&[1; 20][..], &[2, 10, 60, 119, 1000]].concat()), "it swaps more and more");
    }

    /// A node is given up after 45 s of silence. TCP sends again after waits that double: after a cut of nearly that time,
    /// ranks may reach each other only as long after it again.
    #[test]
    fn a_network_that_was_cut_is_waited_for() {
        for step in [1, 5, 10, 20, 60] {
            assert!(!hangs(&[&[step; 20][..], &[step + 2 * 45]].concat()), "steps of {step} s");
            assert!(!hangs(&[step, step, step + 2 * 45, step]), "one of the first steps of {step} s");
        }
    }

    #[test]
    fn an_evaluation_takes_longer_than_a_step() {
        // After an epoch's last step, or where it is announced: 50 steps of 5 s, three times, and the limit of a step.
        check(&[5; 500], &[], 120 + 3 * 50 * 5);
        let evaluation = || Report::Pausing { pause: Pause::Evaluation };
        check(&[5; 20], &[evaluation()], 120 + 3 * 50 * 5);
        check(&[5; 20], &[evaluation(), step(21, 5, 0)], 120);
    }

    /// One that takes an hour would otherwise be begun again for ever.
    #[test]
    fn a_resumed_rank_may_evaluate_before_it_makes_a_step() {
        let evaluation = || Report::Pausing { pause: Pause::Evaluation };
        check(&[], &[evaluation()], 1800 + 3 * 50 * 30);
        check(&[], &[ready(500, [4000, 400, 40]), evaluation()], 1800 + 3 * 50 * 30);
    }

    #[test]
    fn a_checkpoint_takes_longer_than_a_step() {
        let pausing = |pause| Report::Pausing { pause };
        let saved = |step, seconds: u64| {
            Report::Checkpointed(Checkpointed { step, bytes: 1, stall_us: 0, commit_us: seconds * 1_000_000 })
        };
        // Five minutes are no hang, whether the copy, or a step that waits for the disk takes them.
        check(&[1; 20], &[pausing(Pause::Checkpoint)], 600);
        check(&[1; 20], &[pausing(Pause::Checkpoint), step(21, 1, 0)], 600);
        check(&[1; 20], &[pausing(Pause::Checkpoint), step(21, 1, 0), saved(20, 300)], 120);
        // The one before becomes durable only now.
        check(&[1; 20], &[pausing(Pause::Checkpoint), saved(10, 1), step(21, 1, 0)], 600);
        // A save may take longer than the longest one.
        check(&[1; 20], &[saved(10, 300), pausing(Pause::Checkpoint)], 900);
        check(&[1; 20], &[pausing(Pause::Export)], 600);
        check(&[1; 20], &[pausing(Pause::Export), step(21, 1, 0)], 120);
        // The time of a save is no step's.
        check(&[1; 20], &[step(21, 300, 299)], 120);
    }

    #[test]
    fn a_rank_that_is_rolled_back_is_set_up_again() {
        let set_up = || Report::Pausing { pause: Pause::SetUp };
        check(&[1; 20], &[set_up()], 1800);
        check(&[1; 20], &[set_up(), ready(10, [4000, 400, 40])], 1800 + 3 * 50 * 30);
        check(&[1; 20], &[set_up(), ready(10, [4000, 400, 40]), step(11, 1, 0)], 120);
    }

    /// Twenty minutes without a word, and ten hours of preparation in which something is always done, then silence.
    #[test]
    fn preparation_is_a_sign_of_life_while_it_goes_on() {
        let mut watchdog = watchdog();
        assert!(watchdog.hangs_at() > SECOND * 1200);
        for minute in 1..=600 {
            let now = SECOND * 60 * minute;
            assert!(watchdog.hangs_at() > now);
            watchdog.hear(&Report::Preparing { done: u64::from(minute) }, now);
        }
        assert_eq!(watchdog.hangs_at(), SECOND * (36_000 + 1800));
        watchdog.hear(&ready(10, [80, 160, 10]), SECOND * 36_000);
        assert!(watchdog.hangs_at() >= SECOND * (36_000 + 1800), "a resumed rank may evaluate first, and compiles");
    }

    fn minutes(minutes: u64) -> Option<HangLimit> {
        Some(HangLimit::After(domain::Duration::from_secs(60 * minutes)))
    }

    #[test]
    fn what_the_job_states_holds_in_place_of_the_pace() {
        let stated = HangLimits { setup: minutes(45), step: minutes(10), save: minutes(20) };
        assert_eq!(holding(stated).hangs_at(), SECOND * (45 * 60 + 1));
        let check = |steps: &[u64], reports: &[Report], expected: u64| {
            let limit = limit(stated, steps, reports);
            assert_eq!(limit, SECOND * 60 * expected as u32, "after {steps:?} and {reports:?}");
        };
        let pausing = |pause| Report::Pausing { pause };
        check(&[], &[], 45);
        check(&[1; 20], &[], 10);
        check(&[100; 20], &[], 10);
        check(&[1; 20], &[pausing(Pause::SetUp)], 45);
        let slow = Checkpointed { step: 10, bytes: 1, stall_us: 0, commit_us: 900_000_000 };
        check(&[1; 20], &[Report::Checkpointed(slow), pausing(Pause::Checkpoint)], 20);
        // 50 steps of 12 s, three times, and the limit of a step.
        check(&[12; 20], &[pausing(Pause::Evaluation)], 10 + 30);
        // A save may take as long as a step, and what is not stated stays as it is.
        let save = HangLimits { save: minutes(1), ..HangLimits::default() };
        assert_eq!(limit(save, &[1; 20], &[pausing(Pause::Checkpoint)]), SECOND * 120);
        assert_eq!(limit(save, &[], &[]), SECOND * 1800);
    }

    #[test]
    fn a_limit_that_is_off_is_never_reached() {
        let off = Some(HangLimit::Off);
        let none = HangLimits { setup: off, step: off, save: off };
        let evaluation = || Report::Pausing { pause: Pause::Evaluation };
        let saves = || Report::Pausing { pause: Pause::Checkpoint };
        assert_eq!(holding(none).hangs_at(), Duration::MAX);
        assert_eq!(limit(none, &[1; 20], &[evaluation()]), Duration::MAX);
        let save = HangLimits { save: off, ..HangLimits::default() };
        assert_eq!(limit(save, &[1; 20], &[saves()]), Duration::MAX);
        assert_eq!(limit(save, &[1; 20], &[]), SECOND * 120);
        let step = HangLimits { step: off, ..HangLimits::default() };
        assert_eq!(limit(step, &[], &[]), SECOND * 1800, "before its first step");
        assert_eq!(limit(step, &[1; 20], &[]), Duration::MAX);
    }

    /// The limits in force of a job with this `hang_after`, after steps of so many seconds and these reports.
    fn in_force(stated: &str, steps: &[u64], reports: &[Report]) -> Vec<String> {
        let text = format!("{stated}\ntrain: {{model: mlp, data: {{path: /data}}, epochs: 1, batch: 8}}\n");
        let job = Job::parse(&text, "job.yaml").unwrap().job;
        // Those of an attempt before do not count.
        let mut newest = vec![step(1, 99, 0), ready(0, [4000, 400, 40])];
        newest.extend((1..).zip(steps).map(|(at, seconds)| step(at, *seconds, 0)));
        newest.extend(reports.iter().cloned());
        hang_limits(&job, &newest).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_limit_says_why_it_is_as_long() {
        let [setup, save] = ["setup 30m (default)", "save 10m (default)"];
        let check = |steps: &[u64], step: &str| assert_eq!(in_force("", steps, &[]), [setup, step, save], "{steps:?}");
        check(&[], "step 2m (default, or longer by the pace of steps)");
        check(&[1; 20], "step 2m (default; recent steps took 1s at most)");
        check(&[30; 20], "step 10m (20 times the median of recent steps, 30s)");
        check(&[&[1; 19][..], &[30]].concat(), "step 5m (10 times the 99th percentile of recent steps, 30s)");
        let saved = Report::Checkpointed(Checkpointed { step: 2, bytes: 1, stall_us: 0, commit_us: 300_000_000 });
        let said = in_force("hang_after: {setup: 45m, step: 90s}", &[1; 20], &[saved]);
        let stated = ["setup 45m (stated in the job)", "step 1m30s (stated in the job)"];
        assert_eq!(said, [stated[0], stated[1], "save 15m (3 times the longest save, 5m)"]);
        let said = in_force("deadline: 1h\nhang_after: {save: false}", &[], &[]);
        assert_eq!(said[2], "save off (switched off in the job)");
        let preloads = "train: {model: mlp, data: {path: /data, preload: 100GB}, epochs: 1, batch: 8}\n";
        let job = Job::parse(preloads, "job.yaml").unwrap().job;
        assert!(hang_limits(&job, &[])[0].to_string().ends_with(" (default, and the time to preload data)"));
        let program = |text: &str| hang_limits(&Job::parse(text, "job.yaml").unwrap().job, &[]);
        assert_eq!(program("run: echo\n"), []);
        assert_eq!(program("run: echo\nhang_after: {step: 1h}\n")[0].to_string(), "step 1h (stated in the job)");
    }

    #[test]
    fn a_note_is_no_sign_of_life() {
        let mut watchdog = watchdog();
        watchdog.hear(&Report::Note { text: "still here".into() }, SECOND * 300);
        assert_eq!(watchdog.hangs_at(), SECOND * 1801);
        assert_eq!(watchdog.silence(SECOND * 300), SECOND * 299);
    }
}
