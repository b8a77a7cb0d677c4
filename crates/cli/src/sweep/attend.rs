//! Follows a sweep until its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use domain::SweepId;
use server::Home;
use server::control::Left;

use super::narrator::SweepNarrator;
use crate::error::{Error, exit};
use crate::follow::attend::{on_signals, serve};
use crate::follow::liveness::lease;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Follows a sweep until it has ended and all of its trials are billed, or until Ctrl-C.
///
/// # Errors
/// [`Error::Code`] if it was interrupted; others if the state cannot be written.
pub fn attend_sweep(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    sweep: &SweepId,
    since: u64,
) -> Result<(), Error> {
    let attendance = home.watch(&home.sweep(sweep))?;
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
            let message = if home.is_watched(&home.sweep(sweep)) {
                format!("stopped following sweep `{sweep}`; it keeps running in another process")
            } else {
                format!(
                    "interrupted; running trials of sweep `{sweep}` keep running unattended for up to {}, then save a checkpoint and stop",
                    lease::granted(home)
                )
            };
            let hint = format!("resume with `gradus resume {sweep}`, or stop now with `gradus stop {sweep}`");
            Err(Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED })
        }
    }
}
