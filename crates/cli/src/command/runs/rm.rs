//! `gradus rm`: delete the files of a run that has ended.

use std::fs;

use server::Home;

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
    let state = open_named(&home, &args.run)?;
    let id = find(state.world(), &args.run)?;
    let folder = home.run(&id);
    let ended = state.world().runs.get(&id).is_some_and(|run| run.state.is_final() && run.bill.is_some());
    if !ended || home.is_followed(&folder) {
        let message = format!("run `{id}` has not ended, so its files are in use");
        return Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") });
    }
    let entries: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let is_kept = |name: Option<&std::ffi::OsStr>| name.is_some_and(|name| KEPT.iter().any(|kept| name == *kept));
    let entries: Vec<_> = entries.into_iter().filter(|path| !is_kept(path.file_name())).collect();
    let bytes: u64 = entries.iter().map(|path| bytes_below(path)).sum();
    if !printer.is_json() {
        printer.data(format!("{}: {} of checkpoints, logs and model", folder.display(), size(bytes)));
    }
    let question = format!("delete them? run `{id}` cannot be resumed afterwards; its bill stays");
    if !args.yes && !printer.confirm(&question) {
        let message = "nothing was deleted: it was not confirmed".to_owned();
        return Err(Error::Usage { message, hint: "pass `--yes` to confirm".to_owned() });
    }
    // The mark first: a partly deleted run must not be resumed.
    fs::create_dir_all(&folder).map_err(Error::file("make the folder", &folder))?;
    let mark = folder.join(REMOVED);
    fs::write(&mark, "").map_err(Error::file("write", &mark))?;
    home.mark_reported(&folder)?;
    entries.iter().try_for_each(|path| delete(path))?;
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "event": "removed", "run": id, "bytes": bytes })),
        false => printer.data(format!("deleted {}", size(bytes))),
    }
    Ok(exit::DONE)
}
