//! Attending a run: running the loop, or following the process that does, and saying what happens.

use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use domain::{Rate, RunId, SweepId};
use server::control::{Control, LEASE, Left, Wake};
use server::{Home, Series, State, routes};

use crate::command::run::verdict;
use crate::error::Error;
use crate::exit;
use crate::machine;
use crate::narrator::Narrator;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::sweep::narrator::SweepNarrator;
use crate::watch::{Since, Watch};

/// How often a follower tries to become the loop.
const TAKE_OVER: Duration = Duration::from_millis(100);

/// Stays with a run until it has ended and its bill is final, or until Ctrl-C.
///
/// # Errors
/// [`Error::Failed`] when the run ended without result; others when the state cannot be kept.
pub fn attend(settings: &Settings, printer: &mut Printer, home: &Home, run: &RunId, since: Since) -> Result<u8, Error> {
    let attendance = home.attend(&home.run(run))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, inbox) = channel();
    on_signals(sender.clone(), interrupted.clone())?;
    let mut narrator = Narrator::new(Watch::open(home, run, since)?, home.run(run).join("tensorboard"));
    let rate = narrator.watch.run()?.plan.offer.rate;
    let narrated = std::thread::scope(|scope| {
        let ended = Arc::new(AtomicBool::new(false));
        let finished = ended.clone();
        let narration = scope.spawn(move || {
            let result = narrator.tell(printer, &finished);
            (narrator, result)
        });
        let done =
            |world: &plan::World| world.runs.get(run).is_none_or(|run| run.state.is_final() && run.bill.is_some());
        let result = serve(settings, home, (rate, &done), sender, &inbox, &interrupted);
        ended.store(true, Ordering::SeqCst);
        let (narrator, told) = narration.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and_then(|left| told.map(|()| (left, narrator)))
    });
    let (left, narrator) = narrated?;
    match left {
        Left::Done => verdict(home, run, narrator.watch),
        Left::Interrupted => {
            drop(attendance);
            Err(interruption(home, run, narrator.watch.state().world()))
        }
    }
}

/// Stays with a sweep until it has ended and all of its trials are billed, or until Ctrl-C.
///
/// # Errors
/// [`Error::Code`] when it was interrupted; others when the state cannot be kept.
pub fn attend_sweep(
    settings: &Settings,
    printer: &mut Printer,
    home: &Home,
    sweep: &SweepId,
    since: u64,
) -> Result<(), Error> {
    let attendance = home.attend(&home.sweep(sweep))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, inbox) = channel();
    on_signals(sender.clone(), interrupted.clone())?;
    let mut narrator = SweepNarrator::open(home, sweep, since)?;
    let known = narrator.state.world().sweeps.get(sweep);
    let rate = known.ok_or_else(|| server::Error::NoRun(sweep.to_string()))?.plan.offer.rate;
    let left = std::thread::scope(|scope| {
        let ended = Arc::new(AtomicBool::new(false));
        let finished = ended.clone();
        let narration = scope.spawn(move || narrator.tell(printer, &finished));
        let done = |world: &plan::World| world.sweeps.get(sweep).is_none_or(|sweep| sweep.state.is_final());
        let result = serve(settings, home, (rate, &done), sender, &inbox, &interrupted);
        ended.store(true, Ordering::SeqCst);
        let told = narration.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and_then(|left| told.map(|()| left))
    });
    match left? {
        Left::Done => Ok(()),
        Left::Interrupted => {
            drop(attendance);
            let message = if home.is_attended(&home.sweep(sweep)) {
                format!("stopped watching; another process attends to sweep `{sweep}`, and it goes on")
            } else {
                format!(
                    "interrupted; a trial of `{sweep}` at work goes on for up to {LEASE}, then saves its state and ends"
                )
            };
            let hint =
                format!("go on with `gradus resume {sweep}`, or save and stop it now with `gradus stop {sweep}`");
            Err(Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED })
        }
    }
}

/// Runs the loop once this process may, and waits for the process that does until then.
fn serve(
    settings: &Settings,
    home: &Home,
    (rate, done): (Rate, &dyn Fn(&plan::World) -> bool),
    sender: Sender<Wake>,
    inbox: &std::sync::mpsc::Receiver<Wake>,
    interrupted: &AtomicBool,
) -> Result<Left, Error> {
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

/// What still runs after Ctrl-C, what it costs, and what to type.
fn interruption(home: &Home, id: &RunId, world: &plan::World) -> Error {
    let rented = world.runs.get(id).and_then(|run| world.live_instance(run));
    let message = match rented {
        _ if home.is_attended(&home.run(id)) => {
            format!("stopped watching; another process attends to run `{id}`, and it goes on")
        }
        None => format!("interrupted; nothing of run `{id}` is running"),
        Some((instance, rent)) => format!(
            "interrupted; `{instance}` goes on at {} for up to {LEASE} without anybody, then saves the state and ends",
            rent.offer.rate
        ),
    };
    let hint = format!("go on with `gradus resume {id}`, or save and stop it now with `gradus stop {id}`");
    Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
}
