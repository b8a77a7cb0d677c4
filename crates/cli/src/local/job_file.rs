//! The job of a command: its file, with the overrides of the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use domain::file::{SET_VARIABLES, is_variable};
use domain::problem::Problem;
use domain::{Job, Problems, Rate, Secret};

use super::mounts;
use crate::error::Error;
use crate::error::arguments::whole;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// The job file and its overrides.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// Job file
    #[arg(value_name = "JOB")]
    pub file: PathBuf,
    #[command(flatten)]
    pub typed: JobOverrides,
}

/// Overrides of a job file.
#[derive(Debug, Default, clap::Args)]
pub struct JobOverrides {
    /// Price of this machine, such as `0.35/h` [default: that of `gradus serve` while it runs, else `0/h`]
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    pub price: Option<Rate>,
    /// Random seed, overrides the job file's
    #[arg(long, value_name = "NUMBER", value_parser = whole, allow_hyphen_values = true)]
    pub seed: Option<u64>,
    /// Set an environment variable for the job; `NAME` alone takes the value from the environment (repeatable)
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub envs: Vec<String>,
    /// Set a secret environment variable; `NAME` alone takes the value from the environment (repeatable)
    #[arg(long = "secret", value_name = "NAME[=VALUE]")]
    pub secrets: Vec<String>,
    /// Read secrets from a file of `NAME=VALUE` lines
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// The text of a job file.
///
/// # Errors
/// [`Error::Usage`] if it is no text.
pub fn text(file: &Path) -> Result<String, Error> {
    let unreadable = |why: String| Error::Usage {
        message: format!("cannot read the job file `{}`: {why}", file.display()),
        hint: "use a UTF-8 text file such as `examples/digits.yaml`; see `docs/job-file.md`".into(),
    };
    let kind = std::fs::metadata(file).map_err(Error::file("read the job file", file))?;
    if kind.is_dir() {
        let message = format!("`{}` is a folder, not a job file", file.display());
        let hint = "a job file names a folder of data under `train.data.path`; `gradus init FOLDER` writes one for a training script";
        return Err(Error::Usage { message, hint: hint.to_owned() });
    }
    if !kind.is_file() {
        return Err(unreadable("not a regular file".into()));
    }
    let bytes = std::fs::read(file).map_err(Error::file("read the job file", file))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unreadable(format!("line {line} is not UTF-8"))
    })
}

/// The file that a job was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSource {
    /// As the user named it.
    pub name: String,
    pub text: String,
}

impl JobSource {
    /// A problem of the job, with its line.
    pub fn wrong(&self, problem: Problem) -> Error {
        let line = problem.line.or_else(|| domain::file::line_of(&self.text, &problem.key));
        Error::Job(Problems { file: self.name.clone(), problems: vec![Problem { line, ..problem }] })
    }

    /// The same error with the file and line of the key that it is about, where it is about one.
    pub fn placed(&self, error: Error) -> Error {
        let problems = match &error {
            Error::Unfit(problems) => problems.clone(),
            Error::Data(wrong) => match key_of(wrong) {
                Some(key) => vec![Problem { hint: wrong.hint(), ..Problem::at(key, wrong.to_string()) }],
                None => return error,
            },
            _ => return error,
        };
        let line = |problem: &Problem| problem.line.or_else(|| domain::file::line_of(&self.text, &problem.key));
        let problems = problems.into_iter().map(|problem| Problem { line: line(&problem), ..problem }).collect();
        Error::Job(Problems { file: self.name.clone(), problems })
    }

    /// The comment before the first key, which says where the data comes from.
    pub fn preface(&self) -> Vec<&str> {
        let comments = self.text.lines().map_while(|line| line.trim_start().strip_prefix('#'));
        let told = comments.filter(|line| !line.contains("yaml-language-server"));
        told.map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect()
    }
}

/// The key of a job file that the data contradicts.
fn key_of(error: &data::Error) -> Option<&'static str> {
    match error {
        data::Error::Classes { .. } => Some("train.data.classes"),
        data::Error::Split { .. } => Some("train.data.split"),
        data::Error::Normalize { .. } => Some("train.data.normalize"),
        data::Error::Grey { .. } => Some("train.data.augment"),
        data::Error::Size { .. } => Some("train.data.size"),
        data::Error::Layout { .. } => Some("train.data.path"),
        _ => None,
    }
}

/// A job that was read.
#[derive(Debug)]
pub struct LoadedJob {
    pub job: Job,
    pub source: JobSource,
    /// Keys that can be planned and not run yet.
    pub unrentable: Option<domain::Problems>,
}

/// Reads the job file and applies the overrides.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Usage`] for wrong arguments.
pub fn read(
    file: &Path,
    typed: &JobOverrides,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<LoadedJob, Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (text, name) = (text(file)?, file.to_string_lossy());
    let script = in_place_of_a_job(&name, &text);
    let loaded = load(text, (&name, folder), typed, variable, printer);
    loaded.map_err(|error| match (script, error) {
        (Some(script), Error::Job(_)) => script,
        (_, error) => error,
    })
}

/// The text of a file that `sweep.table` names, relative to the job file's folder; or why it cannot be had.
pub(super) fn table(folder: &Path, path: &str) -> Result<String, String> {
    let file = folder.join(path);
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(&file).map_err(unreadable)?;
    // A pipe would be waited for without end.
    if !about.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if about.len() > domain::file::MAX_BYTES as u64 {
        return Err(format!("has {} bytes; a table has at most {}", about.len(), domain::file::MAX_BYTES));
    }
    std::fs::read_to_string(&file).map_err(unreadable)
}

/// A variable of `--env`: `NAME=VALUE`, or `NAME` alone, whose value the environment has.
///
/// # Errors
/// [`Error::Usage`].
pub fn env(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<(String, String), Error> {
    let (message, hint) = match text.split_once('=') {
        Some((name, value)) if is_variable(name) => return Ok((name.to_owned(), value.to_owned())),
        Some((name, _)) if !name.is_empty() => {
            let message = format!("`--env {name}`: `{name}` is no name of a variable");
            (message, "use letters, digits and `_`, and no digit first".to_owned())
        }
        None if is_variable(text) => match variable(text) {
            Some(value) => return Ok((text.to_owned(), value)),
            None => {
                let message = format!("`--env {text}`: the environment has no variable `{text}`");
                (message, format!("export it first, or use `--env {text}=VALUE`"))
            }
        },
        Some(_) | None => (format!("`--env {text}` has no name of a variable"), "use `--env NAME=VALUE`".to_owned()),
    };
    Err(Error::Usage { message, hint })
}

/// The environment variables of the command line.
pub(super) fn envs(
    typed: &JobOverrides,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, Error> {
    typed.envs.iter().map(|text| env(text, variable)).collect()
}

/// Refuses a working folder that is not there, and says what of one is not copied because a `.gitignore` matches it.
fn check_workdir(job: &Job, (name, text): (&str, &str), printer: &mut Printer) -> Result<(), Error> {
    let domain::Work::Command(command) = &job.work else { return Ok(()) };
    let Some(workdir) = command.workdir.as_deref().map(Path::new) else { return Ok(()) };
    if !workdir.is_dir() {
        let line = domain::file::line_of(text, "workdir");
        let problem = Problem { line, ..Problem::at("workdir", format!("`{}` is not a folder", workdir.display())) };
        let problems = vec![problem.hint("use a folder, relative to the job file")];
        return Err(Error::Job(Problems { file: name.to_owned(), problems }));
    }
    let ignored =
        node::workdir::matched_by_gitignore(workdir, LOOKED_AT).map_err(Error::file("read the folder", workdir))?;
    let named: Vec<String> = ignored.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = ignored.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if !named.is_empty() {
        printer.say(format!(
            "note: `.gitignore` matches {}{more} in `workdir`, so they are not copied; a `{}` there replaces it",
            named.join(", "),
            node::workdir::IGNORE_FILE
        ));
    }
    Ok(())
}

/// So many files are named of those that a `.gitignore` matches.
const NAMED: usize = 3;

/// So many entries of a working folder are looked at for that.
const LOOKED_AT: usize = 10_000;

/// Parses the text of a job file called `name`, with relative paths resolved against `folder`, and applies the
/// overrides.
///
/// # Errors
/// As [`read`].
pub fn load(
    text: String,
    (name, folder): (&str, &Path),
    typed: &JobOverrides,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<LoadedJob, Error> {
    load_edited(text, (name, folder), typed, variable, &|_| Ok(()), printer)
}

/// A job file or pipeline with `schedule:` as one that is due now has it: with the times that it names.
pub fn due_now(text: &str) -> String {
    domain::file::due_now(text, server::clock::now())
}

/// As [`load`]; `edit` changes the job before its paths are resolved.
///
/// # Errors
/// As [`read`], and what `edit` finds.
pub fn load_edited(
    text: String,
    (name, folder): (&str, &Path),
    typed: &JobOverrides,
    variable: &dyn Fn(&str) -> Option<String>,
    edit: &dyn Fn(&mut Job) -> Result<(), Problem>,
    printer: &mut Printer,
) -> Result<LoadedJob, Error> {
    let (name, text) = (name.to_owned(), due_now(&text));
    let parsed = Job::parse_with(&text, &name, &|path| table(folder, path)).map_err(Error::Job)?;
    for warning in parsed.warnings {
        let file = name.clone();
        printer.say(format!("warning: {}", Problems { file, problems: vec![warning] }));
    }
    let mut job = parsed.job;
    edit(&mut job).map_err(|problem| {
        let line = domain::file::line_of(&text, &problem.key);
        Error::Job(Problems { file: name.clone(), problems: vec![Problem { line, ..problem }] })
    })?;
    let problems = parsed.unrentable;
    let unrentable = (!problems.is_empty()).then(|| Problems { file: name.clone(), problems });
    let folder = std::fs::canonicalize(folder).map_err(Error::file("open", folder))?;
    mounts::expand_home(&mut job, GlobalSettings::variable("HOME").as_deref());
    job.resolve(&folder);
    if let (Some(seed), domain::Work::Train(train)) = (typed.seed, &mut job.work) {
        train.seed = seed;
    }
    check_workdir(&job, (&name, &text), printer)?;
    mounts::check(&job, (&name, &text))?;
    let envs = envs(typed, variable)?;
    for name in envs.keys().filter(|name| SET_VARIABLES.contains(&name.as_str())) {
        printer.say(format!(
            "warning: `--env {name}`: gradus sets this variable for each process, so this value is not used"
        ));
    }
    job.envs.extend(envs);
    let is_given =
        |problem: &Problem| problem.key.strip_prefix("envs.").is_some_and(|name| job.envs.contains_key(name));
    let problems: Vec<Problem> = parsed.unset.into_iter().filter(|problem| !is_given(problem)).collect();
    if !problems.is_empty() {
        return Err(Error::Job(Problems { file: name, problems }));
    }
    secrets(&mut job, typed, variable, printer)?;
    Ok(LoadedJob { job, source: JobSource { name, text }, unrentable })
}

/// The error for a script in place of a job file, with the command that takes it; `None` for anything else.
pub fn in_place_of_a_job(name: &str, text: &str) -> Option<Error> {
    let hint = match Path::new(name).extension().and_then(|end| end.to_str()) {
        Some("py") => format!("start it with `gradus launch {name}`, or write a job file with `gradus init`"),
        _ if text.lines().any(|line| line.starts_with("#SBATCH")) => {
            format!("turn it into a job file with `gradus import {name} > job.yaml`")
        }
        _ if text.starts_with("#!") => "write a job file with `run: bash FILE`".to_owned(),
        _ => return None,
    };
    Some(Error::Usage { message: format!("`{name}` is a script, not a job file"), hint })
}

/// Sets the secrets of the command line, and masks the values of all in output.
pub(super) fn secrets(
    job: &mut Job,
    typed: &JobOverrides,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<(), Error> {
    let usage = |message: String, hint: &str| Error::Usage { message, hint: hint.to_owned() };
    if let Some(file) = &typed.secret_file {
        let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => usage(
                format!("`{}` is no file of secrets: it is not UTF-8 text", file.display()),
                "give a text file with one `NAME=VALUE` on each line",
            ),
            _ => Error::file("read the secrets", file)(error),
        })?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if line.trim_start().starts_with('#') {
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_variable(name.trim())) else {
                // The line itself may be a secret.
                let message = format!("line {} of `{}` is not `NAME=VALUE`", number + 1, file.display());
                return Err(usage(message, "write one variable per line, without quotes"));
            };
            job.secrets.insert(name.trim().to_owned(), Secret(Some(value.to_owned())));
        }
    }
    for text in &typed.secrets {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match variable(text) {
                Some(value) => (text.as_str(), value),
                None => {
                    let message = format!("`--secret {text}`: the environment has no variable `{text}`");
                    return Err(usage(message, "export it first, or use `--secret-file FILE`"));
                }
            },
        };
        if !is_variable(name) {
            let message = "the name of a `--secret` takes letters, digits and `_`, and no digit first".to_owned();
            return Err(usage(message, "use `--secret NAME`, with the value in the environment"));
        }
        job.secrets.insert(name.to_owned(), Secret(Some(value)));
    }
    printer.mask(job.secret_values());
    Ok(())
}

/// Refuses to run a job with a secret that has no value.
///
/// # Errors
/// [`Error::Usage`].
pub fn require_secrets(job: &Job) -> Result<(), Error> {
    let Some((name, _)) = job.secrets.iter().find(|(_, secret)| secret.0.is_none()) else { return Ok(()) };
    let plain = if job.envs.contains_key(name) { "; `--env` sets a plain variable, which anyone can read" } else { "" };
    Err(Error::Usage {
        message: format!("secret `{name}` has no value{plain}"),
        hint: format!("export `{name}` and pass `--secret {name}`, or pass `--secret-file FILE`"),
    })
}
