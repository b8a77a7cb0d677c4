//! Checks whether a machine can run a job, with hints if it cannot.

use domain::problem::Problem;
use domain::{Bytes, Elapsed, Job, Offer, Share, Work};

use super::HERE;
use super::machine::OnMachine;
use crate::estimate::processor::START_AND_END;

/// Every reason why the job does not fit this machine; empty if it does.
pub(super) fn reasons(job: &Job, offer: &Offer, estimate: &OnMachine) -> Vec<Problem> {
    let mut reasons = lacking(job, offer);
    reasons.extend(unaffordable(job, offer));
    reasons.extend(short_of_memory(offer, estimate));
    reasons.extend(short_of_disk(job, offer, estimate));
    reasons
}

/// Requirements of `resources` that the machine does not meet.
fn lacking(job: &Job, offer: &Offer) -> Vec<Problem> {
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
    reasons
}

/// A budget that the rent of starting and ending alone exceeds.
fn unaffordable(job: &Job, offer: &Offer) -> Option<Problem> {
    let budget = job.budget?;
    let rate = offer.rate.times(job.machines());
    let least = rate.cost(Elapsed((START_AND_END * 1e6) as u64));
    if least <= budget.max {
        return None;
    }
    let message = format!(
        "the budget of {} does not pay for a start: at {rate} the {START_AND_END:.1} s to start and to end cost {least}",
        budget.max
    );
    let cheaper = if offer.provider == HERE { "or a lower `--price`" } else { "or ask for a cheaper machine" };
    Some(Problem::at("budget.max", message).hint(format!("write more than {least}, {cheaper}")))
}

fn short_of_memory(offer: &Offer, estimate: &OnMachine) -> Option<Problem> {
    let (memory, share) = (estimate.memory.filter(|memory| !memory.fits)?, estimate.share.as_ref()?);
    if let Some(of_gpu) = memory.of_gpu {
        let (has, takes) = (gigabytes(of_gpu), gigabytes(Bytes(memory.first)));
        let message = format!(
            "each GPU of `{}` has {has} of memory; training takes at least {takes}, {} samples at a time",
            offer.kind, share.micro_batch
        );
        return Some(Problem::at("train.batch", message).hint(smaller(share, estimate.fitting)));
    }
    let (has, takes) = (gigabytes(offer.node.memory), gigabytes(Bytes(memory.all)));
    let message = format!("`{}` has {has} of memory; training takes about {takes}", offer.kind);
    if memory.preloaded > memory.all / 2 {
        let preloaded = gigabytes(Bytes(memory.preloaded));
        let message = format!("{message}, of which {preloaded} are files that {} ranks preload", share.ranks);
        let hint = "write less if the files take less, take fewer `processes`, or leave `preload` out";
        return Some(Problem::at("train.data.preload", message).hint(hint));
    }
    let message = format!("{message}, {} samples at a time", share.micro_batch);
    Some(Problem::at("train.batch", message).hint(smaller(share, estimate.fitting)))
}

fn short_of_disk(job: &Job, offer: &Offer, estimate: &OnMachine) -> Option<Problem> {
    let (Some(checkpoint), Work::Train(train)) = (estimate.checkpoint, &job.work) else { return None };
    // The retained checkpoints, the one being written, the best model and the exported one.
    let files = u64::from(train.checkpoint.keep) + 3;
    let needs = Bytes(checkpoint.saturating_mul(files));
    if needs <= offer.node.disk_free {
        return None;
    }
    let message = format!(
        "`{}` has {} of free disk; {files} files of the state take about {}",
        offer.kind,
        gigabytes(offer.node.disk_free),
        gigabytes(needs)
    );
    Some(Problem::at("train.checkpoint.keep", message).hint("free some, or keep fewer checkpoints"))
}

/// How to have fewer samples in memory at a time: `fitting` micro-batches are enough.
fn smaller(share: &Share, fitting: Option<u64>) -> String {
    match fitting {
        Some(accumulate) => format!("split each step into more micro-batches: write `accumulate: {accumulate}`"),
        None if share.ranks > 1 => {
            "take fewer `processes`, a smaller network or smaller images (`train.data.size`)".to_owned()
        }
        None => "take a smaller network or smaller images (`train.data.size`)".to_owned(),
    }
}

fn gigabytes(bytes: Bytes) -> String {
    match bytes.0 as f64 {
        small if small < 1e9 => format!("{:.1} MB", small / 1e6),
        large => format!("{:.1} GB", large / 1e9),
    }
}

/// The largest number that a job file may request.
fn floor_gigabytes(bytes: Bytes) -> u64 {
    bytes.0 / 1_000_000_000
}
