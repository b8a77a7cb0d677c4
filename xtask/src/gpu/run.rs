//! `gpu run`: the sections one after the other, each within its limit, all within the limit of the whole.
//!
//! Each line is on disk before the next section begins, so a run that is cut off loses nothing; a further run in the same
//! folder goes on with the sections that have not ended. At most three files come out, so that they can be carried home.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::machine::Machine;
use super::{End, Line, Needs, Section, USAGE, pack, processes, read, section};
use crate::doing::Outcome;

/// The lines, everything that was said beside them, and the tables.
const RESULTS: &str = "results.jsonl";
const LOG: &str = "log.txt";
const SUMMARY: &str = "summary.md";

/// How often a script is looked at that prints nothing.
const GLANCE: Duration = Duration::from_millis(200);

/// How `gpu run` was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The archive, or the folder that it was unpacked into; none for a pack that is made now.
    pub from: Option<PathBuf>,
    /// Where results are written; they go on from what is there.
    pub out: PathBuf,
    /// Seconds for the whole.
    pub limit_s: u64,
    /// Names of sections; all where none is named.
    pub sections: Vec<String>,
    /// The interpreter that has PyTorch.
    pub python: PathBuf,
    /// Sections that need a device run on the CPU with small networks: to try the scripts.
    pub cpu: bool,
}

impl RunOptions {
    /// Reads the arguments.
    ///
    /// # Errors
    /// What is not understood.
    pub fn parse(words: &[&str]) -> Result<RunOptions, String> {
        let mut options = RunOptions {
            from: None,
            out: PathBuf::from("gpu-results"),
            limit_s: 570,
            sections: Vec::new(),
            python: PathBuf::from("python3"),
            cpu: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or_else(|| format!("`{word}` needs a value\n{USAGE}"));
            match *word {
                "--out" => options.out = PathBuf::from(value()?),
                "--limit" => {
                    let text = value()?;
                    let number = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
                    options.limit_s = number;
                }
                "--sections" => {
                    let names: Vec<&str> = value()?.split(',').collect();
                    section::named(&names)?;
                    options.sections = names.into_iter().map(str::to_owned).collect();
                }
                "--python" => options.python = PathBuf::from(value()?),
                "--cpu" => options.cpu = true,
                path if options.from.is_none() && !path.starts_with('-') => options.from = Some(PathBuf::from(path)),
                _ => return Err(format!("`{word}` is not understood\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

/// Unpacks what is to be unpacked, and works through the sections.
///
/// # Errors
/// When the pack is not whole, or results cannot be written.
pub fn run(root: Option<&Path>, options: &RunOptions) -> Outcome {
    let began = Instant::now();
    let archive = match (&options.from, root) {
        (Some(from), _) => from.clone(),
        (None, Some(root)) => {
            pack::pack(root)?;
            pack::archive(root)
        }
        (None, None) => return Err(format!("name the archive or the folder of a pack\n{USAGE}").into()),
    };
    let folder = if archive.is_dir() { archive } else { pack::unpack(&archive)? };
    let folder = fs::canonicalize(&folder)?;
    let packed = pack::read_list(&folder)?;
    let beside = root.map(|root| root.join("vendor/libtorch"));
    let machine = Machine::look(&options.python, beside.as_deref());
    let names: Vec<&str> = options.sections.iter().map(String::as_str).collect();
    let sections = section::named(&names)?;
    let limit = Duration::from_secs(options.limit_s).saturating_sub(began.elapsed());
    work_through(&folder, &sections, &machine, options, limit, Some(&packed))
}

/// Works through the sections that have not ended yet, and returns the last line.
///
/// # Errors
/// When results cannot be written.
pub fn work_through(
    folder: &Path,
    sections: &[Section],
    machine: &Machine,
    options: &RunOptions,
    limit: Duration,
    packed: Option<&Value>,
) -> Outcome {
    let began = Instant::now();
    let out = &options.out;
    fs::create_dir_all(out).map_err(|error| format!("cannot make the folder `{}`: {error}", out.display()))?;
    let out = fs::canonicalize(out)?;
    let before = fs::read_to_string(out.join(RESULTS)).unwrap_or_default();
    let ended: Vec<String> = before.lines().filter_map(Line::parse).filter_map(ended_section).collect();
    let mut results = Results::open(&out)?;
    results.add(&machine.line(packed))?;
    let mut summary = String::new();
    for section in sections.iter().filter(|section| !ended.iter().any(|name| name == section.name)) {
        let start = Instant::now();
        let left = limit.saturating_sub(began.elapsed());
        let has_device = machine.device.is_some() || options.cpu;
        let (end, note) = match section.needs {
            Needs::Device if !has_device => (End::NoDevice, String::new()),
            Needs::Device | Needs::Libtorch if machine.libtorch.is_none() => (End::NoLibtorch, String::new()),
            // A section that can only begin tells nothing.
            _ if left < Duration::from_secs(section.limit_s.min(20)) => (End::NoTime, String::new()),
            _ => {
                eprintln!("gpu: {}: {}", section.name, section.what);
                let limit = left.min(Duration::from_secs(section.limit_s));
                attempt(section, folder, machine, options, limit, &mut results)?
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        results.add(&Line::Ended { section: section.name.to_owned(), end, seconds, note })?;
        // What is known by now, for whoever is cut off later.
        summary = read::tables(&fs::read_to_string(out.join(RESULTS))?);
        fs::write(out.join(SUMMARY), &summary)?;
    }
    if summary.is_empty() {
        summary = read::tables(&fs::read_to_string(out.join(RESULTS))?);
    }
    println!("{summary}");
    let (passed, failed) = read::counts(&fs::read_to_string(out.join(RESULTS))?);
    Ok(format!(
        "gpu: {passed} cases passed, {failed} failed, in {:.0} s; `{}`",
        began.elapsed().as_secs_f64(),
        out.join(RESULTS).display()
    ))
}

/// The section that a line ends for good: one that was left out for want of time or of a device may be tried again.
fn ended_section(line: Line) -> Option<String> {
    match line {
        Line::Ended { section, end: End::Done | End::Failed | End::TimedOut, .. } => Some(section),
        Line::Ended { .. } | Line::Machine { .. } | Line::Case { .. } => None,
    }
}

/// Where lines and logs go.
struct Results {
    lines: File,
    log: PathBuf,
}

impl Results {
    fn open(out: &Path) -> Result<Results, Box<dyn Error>> {
        let lines = OpenOptions::new().create(true).append(true).open(out.join(RESULTS))?;
        Ok(Results { lines, log: out.join(LOG) })
    }

    fn add(&mut self, line: &Line) -> Result<(), Box<dyn Error>> {
        writeln!(self.lines, "{}", line.to_json())?;
        Ok(self.lines.sync_data()?)
    }
}

/// Runs a section's script to its end or its limit, and takes down the cases that it prints.
fn attempt(
    section: &Section,
    folder: &Path,
    machine: &Machine,
    options: &RunOptions,
    limit: Duration,
    results: &mut Results,
) -> Result<(End, String), Box<dyn Error>> {
    let deadline = Instant::now() + limit;
    let work = folder.join("work").join(section.name);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let mut log = OpenOptions::new().create(true).append(true).open(&results.log)?;
    writeln!(log, "== {}", section.name)?;
    let mut command = command(section, folder, machine, options, limit);
    command.current_dir(&work).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone()?).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok((End::Failed, format!("cannot start `{}`: {error}", options.python.display()))),
    };
    let (sender, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        // Ends when the last process that holds the pipe does.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }
    let end = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left.min(GLANCE)) {
            Ok(text) => match Line::of_script(section.name, &text) {
                Some(line) => results.add(&line)?,
                None => writeln!(log, "{text}")?,
            },
            Err(RecvTimeoutError::Timeout) if left <= GLANCE => break End::TimedOut,
            // Somebody who outlives the script may hold its stdout.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break End::Done,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break End::Done,
        }
    };
    if end == End::TimedOut {
        processes::end(child.id(), folder);
        child.wait()?;
        return Ok((end, format!("ended after {} s", limit.as_secs())));
    }
    let status = child.wait()?;
    processes::end(child.id(), folder);
    match status.success() {
        true => Ok((End::Done, String::new())),
        false => Ok((End::Failed, format!("{status}; {LOG} says why"))),
    }
}

/// The script, with what it finds its programs and libraries by.
fn command(section: &Section, folder: &Path, machine: &Machine, options: &RunOptions, limit: Duration) -> Command {
    let mut command = Command::new(&options.python);
    command.arg(folder.join("gpu").join(section.script)).args(section.arguments);
    let mut modules = vec![folder.join("gpu"), folder.join("peers")];
    modules.extend(std::env::var_os("PYTHONPATH").iter().flat_map(std::env::split_paths));
    if let Ok(modules) = std::env::join_paths(modules) {
        command.env("PYTHONPATH", modules);
    }
    command.env("SUITE_FOLDER", folder).env("SUITE_LIMIT", limit.as_secs().to_string());
    command.env("SUITE_DEVICE", if options.cpu { "cpu" } else { "cuda" });
    // Nothing is looked for beyond this machine, and nothing that was printed is held back.
    command.envs([("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_VERBOSITY", "error"), ("PYTHONUNBUFFERED", "1")]);
    // As the agent says it to its ranks: without it, deterministic matrix products on CUDA devices are refused.
    command.env("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    if let Some(libtorch) = &machine.libtorch {
        let mut libraries = vec![libtorch.join("lib")];
        libraries.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        if let Ok(libraries) = std::env::join_paths(libraries) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.env("GRADUS_LIBTORCH", libtorch);
    }
    command
}
