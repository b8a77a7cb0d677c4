//! `gradus reference`: the contents of the reference documents, from the definitions that the program itself uses.
//!
//! `cargo xtask docs` generates `docs/cli.md` and `docs/job-file.md` from it, so they always match the program.

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory};
use domain::file::{RENTED, SKY_KEYS, SkySupport, schema};
use serde_json::{Value, json};

use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;

/// Arguments of `gradus reference`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to print
    #[arg(value_enum)]
    topic: Topic,
}

/// What a reference document is about.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Topic {
    /// Every command and option, as Markdown
    Commands,
    /// The schema of job files and the table of SkyPilot's keys, as one JSON value
    JobFile,
}

/// Prints the reference.
///
/// # Errors
/// None; a command returns a result.
pub fn run(args: Args, printer: &mut Printer) -> Result<u8, Error> {
    match args.topic {
        Topic::Commands => {
            let mut root = crate::Arguments::command();
            // Fills in what `--help` shows, such as usage lines and global options.
            root.build();
            printer.data(markdown(&mut root).trim_end());
        }
        // Not as JSON that is shown to a user: that hides what stands under `envs` and `secrets`, here descriptions.
        Topic::JobFile => printer.data(job_file().to_string()),
    }
    Ok(exit::DONE)
}

/// The schema of the types, and the table of SkyPilot's keys.
fn job_file() -> Value {
    let keys: Vec<Value> = SKY_KEYS
        .iter()
        .map(|key| match key.served {
            SkySupport::Yes => json!({ "path": key.path }),
            SkySupport::Planned { words, why, hint } => {
                let rented = RENTED.contains(&key.path);
                json!({ "path": key.path, "planned": true, "rented": rented, "words": words, "why": why, "hint": hint })
            }
            SkySupport::Noted { why, hint } => {
                json!({ "path": key.path, "noted": true, "why": why, "hint": hint })
            }
            SkySupport::No { why, hint } => json!({ "path": key.path, "why": why, "hint": hint }),
        })
        .collect();
    json!({ "schema": schema(), "sky_keys": keys })
}

/// The options that all commands share, then a section for each command.
fn markdown(root: &mut Command) -> String {
    let shared: Vec<&Arg> = root.get_arguments().filter(|argument| argument.is_global_set()).collect();
    let mut text = String::from("## Options of all commands\n\n");
    text.push_str(&table(&shared));
    for command in root.get_subcommands_mut().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        section(command, 2, &mut text);
    }
    text
}

/// A heading, what the command does, its usage and its options; then the commands below it.
fn section(command: &mut Command, level: usize, text: &mut String) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!(" Alias: `{alias}`.")).collect();
    let about = format!("{}{}", sentence(&about), aliases.concat());
    let _ = write!(text, "\n{} `{name}`\n\n{}\n\n```text\n{usage}\n```\n", "#".repeat(level), about);
    let own = command.get_arguments().filter(|argument| !argument.is_global_set() && !argument.is_hide_set());
    let own: Vec<&Arg> = own.filter(|argument| !["help", "version"].contains(&argument.get_id().as_str())).collect();
    if !own.is_empty() {
        let _ = write!(text, "\n{}", table(&own));
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = write!(text, "\n```text\n{after}\n```\n");
    }
    for inner in command.get_subcommands_mut().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        section(inner, level + 1, text);
    }
}

fn table(arguments: &[&Arg]) -> String {
    let mut text = String::from("| argument | meaning |\n|---|---|\n");
    for argument in arguments {
        let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut meaning = sentence(&help);
        let values: Vec<PossibleValue> =
            argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
        if !values.is_empty() && argument.get_action().takes_values() {
            let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            let _ = write!(meaning, " One of {}.", names.join(", "));
        }
        let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            let _ = write!(meaning, " Default: `{}`.", defaults.join(" "));
        }
        let _ = writeln!(text, "| {} | {} |", cell(&label(argument)), cell(meaning.trim()));
    }
    text
}

/// How an argument is written: `-y`, `--yes`, `--to <FOLDER>` or `<JOB>`.
fn label(argument: &Arg) -> String {
    let short = argument.get_short().filter(|_| argument.get_long().is_some());
    let short = short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
    format!("{short}`{argument}`")
}

/// Help texts of one line have no full stop; in prose they get one.
fn sentence(help: &str) -> String {
    let help = help.trim();
    match help.ends_with(['.', '!', '?', ':']) || help.is_empty() {
        true => help.to_owned(),
        false => format!("{help}."),
    }
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_and_option_is_listed_once() {
        let mut root = crate::Arguments::command();
        root.build();
        let text = markdown(&mut root);
        for heading in ["\n## `gradus run`\n", "\n### `gradus data pack`\n"] {
            assert_eq!(text.matches(heading).count(), 1, "{heading}");
        }
        assert_eq!(text.matches("| `--json` |").count(), 1, "shared options are listed once");
        assert!(text.contains("| `-y`, `--yes` |"), "{text}");
        assert!(
            !text.contains("`gradus agent`") && !text.contains("`gradus reference`"),
            "hidden commands stay hidden"
        );
    }

    #[test]
    fn an_argument_says_its_values_and_default() {
        let codec = Arg::new("codec").long("codec").value_name("CODEC").value_parser(["a", "b|c"]).default_value("a");
        let mut command = clap::Command::new("pack").arg(codec.help("How to store\nimages"));
        // An argument can be printed once its command is built.
        command.build();
        let codec = command.get_arguments().find(|argument| argument.get_id() == "codec").expect("it was added");
        let text = table(&[codec]);
        let row = "| `--codec <CODEC>` | How to store images. One of `a`, `b\\|c`. Default: `a`. |\n";
        assert!(text.ends_with(row), "{text}");
    }
}
