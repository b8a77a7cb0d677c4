//! `file_mounts` of a job: whether what they name is on this machine and can be copied, before anything is spent.

use std::path::Path;

use domain::files::local_mounts;
use domain::problem::Problem;
use domain::{Job, Problems, Work};
use node::mounts;
use node::workdir::LeavesOut;

use crate::error::Error;

/// So many entries of a folder are looked at; all of them, when it is copied.
const LOOKED_AT: usize = 100_000;

/// Replaces `~/` at the beginning of local paths.
pub fn expand_home(job: &mut Job, home: Option<&str>) {
    let Work::Command(command) = &mut job.work else { return };
    let paths = command.workdir.iter_mut().chain(command.file_mounts.values_mut());
    for path in paths {
        if let (Some(below), Some(home)) = (path.strip_prefix("~/"), home) {
            *path = format!("{home}/{below}");
        }
    }
}

/// Refuses mounts of what is not here, or holds what cannot be copied.
///
/// # Errors
/// [`Error::Job`] with everything that is wrong.
pub fn check(job: &Job, (name, text): (&str, &str)) -> Result<(), Error> {
    let Work::Command(command) = &job.work else { return Ok(()) };
    let targets: Vec<&String> = command.file_mounts.keys().collect();
    let wrong = local_mounts(&job.work).filter_map(|(number, source)| {
        let (why, hint) = why_not(Path::new(source))?;
        let key = format!("file_mounts.{}", targets.get(number as usize)?);
        let line = domain::file::line_of(text, &key);
        Some(Problem { line, ..Problem::at(key, why) }.hint(hint))
    });
    let problems: Vec<Problem> = wrong.collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::Job(Problems { file: name.to_owned(), problems })) }
}

/// Why a path cannot be copied, and what to do.
fn why_not(source: &Path) -> Option<(String, &'static str)> {
    let root = match std::fs::canonicalize(source) {
        Ok(root) => root,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Some((format!("`{}` is not there", source.display()), "use a path relative to the job file"));
        }
        Err(error) => return Some((format!("cannot open `{}`: {error}", source.display()), "correct the path")),
    };
    // A pipe would be waited for without end.
    if !root.is_dir() && !root.is_file() {
        return Some((format!("`{}` is neither a file nor a folder", root.display()), "name a file or a folder"));
    }
    if !root.is_dir() {
        let hint = "use a file or a folder that you may read";
        return std::fs::File::open(&root)
            .err()
            .map(|error| (format!("cannot read `{}`: {error}", root.display()), hint));
    }
    let entries = mounts::entries(&root, None, LeavesOut::Listed).take(LOOKED_AT);
    let why = entries.filter_map(Result::err).map(|error| error.to_string()).next()?;
    Some((why, "correct the folder, or name another one"))
}
