//! The job of a command as the API takes it: the text of its file, with the overrides of the command line.

use std::collections::BTreeMap;
use std::path::Path;

use domain::Job;
use domain::file::JobPipeline;
use serde_json::{Value, json};

use super::job_file::{JobArgs, due_now, envs, require_secrets, secrets, table, text};
use crate::error::Error;
use crate::printer::Printer;

/// A job file and its overrides as the API takes them, and the job as it is without its paths being looked at: they are
/// paths of the server's machine. Only a table of trials is read here as well, because the job is not whole without it.
///
/// # Errors
/// As [`super::job_file::read`].
pub fn request(
    args: &JobArgs,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<(Job, Value), Error> {
    let (text, name) = (text(&args.file)?, args.file.to_string_lossy());
    let here = args.file.parent().unwrap_or(Path::new(""));
    let mut job = Job::parse_with(&due_now(&text), &name, &|path| table(here, path)).map_err(Error::Job)?.job;
    let body = body(args, text, &mut job, variable, printer)?;
    require_secrets(&job)?;
    Ok((job, body))
}

/// A pipeline and its overrides as the API takes them.
///
/// # Errors
/// As [`super::job_file::read`].
pub fn pipeline_request(
    args: &JobArgs,
    pipeline: &JobPipeline,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<Value, Error> {
    let name = args.file.to_string_lossy();
    let mut first = Job::parse(&pipeline.text(0), &name).map_err(Error::Job)?.job;
    // Those of the file are in its text.
    first.secrets.clear();
    body(args, text(&args.file)?, &mut first, variable, printer)
}

/// The body of a request; the secrets of the command line are set in `job`.
fn body(
    args: &JobArgs,
    text: String,
    job: &mut Job,
    variable: &dyn Fn(&str) -> Option<String>,
    printer: &mut Printer,
) -> Result<Value, Error> {
    let envs = envs(&args.typed, variable)?;
    secrets(job, &args.typed, variable, printer)?;
    let values = job.secrets.iter().filter_map(|(name, secret)| Some((name, secret.0.as_ref()?)));
    let secrets: BTreeMap<_, _> = values.collect();
    let path = std::fs::canonicalize(&args.file).map_err(Error::file("open", &args.file))?;
    let (folder, file) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    Ok(json!({
        "job": text, "folder": folder, "file": file.to_string_lossy(), "envs": envs, "secrets": secrets,
    }))
}
