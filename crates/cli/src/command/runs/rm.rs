//! `gradus rm`: delete the files of a run that has ended.

use std::fs;

use domain::RunId;
use node::durable;
use plan::RunOrSweep;
use server::{Home, State};

use crate::command::find::{find, open_named};
use crate::command::gc::{bytes_below, delete};
use crate::error::{Error, exit};
use crate::figures::size;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus rm`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
}

/// A file in the folder of a run whose other files were deleted.
pub const REMOVED: &str = "removed";

/// Files that a deleted run keeps: that its end was reported, so that the same job starts a new run.
const KEPT: [&str; 3] = ["told", "attend.lock", REMOVED];

/// Lists the files to delete, asks, and deletes them. Events, cost and bill stay in the log.
///
/// # Errors
/// [`Error::Usage`] for a run that has not ended, or without confirmation.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let id = find(open_named(&home, &args.run)?.world(), &args.run)?;
    remove(&home, &id, printer, |printer, question| args.yes || printer.confirm(question))
}

/// Refuses to delete the files of a run that has not ended, or that was resumed.
fn require_ended(home: &Home, id: &RunId) -> Result<(), Error> {
    let mut state = State::open_lean(home)?;
    state.recall(&RunOrSweep::Run(id.clone()))?;
    let has_ended = state.world().runs.get(id).is_some_and(|run| run.state.is_final() && run.bill.is_some());
    if has_ended && !home.is_followed(&home.run(id)) {
        return Ok(());
    }
    let message = format!("run `{id}` has not ended, so its files are in use");
    Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") })
}

/// Deletes the files of a run that has ended, where that is confirmed.
fn remove(
    home: &Home,
    id: &RunId,
    printer: &mut Printer,
    confirm: impl FnOnce(&mut Printer, &str) -> bool,
) -> Result<u8, Error> {
    require_ended(home, id)?;
    let folder = home.run(id);
    let entries: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let is_kept = |name: Option<&std::ffi::OsStr>| name.is_some_and(|name| KEPT.iter().any(|kept| name == *kept));
    let entries: Vec<_> = entries.into_iter().filter(|path| !is_kept(path.file_name())).collect();
    let bytes: u64 = entries.iter().map(|path| bytes_below(path)).sum();
    if !printer.is_json() {
        printer.data(format!("{}: {} of checkpoints, logs and model", folder.display(), size(bytes)));
    }
    let question = format!("delete them? run `{id}` cannot be resumed afterwards; its bill stays");
    if !confirm(printer, &question) {
        let message = "nothing was deleted: it was not confirmed".to_owned();
        return Err(Error::Usage { message, hint: "pass `--yes` to confirm".to_owned() });
    }
    // The mark first: a partly deleted run must not be resumed.
    fs::create_dir_all(&folder).map_err(Error::file("make the folder", &folder))?;
    let mark = folder.join(REMOVED);
    durable::create(&mark, b"").map_err(Error::file("write", &mark))?;
    // It may have been resumed while the question was open.
    if let Err(error) = require_ended(home, id) {
        delete(&mark)?;
        return Err(error);
    }
    home.mark_reported(&folder)?;
    entries.iter().try_for_each(|path| delete(path))?;
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "event": "removed", "run": id, "bytes": bytes })),
        false => printer.data(format!("deleted {}", size(bytes))),
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use domain::{Event, Record};

    use super::*;

    #[test]
    fn a_run_that_is_resumed_while_the_question_is_open_keeps_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let history = include_str!("../../../../server/tests/histories/first.jsonl");
        let event = |line: &str| serde_json::from_str::<Record>(line).unwrap().event;
        let mut state = State::open(&home).unwrap();
        state.append(history.lines().map(event).collect()).unwrap();
        let (id, _) = state.world().runs.iter().find(|(_, run)| run.state.word() == "failed").unwrap();
        let id = id.clone();
        let checkpoint = home.run(&id).join("checkpoints/manifest-1.json");
        fs::create_dir_all(checkpoint.parent().unwrap()).unwrap();
        fs::write(&checkpoint, "{}").unwrap();
        let is_removed = || home.run(&id).join(REMOVED).exists();
        assert!(remove(&home, &id, &mut Printer::silent(), |_, _| false).is_err() && checkpoint.exists());
        let resumed = |_: &mut Printer, _: &str| {
            let (run, set) = (id.clone(), Vec::new());
            let (budget, deadline, epochs, accept_data_change) = (None, None, None, false);
            let resume = Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change, set };
            State::open(&home).unwrap().append(vec![resume]).unwrap();
            true
        };
        let refused = remove(&home, &id, &mut Printer::silent(), resumed).unwrap_err();
        assert!(refused.to_string().contains("has not ended"), "{refused}");
        assert!(checkpoint.exists() && !is_removed());
    }
}
