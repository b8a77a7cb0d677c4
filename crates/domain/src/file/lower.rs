//! From the keys of a file to a [`Job`]: defaults filled in, the two front ends joined.

use super::keys::{ExitCodes, JobFile, JobRecovery};
use super::tree::Node;
use crate::job::{Budget, Command, Job, Needs, Recovery, Work};
use crate::problem::Problem;

/// What the keys ask for.
pub(super) struct Lowered {
    /// Everything but the work.
    pub rest: Job,
    /// The work, unless the keys ask for none or for two.
    pub work: Option<Work>,
}

impl Lowered {
    /// The whole job.
    pub fn job(self) -> Option<Job> {
        Some(Job { work: self.work?, ..self.rest })
    }
}

/// What the keys ask for, with every default filled in.
pub(super) fn lower(file: JobFile, tree: &Node, file_name: &str, problems: &mut Vec<Problem>) -> Lowered {
    let resources = file.resources.unwrap_or_default();
    let work = match (file.train, file.run) {
        (Some(train), None) => {
            for (key, is_given) in [("setup", file.setup.is_some()), ("workdir", file.workdir.is_some())] {
                if is_given {
                    let alone = Problem::at(key, format!("`{key}` prepares a `run:` program; `train:` needs none"));
                    problems.push(alone.hint("leave the key out"));
                }
            }
            Some(Work::Train(train))
        }
        (None, Some(run)) => Some(Work::Command(Command { workdir: file.workdir, setup: file.setup, run })),
        (Some(_), Some(_)) => {
            let both = Problem::at("run", "`run` and `train` exclude each other");
            problems.push(both.hint("keep `train` for our own trainer, or `run` for a program of your own"));
            None
        }
        (None, None) => {
            // A section that is there but could not be read was already complained about.
            let is_tried = ["train", "run"].iter().any(|key| tree.get(key).is_some());
            if !is_tried || problems.is_empty() {
                let neither = Problem::at("", "there is nothing to do: neither `train` nor `run` is given");
                problems.push(neither.hint("write a `train:` section, or a `run:` program of your own"));
            }
            None
        }
    };
    let rest = Job {
        name: file.name.unwrap_or_else(|| name_from(stem(file_name))),
        work: Work::Command(Command { workdir: None, setup: None, run: String::new() }),
        envs: file.envs.into_iter().flatten().map(|(name, value)| (name, value.0)).collect(),
        needs: Needs {
            cores: resources.cpus.map(|cores| cores.0),
            memory: resources.memory.map(|size| size.0),
            disk: resources.disk_size.map(|size| size.0),
        },
        budget: file.budget.map(|budget| Budget { max: budget.max, alert: budget.alert }),
        deadline: file.deadline,
        recovery: recovery(resources.job_recovery),
    };
    Lowered { rest, work }
}

fn recovery(keys: Option<JobRecovery>) -> Recovery {
    let usual = Recovery::default();
    match keys {
        None => usual,
        Some(JobRecovery::Word(_)) => Recovery { restarts: 0, ..usual },
        Some(JobRecovery::Rules(rules)) => Recovery {
            restarts_on_errors: rules.max_restarts_on_errors.unwrap_or(usual.restarts_on_errors),
            exit_codes: match rules.recover_on_exit_codes {
                None => usual.exit_codes,
                Some(ExitCodes::One(code)) => vec![code],
                Some(ExitCodes::Many(codes)) => codes,
            },
            ..usual
        },
    }
}

/// `digits` of `examples/digits.yaml`.
fn stem(file_name: &str) -> &str {
    let last = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    last.strip_suffix(".yaml").or_else(|| last.strip_suffix(".yml")).unwrap_or(last)
}

/// The nearest name that is allowed: `My job_2` becomes `my-job-2`.
pub(super) fn name_from(text: &str) -> String {
    let mut name = String::new();
    for letter in text.to_lowercase().chars() {
        match letter {
            'a'..='z' | '0'..='9' => name.push(letter),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
    }
    name.truncate(63);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}
