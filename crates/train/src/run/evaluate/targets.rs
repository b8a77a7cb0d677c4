//! Metrics where a sample has any number of labels, or a number.

use serde::{Deserialize, Serialize};

use crate::ranks::Ranks;
use crate::torch::Result;

/// How well one of several labels is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabelScore {
    /// Samples that have it.
    pub samples: u64,
    /// Average precision: the area under precision over recall, by steps; `None` if no sample has the label.
    pub average_precision: Option<f64>,
    /// Of the samples that it is predicted for (a probability above one half), the share that has it.
    pub precision: Option<f64>,
    /// Of the samples that have it, the share that it is predicted for.
    pub recall: Option<f64>,
}

/// The logits of all labels of each sample, and whether it has them, one sample after the other.
#[derive(Debug, Default)]
pub(super) struct LabelSums {
    pub logits: Vec<f64>,
    pub flags: Vec<f64>,
}

impl LabelSums {
    /// The scores of each label over the samples of all ranks.
    pub fn scores(&self, labels: usize, ranks: &Ranks) -> Result<Vec<LabelScore>> {
        let (logits, flags) = (of_all(&self.logits, ranks)?, of_all(&self.flags, ranks)?);
        let column = |label: usize| -> Vec<(f64, bool)> {
            let each = logits.iter().zip(&flags).skip(label).step_by(labels.max(1));
            each.map(|(logit, flag)| (*logit, *flag > 0.0)).collect()
        };
        Ok((0..labels).map(|label| score(column(label))).collect())
    }
}

/// The mean over labels that occur of the average precision, and the mean F1 over labels that occur or are predicted.
pub(super) fn means(scores: &[LabelScore]) -> (f64, f64) {
    let precisions: Vec<f64> = scores.iter().filter_map(|score| score.average_precision).collect();
    let f1 = |score: &LabelScore| match (score.precision, score.recall) {
        (Some(precision), Some(recall)) if precision + recall > 0.0 => {
            Some(2.0 * precision * recall / (precision + recall))
        }
        (None, None) => None,
        (_, _) => Some(0.0),
    };
    (mean(&precisions), mean(&scores.iter().filter_map(f1).collect::<Vec<_>>()))
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The values of every rank, in the order of the ranks.
fn of_all(own: &[f64], ranks: &Ranks) -> Result<Vec<f64>> {
    if ranks.shares() == 1 {
        return Ok(own.to_vec());
    }
    let place = ranks.share().of(u64::from(ranks.shares())).start as usize;
    let mut counts = vec![0.0; ranks.shares() as usize];
    counts[place] = own.len() as f64;
    ranks.sum(&mut counts)?;
    let before = counts[..place].iter().sum::<f64>() as usize;
    let mut all = vec![0.0; counts.iter().sum::<f64>() as usize];
    all[before..before + own.len()].copy_from_slice(own);
    ranks.sum(&mut all)?;
    Ok(all)
}

fn score(mut samples: Vec<(f64, bool)>) -> LabelScore {
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let count =
        |is_counted: fn(&(f64, bool)) -> bool| samples.iter().filter(|sample| is_counted(sample)).count() as u64;
    let positives = count(|(_, has)| *has);
    let (predicted, right) = (count(|(logit, _)| *logit > 0.0), count(|(logit, has)| *logit > 0.0 && *has));
    samples.sort_by(|one, other| other.0.total_cmp(&one.0));
    let (mut area, mut found, mut seen) = (0.0, 0_u64, 0_u64);
    // Samples with the same logit come together: their order says nothing.
    for same in samples.chunk_by(|one, other| one.0 == other.0) {
        let hits = same.iter().filter(|(_, has)| *has).count() as u64;
        (found, seen) = (found + hits, seen + same.len() as u64);
        area += hits as f64 * found as f64 / seen as f64;
    }
    LabelScore {
        samples: positives,
        average_precision: (positives > 0).then(|| area / positives as f64),
        precision: share(right, predicted),
        recall: share(right, positives),
    }
}

/// Sums over samples with a number each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NumberSums {
    pub count: f64,
    pub squared_error: f64,
    pub absolute_error: f64,
    pub sum: f64,
    pub squares: f64,
}

/// Errors of predicted numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberScore {
    /// Share of the variance that is explained; 0 where the numbers are all the same.
    pub r2: f64,
    pub rmse: f64,
    pub mae: f64,
}

impl NumberSums {
    /// Adds the prediction for a sample.
    pub fn add(&mut self, predicted: f64, target: f64) {
        let error = predicted - target;
        self.count += 1.0;
        self.squared_error += error * error;
        self.absolute_error += error.abs();
        self.sum += target;
        self.squares += target * target;
    }

    /// The errors over the samples of all ranks.
    pub fn score(self, ranks: &Ranks) -> Result<NumberScore> {
        let mut sums = [self.count, self.squared_error, self.absolute_error, self.sum, self.squares];
        ranks.sum(&mut sums)?;
        let [count, squared, absolute, sum, squares] = sums;
        let count = count.max(1.0);
        let spread = squares - sum * sum / count;
        // What rounding leaves of targets that are all equal is no spread.
        let r2 = if spread > 1e-12 * squares { 1.0 - squared / spread } else { 0.0 };
        Ok(NumberScore { r2, rmse: (squared / count).sqrt(), mae: absolute / count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_are_those_of_scikit_learn() {
        // sklearn.metrics.average_precision_score, macro, of three labels; the second has ties, the third no sample.
        let flags = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]];
        let logits = [[2.0, 0.5, -1.0], [1.0, 0.5, -2.0], [-0.5, 3.0, -1.5], [-1.0, -0.5, 1.0], [0.5, 0.5, -3.0]];
        let sums = LabelSums {
            logits: logits.iter().flatten().copied().collect(),
            flags: flags.iter().flatten().map(|flag| f64::from(*flag)).collect(),
        };
        let scores = sums.scores(3, &Ranks::alone()).unwrap();
        let near = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}");
        near(scores[0].average_precision, (1.0 + 2.0 / 3.0 + 3.0 / 4.0) / 3.0);
        near(scores[1].average_precision, (1.0 + 2.0 / 4.0) / 2.0);
        assert_eq!(scores[2].average_precision, None);
        // Precision and recall of the first: three are predicted, two of them rightly.
        near(scores[0].precision, 2.0 / 3.0);
        near(scores[0].recall, 2.0 / 3.0);
        assert_eq!((scores[2].samples, scores[2].precision, scores[2].recall), (0, Some(0.0), None));
        let (map, f1) = means(&scores);
        near(Some(map), ((1.0 + 2.0 / 3.0 + 3.0 / 4.0) / 3.0 + 0.75) / 2.0);
        near(Some(f1), (2.0 / 3.0 + 2.0 * 0.5 / 1.5 + 0.0) / 3.0);
    }

    #[test]
    fn errors_are_those_of_scikit_learn() {
        let mut sums = NumberSums::default();
        // The example of sklearn.metrics.r2_score: 0.948…, and of mean_absolute_error: 0.5.
        for (target, predicted) in [(3.0, 2.5), (-0.5, 0.0), (2.0, 2.0), (7.0, 8.0)] {
            sums.add(predicted, target);
        }
        let score = sums.score(&Ranks::alone()).unwrap();
        assert!((score.r2 - 0.948_608_137_044_967_8).abs() < 1e-12, "{score:?}");
        let mut equal = NumberSums::default();
        (0..7).for_each(|_| equal.add(0.2, 0.1));
        assert_eq!(equal.score(&Ranks::alone()).unwrap().r2, 0.0, "targets without spread");
        assert!((score.mae - 0.5).abs() < 1e-12 && (score.rmse - 0.375_f64.sqrt()).abs() < 1e-12, "{score:?}");
    }
}
