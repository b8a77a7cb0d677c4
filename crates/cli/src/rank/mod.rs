//! Runs `gradus-rank` for single tasks outside of runs.

pub mod all_reduce;
pub mod steps;

use std::path::Path;
use std::process::{Command, Stdio};

use domain::id::{AttemptId, Fence};
use domain::rank::{SPEC_SCHEMA, Spec};
use domain::{RunId, Train};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::error::exit;
use crate::settings::GlobalSettings;

/// The command `gradus-rank WHAT ARGUMENT`, with the libtorch that was found.
///
/// # Errors
/// [`Error::Code`] if the library is missing or incomplete.
pub fn command(settings: &GlobalSettings, what: &str, argument: &str) -> Result<Command, Error> {
    let libraries = agent::libraries(settings.libtorch.as_deref()).map_err(|finding| Error::Code {
        message: finding.message,
        hint: finding.hint,
        code: exit::WORLD,
    })?;
    let mut command = Command::new(&settings.rank_program);
    command.arg(what).arg(argument).env("LD_LIBRARY_PATH", libraries);
    Ok(command)
}

/// The specification of a rank that trains no run: its data is at `data`, and its checkpoints and model are in `folder`.
///
/// # Errors
/// If a path cannot be made absolute.
pub fn spec(run: &RunId, train: &Train, data: &str, settings: &GlobalSettings, folder: &Path) -> Result<Spec, Error> {
    let text = |path: &Path| {
        let absolute = std::path::absolute(path).map_err(Error::file("find", path))?;
        Ok::<_, Error>(absolute.to_string_lossy().into_owned())
    };
    Ok(Spec {
        schema: SPEC_SCHEMA,
        run: run.clone(),
        attempt: AttemptId::new("no-attempt"),
        fence: Fence(0),
        rank: 0,
        world_size: 1,
        meeting: None,
        job_hash: String::new(),
        train: train.clone(),
        data: data.to_owned(),
        threads: 1,
        accept_data_change: false,
        checkpoints: text(&folder.join("checkpoints"))?,
        export: text(&folder.join("export"))?,
        tokens: text(&settings.home.join("cache/tokens"))?,
        socket: String::new(),
    })
}

/// Asks `gradus-rank WHAT REQUEST` for an answer, since only that executable links libtorch.
///
/// # Errors
/// [`Error::Code`] with the rank's finding, or if it ends without an answer.
pub fn ask<Answer: DeserializeOwned>(settings: &GlobalSettings, what: &str, request: &Value) -> Result<Answer, Error> {
    let output = command(settings, what, &request.to_string())?.stderr(Stdio::inherit()).output();
    let output = output.map_err(Error::file("start", &settings.rank_program))?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let finding: Option<domain::Finding> = serde_json::from_value(answer["finding"].clone()).ok();
    if output.status.success()
        && let Ok(found) = Answer::deserialize(answer)
    {
        return Ok(found);
    }
    let (message, hint) = match finding {
        Some(finding) => (finding.message, finding.hint),
        None => ("the process `gradus-rank` has ended without an answer".to_owned(), None),
    };
    Err(Error::Code { message, hint, code: exit::WORLD })
}
