//! Models on disk that the event log does not know: what a damaged log leaves, after `gradus home rebuild`. Their cards
//! say what they are.

use std::path::PathBuf;

use plan::World;
use serde_json::{Value, json};
use server::Home;

use crate::command::home::models;

/// An exported model of a run that is not in the log.
pub struct UnloggedModel {
    run: String,
    file: PathBuf,
    /// The `model.json` beside it; null if there is none.
    card: Value,
}

/// All of them, in order of their names.
pub fn find(home: &Home, world: &World) -> Vec<UnloggedModel> {
    let of_run = |file: PathBuf| {
        let run = file.parent()?.parent()?.file_name()?.to_string_lossy().into_owned();
        let is_logged = world.runs.keys().any(|known| known.as_str() == run);
        (!is_logged).then(|| UnloggedModel { card: card(&file), run, file })
    };
    models(home.root()).into_iter().filter_map(of_run).collect()
}

fn card(file: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(file.with_file_name("model.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

impl UnloggedModel {
    /// The row of the table.
    pub fn row(&self) -> Vec<String> {
        let architecture = self.card["architecture"].as_str().unwrap_or("unknown").to_owned();
        let accuracy = self.card["test_accuracy"].as_f64();
        let accuracy = accuracy.map_or_else(|| "unknown".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        vec![self.run.clone(), architecture, accuracy, format!("{} (not in log)", self.file.display())]
    }

    /// For scripts.
    pub fn value(&self) -> Value {
        json!({ "run": self.run, "model": null, "file": self.file, "card": self.card })
    }
}
