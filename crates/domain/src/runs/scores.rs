//! Results of an evaluation, as a rank reports them.

use serde::{Deserialize, Serialize};

/// One evaluation over a whole split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Step after which it was made.
    pub step: u64,
    /// Epoch just ended, from 0.
    pub epoch: u32,
    /// Which samples.
    pub split: EvaluatedSplit,
    /// Mean loss.
    pub loss: f64,
    /// Share of samples whose highest score is the true class; where objects are found, the mean average precision
    /// over overlaps of 0.5 to 0.95; of several labels per sample, the mean average precision; of numbers, R².
    pub accuracy: f64,
    /// Whether this is the best validation accuracy so far.
    pub best: bool,
    /// What else was measured.
    #[serde(default, skip_serializing_if = "TaskMetrics::is_empty")]
    pub figures: TaskMetrics,
}

/// What an evaluation measures besides loss and accuracy; which of them there are depends on the task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskMetrics {
    /// Share of samples whose true class is among the five highest scores; from six classes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top5: Option<f64>,
    /// Mean over classes of the harmonic mean of precision and recall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// e to the power of the loss, for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// Mean average precision at an overlap of 0.5, where objects are found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map50: Option<f64>,
    /// Mean over labels of the average precision, where a sample has any number of labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<f64>,
    /// Root of the mean squared error, where numbers are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Mean absolute error, where numbers are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
}

impl TaskMetrics {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        *self == TaskMetrics::default()
    }

    /// What the accuracy beside these figures is called.
    pub fn accuracy_name(&self) -> &'static str {
        match self {
            TaskMetrics { map50: Some(_), .. } => "mAP@[.5:.95]",
            TaskMetrics { map: Some(_), .. } => "mAP",
            TaskMetrics { rmse: Some(_), .. } => "R²",
            _ => "accuracy",
        }
    }

    /// The same for programs.
    pub fn accuracy_key(&self) -> &'static str {
        match self {
            TaskMetrics { map50: Some(_), .. } | TaskMetrics { map: Some(_), .. } => "map",
            TaskMetrics { rmse: Some(_), .. } => "r2",
            _ => "accuracy",
        }
    }

    /// The figures that there are, for people.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let plain = |value: f64| format!("{value:.4}");
        let all = [
            ("top-5 accuracy", self.top5.map(percent)),
            ("F1, mean of classes", self.f1.map(percent)),
            ("perplexity", self.perplexity.map(|value| format!("{value:.2}"))),
            ("mAP@.5", self.map50.map(percent)),
            ("RMSE", self.rmse.map(plain)),
            ("mean absolute error", self.mae.map(plain)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Which samples an evaluation used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatedSplit {
    /// Held out to choose the model.
    Validation,
    /// Held out until the end, and used once.
    Test,
}
