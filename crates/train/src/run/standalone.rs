//! A rank without an agent: `gradus-rank --job JOB.yaml --out FOLDER`, started by torchrun or by hand on every node.
//!
//! Each node has the job file and the data; only rank 0 writes, so the nodes share no folder. Features of `gradus run`,
//! such as recovery and the bill, are not available; a restarted run resumes from its newest checkpoint.

pub mod lr_range;

use std::path::{Path, PathBuf};

use domain::id::{AttemptId, Fence, RunId};
use domain::rank::{SPEC_SCHEMA, Spec};
use domain::train::{Checkpoint, MemoryFormat, Parallel, Train};
use domain::{Job, Work};
use sha2::{Digest, Sha256};

/// The specification of a single rank, unless a launcher assigns others.
///
/// # Errors
/// An error in the job file, or a missing option.
pub fn spec(options: &[String]) -> Result<Spec, String> {
    let (mut job, mut out) = (None, None);
    let accepts = |option: &String| option == "--accept-data-change";
    let pairs: Vec<String> = options.iter().filter(|option| !accepts(option)).cloned().collect();
    for pair in pairs.chunks(2) {
        match pair {
            [name, value] if name == "--job" => job = Some(PathBuf::from(value)),
            [name, value] if name == "--out" => out = Some(PathBuf::from(value)),
            _ => return Err(format!("`{}` is not understood; see `gradus-rank --help`", pair[0])),
        }
    }
    let path = job.ok_or("name the job file with `--job JOB.yaml`")?;
    let out = out.ok_or("name a folder for checkpoints and the model with `--out FOLDER`")?;
    let out = std::path::absolute(&out).map_err(|error| format!("`{}` is no folder: {error}", out.display()))?;
    let train = read(&path)?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(Spec {
        schema: SPEC_SCHEMA,
        run: RunId::new("by-hand"),
        attempt: AttemptId::new("by-hand"),
        fence: Fence(1),
        rank: 0,
        world_size: 1,
        meeting: None,
        job_hash: hash(&train),
        data: train.data.path.clone(),
        threads: train.threads.unwrap_or(1),
        accept_data_change: options.iter().any(accepts),
        checkpoints: text(out.join("checkpoints")),
        export: text(out.join("export")),
        tokens: String::new(),
        socket: String::new(),
        train,
    })
}

fn read(path: &Path) -> Result<Train, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let parsed = Job::parse(&text, &path.display().to_string()).map_err(|problems| problems.to_string())?;
    let mut job = parsed.job;
    let absolute = std::path::absolute(path).map_err(|error| format!("`{}` is no path: {error}", path.display()))?;
    job.resolve(absolute.parent().unwrap_or(Path::new("/")));
    match job.work {
        Work::Train(train) => Ok(train),
        Work::Command(_) => Err(format!("`{}` has `run:`, which torchrun starts without gradus-rank", path.display())),
    }
}

/// As the control loop's, of what changes a step: neither when the state is saved nor how many ranks there are, nor whether they are timed.
fn hash(train: &Train) -> String {
    let mut train = train.clone();
    train.checkpoint = Checkpoint::default();
    (train.data.workers, train.stop, train.processes, train.profile) = (1, None, 1, false);
    train.parallel = Parallel::default();
    // As it was written when the layout was always stated.
    train.memory_format = train.memory_format.or(Some(MemoryFormat::Contiguous));
    let text = serde_json::json!({ "train": train }).to_string();
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
