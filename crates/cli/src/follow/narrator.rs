//! Prints the progress of a run: events as sentences, measurements as a progress line, or both as JSON.
//!
//! It reads the event log and the measurements, so its output is the same whichever process runs the control loop. It also
//! writes TensorBoard's event file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::event::{RentIntended, Submitted};
use domain::rank::Ready;
use domain::run::{AttemptEnd, RunState, StopBy};
use domain::series::Point;
use domain::sweep::Setting;
use domain::{AttemptId, Event, InstanceId, Record, RunId};
use serde_json::{Value, json};
use server::tensorboard::EventFile;
use server::{Home, clock};

use super::liveness::{by_the_clock, meters, waiting};
use super::news::News;
use super::output::{OutputParts, ProgramOutput};
use super::progress::{ProgressLine, fitted};
use super::refused::RefusedNews;
use super::watch::Watch;
use crate::error::Error;
use crate::figures::size;
use crate::printer::Printer;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Delay after which it prints why the bill is not final.
const BILLS: Duration = Duration::from_secs(3);

/// Delay after which it prints why a run is queued.
const WAITS: Duration = Duration::from_millis(500);

/// Interval of progress lines where they cannot be overwritten.
const LINE: domain::Elapsed = domain::Elapsed(2_000_000);

/// Prints the progress of a run.
pub struct Narrator {
    /// Its source.
    pub watch: Watch,
    /// The home of the run; `None` for a run of a server.
    home: Option<Home>,
    progress: ProgressLine,
    printed: domain::Elapsed,
    board: Board,
    waits_for: Option<RunId>,
    /// For how long it has been queued behind another run.
    queued: Duration,
    /// For how long it has ended and has no bill.
    unbilled: Duration,
    /// What was printed about shortages of disk space.
    refused: RefusedNews,
    /// Output of a run that is the user's own program.
    output: Option<ProgramOutput>,
    /// The output of such a run on a server.
    parts: OutputParts,
}

/// TensorBoard's event file of a run.
enum Board {
    /// Created in this folder with the first measurement.
    Coming(PathBuf),
    /// Open for appending.
    Open(EventFile),
    /// A write failed; a run does not fail for it.
    Lost,
}

impl Narrator {
    /// A narrator of the run `id`, which keeps its event file in the run's folder.
    pub fn new(home: &Home, id: &RunId, watch: Watch) -> Narrator {
        let board = home.run(id).join("tensorboard");
        let ready = watch.ready();
        let is_program = watch.run().is_ok_and(|run| matches!(run.job.work, domain::Work::Command(_)));
        let output = is_program.then(|| ProgramOutput::new(home.run(id).join("logs"), watch.is_joining()));
        let (progress, printed) = (ProgressLine::since(ready), domain::Elapsed(0));
        Narrator {
            watch,
            home: Some(home.clone()),
            progress,
            printed,
            board: Board::Coming(board),
            waits_for: None,
            queued: Duration::ZERO,
            unbilled: Duration::ZERO,
            refused: RefusedNews::default(),
            output,
            parts: OutputParts::default(),
        }
    }

    /// A narrator of a run of a server, which keeps no files of it.
    pub fn of_server(watch: Watch) -> Narrator {
        let ready = watch.ready();
        Narrator {
            watch,
            home: None,
            progress: ProgressLine::since(ready),
            printed: domain::Elapsed(0),
            board: Board::Lost,
            waits_for: None,
            queued: Duration::ZERO,
            unbilled: Duration::ZERO,
            refused: RefusedNews::default(),
            output: None,
            parts: OutputParts::default(),
        }
    }

    /// Prints until `ended`, and then the rest.
    ///
    /// # Errors
    /// [`Error::Server`] when the state cannot be read.
    pub fn tell(&mut self, printer: &mut Printer, ended: &AtomicBool) -> Result<(), Error> {
        loop {
            let last = ended.load(Ordering::SeqCst);
            let mut moved = false;
            let mut points = Vec::new();
            let is_stopping = matches!(self.watch.run()?.state, RunState::Stopping { .. } | RunState::Stopped { .. });
            for news in self.watch.news()? {
                // What happened first stands first: the steps of this poll were done before what is printed now.
                if moved && has_own_line(&news) {
                    moved = false;
                    self.line(printer)?;
                }
                match news {
                    News::Record(record) => self.record(printer, &record),
                    News::Point(point) => {
                        moved |= self.point(printer, &point);
                        points.push(*point);
                    }
                    News::Output { file, text } => self.parts.print(printer, (&file, &text), is_stopping),
                    News::Refused(shortages) => self.refused.hear(shortages),
                }
            }
            self.board.take(&points);
            if moved {
                self.line(printer)?;
            }
            self.wait(printer)?;
            self.wait_for_bill(printer)?;
            self.parts.end_poll(printer, is_stopping && !last);
            let refused = self.refused.lines(self.home.as_ref(), self.watch.id());
            refused.into_iter().for_each(|line| printer.say(line));
            if let Some(output) = self.output.as_mut().filter(|_| !printer.is_json() && !printer.is_quiet()) {
                output.print(printer, last, is_stopping);
            }
            if last {
                self.parts.finish(printer);
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Prints once why a run waits.
    fn wait(&mut self, printer: &mut Printer) -> Result<(), Error> {
        let world = self.watch.world();
        let run = self.watch.run()?;
        let busy = world.instance_before(self.watch.id(), run).filter(|_| run.state == RunState::Queued);
        let (busy, place) = (busy.map(|instance| instance.run.clone()), run.plan.offer.clone());
        // A run that is about to start does not wait.
        self.queued = if busy.is_some() { self.queued + LOOK } else { Duration::ZERO };
        let is_reported = busy == self.waits_for || busy.is_some() && self.queued < WAITS;
        if !is_reported {
            self.waits_for.clone_from(&busy);
            if let Some(other) = busy {
                printer.say(format!("{}; see `gradus status {other}`", waiting(&other, &place)));
            }
        }
        Ok(())
    }

    /// Prints once why a run that has ended has no bill yet.
    fn wait_for_bill(&mut self, printer: &mut Printer) -> Result<(), Error> {
        let world = self.watch.world();
        let run = self.watch.run()?;
        let is_open = run.state.is_final() && run.bill.is_none();
        let before = self.unbilled;
        self.unbilled = if is_open { before + LOOK } else { Duration::ZERO };
        if before < BILLS && self.unbilled >= BILLS {
            let live = |id: &&InstanceId| world.live_instances().any(|(live, _)| live == *id);
            let machines: Vec<&str> = run.instances.iter().filter(live).map(InstanceId::as_str).collect();
            printer.say(format!(
                "the run has ended; waiting for the end of machine {} to be proved, for the bill. Ctrl-C is safe",
                machines.join(", ")
            ));
        }
        Ok(())
    }

    fn record(&mut self, printer: &mut Printer, record: &Record) {
        if printer.is_json() {
            printer.json(&record_json(record));
        } else if let Some(sentence) = sentence(&record.event) {
            printer.say(sentence);
        }
    }

    /// Prints a measurement, or adds it to the progress line; whether that has changed.
    fn point(&mut self, printer: &mut Printer, point: &Point) -> bool {
        if printer.is_json() {
            printer.json(&point_json(point));
            return false;
        }
        if let domain::rank::Report::Note { text } = &point.report {
            printer.say(format!("note: {}", text));
        }
        self.progress.take(&point.report)
    }

    /// Prints the progress line, at most every [`LINE`] where it cannot be overwritten.
    fn line(&mut self, printer: &mut Printer) -> Result<(), Error> {
        let now = clock::monotonic();
        if !printer.is_terminal() && now.0.saturating_sub(self.printed.0) < LINE.0 {
            return Ok(());
        }
        let run = self.watch.run()?;
        let world = self.watch.world();
        let meters = self.home.as_ref().map_or_else(|| by_the_clock(world), |home| meters(home, world));
        let spent = plan::spent(world, run, &meters);
        if let Some(line) = self.progress.line(spent, run.rate()) {
            self.printed = now;
            printer.progress(&fitted(&line, printer.message_width()));
        }
        Ok(())
    }
}

impl Board {
    fn take(&mut self, points: &[Point]) {
        if points.is_empty() {
            return;
        }
        let kept = match self {
            Board::Coming(folder) => EventFile::create(folder, points).map(|file| *self = Board::Open(file)),
            Board::Open(file) => file.append(points),
            Board::Lost => return,
        };
        if kept.is_err() {
            *self = Board::Lost;
        }
    }
}

/// A measurement as one flat JSON value with its kind in `event`.
fn point_json(point: &Point) -> Value {
    let mut value = serde_json::to_value(&point.report).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        let kind = fields.remove("report").unwrap_or_default();
        let mut flat = serde_json::Map::from_iter([
            ("event".to_owned(), kind),
            ("at".to_owned(), json!(point.at)),
            ("attempt".to_owned(), json!(point.attempt)),
        ]);
        flat.append(fields);
        return Value::Object(flat);
    }
    value
}

/// An event as one JSON value: `event`, `seq`, `at` and the event's own fields.
pub fn record_json(record: &Record) -> Value {
    let mut value = serde_json::to_value(&record.event).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("seq".to_owned(), json!(record.seq));
        fields.insert("at".to_owned(), json!(record.at));
    }
    value
}

/// Whether news is printed in a line of its own, and not in the progress line.
fn has_own_line(news: &News) -> bool {
    match news {
        News::Record(record) => sentence(&record.event).is_some(),
        News::Point(point) => matches!(point.report, domain::rank::Report::Note { .. }),
        News::Output { .. } | News::Refused(_) => false,
    }
}

fn renting(intent: &RentIntended) -> String {
    match intent.others.len() {
        0 => format!("renting {} at {}", intent.offer.kind, intent.offer.rate),
        others => format!("renting {} × {} at {} each", others + 1, intent.offer.kind, intent.offer.rate),
    }
}

fn taken_back(instance: &InstanceId) -> String {
    format!("the provider takes machine {instance} back: saving, then resuming on another")
}

/// The message for an event, if it has one.
pub fn sentence(event: &Event) -> Option<String> {
    let text = match event {
        Event::Submitted(submitted) => {
            let Submitted { run, .. } = &**submitted;
            format!("run {run}: submitted")
        }
        Event::StopRequested { by, .. } => stopping(*by).to_owned(),
        Event::ResumeRequested { set, .. } => format!("resuming{}", Setting::said(set)),
        Event::RentIntended(intent) => renting(intent),
        Event::MachineTaken(taken) => format!("using {}, which a run that has ended has left", taken.machine),
        Event::PeerCopyFailed { .. } => peer_copy_failed(event),
        Event::RentFailed { finding, .. } => format!("could not rent: {}", finding.message),
        Event::AttemptReady { ready: Some(ready), attempt } => trains(attempt, ready),
        Event::AttemptReady { ready: None, attempt } => format!("attempt {attempt}: running"),
        Event::AttemptEnded { end: AttemptEnd::Failed { finding, .. }, attempt } => {
            // The complete message follows with the end of the run.
            let first = finding.message.lines().next().unwrap_or_default();
            format!("attempt {attempt}: failed: {}", first.trim_end_matches("; its last lines were:"))
        }
        Event::AttemptEnded { end: AttemptEnd::Stopped { step: Some(step) }, attempt } => {
            format!("attempt {attempt}: stopped; checkpoint at step {step}")
        }
        Event::BudgetAlert { spent, .. } => format!("budget alert: {spent} spent"),
        Event::ReclaimNoticed { instance, .. } => taken_back(instance),
        Event::Launched { .. } | Event::AgentUp { .. } | Event::AttemptIntended { .. } | Event::AttemptEnded { .. } => {
            return None;
        }
        Event::AttemptResizing { .. } => "more machines are there: saving, then resuming on all of them".to_owned(),
        Event::StragglerFound { .. } => straggler(event),
        Event::MicroBatchHalved { accumulate, .. } => {
            format!("memory ran out: resuming with {accumulate} micro-batches per step")
        }
        Event::KeeperChanged { .. } | Event::BillAdjusted { .. } | Event::TrialMeasured { .. } => return None,
        Event::MemberPrepared { .. } | Event::MemberEnded { .. } => return None,
        Event::Ended { .. } | Event::ReleaseIntended { .. } | Event::Released { .. } | Event::Billed { .. } => {
            return None;
        }
        Event::DoubleEnded { instance, handle, .. } => {
            format!("machine {}, rented a second time as {instance}, is gone; it is billed too", handle.0)
        }
        Event::SweepSubmitted(submitted) => format!("sweep {}: submitted", submitted.sweep),
        Event::SweepStopRequested { by, .. } => stopping(*by).to_owned(),
        Event::SweepResumeRequested { .. } => "resuming".to_owned(),
        Event::SweepBudgetAlert { spent, .. } => format!("budget alert: {spent} spent"),
        Event::SweepEnded { .. } => return None,
        Event::PipelineSubmitted(_) | Event::PipelineAdvanced { .. } => return None,
        Event::PipelineStopRequested { .. } | Event::PipelineResumeRequested { .. } => return None,
        Event::PipelineEnded { .. } => return None,
        Event::ScheduleAdded(_) | Event::ScheduleChanged { .. } => return None,
        Event::ScheduleFired { .. } | Event::ScheduleSkipped { .. } => return None,
    };
    Some(text)
}

/// An attempt that trains: from where, and which checkpoints it has skipped.
fn trains(attempt: &AttemptId, ready: &Ready) -> String {
    let mut text = match ready.step {
        0 => format!("attempt {attempt}: training {} parameters on {} samples", ready.parameters, ready.samples[0]),
        step => format!("attempt {attempt}: resumed at step {step} of {}", ready.steps),
    };
    for passed_over in &ready.passed_over {
        text.push_str(&format!("\n  skipped damaged checkpoint: {passed_over}"));
    }
    text
}

/// What is said of a machine that is slower than the others; nothing of other events.
pub fn straggler(event: &Event) -> String {
    let Event::StragglerFound { instance, step, median, is_replaced, .. } = event else { return String::new() };
    let (step, median) = (step.as_secs_f64(), median.as_secs_f64());
    let then = if *is_replaced { ": saving, then resuming on another" } else { "" };
    format!("machine {instance} is slow: {step:.3} s per step, and the median of all is {median:.3} s{then}")
}

/// What is said where a node could not send its files to another one; nothing of other events.
pub fn peer_copy_failed(event: &Event) -> String {
    let Event::PeerCopyFailed { instance, peer, why, sent } = event else { return String::new() };
    let rest = match sent.0 {
        0 => "another node sent the rest".to_owned(),
        sent => format!("gradus sent the remaining {} itself", size(sent)),
    };
    format!("node `{peer}` could not send all programs and libraries to machine {instance}: {why}; {rest}")
}

/// Why a run or sweep stops.
pub fn stopping(by: StopBy) -> &'static str {
    match by {
        StopBy::User => "stopping: requested",
        StopBy::Budget => "stopping: budget reached; the rest pays for the last checkpoint",
        StopBy::Deadline => "stopping: deadline reached",
        StopBy::Idle => "stopping: the program has been idle for its `idle_timeout`",
    }
}
