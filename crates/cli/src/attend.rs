//! Attending a run: running the loop, or following the process that does, and saying what happens.

use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use domain::event::Submitted;
use domain::run::{AttemptEnd, Outcome, RunState};
use domain::series::Point;
use domain::{Event, Rate, Record, RunId};
use serde_json::{Value, json};
use server::control::{Control, LEASE, Left, Wake};
use server::{Home, Series, State, clock, routes};

use crate::command::run::verdict;
use crate::error::Error;
use crate::exit;
use crate::machine;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::watch::{News, Watch};

/// How often the narrator looks for news.
const LOOK: Duration = Duration::from_millis(50);

/// How often a follower tries to become the loop.
const TAKE_OVER: Duration = Duration::from_millis(100);

/// How often the progress line is printed where it cannot be overwritten.
const LINE: domain::Elapsed = domain::Elapsed(2_000_000);

/// Stays with a run until it has ended and its bill is final, or until Ctrl-C.
///
/// # Errors
/// [`Error::Failed`] when the run ended without result; others when the state cannot be kept.
pub fn attend(settings: &Settings, printer: &mut Printer, home: &Home, run: &RunId) -> Result<u8, Error> {
    let _attendance = home.attend(run)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, inbox) = channel();
    on_signals(sender.clone(), interrupted.clone())?;
    let mut narrator = Narrator::new(Watch::open(home, run)?);
    let narrated = std::thread::scope(|scope| {
        let ended = Arc::new(AtomicBool::new(false));
        let finished = ended.clone();
        let narration = scope.spawn(move || {
            let result = narrator.tell(printer, &finished);
            (narrator, result)
        });
        let result = serve(settings, home, run, sender, &inbox, &interrupted);
        ended.store(true, Ordering::SeqCst);
        let (narrator, told) = narration.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and_then(|left| told.map(|()| (left, narrator)))
    });
    let (left, narrator) = narrated?;
    match left {
        Left::Done => verdict(home, run, narrator.watch),
        Left::Interrupted => Err(interruption(run, narrator.watch.run()?)),
    }
}

/// Runs the loop once this process may, and waits for the process that does until then.
fn serve(
    settings: &Settings,
    home: &Home,
    run: &RunId,
    sender: Sender<Wake>,
    inbox: &std::sync::mpsc::Receiver<Wake>,
    interrupted: &AtomicBool,
) -> Result<Left, Error> {
    let done = |world: &plan::World| world.runs.get(run).is_none_or(|run| run.state.is_final() && run.bill.is_some());
    let mut state = State::open(home)?;
    let lock = loop {
        state.refresh()?;
        if done(state.world()) {
            return Ok(Left::Done);
        }
        if interrupted.load(Ordering::SeqCst) {
            return Ok(Left::Interrupted);
        }
        if let Some(lock) = home.try_loop()? {
            break lock;
        }
        std::thread::sleep(TAKE_OVER);
    };
    if let Some(chaos) = &settings.chaos {
        chaos::aim(chaos, "loop");
    }
    let rate = state.world().runs.get(run).map_or(Rate::default(), |run| run.plan.offer.rate);
    let providers = machine::providers(settings, home, rate);
    routes::serve(&home.socket(), sender)?;
    let mut control = Control::new(state, Series::open(home)?, home, &providers);
    let left = control.run(inbox, done)?;
    drop(lock);
    Ok(left)
}

fn on_signals(sender: Sender<Wake>, interrupted: Arc<AtomicBool>) -> Result<(), Error> {
    let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];
    let mut signals = signal_hook::iterator::Signals::new(signals).map_err(Error::file("watch", "signals"))?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            interrupted.store(true, Ordering::SeqCst);
            let _ = sender.send(Wake::Interrupt);
        }
    });
    Ok(())
}

/// What still runs after Ctrl-C, and what to type.
fn interruption(id: &RunId, run: &plan::Run) -> Error {
    let price = match run.plan.offer.rate {
        rate if rate == Rate::default() => String::new(),
        rate => format!(" at {rate}"),
    };
    let message = match run.state {
        RunState::Staging { .. } | RunState::Running { .. } | RunState::Stopping { .. } | RunState::Renting { .. } => {
            format!("interrupted; run `{id}` goes on{price} for up to {LEASE}, then saves its state and ends")
        }
        RunState::Queued | RunState::Recovering { .. } | RunState::Stopped { .. } | RunState::Done { .. } => {
            format!("interrupted; nothing of run `{id}` is running")
        }
    };
    let hint = format!("go on with `gradus resume {id}`, or save and stop it now with `gradus stop {id}`");
    Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
}

/// Says what is new about a run.
struct Narrator {
    watch: Watch,
    progress: Progress,
    printed: domain::Elapsed,
    started: Option<domain::Timestamp>,
}

impl Narrator {
    fn new(watch: Watch) -> Narrator {
        Narrator { watch, progress: Progress::default(), printed: domain::Elapsed(0), started: None }
    }

    /// Tells until `ended`, and then the rest.
    fn tell(&mut self, printer: &mut Printer, ended: &AtomicBool) -> Result<(), Error> {
        loop {
            let last = ended.load(Ordering::SeqCst);
            let mut moved = false;
            for news in self.watch.news()? {
                match news {
                    News::Record(record) => self.record(printer, &record),
                    News::Point(point) => moved |= self.point(printer, &point),
                }
            }
            if moved {
                self.line(printer)?;
            }
            if last {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn record(&mut self, printer: &mut Printer, record: &Record) {
        match &record.event {
            Event::AgentUp { started, .. } => self.started = Some(*started),
            Event::Released { .. } => self.started = None,
            _ => {}
        }
        if printer.is_json() {
            printer.json(&record_json(record));
        } else if let Some(sentence) = sentence(&record.event) {
            printer.say(sentence);
        }
    }

    /// Tells a measurement, or takes it into the progress line; says whether that has changed.
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

    /// The progress line, as often as it is worth it.
    fn line(&mut self, printer: &mut Printer) -> Result<(), Error> {
        let now = clock::monotonic();
        if !printer.is_terminal() && now.0.saturating_sub(self.printed.0) < LINE.0 {
            return Ok(());
        }
        let run = self.watch.run()?;
        let running = self.started.map_or(domain::Elapsed(0), |started| clock::now().since(started));
        let meters = run.instances.last().map(|id| (id.clone(), running)).into_iter().collect();
        let spent = plan::spent(self.watch.state().world(), run, &meters);
        if let Some(line) = self.progress.line(spent, run.plan.offer.rate) {
            self.printed = now;
            printer.progress(&line);
        }
        Ok(())
    }
}

/// A measurement as one flat JSON value whose `event` says what it is.
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

/// What an event means, where it is worth a line.
pub fn sentence(event: &Event) -> Option<String> {
    let text = match event {
        Event::Submitted(submitted) => {
            let Submitted { run, .. } = &**submitted;
            format!("run {run}: submitted")
        }
        Event::StopRequested { by, .. } => format!("stopping: asked by the {}", stopper(*by)),
        Event::ResumeRequested { .. } => "resuming".to_owned(),
        Event::RentIntended(intent) => format!("renting {} at {}", intent.offer.kind, intent.offer.rate),
        Event::RentFailed { finding, .. } => format!("could not rent: {}", finding.message),
        Event::AttemptReady { ready: Some(ready), attempt } => {
            let mut text = match ready.step {
                0 => format!(
                    "attempt {attempt}: training {} parameters on {} samples",
                    ready.parameters, ready.samples[0]
                ),
                step => format!("attempt {attempt}: resumed at step {step} of {}", ready.steps),
            };
            for passed_over in &ready.passed_over {
                text.push_str(&format!("\n  checkpoint passed over: {passed_over}"));
            }
            text
        }
        Event::AttemptReady { ready: None, attempt } => format!("attempt {attempt}: running"),
        Event::AttemptEnded { end: AttemptEnd::Failed { finding, .. }, attempt } => {
            // The whole message follows with the end of the run.
            let first = finding.message.lines().next().unwrap_or_default();
            format!("attempt {attempt} failed: {}", first.trim_end_matches("; its last lines were:"))
        }
        Event::AttemptEnded { end: AttemptEnd::Stopped { step: Some(step) }, attempt } => {
            format!("attempt {attempt} stopped; step {step} is saved")
        }
        Event::BudgetAlert { spent, .. } => format!("budget: {spent} spent, the alert is reached"),
        Event::Launched { .. } | Event::AgentUp { .. } | Event::AttemptIntended { .. } | Event::AttemptEnded { .. } => {
            return None;
        }
        Event::Ended { .. } | Event::ReleaseIntended { .. } | Event::Released { .. } | Event::Billed { .. } => {
            return None;
        }
    };
    Some(text)
}

fn stopper(by: domain::run::StopBy) -> &'static str {
    match by {
        domain::run::StopBy::User => "user",
        domain::run::StopBy::Budget => "budget",
        domain::run::StopBy::Deadline => "deadline",
    }
}

/// Whether an end is a good one.
pub fn is_success(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Trained { .. } | Outcome::Succeeded => true,
        Outcome::Failed { .. } => false,
    }
}
