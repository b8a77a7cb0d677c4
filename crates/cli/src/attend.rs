//! Attending a run: running the loop, or following the process that does, and saying what happens.

use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use domain::{Rate, RunId};
use server::control::{Control, LEASE, Left, Wake};
use server::{Home, Series, State, routes};

use crate::command::run::verdict;
use crate::error::Error;
use crate::exit;
use crate::machine;
use crate::narrator::Narrator;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::watch::{Since, Watch};

/// How often a follower tries to become the loop.
const TAKE_OVER: Duration = Duration::from_millis(100);

/// Stays with a run until it has ended and its bill is final, or until Ctrl-C.
///
/// # Errors
/// [`Error::Failed`] when the run ended without result; others when the state cannot be kept.
pub fn attend(settings: &Settings, printer: &mut Printer, home: &Home, run: &RunId, since: Since) -> Result<u8, Error> {
    let attendance = home.attend(run)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, inbox) = channel();
    on_signals(sender.clone(), interrupted.clone())?;
    let mut narrator = Narrator::new(Watch::open(home, run, since)?, home.run(run).join("tensorboard"));
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
        Left::Interrupted => {
            drop(attendance);
            Err(interruption(home, run, narrator.watch.state().world()))
        }
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

/// What still runs after Ctrl-C, what it costs, and what to type.
fn interruption(home: &Home, id: &RunId, world: &plan::World) -> Error {
    let rented = world.runs.get(id).and_then(|run| world.live_instance(run));
    let message = match rented {
        _ if home.is_attended(id) => format!("stopped watching; another process attends to run `{id}`, and it goes on"),
        None => format!("interrupted; nothing of run `{id}` is running"),
        Some((instance, rent)) => format!(
            "interrupted; `{instance}` goes on at {} for up to {LEASE} without anybody, then saves the state and ends",
            rent.offer.rate
        ),
    };
    let hint = format!("go on with `gradus resume {id}`, or save and stop it now with `gradus stop {id}`");
    Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
}
