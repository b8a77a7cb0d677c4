//! The job that a command is given: its file, read and completed with what was typed.

use std::path::{Path, PathBuf};

use domain::problem::Problem;
use domain::{Job, Problems, Rate};

use crate::error::Error;
use crate::printer::Printer;

/// The job, as every command that takes one names it.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// The job file
    #[arg(value_name = "JOB")]
    pub file: PathBuf,
    #[command(flatten)]
    pub typed: Typed,
}

/// What may be typed beside a job file.
#[derive(Debug, clap::Args)]
pub struct Typed {
    /// What this machine costs, such as `0.35/h`
    #[arg(long, value_name = "PRICE", default_value = "0/h")]
    pub price: Rate,
    /// Seed of the weights, the split and the order, instead of the job file's
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// A variable for the work's environment; may be given again
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub envs: Vec<String>,
}

/// The text of a job file.
fn text(file: &Path) -> Result<String, Error> {
    let unreadable = |why: String| Error::Usage {
        message: format!("cannot read the job file `{}`: {why}", file.display()),
        hint: "name a text file in UTF-8, such as `examples/digits.yaml`; `docs/job-file.md` says what stands in it"
            .into(),
    };
    let kind = std::fs::metadata(file).map_err(Error::file("read the job file", file))?;
    if !kind.is_file() {
        return Err(unreadable("it is not a file".into()));
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
pub struct Source {
    /// As the user named it.
    pub name: String,
    pub text: String,
}

impl Source {
    /// What is wrong with the job, at its line.
    pub fn wrong(&self, problem: Problem) -> Error {
        let line = problem.line.or_else(|| domain::file::line_of(&self.text, &problem.key));
        Error::Job(Problems { file: self.name.clone(), problems: vec![Problem { line, ..problem }] })
    }

    /// What the file says of itself before its first key, without the marks of comments; for people who look for its
    /// data.
    pub fn preface(&self) -> Vec<&str> {
        let comments = self.text.lines().map_while(|line| line.trim_start().strip_prefix('#'));
        let told = comments.filter(|line| !line.contains("yaml-language-server"));
        told.map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect()
    }
}

/// A job that was read.
#[derive(Debug)]
pub struct Read {
    pub job: Job,
    pub source: Source,
    /// What of it can be planned but not yet rented; none where it can all be.
    pub unrentable: Option<domain::Problems>,
}

/// Reads the job file and completes it with what was typed.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Usage`] for wrong words.
pub fn read(file: &Path, typed: &Typed, printer: &mut Printer) -> Result<Read, Error> {
    let text = text(file)?;
    let name = file.to_string_lossy().into_owned();
    let parsed = Job::parse(&text, &name).map_err(Error::Job)?;
    for warning in parsed.warnings {
        let file = name.clone();
        printer.say(format!("warning: {}", Problems { file, problems: vec![warning] }));
    }
    let mut job = parsed.job;
    let problems = parsed.unrentable;
    let unrentable = (!problems.is_empty()).then(|| Problems { file: name.clone(), problems });
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::canonicalize(folder).map_err(Error::file("open", folder))?;
    job.resolve(&folder);
    if let (Some(seed), domain::Work::Train(train)) = (typed.seed, &mut job.work) {
        train.seed = seed;
    }
    if let domain::Work::Command(command) = &job.work
        && let Some(workdir) = command.workdir.as_ref().filter(|workdir| !Path::new(workdir).is_dir())
    {
        let message = format!("`workdir`: `{workdir}` is not a folder");
        return Err(Error::Usage { message, hint: "name a folder, relative to the job file".to_owned() });
    }
    for pair in &typed.envs {
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("`{pair}` is no variable");
            return Err(Error::Usage { message, hint: "write `--env NAME=VALUE`".to_owned() });
        };
        job.envs.insert(name.to_owned(), value.to_owned());
    }
    Ok(Read { job, source: Source { name, text }, unrentable })
}
