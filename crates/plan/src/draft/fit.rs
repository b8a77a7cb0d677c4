//! Whether a machine can run a job, and what to change where it cannot.

use domain::problem::Problem;
use domain::{Bytes, Job, Offer, Share, Work};

use super::{Estimate, assumed};

/// Every reason why the job does not fit this machine; none when it does.
pub(super) fn reasons(job: &Job, offer: &Offer, estimate: &Estimate) -> Vec<Problem> {
    let mut reasons = Vec::new();
    let node = &offer.node;
    let mut lacks = |key: &str, has: String, needs: String, hint: String| {
        let message = format!("`{}` has {has}; the job asks for {needs}", offer.kind);
        reasons.push(Problem::at(key, message).hint(hint));
    };
    if let Some(cores) = job.needs.cores.filter(|cores| *cores > node.cores) {
        let hint = format!("write `cpus: {}` or less, or leave it out", node.cores);
        lacks("resources.cpus", format!("{} cores", node.cores), cores.to_string(), hint);
    }
    if let Some(memory) = job.needs.memory.filter(|memory| *memory > node.memory) {
        let hint = format!("write `memory: {}` or less, or leave it out", floor_gigabytes(node.memory));
        lacks("resources.memory", format!("{} of memory", gigabytes(node.memory)), gigabytes(memory), hint);
    }
    if let Some(disk) = job.needs.disk.filter(|disk| *disk > node.disk_free) {
        let hint = format!("free some, or write `disk_size: {}` or less", floor_gigabytes(node.disk_free));
        lacks("resources.disk_size", format!("{} of free disk", gigabytes(node.disk_free)), gigabytes(disk), hint);
    }
    if let (Some(memory), Some(share)) = (estimate.memory, &estimate.share)
        && memory.all as f64 * assumed::MEMORY_MARGIN > node.memory.0 as f64
    {
        let (has, takes) = (gigabytes(node.memory), gigabytes(Bytes(memory.all)));
        let message = format!("`{}` has {has} of memory; training takes about {takes}", offer.kind);
        reasons.push(if memory.preloaded > memory.all / 2 {
            let preloaded = gigabytes(Bytes(memory.preloaded));
            let message = format!("{message}, of which {preloaded} are pictures that {} ranks preload", share.ranks);
            let hint = "write less if the pictures take less, take fewer `processes`, or leave `preload` out";
            Problem::at("train.data.preload", message).hint(hint)
        } else {
            let message = format!("{message}, {} samples at a time", share.micro_batch);
            Problem::at("train.batch", message).hint(smaller(share))
        });
    }
    if let (Some(checkpoint), Work::Train(train)) = (estimate.checkpoint, &job.work) {
        // Those that are kept, the one that is being written, the best model and the exported one.
        let files = u64::from(train.checkpoint.keep) + 3;
        let needs = Bytes(checkpoint.saturating_mul(files));
        if needs > node.disk_free {
            let message = format!(
                "`{}` has {} of free disk; {files} files of the state take about {}",
                offer.kind,
                gigabytes(node.disk_free),
                gigabytes(needs)
            );
            reasons.push(Problem::at("train.checkpoint.keep", message).hint("free some, or keep fewer checkpoints"));
        }
    }
    reasons
}

/// How to have fewer samples in memory at a time.
fn smaller(share: &Share) -> String {
    match share.micro_batch {
        0 | 1 => "take a smaller network or smaller pictures (`train.data.size`)".to_owned(),
        _ => format!(
            "split each step into more micro-batches, for example `accumulate: {}`",
            share.accumulate.saturating_mul(2)
        ),
    }
}

fn gigabytes(bytes: Bytes) -> String {
    match bytes.0 as f64 {
        small if small < 1e9 => format!("{:.1} MB", small / 1e6),
        large => format!("{:.1} GB", large / 1e9),
    }
}

/// A number that a job file may ask for and get.
fn floor_gigabytes(bytes: Bytes) -> u64 {
    bytes.0 / 1_000_000_000
}
