//! Evaluation of a network on a validation or test split.
//!
//! The metrics depend on the task: classes, several labels, a number, tokens or boxes. Sums stay on the device until the
//! end.

mod targets;

use data::{AnnotatedBox, OriginalImage};
use domain::rank::TaskMetrics;
use tch::{Device, Kind, Tensor};

use crate::detect::{self, Annotated, AveragePrecision, Detected, Detection, LossSums};
use crate::error::Error;
use crate::input::{DeviceBatch, DeviceLoader};
use crate::model::{Network, OutputShape};
use crate::ranks::Ranks;
use crate::step::recompute::forward_alone;
use crate::step::{BatchTensors, StepConfig, loss};
use crate::torch::{self, Result};

pub use targets::LabelScore;
use targets::{LabelSums, NumberScore, NumberSums};

/// With more classes the confusion matrix is not counted: its size is the square of their number.
const MOST_COUNTED: i64 = 1000;
/// The true class is looked for among so many of the highest scores.
const TOP: i64 = 5;

/// Metrics over a split.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationScore {
    /// Mean loss, without smoothing, so that runs can be compared.
    pub loss: f64,
    /// Top-1 accuracy over samples or predicted tokens, in 0–1; of equal scores the first counts. For boxes the mean
    /// average precision over IoU thresholds from 0.5 to 0.95; for several labels the mean average precision; for numbers
    /// R².
    pub accuracy: f64,
    /// What else was measured.
    pub figures: TaskMetrics,
    /// Confusion matrix; empty above 1,000 classes.
    pub confusion: Vec<Vec<u64>>,
    /// Of each label, where a sample has any number of them.
    pub labels: Vec<LabelScore>,
}

/// Sums over the batches evaluated.
#[derive(Default)]
struct Sums {
    loss: Option<Tensor>,
    correct: Option<Tensor>,
    count: Option<Tensor>,
    top: Option<Tensor>,
    /// Of classes: `classes²` numbers, a row for each true class.
    confusion: Option<Tensor>,
    labels: LabelSums,
    numbers: NumberSums,
    boxes: AveragePrecision,
    /// Of detection: of each batch the sums of [`LossSums`] and the number of images, as ranks divide each batch.
    detection: Vec<f64>,
}

/// A callback for the logits of each evaluated batch.
pub type LogitsObserver<'a> = dyn FnMut(&Tensor, &DeviceBatch) -> std::result::Result<(), Error> + 'a;

/// Scores every batch of `feed`, of which each rank has its share; `None` if `go_on` returns false on any before the end.
pub fn evaluate(
    network: &Network,
    config: &StepConfig,
    feed: &mut DeviceLoader,
    ranks: &Ranks,
    go_on: impl FnMut() -> bool,
) -> std::result::Result<Option<EvaluationScore>, Error> {
    evaluate_watched(network, config, feed, ranks, go_on, &mut |_, _| Ok(()))
}

/// The same; `watch` is shown the logits of each batch that has samples of this rank.
pub fn evaluate_watched(
    network: &Network,
    config: &StepConfig,
    feed: &mut DeviceLoader,
    ranks: &Ranks,
    mut go_on: impl FnMut() -> bool,
    watch: &mut LogitsObserver<'_>,
) -> std::result::Result<Option<EvaluationScore>, Error> {
    let mut sums = Sums::default();
    while let Some(batch) = feed.next(config.device) {
        let batch = batch?;
        tch::no_grad(|| match sums.add(network, config, &batch, ranks)? {
            Some(logits) => watch(&logits, &batch),
            None => Ok(()),
        })?;
        if ranks.any(!go_on())? {
            return Ok(None);
        }
    }
    Ok(Some(sums.score(network.output(), ranks)?))
}

impl Sums {
    /// Adds a batch; returns its logits if it has samples of this rank.
    fn add(
        &mut self,
        network: &Network,
        config: &StepConfig,
        loaded: &DeviceBatch,
        ranks: &Ranks,
    ) -> Result<Option<Tensor>> {
        let batch = &loaded.samples;
        // A rank without a sample works for company where the others need its part of the parameters.
        if batch.share.counted == 0 && matches!(network.output(), OutputShape::Boxes(_)) {
            self.detection.extend([0.0; 3]);
        }
        if batch.share.counted == 0 && ranks.shards().is_none() {
            return Ok(None);
        }
        let (pass, values) = (batch.pass(false), &batch.values);
        let forward = || forward_alone(network, values, &pass, config, ranks);
        let logits = config.format.forward(config.device, forward)?;
        if batch.share.counted == 0 {
            return Ok(None);
        }
        let loss = || -> Result<Tensor> { Ok(loss(&logits, batch, 0.0)?.f_to_kind(Kind::Double)?) };
        match network.output() {
            OutputShape::Classes(classes) => self.add_classes(&logits, batch, loss()?, classes),
            OutputShape::Labels(_) => self.add_labels(&logits, batch, loss()?),
            OutputShape::Number => self.add_numbers(&logits, batch, loss()?),
            OutputShape::Tokens => self.add_tokens(&logits, batch, loss()?),
            OutputShape::Boxes(_) => self.add_boxes(&logits, loaded),
        }?;
        Ok(Some(logits))
    }

    fn add_classes(&mut self, logits: &Tensor, batch: &BatchTensors, loss: Tensor, classes: i64) -> Result<()> {
        let labels = &batch.labels;
        let best = logits.f_argmax(-1, false)?;
        sum(&mut self.correct, best.f_eq_tensor(labels)?.f_sum(Kind::Int64)?)?;
        self.add_mean(batch, loss)?;
        if classes > TOP {
            let (_, top) = logits.f_topk(TOP, -1, true, false)?;
            sum(&mut self.top, top.f_eq_tensor(&labels.f_unsqueeze(-1)?)?.f_sum(Kind::Int64)?)?;
        }
        if classes <= MOST_COUNTED {
            let places = labels.f_mul_scalar(classes)?.f_add(&best)?;
            sum(&mut self.confusion, places.f_bincount::<Tensor>(None, classes * classes)?)?;
        }
        Ok(())
    }

    fn add_labels(&mut self, logits: &Tensor, batch: &BatchTensors, loss: Tensor) -> Result<()> {
        self.labels.logits.extend(host(logits)?);
        self.labels.flags.extend(host(&batch.labels)?);
        self.add_mean(batch, loss)
    }

    fn add_numbers(&mut self, logits: &Tensor, batch: &BatchTensors, loss: Tensor) -> Result<()> {
        host(logits)?.into_iter().zip(host(&batch.labels)?).for_each(|(found, target)| self.numbers.add(found, target));
        self.add_mean(batch, loss)
    }

    /// Adds a loss that is a mean over the samples of a batch.
    fn add_mean(&mut self, batch: &BatchTensors, loss: Tensor) -> Result<()> {
        let count = Tensor::f_from_slice(&[batch.count()?])?.f_squeeze()?.f_to_device(loss.device())?;
        sum(&mut self.loss, loss.f_mul(&count)?)?;
        sum(&mut self.count, count)
    }

    fn add_tokens(&mut self, logits: &Tensor, batch: &BatchTensors, loss: Tensor) -> Result<()> {
        let count = batch.labels.f_ge(0)?.f_sum(Kind::Int64)?;
        // A batch without a token to predict has no mean.
        let loss = loss.f_mul(&count)?.f_where_self(&count.f_gt(0)?, &count.f_to_kind(Kind::Double)?)?;
        sum(&mut self.loss, loss)?;
        sum(&mut self.correct, logits.f_argmax(-1, false)?.f_eq_tensor(&batch.labels)?.f_sum(Kind::Int64)?)?;
        sum(&mut self.count, count)
    }

    fn add_boxes(&mut self, logits: &Tensor, loaded: &DeviceBatch) -> Result<()> {
        let (batch, size) = (&loaded.samples, loaded.samples.values.size());
        let found = detect::detections(logits, [size[2], size[3]])?;
        for ((found, original), image) in found.iter().zip(&loaded.originals).zip(loaded.first..) {
            let Some(original) = original else { continue };
            let found: Vec<Detected> = found.iter().map(|found| in_original(found, original)).collect();
            let annotated = |one: &AnnotatedBox| {
                let AnnotatedBox { class, bbox, is_crowd } = *one;
                Annotated { class, bbox, is_crowd }
            };
            self.boxes.add(image, &found, &original.annotations.iter().map(annotated).collect::<Vec<_>>());
        }
        let LossSums { loss, scores } = detect::sums(logits, &batch.labels, [size[2], size[3]])?;
        self.detection.extend([loss.f_double_value(&[])?, scores.f_double_value(&[])?, batch.count()? as f64]);
        Ok(())
    }

    fn score(mut self, output: OutputShape, ranks: &Ranks) -> Result<EvaluationScore> {
        let value = |sum: &Option<Tensor>| sum.as_ref().map_or(Ok(0.0), |sum| sum.f_double_value(&[]));
        let mut sums = [value(&self.loss)?, value(&self.correct)?, value(&self.count)?, value(&self.top)?];
        ranks.sum(&mut sums)?;
        let [mut loss, correct, mut count, top] = sums;
        if let OutputShape::Boxes(_) = output {
            ranks.sum(&mut self.detection)?;
            for batch in self.detection.chunks_exact(3) {
                loss += batch[0] / batch[1].max(detect::LEAST) * batch[2];
                count += batch[2];
            }
        }
        let count = count.max(1.0);
        let (loss, mut accuracy) = (loss / count, correct / count);
        let mut figures = TaskMetrics::default();
        let (mut confusion, mut labels) = (Vec::new(), Vec::new());
        match output {
            OutputShape::Labels(count) => {
                labels = self.labels.scores(count as usize, ranks)?;
                let (map, f1) = targets::means(&labels);
                accuracy = map;
                (figures.map, figures.f1) = (Some(map), Some(f1));
            }
            OutputShape::Number => {
                let NumberScore { r2, rmse, mae } = self.numbers.score(ranks)?;
                accuracy = r2;
                (figures.rmse, figures.mae) = (Some(rmse), Some(mae));
            }
            OutputShape::Classes(classes) => {
                figures.top5 = (classes > TOP).then_some(top / count);
                if classes <= MOST_COUNTED {
                    let table = table_of(self.confusion.as_ref(), classes, ranks)?;
                    figures.f1 = Some(mean_f1(&table));
                    confusion = table;
                }
            }
            OutputShape::Tokens => figures.perplexity = Some(loss.exp()),
            OutputShape::Boxes(_) => {
                let own = self.boxes.to_text();
                for root in 0..ranks.size() {
                    let text = ranks.broadcast_text(root, &own)?;
                    let taken = if root == ranks.rank() { Some(()) } else { self.boxes.take_in(&text) };
                    taken.ok_or_else(|| torch::Error::new(format!("the detections of rank {root} cannot be read")))?;
                }
                let precisions = self.boxes.precisions();
                accuracy = precisions.map_or(0.0, |precisions| precisions.all);
                figures.map50 = Some(precisions.map_or(0.0, |precisions| precisions.half));
            }
        }
        Ok(EvaluationScore { loss, accuracy, figures, confusion, labels })
    }
}

/// A detection in pixels of the image that its frame shows.
pub(crate) fn in_original(found: &Detection, original: &OriginalImage) -> Detected {
    let OriginalImage { extent, stretch, offset, .. } = original;
    let along = |edge: usize| {
        let axis = edge % 2;
        ((f64::from(found.edges[edge]) - offset[axis]) / stretch[axis]).clamp(0.0, extent[axis])
    };
    let [left, top, right, bottom] = [0, 1, 2, 3].map(along);
    Detected { class: found.class, score: found.score, bbox: [left, top, right - left, bottom - top] }
}

/// The values of a tensor, one after the other.
pub(crate) fn host(tensor: &Tensor) -> Result<Vec<f64>> {
    let plain = tensor.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?.f_reshape([-1])?;
    Vec::<f64>::try_from(plain).map_err(torch::Error::from)
}

fn sum(sum: &mut Option<Tensor>, value: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        None => value,
        Some(sum) => sum.f_add(&value)?,
    });
    Ok(())
}

/// The counts of all ranks, a row for each true class.
fn table_of(counts: Option<&Tensor>, classes: i64, ranks: &Ranks) -> Result<Vec<Vec<u64>>> {
    let mut values = match counts {
        Some(counts) => {
            let plain = counts.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?;
            Vec::<f64>::try_from(plain).map_err(torch::Error::from)?
        }
        None => vec![0.0; (classes * classes) as usize],
    };
    ranks.sum(&mut values)?;
    Ok(values.chunks(classes as usize).map(|row| row.iter().map(|value| *value as u64).collect()).collect())
}

/// The mean over classes of the harmonic mean of precision and recall; classes that neither occur nor are predicted do not
/// count.
fn mean_f1(table: &[Vec<u64>]) -> f64 {
    let (mut sum, mut classes) = (0.0, 0.0);
    for (class, row) in table.iter().enumerate() {
        let there: u64 = row.iter().sum();
        let predicted: u64 = table.iter().map(|row| row[class]).sum();
        if there + predicted > 0 {
            sum += 2.0 * row[class] as f64 / (there + predicted) as f64;
            classes += 1.0;
        }
    }
    if classes > 0.0 { sum / classes } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::mean_f1;

    #[test]
    fn f1_is_the_mean_over_classes() {
        let check = |table: &[&[u64]], expected: f64| {
            let table: Vec<Vec<u64>> = table.iter().map(|row| row.to_vec()).collect();
            assert!((mean_f1(&table) - expected).abs() < 1e-12, "{table:?}: {}", mean_f1(&table));
        };
        check(&[&[3, 0], &[0, 5]], 1.0);
        // Precision 3/4 and recall 3/5; precision 4/6 and recall 4/5.
        check(&[&[3, 2], &[1, 4]], (2.0 / 3.0 + 8.0 / 11.0) / 2.0);
        // The third class neither occurs nor is predicted.
        check(&[&[2, 0, 0], &[2, 0, 0], &[0, 0, 0]], (2.0 / 3.0) / 2.0);
        check(&[], 0.0);
    }
}
