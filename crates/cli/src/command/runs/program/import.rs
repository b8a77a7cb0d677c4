//! `gradus import`: another system's file as a job file.

use std::path::{Path, PathBuf};

use domain::file::written::import;
use domain::{Problems, problem::Problem};

use crate::error::{Error, exit};
use crate::printer::Printer;

/// Arguments of `gradus import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// SkyPilot task file, dstack task, or batch script with `#SBATCH` lines
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Job file to write [default: stdout]
    #[arg(long, short, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Writes the job file to stdout or a new file, and the notes to stderr.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    let shown = args.file.to_string_lossy().into_owned();
    let text = text(&args.file)?;
    let imported = import(&text, &shown).map_err(Error::Job)?;
    if let Some(output) = &args.output {
        write_new(output, &imported.text)?;
    }
    if printer.is_json() {
        let (format, notes) = (imported.format.name(), &imported.notes);
        printer.json(&serde_json::json!({ "format": format, "job_file": imported.text, "notes": notes }));
        return Ok(exit::DONE);
    }
    for note in &imported.notes {
        printer.say(format!("note: {}", Problems { file: shown.clone(), problems: vec![Problem::clone(note)] }));
    }
    match &args.output {
        Some(output) => {
            let output = output.display();
            printer.say(format!(
                "wrote `{output}` from a file of {}; next: `gradus plan {output}`",
                imported.format.name()
            ));
        }
        None => printer.data(imported.text.trim_end()),
    }
    Ok(exit::DONE)
}

/// The most of a file that is read.
const MOST_BYTES: u64 = 1 << 20;

fn text(path: &Path) -> Result<String, Error> {
    let wrong = |why: &str| Error::Usage {
        message: format!("`{}` is {why}", path.display()),
        hint: "name a SkyPilot task file, a dstack task, or a script with `#SBATCH` lines".to_owned(),
    };
    let about = std::fs::metadata(path).map_err(Error::file("read", path))?;
    if !about.is_file() {
        return Err(wrong("not a regular file"));
    }
    if about.len() > MOST_BYTES {
        return Err(wrong("larger than 1 MiB"));
    }
    let bytes = std::fs::read(path).map_err(Error::file("read", path))?;
    String::from_utf8(bytes).map_err(|_| wrong("not UTF-8 text"))
}

/// Writes a file that is not there yet.
///
/// # Errors
/// [`Error::Usage`] where it is.
pub fn write_new(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match made {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let message = format!("`{}` is there already, and is not overwritten", path.display());
            return Err(Error::Usage { message, hint: "name another file, or remove this one first".to_owned() });
        }
        Err(error) => return Err(Error::file("write", path)(error)),
    };
    file.write_all(text.as_bytes()).map_err(Error::file("write", path))
}
