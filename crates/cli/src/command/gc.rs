//! `gradus gc`: free disk space of the home folder: what can be fetched or made again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::RunId;
use domain::pipeline::PipelineEnd;
use domain::run::{Outcome, RunState};
use domain::sweep::SweepEnd;
use plan::{PipelineState, SweepState};
use serde_json::json;
use server::state::StateReader;
use server::{Home, State, submit};

use crate::error::{Error, exit};
use crate::figures::size;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus gc`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
}

/// Something that can be deleted.
struct Garbage {
    what: &'static str,
    path: PathBuf,
    bytes: u64,
    /// Of which run; of none what runs share.
    run: Option<RunId>,
}

/// Lists what can be deleted, asks, and deletes it.
///
/// # Errors
/// [`Error::Usage`] without confirmation, or if a run has begun meanwhile.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    // Such as `gradus serve`: files of runs that have ended are of no use to it.
    let is_in_use = home.try_loop()?.is_none();
    let keeps_data = is_in_use || has_agent(&home);
    let garbage = garbage(&home, &State::open(&home)?, keeps_data);
    if is_in_use {
        printer.say("downloaded data is kept: a command or server runs jobs of this home, which may train from it");
    } else if keeps_data {
        printer.say("downloaded data is kept: the agent of a run on this machine may train from it (`gradus status`)");
    }
    let total: u64 = garbage.iter().map(|one| one.bytes).sum();
    if printer.is_json() {
        garbage.iter().for_each(|one| printer.json(&json!({ "what": one.what, "path": one.path, "bytes": one.bytes })));
    } else if garbage.is_empty() {
        printer.say("nothing to delete; files of a single run: `gradus rm RUN`");
    } else {
        let row = |one: &Garbage| vec![size(one.bytes), one.what.to_owned(), one.path.display().to_string()];
        let rows: Vec<Vec<String>> = garbage.iter().map(row).collect();
        table::lines(&["size", "what", "path"], &rows).iter().for_each(|line| printer.data(line));
        printer
            .data(format!("{} in all; models, checkpoints of unfinished runs, logs and bills are kept", size(total)));
    }
    if garbage.is_empty() || args.dry_run {
        return Ok(exit::DONE);
    }
    if !args.yes && !printer.confirm("delete these?") {
        let message = "nothing was deleted: it was not confirmed".to_owned();
        return Err(Error::Usage { message, hint: "pass `--yes` to confirm, or `--dry-run` to only look".to_owned() });
    }
    let lock = home.try_loop()?;
    if !keeps_data && (lock.is_none() || has_agent(&home)) {
        let message = "nothing was deleted: a run has begun on this machine meanwhile".to_owned();
        return Err(Error::Usage { message, hint: "run `gradus gc` again".to_owned() });
    }
    // One of them may have been resumed meanwhile, also while others are deleted.
    let (state, reader) = (State::open(&home)?, StateReader::open(&home)?);
    let mut deleted = 0;
    for one in &garbage {
        let is_free = match &one.run {
            Some(run) => has_ended(&home, &state, run) && reader.billed(run)?.is_some(),
            None => true,
        };
        if is_free {
            delete(&one.path)?;
            deleted += one.bytes;
        }
    }
    if !printer.is_json() {
        printer.data(format!("deleted {}", size(deleted)));
    }
    Ok(exit::DONE)
}

/// Whether nothing more comes of a run, and no command waits to write about its end.
fn has_ended(home: &Home, state: &State, id: &RunId) -> bool {
    let world = state.world();
    let Some(run) = world.runs.get(id) else { return false };
    // A sweep resumes trials that have a model for more epochs, from their checkpoints.
    let is_over = world.sweep_of(run).is_none_or(|sweep| sweep.state.is_final());
    is_over && run.state.is_final() && run.bill.is_some() && !home.is_followed(&home.run(id))
}

/// Data that can be fetched or created again: cached data, uploaded files, journals of transfers, working folders of ended
/// attempts, and checkpoints of runs with an exported model.
fn garbage(home: &Home, state: &State, keeps_data: bool) -> Vec<Garbage> {
    let mut found = Vec::new();
    let mut add = |what, path: PathBuf, run: Option<&RunId>| {
        let bytes = bytes_below(&path);
        if bytes > 0 {
            found.push(Garbage { what, path, bytes, run: run.cloned() });
        }
    };
    if !keeps_data {
        for data in entries(&home.root().join("cache/data")) {
            add("downloaded data", data, None);
        }
        add("ranges of remote data", home.root().join("cache/pieces"), None);
    }
    for blob in entries(&home.root().join("blobs")).into_iter().filter(|blob| is_unused(blob, state)) {
        add("an uploaded file", blob, None);
    }
    add("journals of transfers", home.root().join("transfers"), None);
    let ended = state.world().runs.iter().filter(|(id, _)| has_ended(home, state, id));
    for (id, run) in ended {
        add("working folders of a run", home.run(id).join("attempts"), Some(id));
        if matches!(run.state, RunState::Done { outcome: Outcome::Trained { .. } }) {
            add("checkpoints of a trained run", home.run(id).join("checkpoints"), Some(id));
        }
    }
    found
}

/// An uploaded file is kept so long for a job that is still to be submitted.
const UPLOADED: Duration = Duration::from_secs(24 * 3600);

/// Whether an uploaded file has been there for a while, and no work needs it any more.
fn is_unused(blob: &Path, state: &State) -> bool {
    // Each part of one that is still arriving is appended to a file in it.
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    let newest = entries(blob).iter().chain([&blob.to_owned()]).filter_map(modified).max();
    let is_old = newest.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > UPLOADED);
    // Jobs name it by a path with its hash.
    let Some(hash) = blob.file_name().and_then(|name| name.to_str()) else { return false };
    is_old && !is_named(hash, state)
}

/// Whether a schedule names an uploaded file, or a run, sweep or pipeline that has not succeeded: what has failed or was stopped
/// can be resumed.
fn is_named(hash: &str, state: &State) -> bool {
    let names = |job: &domain::Job| serde_json::to_string(job).is_ok_and(|text| text.contains(hash));
    // Of schedules and pipelines the log has the request, sealed.
    let asks = |sealed: &str| {
        let request = submit::request_of(state.key(), sealed);
        request.is_some_and(|request| serde_json::to_string(&request).is_ok_and(|text| text.contains(hash)))
    };
    let world = state.world();
    let is_over =
        |run: &plan::Run| matches!(run.state, RunState::Done { outcome: Outcome::Trained { .. } | Outcome::Succeeded });
    let is_done = |sweep: &plan::SweepRecord| matches!(sweep.state, SweepState::Ended { how: SweepEnd::Done { .. } });
    let has_ended = |pipeline: &plan::PipelineRecord| pipeline.state == PipelineState::Ended { how: PipelineEnd::Done };
    world.runs.values().any(|run| !is_over(run) && names(&run.job))
        || world.sweeps.values().any(|sweep| !is_done(sweep) && names(&sweep.job))
        || world.pipelines.values().any(|pipeline| !has_ended(pipeline) && asks(&pipeline.request))
        || world.schedules.values().any(|schedule| asks(&schedule.request))
}

/// Whether an agent of this home lives on this machine: it trains on without a loop until its lease ends. One that cannot be
/// asked counts as alive.
fn has_agent(home: &Home) -> bool {
    let instances = entries(&home.root().join("instances"));
    let mut folders = instances.into_iter().filter(|instance| instance.is_dir());
    folders.any(|instance| node::Folder::new(instance).is_held().unwrap_or(true))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.path()).collect();
    paths.sort();
    paths
}

/// Bytes on the disk of a file, or of all files below a folder. Links are not followed.
pub fn bytes_below(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(file) = fs::symlink_metadata(path) else { return 0 };
    match file.is_dir() {
        true => entries(path).iter().map(|inner| bytes_below(inner)).sum(),
        // Placeholders for remote data are sparse: their disk usage counts, not their length.
        false => file.blocks() * 512,
    }
}

/// Deletes a file, or a folder with all that is in it.
///
/// # Errors
/// [`Error::File`].
pub fn delete(path: &Path) -> Result<(), Error> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|file| file.is_dir());
    let deleted = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match deleted {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::file("delete", path)),
    }
}
