//! `gradus checkpoints`: list, copy and delete the checkpoints in the folder of a run, or in the object store of its job.

mod place;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use agent::StoredCheckpoints;
use domain::{Job, RunId, Timestamp};
use plan::RunOrSweep;
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::{Home, State};

use crate::command::find::{find, open_named};
use crate::error::{Error, exit};
use crate::figures::{size, time};
use crate::printer::Printer;
use crate::remote;
use crate::settings::GlobalSettings;
use crate::table;
use place::CheckpointPlace;

/// Arguments of `gradus checkpoints`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// List the checkpoints of a run, by step
    List(ListArgs),
    /// Copy a checkpoint with all that it builds on to a folder, verified by its checksums
    Pull(PullArgs),
    /// Delete checkpoints of a run that nothing else builds on
    Rm(RemoveArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
}

#[derive(Debug, clap::Args)]
struct PullArgs {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
    /// Folder to copy to; it is made
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// Step of the checkpoint [default: the newest]
    #[arg(long)]
    step: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
    /// Steps of the checkpoints to delete
    #[arg(long, value_name = "STEP", num_args = 1.., conflicts_with = "keep")]
    step: Vec<u64>,
    /// Keep so many of the newest, and delete all others
    #[arg(long, value_name = "NUMBER")]
    keep: Option<usize>,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
}

/// What this command reads of a manifest; its checksum is checked where a checkpoint is used.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
struct Listed {
    step: u64,
    attempt: String,
    files: Vec<NamedFile>,
    #[serde(default)]
    chain: Vec<ListedLink>,
    #[serde(default)]
    best: Option<ListedBest>,
    #[serde(skip)]
    saved: Timestamp,
    /// Name of the manifest.
    #[serde(skip)]
    manifest: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct ListedLink {
    step: u64,
    files: Vec<NamedFile>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct ListedBest {
    step: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct NamedFile {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Listed {
    /// Every file that it takes to have this one.
    fn all_files(&self) -> impl Iterator<Item = &NamedFile> {
        self.chain.iter().flat_map(|link| &link.files).chain(&self.files)
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn builds_on(&self, step: u64) -> bool {
        self.chain.iter().any(|link| link.step == step)
    }
}

impl Args {
    /// What of it needs the home of a run; the rest works over a server.
    pub fn only_here(&self) -> Option<&'static str> {
        match self.command {
            Subcommand::List(_) | Subcommand::Pull(_) => None,
            Subcommand::Rm(_) => Some("`gradus checkpoints rm`"),
        }
    }
}

/// Carries out the subcommand.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let name = match &args.command {
        Subcommand::List(args) => &args.run,
        Subcommand::Pull(args) => &args.run,
        Subcommand::Rm(args) => &args.run,
    };
    if let Some(server) = remote::chosen(settings)? {
        let id = server.find(name)?;
        let stored = stored(&server.run(&id, 0)?.run()?.job, &id, settings)?;
        let place = stored.as_ref().map_or(CheckpointPlace::There(&server, &id), CheckpointPlace::Stored);
        return match &args.command {
            Subcommand::List(_) => list(&id, &place.list()?, printer),
            Subcommand::Pull(args) => pull(&id, place, &place.list()?, args, printer),
            Subcommand::Rm(_) => Err(remote::only_here("`gradus checkpoints rm`", &server)),
        };
    }
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, name)?;
    let id = find(state.world(), name)?;
    let folder = home.run(&id).join("checkpoints");
    let run = state.world().runs.get(&id);
    let stored = run.map(|run| stored(&run.job, &id, settings)).transpose()?.flatten();
    let place = stored.as_ref().map_or(CheckpointPlace::Here(&folder), CheckpointPlace::Stored);
    let listed = place.list()?;
    match &args.command {
        Subcommand::List(_) => list(&id, &listed, printer),
        Subcommand::Pull(args) => pull(&id, place, &listed, args, printer),
        Subcommand::Rm(args) => {
            let require_over = || require_over(&home, &id);
            require_over()?;
            remove(&id, (&folder, stored.as_ref()), &listed, args, (printer, &require_over))
        }
    }
}

/// Refuses to delete checkpoints of a run that has not ended, or that was resumed.
fn require_over(home: &Home, id: &RunId) -> Result<(), Error> {
    let mut state = State::open_lean(home)?;
    state.recall(&RunOrSweep::Run(id.clone()))?;
    let is_over = state.world().runs.get(id).is_some_and(|run| run.state.is_final());
    if is_over && !home.is_followed(&home.run(id)) {
        return Ok(());
    }
    let message = format!("run `{id}` has not ended, so its checkpoints are in use");
    let hint = format!("stop it first with `gradus stop {id}`; `checkpoint: {{keep: 3}}` in a job bounds them");
    Err(Error::Usage { message, hint })
}

/// The checkpoints in the object store of a run's job, if it names one.
fn stored(job: &Job, id: &RunId, settings: &GlobalSettings) -> Result<Option<StoredCheckpoints>, Error> {
    let open = |place: &String| StoredCheckpoints::open(place, id, &settings.access);
    Ok(job.checkpoint_store.as_ref().map(open).transpose()?)
}

/// Whether a folder has a checkpoint.
///
/// # Errors
/// [`Error::File`] when it cannot be read.
pub(super) fn has_any(folder: &Path) -> Result<bool, Error> {
    Ok(!read(folder)?.is_empty())
}

/// The manifests of a folder by step; one that cannot be read is no checkpoint.
fn read(folder: &Path) -> Result<Vec<Listed>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("read", folder)(error)),
    };
    let mut all: Vec<Listed> = entries.flatten().filter_map(|entry| manifest(&entry.path())).collect();
    all.sort_by_key(|one| one.step);
    Ok(all)
}

fn manifest(path: &Path) -> Option<Listed> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("manifest-")?;
    let saved = fs::metadata(path).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    parsed(name, &fs::read(path).ok()?, Timestamp(i64::try_from(saved.as_micros()).ok()?))
}

/// The manifest of this name and with these contents, if it is one.
fn parsed(name: &str, contents: &[u8], saved: Timestamp) -> Option<Listed> {
    let step: u64 = name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()?;
    let listed: Listed = serde_json::from_slice(contents).ok()?;
    let is_safe = listed.all_files().all(|file| domain::files::is_safe(&file.name));
    (listed.step == step && is_safe).then(|| Listed { saved, manifest: name.to_owned(), ..listed })
}

fn list(id: &RunId, listed: &[Listed], printer: &mut Printer) -> Result<u8, Error> {
    if printer.is_json() {
        for one in listed {
            printer.json(&json!({
                "run": id, "step": one.step, "attempt": one.attempt, "saved": time(one.saved), "bytes": one.bytes(),
                "builds_on": one.chain.iter().map(|link| link.step).collect::<Vec<u64>>(),
                "best_step": one.best.as_ref().map(|best| best.step),
            }));
        }
        return Ok(exit::DONE);
    }
    if listed.is_empty() {
        printer.say(format!(
            "run `{id}` has no checkpoints: none was saved, or `gradus gc` deleted them after its model was written"
        ));
        return Ok(exit::DONE);
    }
    let row = |one: &Listed| {
        let builds_on: Vec<String> = one.chain.iter().map(|link| link.step.to_string()).collect();
        let builds_on = if builds_on.is_empty() { "–".to_owned() } else { builds_on.join(", ") };
        let best = one.best.as_ref().map_or("–".to_owned(), |best| best.step.to_string());
        vec![one.step.to_string(), time(one.saved), size(one.bytes()), best, builds_on, one.attempt.clone()]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    for line in table::lines(&["step", "saved", "size", "best step", "builds on", "attempt"], &rows) {
        printer.data(line);
    }
    Ok(exit::DONE)
}

fn pull(
    id: &RunId,
    place: CheckpointPlace<'_>,
    listed: &[Listed],
    args: &PullArgs,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let wanted = match args.step {
        Some(step) => listed.iter().find(|one| one.step == step),
        None => listed.last(),
    };
    let Some(wanted) = wanted else {
        let message = match args.step {
            Some(step) => format!("run `{id}` has no checkpoint of step {step}"),
            None => format!("run `{id}` has no checkpoint"),
        };
        return Err(Error::Usage { message, hint: which(id, listed) });
    };
    fs::create_dir_all(&args.output).map_err(Error::file("make the folder", &args.output))?;
    let mut bytes = 0;
    // The manifest comes last, so that it never names what is not there.
    for file in wanted.all_files() {
        place.copy(&args.output, file)?;
        bytes += file.bytes;
    }
    place.copy_manifest(&args.output, &wanted.manifest)?;
    match printer.is_json() {
        true => printer.json(&json!({ "run": id, "step": wanted.step, "folder": args.output, "bytes": bytes })),
        false => printer.data(format!("step {}: {} in {}", wanted.step, size(bytes), args.output.display())),
    }
    Ok(exit::DONE)
}

/// The steps that there are checkpoints of, as a hint.
fn which(id: &RunId, listed: &[Listed]) -> String {
    let steps: Vec<String> = listed.iter().map(|one| one.step.to_string()).collect();
    match steps.is_empty() {
        true => format!("see `gradus status {id}`"),
        false => format!("there are {}", steps.join(", ")),
    }
}

/// The steps that are named, or all but the newest and what those build on.
fn steps_to_delete(args: &RemoveArgs, listed: &[Listed]) -> BTreeSet<u64> {
    let Some(keep) = args.keep else { return args.step.iter().copied().collect() };
    let (old, kept) = listed.split_at(listed.len().saturating_sub(keep));
    old.iter().map(|one| one.step).filter(|step| !kept.iter().any(|one| one.builds_on(*step))).collect()
}

/// Deletes checkpoints, where that is confirmed and `require_over` still allows it.
fn remove(
    id: &RunId,
    (folder, stored): (&Path, Option<&StoredCheckpoints>),
    listed: &[Listed],
    args: &RemoveArgs,
    (printer, require_over): (&mut Printer, &dyn Fn() -> Result<(), Error>),
) -> Result<u8, Error> {
    if args.keep.is_none() && args.step.is_empty() {
        let message = "which checkpoints to delete is not said".to_owned();
        let hint =
            format!("name them with `--step STEP`, or keep the newest with `--keep NUMBER`; {}", which(id, listed));
        return Err(Error::Usage { message, hint });
    }
    let wanted = steps_to_delete(args, listed);
    if let Some(step) = wanted.iter().find(|step| !listed.iter().any(|one| one.step == **step)) {
        let message = format!("run `{id}` has no checkpoint of step {step}");
        return Err(Error::Usage { message, hint: which(id, listed) });
    }
    let (gone, kept): (Vec<&Listed>, Vec<&Listed>) = listed.iter().partition(|one| wanted.contains(&one.step));
    let builds = kept.iter().find_map(|one| Some((one.step, wanted.iter().find(|step| one.builds_on(**step))?)));
    if let Some((later, step)) = builds {
        let message = format!("the checkpoint of step {later} builds on that of step {step}");
        return Err(Error::Usage { message, hint: format!("delete both, or keep {step}") });
    }
    let needed: BTreeSet<&str> = kept.iter().flat_map(|one| one.all_files()).map(|file| file.name.as_str()).collect();
    let files: BTreeSet<&NamedFile> =
        gone.iter().flat_map(|one| one.all_files()).filter(|file| !needed.contains(file.name.as_str())).collect();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let steps: Vec<String> = wanted.iter().map(u64::to_string).collect();
    let question = format!("delete {} of step {}?", size(bytes), steps.join(", "));
    if !gone.is_empty() && !args.yes && !printer.confirm(&question) {
        let message = "nothing was deleted: it was not confirmed".to_owned();
        return Err(Error::Usage { message, hint: "pass `--yes` to confirm".to_owned() });
    }
    // It may have been resumed while the question was open.
    require_over()?;
    // A manifest goes first: without it the rest is no checkpoint.
    let names = gone.iter().map(|one| &one.manifest).chain(files.iter().map(|file| &file.name));
    if let Some(stored) = stored.filter(|_| !gone.is_empty()) {
        stored.remove(&names.clone().cloned().collect())?;
    }
    // A run on this machine has them here as well.
    for path in names.map(|name| folder.join(name)) {
        crate::command::gc::delete(&path)?;
        // The folder of a step goes with its last file.
        let _ = path.parent().filter(|parent| *parent != folder).map(fs::remove_dir);
    }
    match printer.is_json() {
        true => printer.json(&json!({ "deleted": wanted, "bytes": bytes })),
        false => printer.data(format!("deleted {}", size(bytes))),
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two checkpoints, of which the second builds on the first, and a third that stands for itself, named as the trainer
    /// names them.
    fn scene() -> (tempfile::TempDir, Vec<Listed>) {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            json!({ "name": name, "bytes": name.len(), "sha256": node::sha256(name.as_bytes()).unwrap() })
        };
        let [one, two, three, best] = ["step-1-a1/model", "step-2-a1/model", "step-3-a1/model", "best-1-a1"].map(file);
        for (step, files, chain) in [
            (1, vec![one.clone(), best.clone()], vec![]),
            (2, vec![two, best.clone()], vec![json!({ "step": 1, "files": [one] })]),
            (3, vec![three, best], vec![]),
        ] {
            let text = json!({ "step": step, "attempt": "a1", "files": files, "chain": chain, "best": {"step": 1, "name": "best-1-a1"} });
            fs::write(folder.path().join(format!("manifest-{step:08}.json")), text.to_string()).unwrap();
        }
        fs::write(
            folder.path().join("manifest-00000004.json"),
            r#"{"step": 4, "attempt": "a", "files": [{"name": "../x", "bytes": 1, "sha256": ""}]}"#,
        )
        .unwrap();
        fs::write(folder.path().join("manifest-00000005.json"), "{").unwrap();
        let listed = read(folder.path()).unwrap();
        (folder, listed)
    }

    /// Deletes checkpoints of a run that has ended.
    fn removed(folder: &Path, listed: &[Listed], args: &RemoveArgs) -> Result<u8, Error> {
        remove(&RunId::new("r"), (folder, None), listed, args, (&mut Printer::silent(), &|| Ok(())))
    }

    fn remove_args(step: &[u64], keep: Option<usize>) -> RemoveArgs {
        RemoveArgs { run: String::new(), step: step.to_vec(), keep, yes: true }
    }

    #[test]
    fn only_whole_manifests_are_listed() {
        let (_folder, listed) = scene();
        assert_eq!(listed.iter().map(|one| one.step).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(listed[1].builds_on(1) && !listed[2].builds_on(1));
    }

    #[test]
    fn what_others_need_is_not_deleted() {
        let (folder, listed) = scene();
        let refused = removed(folder.path(), &listed, &remove_args(&[1], None)).unwrap_err();
        assert!(refused.to_string().contains("step 2 builds on that of step 1"), "{refused}");
        let unknown = removed(folder.path(), &listed, &remove_args(&[9], None)).unwrap_err();
        assert!(unknown.to_string().contains("no checkpoint of step 9"));
        assert_eq!(unknown.hint().as_deref(), Some("there are 1, 2, 3"));
        let none = removed(folder.path(), &listed, &remove_args(&[], None)).unwrap_err();
        assert!(none.hint().unwrap().contains("`--keep NUMBER`; there are 1, 2, 3"));
        let is_there = |name: &str| folder.path().join(name).exists();
        removed(folder.path(), &listed, &remove_args(&[], Some(1))).unwrap();
        let left = [
            "manifest-00000001.json",
            "manifest-00000002.json",
            "manifest-00000003.json",
            "step-1-a1",
            "step-3-a1/model",
            "best-1-a1",
        ]
        .map(is_there);
        assert_eq!(left, [false, false, true, false, true, true]);
    }

    #[test]
    fn checkpoints_of_a_run_that_is_resumed_meanwhile_stay() {
        let (folder, listed) = scene();
        let (id, args, mut printer) = (RunId::new("r"), remove_args(&[3], None), Printer::silent());
        let resumed = || Err(Error::Usage { message: "resumed".into(), hint: String::new() });
        let refused = remove(&id, (folder.path(), None), &listed, &args, (&mut printer, &resumed)).unwrap_err();
        assert_eq!(refused.to_string(), "resumed");
        assert!(folder.path().join("manifest-00000003.json").exists());
    }

    #[test]
    fn newest_ones_are_kept_with_what_they_build_on() {
        let (folder, listed) = scene();
        removed(folder.path(), &listed[..2], &remove_args(&[], Some(1))).unwrap();
        assert!(
            folder.path().join("manifest-00000001.json").exists() && folder.path().join("step-1-a1/model").exists()
        );
    }

    #[test]
    fn a_copy_is_verified() {
        let (folder, listed) = scene();
        let output = folder.path().join("out");
        let args = |step| PullArgs { run: String::new(), output: output.clone(), step };
        let id = RunId::new("r");
        pull(&id, CheckpointPlace::Here(folder.path()), &listed, &args(Some(2)), &mut Printer::silent()).unwrap();
        let is_there = |name: &str| output.join(name).exists();
        let copied =
            ["manifest-00000002.json", "step-1-a1/model", "step-2-a1/model", "best-1-a1", "manifest-00000001.json"]
                .map(is_there);
        assert_eq!(copied, [true, true, true, true, false]);
        fs::write(folder.path().join("step-3-a1/model"), "step-3-a1/MODEL").unwrap();
        let damaged =
            pull(&id, CheckpointPlace::Here(folder.path()), &listed, &args(None), &mut Printer::silent()).unwrap_err();
        assert!(damaged.to_string().contains("does not match its checksum"), "{damaged}");
        assert!(!is_there("manifest-00000003.json") && !is_there("step-3-a1/model"));
        let none = pull(&id, CheckpointPlace::Here(folder.path()), &listed, &args(Some(8)), &mut Printer::silent())
            .unwrap_err();
        assert_eq!(none.hint().as_deref(), Some("there are 1, 2, 3"));
    }
}
