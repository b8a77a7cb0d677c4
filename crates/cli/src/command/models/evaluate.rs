//! `gradus evaluate`: how good a trained model is on its own test split, or on other data.

use std::path::{Path, PathBuf};

use domain::Work;
use domain::rank::{Spec, TaskMetrics};
use serde::Deserialize;
use serde_json::{Value, json};
use server::{Home, State};

use super::meant;
use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::figures::{accuracy, counted};
use crate::printer::Printer;
use crate::rank;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run, or sweep for its best trial: its name, a unique prefix of it, or `last`
    run: String,
    /// Data to score the model on, all of it: anything that a job can train on, or its address [default: the run's own test
    /// split]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Resize images that are not of the model's size
    #[arg(long, requires = "data")]
    resize: bool,
    /// Write the prediction for each sample: a CSV of sample, class, predicted class and probability (or of labels, or a
    /// number); of a detector a JSON of boxes in COCO's form
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
}

/// The rank's answer.
#[derive(Debug, Deserialize)]
struct Evaluation {
    samples: u64,
    loss: f64,
    accuracy: f64,
    figures: TaskMetrics,
    classes: Vec<String>,
    confusion: Vec<Vec<u64>>,
    #[serde(default)]
    labels: Vec<LabelScore>,
    notes: Vec<String>,
    predictions: u64,
}

/// How well one of several labels is predicted.
#[derive(Debug, Clone, Copy, Deserialize)]
struct LabelScore {
    samples: u64,
    average_precision: Option<f64>,
    precision: Option<f64>,
    recall: Option<f64>,
}

/// Precision, recall and support of one class; `None` for a ratio with denominator zero.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ClassScore {
    samples: u64,
    precision: Option<f64>,
    recall: Option<f64>,
}

impl LabelScore {
    fn json(&self, label: &str) -> Value {
        let LabelScore { samples, average_precision, precision, recall } = self;
        json!({
            "label": label, "samples": samples, "average_precision": average_precision, "precision": precision,
            "recall": recall,
        })
    }
}

/// Scores the model, and prints its figures.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { run, data, resize, predictions } = args;
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    let id = meant(&state, &run)?;
    let Some(run) = state.world().runs.get(&id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    let Work::Train(train) = &run.job.work else {
        let message = format!("run `{id}` ran a program of its own, whose models gradus does not know");
        return Err(Error::Usage { message, hint: "give a run of the built-in trainer".to_owned() });
    };
    let folder = home.run(&id);
    if !folder.join("export/model.json").is_file() {
        return Err(super::no_model(&id, &run.state));
    }
    let named = data.as_deref().unwrap_or(Path::new(&train.data.path));
    let place = OpenedData::fetched(named, settings, printer)?;
    let path = absolute(place.path())?.to_string_lossy().into_owned();
    let spec = rank::spec(&id, train, &path, settings, &folder)?;
    let spec = Spec { job_hash: run.job_hash.clone(), threads: 1, ..spec };
    let predictions = predictions.map(|file| absolute(&file)).transpose()?;
    predictions.as_deref().map(writable).transpose()?;
    let other = data.as_ref().map(|_| path);
    let request = json!({ "spec": spec, "data": other, "resize": resize, "predictions": predictions });
    let found: Evaluation = rank::ask(settings, "evaluate", &request)?;
    match printer.is_json() {
        true => printer.json(&answer(&id, data.as_deref(), predictions.as_deref(), &found)),
        false => present(&id, data.as_deref(), predictions.as_deref(), &found, printer),
    }
    Ok(exit::DONE)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(Error::file("find", path))
}

/// The ends of Wilson's interval of 95 % for a share of so many samples (Wilson 1927): of all shares that the samples
/// would not be unusual for, the least and the largest. It stays within 0 and 1, and is right for few samples too.
fn wilson(share: f64, samples: u64) -> [f64; 2] {
    const Z: f64 = 1.959_963_984_540_054;
    if samples == 0 {
        return [0.0, 1.0];
    }
    let (n, z2) = (samples as f64, Z * Z);
    let middle = share + z2 / (2.0 * n);
    let spread = Z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    [middle - spread, middle + spread].map(|end| (end / (1.0 + z2 / n)).clamp(0.0, 1.0))
}

/// The scores of each class, by a table with a row for each true class.
fn class_scores(table: &[Vec<u64>]) -> Vec<ClassScore> {
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let of = |(class, row): (usize, &Vec<u64>)| {
        let samples = row.iter().sum();
        let predicted: u64 = table.iter().map(|row| row[class]).sum();
        ClassScore { samples, precision: share(row[class], predicted), recall: share(row[class], samples) }
    };
    table.iter().enumerate().map(of).collect()
}

/// Classes up to this number have their confusion printed; all have it in the JSON.
const MOST_PRINTED: usize = 20;

/// The confidence interval of the accuracy, if it is a proportion.
fn interval(found: &Evaluation) -> Option<[f64; 2]> {
    (!found.confusion.is_empty()).then(|| wilson(found.accuracy, found.samples))
}

/// Checks that a file can be written, before the work whose result it is to hold.
fn writable(file: &Path) -> Result<(), Error> {
    let is_new = !file.exists();
    std::fs::OpenOptions::new().create(true).append(true).open(file).map_err(Error::file("write", file))?;
    if is_new {
        std::fs::remove_file(file).map_err(Error::file("write", file))?;
    }
    Ok(())
}

fn answer(run: &domain::RunId, data: Option<&Path>, predictions: Option<&Path>, found: &Evaluation) -> Value {
    let classes: Vec<Value> = class_scores(&found.confusion)
        .into_iter()
        .zip(&found.classes)
        .map(|(ClassScore { samples, precision, recall }, class)| {
            json!({ "class": class, "samples": samples, "precision": precision, "recall": recall })
        })
        .collect();
    let labels: Vec<Value> = found.labels.iter().zip(&found.classes).map(|(score, label)| score.json(label)).collect();
    json!({
        "run": run, "data": data, "samples": found.samples, "loss": found.loss, "accuracy": found.accuracy,
        "accuracy_interval_95": interval(found), "figures": found.figures, "classes": classes,
        "labels": labels, "confusion": found.confusion, "notes": found.notes, "predictions": predictions,
    })
}

fn present(
    run: &domain::RunId,
    data: Option<&Path>,
    predictions: Option<&Path>,
    found: &Evaluation,
    printer: &mut Printer,
) {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    found.notes.iter().for_each(|note| printer.say(format!("note: {note}")));
    let of = data.map_or("its own test split".to_owned(), |data| data.display().to_string());
    printer.data(format!("run         {run}"));
    printer.data(format!("data        {of}: {}", counted(found.samples, "sample")));
    let name = found.figures.accuracy_name();
    let range = interval(found)
        .map_or(String::new(), |[low, high]| format!(" (95 % interval: {} to {})", percent(low), percent(high)));
    printer.data(format!("{name:<11} {}{range}", accuracy(name, found.accuracy)));
    printer.data(format!("loss        {:.4}", found.loss));
    for (name, value) in found.figures.lines() {
        printer.data(format!("{name} {value}"));
    }
    present_labels(found, printer);
    let scores = class_scores(&found.confusion);
    let shown = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    let mut rows = Vec::new();
    for (score, class) in scores.iter().zip(&found.classes) {
        rows.push(vec![class.clone(), score.samples.to_string(), shown(score.precision), shown(score.recall)]);
    }
    if !rows.is_empty() {
        table::lines(&["class", "samples", "precision", "recall"], &rows)
            .into_iter()
            .for_each(|line| printer.data(line));
    }
    if (1..=MOST_PRINTED).contains(&found.confusion.len()) {
        let mut head = vec!["true \\ predicted"];
        head.extend(found.classes.iter().map(String::as_str));
        let rows: Vec<Vec<String>> = found
            .confusion
            .iter()
            .zip(&found.classes)
            .map(|(row, class)| std::iter::once(class.clone()).chain(row.iter().map(u64::to_string)).collect())
            .collect();
        table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    }
    if let Some(file) = predictions {
        printer.data(format!("predictions {} of {}", file.display(), counted(found.predictions, "sample")));
    }
}

/// The scores of each label, where a sample has any number of them.
fn present_labels(found: &Evaluation, printer: &mut Printer) {
    if found.labels.is_empty() {
        return;
    }
    let shown = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
    let row = |(score, label): (&LabelScore, &String)| {
        let LabelScore { samples, average_precision, precision, recall } = *score;
        vec![label.clone(), samples.to_string(), shown(average_precision), shown(precision), shown(recall)]
    };
    let rows: Vec<Vec<String>> = found.labels.iter().zip(&found.classes).map(row).collect();
    let head = ["label", "samples", "average precision", "precision", "recall"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_that_of_the_tables() {
        let check = |right: u64, samples: u64, expected: [f64; 2]| {
            let found = wilson(right as f64 / samples.max(1) as f64, samples);
            let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 5e-5);
            assert!(near, "{right} of {samples}: {found:?}, {expected:?}");
        };
        // As statsmodels' `proportion_confint(…, method="wilson")` has them.
        check(50, 100, [0.40383, 0.59617]);
        check(10, 10, [0.72247, 1.0]);
        check(0, 10, [0.0, 0.27753]);
        check(177, 180, [0.95220, 0.99431]);
        check(0, 0, [0.0, 1.0]);
    }

    #[test]
    fn classes_are_scored_by_their_row_and_column() {
        let score = |samples, precision, recall| ClassScore { samples, precision, recall };
        let table = [vec![3, 1, 0], vec![0, 4, 0], vec![0, 0, 0]];
        let expected = [score(4, Some(1.0), Some(0.75)), score(4, Some(0.8), Some(1.0)), score(0, None, None)];
        assert_eq!(class_scores(&table), expected);
    }
}
