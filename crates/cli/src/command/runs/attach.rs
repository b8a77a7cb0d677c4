//! `gradus attach`: follow a run in the background, or take over one whose process is gone.

use domain::RunId;
use domain::run::{Outcome, RunState};
use server::Home;

use crate::command::find::{RunOrSweep, find_any, open_named};
use crate::error::{Error, exit};
use crate::follow::elsewhere;
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::printer::Printer;
use crate::remote;
use crate::settings::GlobalSettings;

/// Arguments of `gradus attach`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: String,
}

/// Follows a run to its end, and prints its result.
///
/// # Errors
/// [`Error`]; [`Error::Code`] for a run that has ended.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        let id = match server.find_any(&args.run)? {
            RunOrSweep::Run(id) => id,
            RunOrSweep::Sweep(id) => return crate::sweep::elsewhere::attach(&server, printer, &id),
        };
        let known = server.run(&id, 0)?;
        refuse_ended(&id, known.run()?)?;
        return elsewhere::finish(&server, printer, &id, Since::Event(known.world.last_seq));
    }
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, &args.run)?;
    let world = state.world();
    let id = match find_any(world, &args.run)? {
        RunOrSweep::Run(id) => id,
        RunOrSweep::Sweep(id) => {
            if let Some(sweep) = world.sweeps.get(&id) {
                crate::sweep::refuse_ended(&id, &sweep.state)?;
            }
            let since = world.last_seq;
            drop(state);
            return crate::sweep::finish(settings, printer, &home, &id, since);
        }
    };
    if let Some(run) = world.runs.get(&id) {
        refuse_ended(&id, run)?;
    }
    let since = Since::Event(world.last_seq);
    drop(state);
    finish(settings, printer, &home, &id, since)
}

/// Refuses to follow a run that has ended.
fn refuse_ended(id: &RunId, run: &plan::Run) -> Result<(), Error> {
    if !run.state.is_final() || run.bill.is_none() {
        return Ok(());
    }
    let message = format!("run `{id}` has ended: {}", run.state.word());
    let hint = Some(after_end(id, &run.state));
    Err(Error::Code { message, hint, code: exit::USAGE })
}

/// What there is to do with a run that has ended.
fn after_end(id: &RunId, state: &RunState) -> String {
    match state {
        RunState::Done { outcome: Outcome::Trained { .. } } => {
            format!("see `gradus models show {id}`; to train on: `gradus resume {id} --set epochs=N`")
        }
        RunState::Done { outcome: Outcome::Succeeded } => format!("see `gradus status {id}` and `gradus logs {id}`"),
        _ => format!("see `gradus status {id}`, or resume it with `gradus resume {id}`"),
    }
}

#[cfg(test)]
mod tests {
    use domain::run::StopBy;

    use super::*;

    #[test]
    fn a_run_that_has_its_result_is_not_resumed() {
        let hint = |state: RunState| after_end(&RunId::new("r"), &state);
        assert!(hint(RunState::Stopped { by: StopBy::User }).contains("`gradus resume r`"));
        assert!(!hint(RunState::Done { outcome: Outcome::Succeeded }).contains("resume"));
    }
}
