//! The `class_weights:` key: how much each class counts in the training loss.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Weight of each class in the training loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ClassWeights {
    /// By the number of samples of each class.
    Balanced(Balanced),
    /// One number for each class, in the order of the classes.
    Each(Vec<f64>),
}

/// The word `balanced`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Balanced {
    /// Training samples / (classes × training samples of the class), as `compute_class_weight("balanced")` of scikit-learn.
    Balanced,
}

impl ClassWeights {
    /// The weights for classes of so many training samples; a class without any counts nothing.
    ///
    /// # Errors
    /// With how many weights there are, where that is not the number of classes.
    pub fn of(&self, counts: &[u64]) -> Result<Vec<f64>, usize> {
        match self {
            ClassWeights::Balanced(Balanced::Balanced) => {
                let total: u64 = counts.iter().sum();
                let each = |count: u64| total as f64 / (counts.len() as f64 * count as f64);
                Ok(counts.iter().map(|count| if *count == 0 { 0.0 } else { each(*count) }).collect())
            }
            ClassWeights::Each(weights) if weights.len() == counts.len() => Ok(weights.clone()),
            ClassWeights::Each(weights) => Err(weights.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_classes_count_more() {
        let balanced = ClassWeights::Balanced(Balanced::Balanced);
        // scikit-learn's compute_class_weight("balanced", classes=[0, 1, 2], y=[0] * 6 + [1] * 3 + [2] * 3).
        assert_eq!(balanced.of(&[6, 3, 3]), Ok(vec![4.0 / 6.0, 4.0 / 3.0, 4.0 / 3.0]));
        assert_eq!(balanced.of(&[4, 0]), Ok(vec![0.5, 0.0]));
        assert_eq!(ClassWeights::Each(vec![1.0, 2.0]).of(&[7, 9]), Ok(vec![1.0, 2.0]));
        assert_eq!(ClassWeights::Each(vec![1.0, 2.0]).of(&[7, 9, 1]), Err(2));
    }
}
