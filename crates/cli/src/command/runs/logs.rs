//! `gradus logs`: the output of a run's processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::RunId;
use server::api::log_part;
use server::{Home, State};

use crate::command::find::{find, open_named};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;

/// Arguments of `gradus logs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
    /// Keep printing new lines until the run ends
    #[arg(long, short)]
    follow: bool,
}

/// Prints the logs of every attempt, oldest first.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        let id = server.find(&args.run)?;
        return if args.follow { follow(&server, &id, printer) } else { of_server(&server, &id, printer) };
    }
    let home = Home::open(&settings.home)?;
    let mut state = open_named(&home, &args.run)?;
    let id = find(state.world(), &args.run)?;
    if let Some(run) = state.world().runs.get(&id) {
        // A log that an earlier version wrote has them.
        let mut job = run.job.clone();
        state.key().unseal_job(&mut job);
        printer.mask(job.secret_values());
    }
    let (mut lines, mut read) = (WholeLines::default(), Vec::<(PathBuf, u64)>::new());
    loop {
        state.refresh()?;
        let last = !args.follow || state.world().runs.get(&id).is_none_or(|run| run.state.is_final());
        for path in files(&state, &home, &id) {
            let from = read.iter().position(|(known, _)| *known == path);
            let index = from.unwrap_or_else(|| {
                read.push((path.clone(), 0));
                read.len() - 1
            });
            read[index].1 = print_from(printer, &mut lines, &path, read[index].1)?;
            if last {
                lines.finish_one(printer, &path.file_name().unwrap_or_default().to_string_lossy());
            }
        }
        if last {
            lines.say_if_none(printer, &id);
            return Ok(exit::DONE);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The log files of a run: by attempt, then by name. A link or a pipe that a program has made there is none.
fn files(state: &State, home: &Home, id: &RunId) -> Vec<PathBuf> {
    let Some(run) = state.world().runs.get(id) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(home.run(id).join("logs")) else { return Vec::new() };
    let is_plain = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let mut names: Vec<PathBuf> = entries.flatten().filter(is_plain).map(|entry| entry.path()).collect();
    let place = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let attempt = run
            .attempts
            .iter()
            .position(|attempt| name.starts_with(&format!("{attempt}-")) || name.starts_with(&format!("{attempt}.")));
        (attempt.unwrap_or(usize::MAX), name)
    };
    names.sort_by_key(|path| place(path));
    names
}

/// Bytes of a log per read.
const PART: u64 = 1 << 20;

/// Prints complete lines from `from` on; returns the end position.
fn print_from(printer: &mut Printer, lines: &mut WholeLines, path: &Path, mut from: u64) -> Result<u64, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let part = log_part(path, from, PART, false).map_err(Error::file("read", path))?;
        if part.next == from {
            return Ok(from);
        }
        lines.print(printer, &name, &part.text);
        from = part.next;
    }
}

fn print_lines(printer: &mut Printer, name: &str, text: &str) {
    if !printer.is_json() {
        printer.data_lines(text);
        return;
    }
    for line in text.lines() {
        printer.json(&serde_json::json!({ "file": name, "line": line }));
    }
}

/// Prints the logs of a server's run as they are.
fn of_server(server: &Server, id: &RunId, printer: &mut Printer) -> Result<u8, Error> {
    let mut lines = WholeLines::default();
    for (file, _) in server.logs(id)? {
        let mut offset = 0;
        loop {
            let (text, next, has_more) = server.log_part(id, &file, offset)?;
            lines.print(printer, &file, &text);
            if !has_more || next == offset {
                break;
            }
            offset = next;
        }
        lines.finish_one(printer, &file);
    }
    lines.say_if_none(printer, id);
    Ok(exit::DONE)
}

/// Prints the logs of a server's run as they grow, until it ends.
fn follow(server: &Server, id: &RunId, printer: &mut Printer) -> Result<u8, Error> {
    let mut lines = WholeLines::default();
    server.follow(&format!("/v1/runs/{id}/logs?follow=true"), None, &mut |message| {
        let part = |name: &str| message.data[name].as_str().unwrap_or_default();
        lines.print(printer, part("file"), part("text"));
        true
    })?;
    lines.finish(printer);
    lines.say_if_none(printer, id);
    Ok(exit::DONE)
}

/// Splits streamed logs into lines: an incomplete line waits for its end.
#[derive(Default)]
struct WholeLines {
    begun: BTreeMap<String, String>,
    /// Whether there was anything at all.
    any: bool,
}

impl WholeLines {
    fn print(&mut self, printer: &mut Printer, file: &str, text: &str) {
        self.any |= !text.is_empty();
        let begun = self.begun.entry(file.to_owned()).or_default();
        begun.push_str(text);
        let end = begun.rfind('\n').map_or(0, |at| at + 1);
        let whole: String = begun.drain(..end).collect();
        print_lines(printer, file, &whole);
    }

    fn finish_one(&mut self, printer: &mut Printer, file: &str) {
        if let Some(line) = self.begun.remove(file) {
            print_lines(printer, file, &line);
        }
    }

    fn finish(&mut self, printer: &mut Printer) {
        std::mem::take(&mut self.begun).iter().for_each(|(file, line)| print_lines(printer, file, line));
    }

    /// Says that there is nothing, where there is nothing: an empty answer looks like a lost one.
    fn say_if_none(&self, printer: &mut Printer, id: &RunId) {
        if let Some(note) = self.note(id).filter(|_| !printer.is_json()) {
            printer.say(note);
        }
    }

    fn note(&self, id: &RunId) -> Option<String> {
        (!self.any).then(|| format!("the processes of run `{id}` wrote no output; see `gradus status {id}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_said() {
        let (mut printer, mut lines) = (Printer::silent(), WholeLines::default());
        let note = |lines: &WholeLines| lines.note(&RunId::new("r"));
        assert!(note(&lines).unwrap().contains("wrote no output"));
        lines.print(&mut printer, "a.log", "begun");
        lines.finish(&mut printer);
        assert_eq!(note(&lines), None);
    }
}
