//! `gradus init`: a job file for the training script of a folder, from at most five questions.

use std::path::{Component, Path, PathBuf};

use domain::Job;
use domain::file::written::{JobText, name_from, quoted};

use super::composed::{ProcessesPerNode, ScriptRequest, compose};
use super::detected::{DetectedProgram, FolderFacts, detect};
use super::framework::{OUTPUT_OPTION, ScriptDefaults, framework};
use super::import::write_new;
use crate::error::{Error, exit};
use crate::printer::Printer;

/// Arguments of `gradus init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder with the training script
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Arguments of the script, after `--`
    #[arg(value_name = "ARGS", last = true)]
    arguments: Vec<String>,
    /// Script that trains, within the folder [default: found by its name, its imports and how it trains]
    #[arg(long, value_name = "FILE")]
    script: Option<String>,
    /// Bash commands that prepare the machine; `""` for none [default: by `requirements.txt` or `pyproject.toml`]
    #[arg(long, value_name = "COMMANDS")]
    setup: Option<String>,
    /// Processes per node, as in `gradus launch`
    #[arg(long, value_name = "N", default_value = "1")]
    nproc_per_node: ProcessesPerNode,
    /// Where to run: `local`, `ssh`, `ssh/NODE`, or a cloud such as `aws` [default: this machine]
    #[arg(long, value_name = "PLACE")]
    infra: Option<String>,
    /// GPUs per rented machine, such as `A100:8`
    #[arg(long, value_name = "GPUS")]
    gpus: Option<String>,
    /// Limit on the cost, such as `$20`; `none` for none
    #[arg(long, value_name = "MONEY")]
    budget: Option<String>,
    /// Job file to write, within the folder
    #[arg(long, short, value_name = "OUT", default_value = "job.yaml")]
    output: PathBuf,
    /// Ask nothing: take what was found and the defaults
    #[arg(long, short)]
    yes: bool,
}

/// Where a script saves that has to be told.
const OUTPUT: &str = "out";

/// Bytes of a script that are looked at.
const MOST_BYTES: u64 = 1 << 20;

/// Asks, composes the job file, checks and writes it.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    let output = within("--output", &args.output, &args.folder)?;
    let path = args.folder.join(&output);
    if path.exists() {
        let message = format!("`{}` is there already, and is not overwritten", path.display());
        return Err(Error::Usage { message, hint: "name another file with `--output`".to_owned() });
    }
    let facts = gather(&args.folder)?;
    let mut detected = detect(&facts);
    let asks = !args.yes && printer.can_ask();
    let script = chosen(args, asks, &detected, printer)?;
    if detected.scripts.first() != Some(&script) {
        let scripts = facts.scripts.iter().filter(|(name, _)| *name == script).cloned().collect();
        let alone = FolderFacts { scripts, ..facts.clone() };
        detected = DetectedProgram { setup: detected.setup, ..detect(&alone) };
    }
    let mut request = ask(args, asks, &script, &detected, &facts, printer);
    request.workdir = back_from(&output);
    let text = text(&request, &detected);
    let parsed = Job::parse(&text, &path.to_string_lossy()).map_err(Error::Job)?;
    write_new(&path, &text)?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "file": path, "job_file": text }));
        return Ok(exit::DONE);
    }
    printer.data(text.trim_end());
    let shown = path.display();
    printer.say(format!("wrote `{shown}`"));
    if request.program.iter().any(|word| word == "PATH" || word == "VALUE") {
        printer.say("replace PATH and VALUE in `run:` first: the script requires these arguments");
    }
    let next = if parsed.unrentable.is_empty() { "run" } else { "plan" };
    printer.say(format!(
        "next: `gradus {next} {shown}`; three lines in the script save and resume it: docs/own-program.md"
    ));
    Ok(exit::DONE)
}

/// The script that trains: the one that was named, or that was found and not refused.
fn chosen(args: &Args, asks: bool, detected: &DetectedProgram, printer: &mut Printer) -> Result<String, Error> {
    let script = match &args.script {
        Some(script) => script.clone(),
        None => {
            let found = first_script(detected, &args.folder)?;
            if !detected.as_likely.is_empty() {
                let others = detected.as_likely.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                printer.say(format!("note: as likely to train as `{found}`: {others}; `--script` names one"));
            }
            answer(asks, printer, "script that trains", &found)
        }
    };
    let script = within("--script", Path::new(&script), &args.folder)?;
    if !args.folder.join(&script).is_file() {
        let message = format!("there is no script `{}` in `{}`", script.display(), args.folder.display());
        return Err(Error::Usage { message, hint: "name a file of the folder with `--script`".to_owned() });
    }
    Ok(script.to_string_lossy().into_owned())
}

/// A file by its path from the folder. The folder alone is copied to the machine, and a job file elsewhere would mean another one.
///
/// # Errors
/// [`Error::Usage`] for a path that leads out of it.
fn within(option: &str, file: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let mut inner = PathBuf::new();
    for part in file.components() {
        match part {
            Component::Normal(part) => inner.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let folder = folder.display();
                let message = format!("`{option} {}` is not a path from the folder `{folder}`", file.display());
                let hint = format!("name a file within `{folder}`, or another folder: `gradus init FOLDER`");
                return Err(Error::Usage { message, hint });
            }
        }
    }
    Ok(inner)
}

/// The folder, from that of a job file within it.
fn back_from(output: &Path) -> String {
    match output.components().count() {
        0 | 1 => ".".to_owned(),
        parts => vec![".."; parts - 1].join("/"),
    }
}

/// The script that is proposed.
fn first_script(detected: &DetectedProgram, folder: &Path) -> Result<String, Error> {
    detected.scripts.first().cloned().ok_or_else(|| Error::Usage {
        message: format!("no script in `{}` looks like one that trains", folder.display()),
        hint: "name it with `--script FILE`, or another folder: `gradus init FOLDER`".to_owned(),
    })
}

/// A value that was not given by an option: asked for, or the detected one.
fn ask(
    args: &Args,
    asks: bool,
    script: &str,
    detected: &DetectedProgram,
    facts: &FolderFacts,
    printer: &mut Printer,
) -> ScriptRequest {
    let proposed = detected.proposed(facts);
    let mut program = vec!["python3".to_owned(), script.to_owned()];
    match args.arguments.is_empty() {
        true => {
            let words = answer(asks, printer, "its arguments", &proposed);
            program.extend(words.split_whitespace().map(str::to_owned));
        }
        false => program.extend(args.arguments.iter().cloned()),
    }
    let found = detected.setup.clone().unwrap_or_default();
    let setup =
        args.setup.clone().unwrap_or_else(|| answer(asks, printer, "commands that prepare the machine", &found));
    let infra = args.infra.clone();
    let infra = infra.unwrap_or_else(|| answer(asks, printer, "where to run: local, ssh or aws", "local"));
    let budget = args.budget.clone();
    let budget = budget.unwrap_or_else(|| answer(asks, printer, "limit on the cost", "none"));
    let given =
        |text: String, none: &[&str]| Some(text).filter(|text| !text.is_empty() && !none.contains(&text.as_str()));
    let text = facts.scripts.iter().find(|(name, _)| name == script).map_or("", |(_, text)| text.as_str());
    let ScriptDefaults { resume, mut outputs, lacks_output } = framework(text, &program[2..]);
    if lacks_output {
        program.extend([OUTPUT_OPTION, OUTPUT].map(str::to_owned));
        outputs.push(OUTPUT.to_owned());
    }
    let stem = Path::new(script).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    ScriptRequest {
        name: name_from(&stem),
        program,
        resume,
        outputs,
        processes: Some(args.nproc_per_node),
        infra: given(infra, &["local"]),
        accelerators: args.gpus.clone(),
        workdir: ".".to_owned(),
        setup: given(setup, &["none"]),
        budget: given(budget, &["none"]),
        ..ScriptRequest::default()
    }
}

/// The answer to a question, or without questions the proposal.
fn answer(asks: bool, printer: &mut Printer, question: &str, proposed: &str) -> String {
    if asks { printer.ask(question, proposed) } else { proposed.to_owned() }
}

/// The job file, with what else it may hold as comments.
fn text(request: &ScriptRequest, detected: &DetectedProgram) -> String {
    let mut job: JobText = compose(request);
    job.comments.push("Made by `gradus init`. All keys: docs/job-file.md.".to_owned());
    job.comments.push(
        "Save to the folder $GRADUS_CHECKPOINTS, and resume from it at the start: docs/own-program.md.".to_owned(),
    );
    let left: Vec<String> = detected
        .arguments
        .iter()
        .filter(|argument| !argument.is_required && !request.program.contains(&argument.name))
        .map(|argument| quoted(&argument.name))
        .collect();
    if !left.is_empty() {
        job.comments.push(format!("The script also takes {}.", left.join(", ")));
    }
    job.render()
}

/// The names in a folder, and the Python scripts in it and in its `src` and `scripts`.
fn gather(folder: &Path) -> Result<FolderFacts, Error> {
    let mut facts = FolderFacts::default();
    for below in ["", "src", "scripts"] {
        let entries = match std::fs::read_dir(folder.join(below)) {
            Ok(entries) => entries,
            Err(error) if below.is_empty() => return Err(Error::file("open the folder", folder)(error)),
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(about) = std::fs::metadata(entry.path()) else { continue };
            let inner = if below.is_empty() { name } else { format!("{below}/{name}") };
            if about.is_file() && inner.ends_with(".py") && about.len() <= MOST_BYTES {
                let text = std::fs::read(entry.path()).map_err(Error::file("read", entry.path()))?;
                facts.scripts.push((inner.clone(), String::from_utf8_lossy(&text).into_owned()));
            }
            facts.names.push(if about.is_dir() { format!("{inner}/") } else { inner });
        }
    }
    Ok(facts)
}
