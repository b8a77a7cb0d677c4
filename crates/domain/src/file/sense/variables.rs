//! Checks of `envs` and `secrets`: names that a shell can read, and that the program is given as they are.

use super::Validator;
use crate::file::tree::clip;
use crate::job::Job;

/// Variables that each process of a `run:` program is given, whatever the job says: its place among the others, its limits
/// and its folder.
pub const SET_VARIABLES: [&str; 24] = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "NODE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID",
    "GRADUS_RUN",
    "GRADUS_ATTEMPT_NUMBER",
    "GRADUS_CHECKPOINTS",
    "GRADUS_BUDGET",
    "GRADUS_DEADLINE",
    "GRADUS_SOCKET",
];

/// Whether a shell takes this as the name of a variable.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Validator {
    pub(super) fn variables(&mut self, job: &Job) {
        let envs = job.envs.iter().map(|(name, value)| ("envs", name, value.as_str()));
        let secrets =
            job.secrets.iter().map(|(name, secret)| ("secrets", name, secret.0.as_deref().unwrap_or_default()));
        for (section, name, value) in envs.chain(secrets) {
            let key = format!("{section}.{name}");
            if !is_variable(name) {
                let message = format!("`{}` is no name of a variable", clip(name));
                self.wrong(&key, message, "use letters, digits and `_`, and no digit first");
            }
            if SET_VARIABLES.contains(&name.as_str()) {
                let message = "gradus sets this variable for each process, so this value is not used";
                self.warn(&key, message, "leave it out, or use another name");
            }
            self.text(&key, value);
        }
    }
}
