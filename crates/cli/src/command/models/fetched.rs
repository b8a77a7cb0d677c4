//! `gradus models export` from a server: the model and its card are copied to this machine.

use std::path::Path;

use domain::RunId;
use plan::RunOrSweep;
use serde_json::json;

use super::{no_best_trial, no_model, trained};
use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::remote::{KnownSweep, Server};

/// Copies the model of a run, or of the best trial of a sweep, and its card to a folder, verifying its hash.
///
/// # Errors
/// [`Error`].
pub fn export(server: &Server, name: &str, to: &Path, printer: &mut Printer) -> Result<u8, Error> {
    let id = match server.find_any(name)? {
        RunOrSweep::Run(id) => id,
        RunOrSweep::Sweep(id) => best(&server.sweep(&id)?)?,
    };
    let known = server.run(&id, 1)?;
    let run = known.run()?;
    let Some(model) = trained(run) else { return Err(no_model(&id, &run.state)) };
    std::fs::create_dir_all(to).map_err(Error::file("make the folder", to))?;
    let target = to.join("model.safetensors");
    let there = std::fs::File::open(&target).ok().and_then(|file| node::sha256(file).ok());
    if there.is_some_and(|sha256| sha256 != model.model_sha256) {
        let message = format!("`{}` already exists with other content", target.display());
        return Err(Error::Usage { message, hint: "use another folder, or move the file away".to_owned() });
    }
    let bytes = server.download(&id, "export/model.safetensors", &target, Some(model.model_sha256.as_str()))?;
    if server.files(&id)?.iter().any(|file| file.name == "export/model.json") {
        server.download(&id, "export/model.json", &to.join("model.json"), None)?;
    }
    match printer.is_json() {
        true => printer.json(&json!({
            "run": id, "model": target, "bytes": bytes, "model_sha256": model.model_sha256, "folded": 0, "onnx": null,
            "torchscript": null,
        })),
        false => printer.data(target.display().to_string()),
    }
    Ok(exit::DONE)
}

/// The best trial of a sweep.
fn best(known: &KnownSweep) -> Result<RunId, Error> {
    let best = plan::sweep::best(&known.world, known.record()?);
    best.map(|best| best.run).ok_or_else(|| no_best_trial(&known.id))
}
