//! Names that follow from others: the token of a request and the hash of a job.

use domain::{InstanceId, Job, Plan, Work};
use sha2::{Digest, Sha256};

/// SHA-256 of everything that determines the result: the work and how it is divided. Checkpoint settings, decoder
/// threads, data caching, early stopping and logging do not change a step, so checkpoints are interchangeable between
/// jobs that differ in these only; and so are those of any number of ranks, among which a batch is only divided.
pub fn job_hash(job: &Job, plan: &Plan) -> String {
    let mut work = job.work.clone();
    if let Work::Train(train) = &mut work {
        // As it was written when a time between failures was always stated.
        let mtbf = Some(domain::train::Checkpoint::USUAL_MTBF);
        train.checkpoint = domain::train::Checkpoint { mtbf, ..domain::train::Checkpoint::default() };
        train.data.workers = 1;
        train.data.cache = None;
        train.data.preload = None;
        train.stop = None;
        train.processes = 1;
        train.parallel = domain::train::Parallel::default();
        train.profile = false;
        // As it was written when the layout was always stated.
        train.memory_format = train.memory_format.or(Some(domain::train::MemoryFormat::Contiguous));
    }
    let share = plan.share.map(domain::plan::Share::alone);
    let text = serde_json::json!({ "work": work, "share": share }).to_string();
    sha256(text.as_bytes())
}

/// The token of an instance: sent with every request for it, at most 64 ASCII characters.
pub fn token(owner: &str, instance: &InstanceId) -> String {
    sha256(format!("{owner}|{instance}").as_bytes())[..32].to_owned()
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
