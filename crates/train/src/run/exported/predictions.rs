//! The prediction for each sample, as a file.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use data::{DetectionDataset, Part, Targets};
use domain::finding::{Cause, Finding};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::input::{DeviceBatch, TrainingData};
use crate::run::evaluate::{host, in_original};
use crate::{detect, torch};

/// The prediction for each sample: of classes a CSV, of boxes the results of COCO.
pub(super) struct Predictions<'a> {
    data: &'a TrainingData,
    part: Part,
    classes: &'a [String],
    rows: String,
    boxes: Vec<Value>,
    count: u64,
}

impl Predictions<'_> {
    /// No prediction yet.
    pub fn new<'a>(data: &'a TrainingData, part: Part, classes: &'a [String]) -> Predictions<'a> {
        let rows = match data.targets() {
            None => "sample,class,predicted,probability\n".to_owned(),
            Some(Targets::Numbers(_)) => "sample,value,predicted\n".to_owned(),
            Some(Targets::Flags { .. }) => {
                let names: Vec<String> = classes.iter().map(|name| field(name)).collect();
                format!("sample,labels,predicted,{}\n", names.join(","))
            }
        };
        Predictions { data, part, classes, rows, boxes: Vec::new(), count: 0 }
    }

    /// Adds those of a batch.
    pub fn add(&mut self, logits: &Tensor, batch: &DeviceBatch) -> Result<(), Error> {
        match self.data {
            TrainingData::Images(dataset) => {
                let dataset = Arc::clone(dataset);
                let name = |place: u64| {
                    let sample = dataset.part(self.part).get(place as usize);
                    sample.map_or_else(String::new, |sample| dataset.name(*sample))
                };
                let rows = self.class_rows(logits, batch, name)?;
                self.rows += &rows;
            }
            TrainingData::Text(texts) if texts.classes().is_empty() => {
                let finding = Finding::new(Cause::Job, "a language model predicts tokens, which are not written");
                return Err(finding.hint("leave `--predictions` out").into());
            }
            TrainingData::Text(texts) => {
                let part = self.part;
                let rows = self.class_rows(logits, batch, |place| texts.record(part, place).to_string())?;
                self.rows += &rows;
            }
            TrainingData::Detection(scenes) => {
                let scenes = Arc::clone(scenes);
                self.add_boxes(logits, batch, &scenes)?;
            }
        }
        self.count += batch.samples.share.counted as u64;
        Ok(())
    }

    /// Rows of samples with any number of labels: which, those with a probability above one half, and the probabilities.
    /// Or of samples with a number.
    fn target_rows(&self, logits: &Tensor, batch: &DeviceBatch, name: impl Fn(u64) -> String) -> Result<String, Error> {
        let mut rows = String::new();
        let [found, meant] = [logits, &batch.samples.labels].map(host);
        let (found, meant) = (found?, meant?);
        if let Some(Targets::Numbers(_)) = self.data.targets() {
            for ((found, meant), number) in found.iter().zip(meant).zip(self.count..) {
                let _ = writeln!(rows, "{},{meant},{}", field(&name(number)), *found as f32);
            }
            return Ok(rows);
        }
        let labels = |row: &[f64]| {
            let named = row.iter().zip(self.classes).filter(|(value, _)| **value > 0.0);
            field(&named.map(|(_, label)| label.as_str()).collect::<Vec<_>>().join("|"))
        };
        let width = self.classes.len().max(1);
        for ((found, meant), number) in found.chunks(width).zip(meant.chunks(width)).zip(self.count..) {
            let shares: Vec<String> =
                found.iter().map(|logit| format!("{:.6}", 1.0 / (1.0 + (-logit).exp()))).collect();
            let _ = writeln!(rows, "{},{},{},{}", field(&name(number)), labels(meant), labels(found), shares.join(","));
        }
        Ok(rows)
    }

    fn class_rows(&self, logits: &Tensor, batch: &DeviceBatch, name: impl Fn(u64) -> String) -> Result<String, Error> {
        if self.data.targets().is_some() {
            return self.target_rows(logits, batch, name);
        }
        let (best, places) = logits
            .f_softmax(-1, Kind::Double)
            .and_then(|shares| shares.f_max_dim(-1, false))
            .map_err(torch::Error::from)?;
        let best = Vec::<f64>::try_from(best).map_err(torch::Error::from)?;
        let places = Vec::<i64>::try_from(places).map_err(torch::Error::from)?;
        let labels = Vec::<i64>::try_from(&batch.samples.labels).map_err(torch::Error::from)?;
        let class = |place: i64| field(self.classes.get(place as usize).map_or("", |name| name));
        let mut rows = String::new();
        for (((best, place), label), number) in best.iter().zip(places).zip(labels).zip(self.count..) {
            let _ = writeln!(rows, "{},{},{},{best:.6}", field(&name(number)), class(label), class(place));
        }
        Ok(rows)
    }

    fn add_boxes(&mut self, logits: &Tensor, batch: &DeviceBatch, scenes: &DetectionDataset) -> Result<(), Error> {
        let size = batch.samples.values.size();
        let found = detect::detections(logits, [size[2], size[3]])?;
        for ((found, original), place) in found.iter().zip(&batch.originals).zip(batch.first..) {
            let Some(original) = original else { continue };
            let file = scenes.file(self.part, place).unwrap_or(Path::new(""));
            // COCO's files are named by the numbers of their images.
            let number = file.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()).unwrap_or(place + 1);
            for found in found {
                let shown = in_original(found, original);
                self.boxes.push(json!({
                    "image_id": number, "file_name": file.display().to_string(), "category_id": shown.class,
                    "category": self.classes.get(shown.class as usize), "bbox": shown.bbox, "score": shown.score,
                }));
            }
        }
        Ok(())
    }

    /// Writes the file atomically; returns the number of samples.
    pub fn write(self, path: &Path) -> Result<u64, Error> {
        let text = match self.data {
            TrainingData::Images(_) | TrainingData::Text(_) => self.rows,
            TrainingData::Detection(_) => format!("{:#}\n", Value::Array(self.boxes)),
        };
        checkpoint::write_file(path, text.as_bytes())?;
        Ok(self.count)
    }
}

/// A field of a CSV, quoted where it must be.
fn field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(["a/1.png", "a, b", "say \"x\""].map(field), ["a/1.png", "\"a, b\"", "\"say \"\"x\"\"\""]);
    }
}
