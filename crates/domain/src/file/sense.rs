//! Semantic checks of a job beyond the types of its keys: contradictory keys, and values out of range. All problems are
//! reported at once.

mod checkpoints;
mod data;
mod hangs;
mod learning;
mod module;
mod mounts;
mod reads;
mod schedule;
mod search;
mod variables;
mod workload;

use super::lower::name_from;
use super::tree::clip;
use crate::job::{Command, Job, Recovery, Work};
use crate::problem::Problem;
use crate::train::{Every, Model, Split, Train};
use crate::wants::Spot;

pub use variables::{SET_VARIABLES, is_variable};

/// Schemes of addresses that data can be fetched from.
const SCHEMES: [&str; 8] = ["file", "s3", "gs", "az", "oss", "cos", "http", "https"];

/// Longest text of `run`, `setup` and a variable: what Linux takes as one argument of a program.
const LONGEST_TEXT: usize = 128 * 1024 - 1;

/// The shortest `idle_timeout`, in microseconds.
const SHORTEST_IDLE: u64 = 5_000_000;

/// The shortest and the longest `stop_grace`, in microseconds. A machine must end some time.
const STOP_GRACE: std::ops::RangeInclusive<u64> = 1_000_000..=1_800_000_000;

/// The problems and warnings found.
pub(super) struct Validator {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

/// Checks the work, where it could be read, and the rest of the job.
pub(super) fn check(rest: &Job, work: Option<&Work>) -> Validator {
    let mut sense = Validator { problems: Vec::new(), warnings: Vec::new() };
    sense.rest(rest, work);
    sense.search(rest, work);
    sense.run_schedule(rest, work);
    sense.checkpoint_store(rest, work);
    sense.hang_after(rest, work);
    match work {
        Some(Work::Train(train)) => sense.train(train),
        Some(Work::Command(command)) => sense.command(command),
        None => {}
    }
    sense
}

/// The problems of a `train:` section that did not come from a file, such as that of a sweep's trial.
pub(super) fn of_train(train: &Train) -> Vec<Problem> {
    let mut sense = Validator { problems: Vec::new(), warnings: Vec::new() };
    sense.train(train);
    sense.problems
}

impl Validator {
    pub(super) fn wrong(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(Problem::at(key, message).hint(hint));
    }

    fn warn(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(Problem::at(key, message).hint(hint));
    }

    /// Machines on demand beside spot machines: some, and not all.
    fn anchors(&mut self, job: &Job) {
        let (key, number) = ("resources.on_demand", job.wants.on_demand);
        if number > 0 && job.wants.spot != Spot::Only {
            let message = "they are rented beside spot machines, and this job does not ask for those";
            self.wrong(key, message, "add `use_spot: true`, or leave the key out");
        } else if number > 0 && number >= job.nodes() {
            let message = format!("of {} machines, none would be a spot machine", job.nodes());
            self.wrong(key, message, "ask for more with `num_nodes`, or write `use_spot: false`");
        } else if number > 0 && job.sweep.is_some() {
            self.wrong(key, "trials of a sweep are rented on the same terms", "leave the key out");
        }
    }

    fn rest(&mut self, job: &Job, work: Option<&Work>) {
        let named = [("name", Some(&job.name)), ("project", job.project.as_ref())];
        for (key, name) in named.into_iter().filter_map(|(key, name)| Some((key, name?))) {
            let is_name = (1..=63).contains(&name.len())
                && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            if !is_name {
                let message = format!("`{}` is no name: it takes letters a–z, digits and `-`, at most 63", clip(name));
                self.wrong(key, message, format!("write `{}`", name_from(name)));
            }
        }
        self.variables(job);
        self.anchors(job);
        self.enforced(job, work);
        if let Some(budget) = job.budget {
            if budget.max.micros() == 0 {
                self.wrong(
                    "budget.max",
                    "nothing can be done for no money",
                    "write an amount such as `$5`, or leave `budget` out",
                );
            }
            if budget.alert.get() == 0.0 {
                self.wrong("budget.alert", "the alert at nothing would come at once", "write a share such as `80%`");
            }
        }
        if job.deadline.is_some_and(|deadline| deadline.micros() == 0) {
            self.wrong("deadline", "no job ends in no time", "write a duration such as `2h`, or leave it out");
        }
        if job.stop_grace.is_some_and(|grace| !STOP_GRACE.contains(&grace.micros())) {
            let hint = "write for example `stop_grace: 5m`, or leave it out for `60s`";
            self.wrong("stop_grace", "it is at least 1 s and at most 30 min", hint);
        }
        if job.idle_timeout.is_some_and(|idle| idle.micros() < SHORTEST_IDLE) {
            self.wrong("idle_timeout", "it is at least 5 s", "write `5s` or more, such as `10m`");
        }
        if job.idle_timeout.is_some() && matches!(work, Some(Work::Train(_))) {
            let message = "it is for a `run:` program; a `train:` job that makes no steps is restarted as hung";
            self.wrong("idle_timeout", message, "leave the key out");
        } else if job.idle_timeout.is_some() && job.nodes() > 1 {
            // Each machine sees its own processes only, and one may be idle while the others compute.
            let message = "it is for a job on one machine: of several, one may be idle while the others work";
            self.wrong("idle_timeout", message, "leave the key out, and set `deadline` or `budget`");
        }
        match (&job.workload, work) {
            (Some(_), Some(Work::Train(_))) => {
                let message = "`train:` says itself what is trained";
                self.wrong("workload", message, "leave `workload` out, or write `run:` instead of `train:`");
            }
            (Some(workload), Some(Work::Command(_)) | None) => self.workload(job, workload),
            (None, _) => {}
        }
        let usual = Recovery::default();
        let has_codes =
            !job.recovery.exit_codes.is_empty() || job.recovery.restarts_on_errors != usual.restarts_on_errors;
        if has_codes && matches!(work, Some(Work::Train(_))) {
            let message = "exit codes are those of a `run:` program; `train:` is tried again after every loss, never after an error";
            self.warn("resources.job_recovery", message, "leave the key out");
        }
    }

    fn enforced(&mut self, job: &Job, work: Option<&Work>) {
        if !job.needs.enforce {
            return;
        }
        if matches!(work, Some(Work::Train(_))) {
            self.wrong("resources.enforce", "it is for a `run:` program", "leave the key out");
        } else if job.needs.cores.is_none() && job.needs.memory.is_none() {
            let hint = "write `cpus` or `memory` too, such as `memory: 32`, or leave the key out";
            self.wrong("resources.enforce", "there is nothing to hold the program to", hint);
        }
    }

    /// Text that is passed to another program.
    fn text(&mut self, key: &str, text: &str) {
        if text.contains('\0') {
            self.wrong(key, "the text holds a zero byte, which no program can be given", "leave it out");
        }
        if text.len() > LONGEST_TEXT {
            let message =
                format!("the text has {} bytes; at most {LONGEST_TEXT} can be handed to a program", text.len());
            self.wrong(key, message, "put it in a file under `workdir`");
        }
    }

    fn command(&mut self, command: &Command) {
        if command.run.trim().is_empty() {
            self.wrong("run", "there is nothing to run", "write the commands of your program");
        }
        self.text("run", &command.run);
        if let Some(setup) = &command.setup {
            self.text("setup", setup);
        }
        if let Some(workdir) = &command.workdir {
            self.path("workdir", workdir);
            if workdir.contains('$') {
                self.wrong("workdir", "variables in a path are not filled in", "write the path out");
            }
        }
        self.outputs(&command.outputs);
        self.mounts(command);
        if let Err(why) = command.progress.pattern() {
            let hint = r"write it such as `progress: {regex: 'step (?<step>\d+) loss (?<loss>\S+)'}`";
            self.wrong("progress.regex", format!("the regular expression cannot be used: {why}"), hint);
        }
    }

    /// Folders that are carried from attempt to attempt: each below the working folder, and none within another.
    fn outputs(&mut self, outputs: &[String]) {
        let parts = |path: &str| path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect();
        let all: Vec<Vec<String>> = outputs.iter().map(|path| parts(path)).collect();
        for (at, (path, own)) in outputs.iter().zip(&all).enumerate() {
            let key = format!("outputs[{at}]");
            let is_below = !path.starts_with('/') && !own.is_empty() && !own.iter().any(|part| part == "..");
            if !is_below || path.contains(['$', '\0', ':', '~']) {
                let message = format!("`{}` is not a folder below the working folder", clip(path));
                self.wrong(&key, message, "write a relative path, such as `outputs: [out]`");
            } else if let Some(other) =
                (0..at).find(|other| all[*other].starts_with(own) || own.starts_with(&all[*other]))
            {
                let message = format!("`{}` and `{}` are one within the other", clip(&outputs[other]), clip(path));
                self.wrong(&key, message, "name the outer one only");
            }
        }
    }

    /// A path; that of data may be an address, which is read when the data is fetched.
    fn path(&mut self, key: &str, path: &str) {
        if path.trim().is_empty() {
            self.wrong(key, "the path is empty", "write a path, relative to the job file");
        }
        match path.split_once("://") {
            Some((scheme, _)) if key == "train.data.path" => {
                let is_known = SCHEMES.contains(&scheme.to_ascii_lowercase().as_str());
                if !is_known {
                    let message = format!("`{}://` is not known", clip(scheme));
                    self.wrong(
                        key,
                        message,
                        "write a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://` or `https://`",
                    );
                }
            }
            Some((scheme, _)) => {
                let message = format!("`{}://` cannot be read yet, only local files", clip(scheme));
                self.wrong(key, message, "copy it here first and name its path");
            }
            None => {}
        }
        if path.contains('\0') {
            self.wrong(key, "the path holds a zero byte", "leave it out");
        }
    }

    fn train(&mut self, train: &Train) {
        if let Some(weights) = &train.weights {
            self.path("train.weights", weights);
        }
        self.sizes(train);
        self.ranks(train);
        self.learning(train);
        self.data(&train.data);
        self.module(train);
        self.cache(&train.data);
        self.reads(train);
        self.boxes(train);
        if let Split::Shares([_, validation, _]) = train.data.split
            && validation == 0.0
            && train.stop.is_some_and(|stop| stop.accuracy.is_some() || stop.patience.is_some())
        {
            let message = "stopping by a result needs validation samples, and the split has none";
            self.wrong("train.stop", message, "give validation a share in `train.data.split`");
        }
        self.stop(train);
        if train.checkpoint.mtbf.is_some_and(|time| time.micros() == 0) {
            self.wrong(
                "train.checkpoint.mtbf",
                "nothing runs that fails all the time",
                "write a duration such as `24h`",
            );
        }
        if train.checkpoint.every == Every::Steps(0) {
            self.wrong("train.checkpoint.every", "no steps lie between two saves", "write for example `500 steps`");
        }
    }

    fn stop(&mut self, train: &Train) {
        let Some(stop) = train.stop else { return };
        if stop.accuracy.is_none() && stop.epochs.is_none() && stop.patience.is_none() {
            let hint = "write `accuracy: 98%`, `patience: 5` or `epochs: 3`";
            self.wrong("train.stop", "when to stop is not said", hint);
        }
        if let Some(epochs) = stop.epochs.filter(|epochs| *epochs > train.epochs) {
            let message = format!("{epochs} epochs are never reached; the run has {}", train.epochs);
            self.warn("train.stop.epochs", message, "leave it out, or train longer");
        }
    }

    /// Networks of a size of the user's own.
    fn sizes(&mut self, train: &Train) {
        if let Some(Model::Gpt(size)) = train.model.named()
            && size.width % size.heads != 0
        {
            let message = format!("{} heads cannot share a width of {}", size.heads, size.width);
            self.wrong("train.model.gpt.heads", message, "make the width a multiple of the heads");
        }
        if let Some(Model::Resnet(size)) = train.model.named()
            && size.blocks.iter().any(|blocks| !(1..=256).contains(blocks))
        {
            let message = "a stage has at least 1 block, and at most 256";
            self.wrong("train.model.resnet.blocks", message, "write for example `[2, 2, 2, 2]`");
        }
    }
}
