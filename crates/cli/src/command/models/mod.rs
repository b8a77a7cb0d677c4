//! `gradus models`: trained models.

pub mod evaluate;
mod fetched;
mod onnx;
mod unlogged;

use std::path::PathBuf;

use domain::rank::Exported;
use domain::run::{Outcome, RunState};
use serde_json::json;
use server::{Home, State};

use super::find::{RunOrSweep, find_any};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::rank;
use crate::remote;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus models`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// List models (the default)
    List,
    /// Show the details of a model
    Show {
        /// Run, or sweep for its best trial: its name, a unique prefix of it, or `last`
        run: String,
    },
    /// Copy a model and its card to a folder, verifying its hash
    Export {
        /// Run, or sweep for its best trial: its name, a unique prefix of it, or `last`
        run: String,
        /// Target folder, created if it does not exist
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
        /// Fold batch normalisation into the preceding convolutions, for inference
        #[arg(long)]
        fold: bool,
        /// Also write `model.onnx`, for a classifier of images: its input is a batch of normalised images
        #[arg(long, conflicts_with = "fold")]
        onnx: bool,
        /// Also write `model.pt` for `torch.jit.load`: a trace of a built-in image model, which takes a batch of normalised
        /// images; a TorchScript module of your own is copied unchanged
        #[arg(long, conflicts_with = "fold")]
        torchscript: bool,
    },
}

impl Args {
    /// What of it needs the files of a home; a model as it is can also be copied from a server.
    pub fn only_here(&self) -> Option<&'static str> {
        match &self.command {
            Some(Subcommand::Export { fold: false, onnx: false, torchscript: false, .. }) => None,
            Some(Subcommand::Export { .. }) => Some("`gradus models export` into another format"),
            Some(Subcommand::List | Subcommand::Show { .. }) | None => Some("`gradus models`"),
        }
    }
}

/// Lists, shows or copies models.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(Subcommand::Export { run, to, .. }) = &args.command
        && let Some(server) = remote::chosen(settings)?
    {
        return fetched::export(&server, run, to, printer);
    }
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    match args.command.unwrap_or(Subcommand::List) {
        Subcommand::List => list(&home, &state, printer),
        Subcommand::Show { run } => show(&state, printer, &run),
        Subcommand::Export { run, to, fold, onnx, torchscript } => {
            export(&state, settings, printer, &run, to, [fold, onnx, torchscript])
        }
    }
}

fn list(home: &Home, state: &State, printer: &mut Printer) -> Result<u8, Error> {
    let mut runs: Vec<_> = state.world().runs.iter().filter_map(|(id, run)| Some((id, run, trained(run)?))).collect();
    runs.sort_by_key(|(_, run, _)| run.order);
    let mut rows = Vec::new();
    for (id, run, model) in runs {
        if printer.is_json() {
            printer.json(&json!({ "run": id, "model": model }));
        } else {
            let name = match model.figures.accuracy_name() {
                "accuracy" => String::new(),
                other => format!(" {other}"),
            };
            let accuracy =
                format!("{}{name}", crate::figures::accuracy(model.figures.accuracy_name(), model.test_accuracy));
            let is_there = std::path::Path::new(&model.model).exists();
            let file = if is_there { model.model.clone() } else { format!("{} (deleted)", model.model) };
            rows.push(vec![id.to_string(), architecture(run), accuracy, file]);
        }
    }
    let unlogged = unlogged::find(home, state.world());
    for model in &unlogged {
        match printer.is_json() {
            true => printer.json(&model.value()),
            false => rows.push(model.row()),
        }
    }
    if !printer.is_json() && rows.is_empty() {
        printer.say("no models yet; train one with `gradus run JOB`");
    } else if !printer.is_json() {
        table::lines(&["run", "architecture", "test accuracy", "model"], &rows)
            .into_iter()
            .for_each(|line| printer.data(line));
    }
    if !unlogged.is_empty() {
        printer.say(
            "not in log: the event log knows no such run; copy the file, with the `model.json` beside it, to use it",
        );
    }
    Ok(exit::DONE)
}

fn show(state: &State, printer: &mut Printer, name: &str) -> Result<u8, Error> {
    let id = meant(state, name)?;
    let (run, model) = model_of(state, &id)?;
    if printer.is_json() {
        printer.json(&json!({ "run": id, "job": run.job, "model": model, "classes": run.ready.as_ref().map(|ready| &ready.classes) }));
        return Ok(exit::DONE);
    }
    printer.data(format!("run         {id}"));
    printer.data(format!("job         {}", run.file));
    printer.data(format!("model       {}", architecture(run)));
    printer.data(format!("file        {} ({} bytes)", model.model, model.bytes));
    printer.data(format!("sha256      {}", model.model_sha256));
    printer.data(format!("checkpoint  step {} of {}", model.step, model.steps));
    let name = model.figures.accuracy_name();
    let text = |accuracy| crate::figures::accuracy(name, accuracy);
    printer.data(format!("validation  {} {name}", text(model.validation_accuracy)));
    printer.data(format!("test        {} {name}", text(model.test_accuracy)));
    for (name, value) in model.figures.lines() {
        printer.data(format!("test        {name} {value}"));
    }
    if let Some(ready) = &run.ready {
        printer.data(format!("classes     {}", ready.classes.join(", ")));
    }
    Ok(exit::DONE)
}

fn export(
    state: &State,
    settings: &GlobalSettings,
    printer: &mut Printer,
    name: &str,
    to: PathBuf,
    [fold, onnx, torchscript]: [bool; 3],
) -> Result<u8, Error> {
    let id = meant(state, name)?;
    let (_, model) = model_of(state, &id)?;
    let source = PathBuf::from(&model.model);
    let bytes = std::fs::read(&source).map_err(Error::file("read", &source))?;
    if server::submit::sha256(&bytes) != model.model_sha256 {
        let message = format!("`{}` was modified after training: its SHA-256 differs", source.display());
        return Err(Error::Code {
            message,
            hint: Some(format!(
                "restore the file whose SHA-256 is {}, or train again; run `{id}` wrote it",
                model.model_sha256
            )),
            code: exit::WORLD,
        });
    }
    std::fs::create_dir_all(&to).map_err(Error::file("make the folder", &to))?;
    let target = to.join("model.safetensors");
    if fold {
        if target.exists() {
            let message = format!("`{}` already exists", target.display());
            return Err(Error::Usage { message, hint: "use another folder, or move the file away".to_owned() });
        }
        return folded(settings, printer, &id, &source, &to);
    }
    if std::fs::read(&target).is_ok_and(|there| there != bytes) {
        let message = format!("`{}` already exists with other content", target.display());
        return Err(Error::Usage { message, hint: "use another folder, or move the file away".to_owned() });
    }
    std::fs::write(&target, &bytes).map_err(Error::file("write", &target))?;
    let card = source.with_file_name("model.json");
    if card.exists() {
        let copy = to.join("model.json");
        std::fs::copy(&card, &copy).map_err(Error::file("write", &copy))?;
    }
    let as_onnx = to.join("model.onnx");
    if onnx {
        let card = std::fs::read(&card).map_err(Error::file("read", &card))?;
        std::fs::write(&as_onnx, onnx::of(&bytes, &card, &source)?).map_err(Error::file("write", &as_onnx))?;
    }
    let as_onnx = onnx.then_some(as_onnx);
    let as_script = torchscript.then(|| scripted(settings, &source, &to)).transpose()?;
    if printer.is_json() {
        let (bytes, sha256) = (bytes.len(), &model.model_sha256);
        printer.json(&json!({ "run": id, "model": target, "bytes": bytes, "model_sha256": sha256, "folded": 0, "onnx": as_onnx, "torchscript": as_script }));
    } else {
        printer.data(target.display().to_string());
        as_onnx.iter().chain(&as_script).for_each(|file| printer.data(file.display().to_string()));
    }
    Ok(exit::DONE)
}

/// Writes `model.pt`; a module of the user's own is one already.
fn scripted(settings: &GlobalSettings, model: &std::path::Path, to: &std::path::Path) -> Result<PathBuf, Error> {
    let (own, target) = (model.with_file_name("model.pt"), to.join("model.pt"));
    if own.is_file() {
        std::fs::copy(&own, &target).map_err(Error::file("write", &target))?;
        return Ok(target);
    }
    let [from, target] =
        [&model.with_file_name(""), &target].map(|path| std::path::absolute(path).map_err(Error::file("find", path)));
    let (from, target) = (from?, target?);
    let _: serde_json::Value = rank::ask(settings, "torchscript", &json!([from, target]))?;
    Ok(target)
}

/// Runs `gradus-rank fold`, since only that executable links libtorch.
fn folded(
    settings: &GlobalSettings,
    printer: &mut Printer,
    run: &domain::RunId,
    model: &std::path::Path,
    to: &std::path::Path,
) -> Result<u8, Error> {
    let from = model.with_file_name("");
    let folders = json!([from, to]);
    let answer: serde_json::Value = rank::ask(settings, "fold", &folders)?;
    let difference = answer["difference"].as_f64().unwrap_or_default();
    printer.say(format!(
        "folded {} batch normalisations; logits differ by {difference:.1e} of the largest",
        answer["folded"]
    ));
    let target = to.join("model.safetensors");
    if printer.is_json() {
        let folded = &answer["folded"];
        printer.json(&json!({ "run": run, "model": target, "folded": folded, "scores_differ_by": difference }));
    } else {
        printer.data(target.display().to_string());
    }
    Ok(exit::DONE)
}

/// The run that a name refers to; for a sweep its best trial.
fn meant(state: &State, name: &str) -> Result<domain::RunId, Error> {
    let world = state.world();
    let id = match find_any(world, name)? {
        RunOrSweep::Run(id) => return Ok(id),
        RunOrSweep::Sweep(id) => id,
    };
    let best = world.sweeps.get(&id).and_then(|sweep| plan::sweep::best(world, sweep));
    best.map(|best| best.run).ok_or_else(|| no_best_trial(&id))
}

/// The error for a sweep without a model.
fn no_best_trial(id: &domain::SweepId) -> Error {
    let message = format!("no trial of sweep `{id}` has a model yet");
    Error::Code { message, hint: Some(format!("see `gradus status {id}`")), code: exit::NOT_FINISHED }
}

fn model_of<'a>(state: &'a State, id: &domain::RunId) -> Result<(&'a plan::Run, &'a Exported), Error> {
    let Some(run) = state.world().runs.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    let Some(model) = trained(run) else {
        return Err(no_model(id, &run.state));
    };
    Ok((run, model))
}

/// The error for a run without a model: why it has none, with the exit code of its end.
fn no_model(id: &domain::RunId, state: &RunState) -> Error {
    let (message, hint, code) = match state {
        RunState::Done { outcome: Outcome::Failed { finding } } => {
            let hint = finding.hint.clone().unwrap_or_else(|| format!("see `gradus status {id}`"));
            (format!("run `{id}` has failed and has no model: {}", finding.message), hint, exit::RUN_FAILED)
        }
        RunState::Done { .. } => {
            let message = format!("run `{id}` ran a program of its own, whose models gradus does not know");
            (message, format!("its files are in the folder of checkpoints, see `gradus status {id}`"), exit::USAGE)
        }
        RunState::Stopped { .. } => {
            let hint = format!("resume it with `gradus resume {id}`; it leaves a model once it was evaluated");
            (format!("run `{id}` was stopped before it had a model"), hint, exit::NOT_FINISHED)
        }
        running => {
            let message = format!("run `{id}` is {} and has no model yet", running.word());
            (message, format!("wait for it with `gradus wait {id}`"), exit::NOT_FINISHED)
        }
    };
    Error::Code { message, hint: Some(hint), code }
}

fn trained(run: &plan::Run) -> Option<&Exported> {
    match &run.state {
        RunState::Done { outcome: Outcome::Trained { model } } => Some(model),
        RunState::Done { .. } | RunState::Stopped { .. } | RunState::Queued | RunState::Renting { .. } => None,
        RunState::Staging { .. }
        | RunState::Running { .. }
        | RunState::Recovering { .. }
        | RunState::Stopping { .. } => None,
    }
}

fn architecture(run: &plan::Run) -> String {
    match &run.job.work {
        domain::Work::Train(train) => train.model.name().to_owned(),
        domain::Work::Command(_) => "program".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use domain::run::StopBy;
    use domain::{Cause, Finding, RunId};

    use super::*;

    #[test]
    fn why_there_is_no_model_is_said_with_the_code_of_the_end() {
        let check = |state: RunState, code: u8, message: &str, hint: &str| {
            let error = no_model(&RunId::new("r"), &state);
            let told = format!("{error}; {}", error.hint().unwrap_or_default());
            assert!(error.code() == code && told.contains(message) && told.contains(hint), "{told}");
        };
        let finding = Finding::new(Cause::Job, "no such format").hint("write `fp32`");
        let failed = RunState::Done { outcome: Outcome::Failed { finding } };
        check(failed, exit::RUN_FAILED, "has failed and has no model: no such format", "write `fp32`");
        check(RunState::Stopped { by: StopBy::User }, exit::NOT_FINISHED, "was stopped", "gradus resume r");
        check(RunState::Queued, exit::NOT_FINISHED, "is queued", "gradus wait r");
    }
}
