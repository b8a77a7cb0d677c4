//! A job: the user's request, parsed, with every default filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::finding::Cause;
use crate::hang::HangLimits;
use crate::image::ContainerImage;
use crate::money::Money;
use crate::progress::Progress;
use crate::schedule::JobSchedule;
use crate::sweep::Sweep;
use crate::train::Train;
use crate::units::{Bytes, Duration, Fraction};
use crate::volume::VolumeSpeed;
use crate::wants::Wants;
use crate::workload::{DataFacts, Workload};

/// A user's request. Both front ends of the job file lower into this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Letters a–z, digits and `-`; at most 63.
    pub name: String,
    /// What its cost is counted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// What the ranks run.
    pub work: Work,
    /// Variables that the work finds in its environment.
    pub envs: BTreeMap<String, String>,
    /// Environment variables whose values are never shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
    /// Minimum requirements of a node.
    pub needs: Needs,
    /// The most that the run may cost.
    pub budget: Option<Budget>,
    /// The longest it may take from its submission to its end.
    pub deadline: Option<Duration>,
    /// After how long of idleness a program is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,
    /// How long it is given to save its state after it was told to stop, where that is other than usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Duration>,
    /// For how long an attempt may be silent until it counts as hung, where that is other than usual.
    #[serde(default, skip_serializing_if = "HangLimits::is_default")]
    pub hang_after: HangLimits,
    /// Where in an object store its checkpoints are kept, in place of the machine of its loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_store: Option<String>,
    /// Which ends of an attempt are tried again.
    pub recovery: Recovery,
    /// Machines that may be rented, for plans over the market.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wants: Wants,
    /// Description of a user's own program, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Known properties of the data.
    #[serde(default, skip_serializing_if = "is_default")]
    pub data: DataFacts,
    /// The search of a sweep; `work` then has the first values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// When it is run again and again, where `gradus schedules add` has it kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Job {
    /// Machines that compute together in one attempt.
    pub fn nodes(&self) -> u32 {
        match self.wants.nodes[..] {
            [nodes] => nodes.max(1),
            _ => 1,
        }
    }

    /// Machines with which it can go on, if no more are to be had; the same as [`Job::nodes`] unless the job says less.
    pub fn least_nodes(&self) -> u32 {
        self.wants.min_nodes.unwrap_or(u32::MAX).clamp(1, self.nodes())
    }

    /// Machines that are rented for it: those that compute, and those that stand by.
    pub fn machines(&self) -> u32 {
        self.nodes().saturating_add(self.wants.spares)
    }

    /// The variables of the work's environment: `envs`, and `secrets` that have a value.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let envs = self.envs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        envs.chain(self.secrets.iter().filter_map(|(name, secret)| Some((name.as_str(), secret.0.as_deref()?))))
    }

    /// Whether its `CUDA_VISIBLE_DEVICES` hides every GPU from it. CUDA ends that list at the first entry that names none.
    pub fn hides_gpus(&self) -> bool {
        let list = self.environment().find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES");
        let first = list.and_then(|(_, list)| list.split(',').next());
        first.is_some_and(|first| matches!(first.trim(), "" | "-1"))
    }

    /// The values of `secrets`, to be masked in all output. Values shorter than four bytes would mask parts of
    /// unrelated text.
    pub fn secret_values(&self) -> Vec<String> {
        self.secrets.values().filter_map(|secret| secret.0.clone()).filter(|value| value.len() >= 4).collect()
    }
}

/// The value of a secret variable; `None` until one is given on the command line. It cannot be printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub Option<String>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(…)" } else { "Secret(none)" })
    }
}

/// The work of a rank. Everything but `train` is supported for both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a job holds one")]
pub enum Work {
    /// Our own trainer.
    Train(Train),
    /// The user's own program, with torchrun's variables.
    Command(Command),
}

/// The user's own program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Command {
    /// Folder copied to the node before each attempt; relative to the job file until submission, then absolute.
    pub workdir: Option<String>,
    /// Copied to the node before each attempt: paths there, and what comes there, a local path as for `workdir` or an address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub file_mounts: BTreeMap<String, String>,
    /// Bash commands run once a node before `run`.
    pub setup: Option<String>,
    /// Bash commands run on every node.
    pub run: String,
    /// Folders below the working folder that are carried from attempt to attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The container image that both run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ContainerImage>,
    /// What is read of a program that does not use the package `gradus`.
    #[serde(default, skip_serializing_if = "Progress::is_default")]
    pub progress: Progress,
}

/// Minimum requirements of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Needs {
    /// Processor cores.
    pub cores: Option<u32>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Free disk.
    pub disk: Option<Bytes>,
    /// How fast the disk is, where the job states it.
    #[serde(default, skip_serializing_if = "VolumeSpeed::is_open")]
    pub speed: VolumeSpeed,
    /// Whether a program is held to these cores and this memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enforce: bool,
}

/// The most that a run may cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// At this amount the run saves its state and stops.
    pub max: Money,
    /// The share of it at which the user is notified.
    pub alert: Fraction,
}

/// Which ends of an attempt are tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Attempts after a lost instance, a kill or a hang.
    pub restarts: u32,
    /// Attempts after the user's program ended with a code other than 0.
    pub restarts_on_errors: u32,
    /// Codes after which the user's program is always tried again.
    pub exit_codes: Vec<u8>,
    /// Attempts after an end of this cause, where they are other than usual.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_cause: BTreeMap<Cause, u32>,
    /// Whether our trainer divides its steps into twice as many micro-batches when memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halve_micro_batch: bool,
    /// Whether another machine takes the place of one that is slower than the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace_stragglers: bool,
}

/// No money, and an alert at four fifths of it.
impl Default for Budget {
    fn default() -> Budget {
        Budget { max: Money::default(), alert: Fraction::percent(80) }
    }
}

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery {
            restarts: 20,
            restarts_on_errors: 0,
            exit_codes: Vec::new(),
            by_cause: BTreeMap::new(),
            halve_micro_batch: false,
            replace_stragglers: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_hides_every_gpu_or_some_of_them() {
        let check = |envs: &str, expected: bool| {
            let text = format!("{envs}run: echo\n");
            let job = Job::parse(&text, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job;
            assert_eq!(job.hides_gpus(), expected, "{envs}");
        };
        check("", false);
        for (list, expected) in [
            ("\"\"", true),
            ("-1", true),
            ("\" \"", true),
            ("\"-1,0\"", true),
            ("0", false),
            ("\"0,1\"", false),
            ("\"0,-1\"", false),
            ("GPU-1f", false),
        ] {
            check(&format!("envs: {{CUDA_VISIBLE_DEVICES: {list}}}\n"), expected);
        }
    }
}
