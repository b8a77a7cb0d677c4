//! Checks of `checkpoint_store`.

use super::Validator;
use crate::file::tree::clip;
use crate::job::{Job, Work};

/// Schemes of object stores.
const STORES: [&str; 5] = ["s3", "gs", "az", "oss", "cos"];

impl Validator {
    pub(super) fn checkpoint_store(&mut self, job: &Job, work: Option<&Work>) {
        let Some(store) = &job.checkpoint_store else { return };
        if let Some(why) = why_no_store(store) {
            let hint = "write a bucket and a prefix, such as `checkpoint_store: s3://BUCKET/checkpoints`";
            self.wrong("checkpoint_store", why, hint);
        }
        if matches!(work, Some(Work::Command(command)) if !command.outputs.is_empty()) {
            // They are below `GRADUS_CHECKPOINTS`, and tasks of a pipeline look for them in the folder of the run.
            let message =
                "`outputs` come back to the machine of the run's loop, and with `checkpoint_store` they do not";
            self.wrong("outputs", message, "leave one of the keys out, or have the program write to the bucket itself");
        }
        if job.schedule.as_ref().is_some_and(|schedule| schedule.new_data) {
            let message = "the list of samples that a run was trained on is kept with its checkpoints, which are not read \
                           from a `checkpoint_store`";
            self.wrong("schedule.new_data", message, "leave one of the keys out");
        }
    }
}

/// Why a text names no place in an object store. Of one that may hold a password nothing is repeated.
fn why_no_store(store: &str) -> Option<String> {
    let (scheme, rest) = store.split_once("://").unwrap_or_default();
    let mut names = rest.split('/');
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match names.next().unwrap_or_default() {
        _ if store.contains(['@', '?', '#']) => Some("an address must not hold a password or a signature".to_owned()),
        _ if !STORES.contains(&scheme.to_ascii_lowercase().as_str()) => {
            Some(format!("`{}` is no address of an object store", clip(store)))
        }
        "" => Some("it names no bucket".to_owned()),
        bucket if !bucket.chars().all(is_name) => Some(format!("`{}` is no name of a bucket", clip(bucket))),
        _ if rest.trim_end_matches('/').split('/').any(|name| matches!(name, "" | "." | "..")) => {
            Some("its path holds `.`, `..` or an empty part".to_owned())
        }
        _ if rest.contains(['$', '\0', '\n']) => Some("variables in an address are not filled in".to_owned()),
        _ => None,
    }
}
