//! Attending a run: running the control loop, or following the process that does.

use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use domain::{Rate, RunId};
use server::control::{Control, LEASE, Left, Wake};
use server::{Home, Series, State, routes};

use super::liveness::lease;
use super::narrator::Narrator;
use super::watch::{Since, Watch};
use crate::error::{Error, exit};
use crate::local::{disks, machine};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Interval at which a follower tries to become the loop.
const TAKE_OVER: Duration = Duration::from_millis(100);

/// A server that only it can stand in for is waited for so long: it may be being replaced by a newer version.
const REPLACED: Duration = Duration::from_secs(10);

/// Follows a run until it has ended and its bill is final, or until Ctrl-C.
///
/// # Errors
/// [`Error::Code`] when it was interrupted; others when the state cannot be written.
pub fn attend(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    run: &RunId,
    since: Since,
) -> Result<Watch, Error> {
    let attendance = home.watch(&home.run(run))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, inbox) = channel();
    on_signals(sender.clone(), interrupted.clone())?;
    let mut narrator = Narrator::new(home, run, Watch::open(home, run, since)?);
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
        let (narrator, printed) = narration.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and_then(|left| printed.map(|()| (left, narrator)))
    });
    let (left, narrator) = narrated?;
    match left {
        Left::Done => Ok(narrator.watch),
        Left::Interrupted => {
            drop(attendance);
            Err(interruption(home, run, narrator.watch.world()))
        }
    }
}

/// Runs the control loop once this process holds its lock, and waits for the process that does until then.
///
/// # Errors
/// [`Error::Server`] when the state cannot be read or written, [`Error::Code`] where only a server hears the agents at work.
pub fn serve(
    settings: &GlobalSettings,
    home: &Home,
    (rate, done): (Rate, &dyn Fn(&plan::World) -> bool),
    sender: Sender<Wake>,
    inbox: &std::sync::mpsc::Receiver<Wake>,
    interrupted: &AtomicBool,
) -> Result<Left, Error> {
    if let Some(chaos) = &settings.chaos {
        chaos::aim(chaos, "loop");
    }
    loop {
        let mut state = State::open_lean(home)?;
        let mut missed: Option<Instant> = None;
        let lock = loop {
            state.refresh()?;
            if done(state.world()) {
                return Ok(Left::Done);
            }
            if interrupted.load(Ordering::SeqCst) {
                return Ok(Left::Interrupted);
            }
            if home.has_server() {
                missed = None;
            } else if let Some(lock) = home.try_loop()? {
                match machine::require_hearing(home, state.world()) {
                    Ok(()) => break lock,
                    Err(error) if missed.get_or_insert_with(Instant::now).elapsed() >= REPLACED => return Err(error),
                    Err(_) => {}
                }
            }
            std::thread::sleep(TAKE_OVER);
        };
        let providers = machine::providers(settings, home, rate)?;
        disks::note_stops(home)?;
        lease::note(home, LEASE, state.world().live_count() > 0)?;
        let door = routes::serve(home, sender.clone(), None)?;
        let mut control = Control::new(state, Series::open(home)?, home, &providers);
        let left = control.run(&sender, inbox, |world| done(world) || home.has_server())?;
        disks::forget_stops(home);
        drop((door, lock));
        // Otherwise a server takes over, and this process only follows.
        if left == Left::Interrupted || done(control.state.world()) {
            return Ok(left);
        }
    }
}

/// Wakes the loop at Ctrl-C, SIGTERM and SIGHUP, and records the interruption.
///
/// # Errors
/// [`Error::File`] if signal handlers cannot be installed.
pub fn on_signals(sender: Sender<Wake>, interrupted: Arc<AtomicBool>) -> Result<(), Error> {
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

/// The error for Ctrl-C: what keeps running, its price, and the next command.
fn interruption(home: &Home, id: &RunId, world: &plan::World) -> Error {
    let rented: Vec<_> = world.runs.get(id).into_iter().flat_map(|run| world.live_instances_of(run)).collect();
    if home.is_watched(&home.run(id)) {
        let message = format!("stopped following run `{id}`; it keeps running in another process");
        let hint = format!("follow it again with `gradus attach {id}`, or stop it with `gradus stop {id}`");
        return Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED };
    }
    let lease = lease::granted(home);
    let message = match &rented[..] {
        [] => format!("interrupted; nothing of run `{id}` is running"),
        [(instance, rent)] => format!(
            "interrupted; machine `{instance}` keeps running unattended at {} for up to {lease}, then saves a checkpoint and stops",
            rent.offer.rate
        ),
        [.., (_, rent)] => format!(
            "interrupted; {} machines keep running unattended at {} each for up to {lease}, then save a checkpoint and stop",
            rented.len(),
            rent.offer.rate
        ),
    };
    let hint = format!("resume with `gradus resume {id}`, or stop now with `gradus stop {id}`");
    Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
}
