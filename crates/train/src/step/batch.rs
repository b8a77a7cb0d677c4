//! One batch, or a part of one, on the device.

use tch::{Device, Kind, Tensor};

use crate::model::{ImageShape, Pass};
use crate::torch::{self, Result};

/// Labelled images or texts on the device.
#[derive(Debug)]
pub struct BatchTensors {
    /// Normalised pixels, float32 `samples × channels × height × width`; or token ids, int64 `samples × length`.
    pub values: Tensor,
    /// For texts, `samples × length`: boolean, true for tokens and false for padding; or, where several documents share a
    /// row, each token's position within its document, int64. `None` for images and for texts without padding.
    pub mask: Option<Tensor>,
    /// One class per sample; or the target token at each position and −100 if there is none; both int64. Or, for mixed
    /// images, the probability of each class, float32 `samples × classes`. Or whether a sample has each label, boolean
    /// `samples × labels`; or a number per sample, float32. Or the objects of each image, as a
    /// [`crate::detect::ground_truth_tensor`].
    pub labels: Tensor,
    /// Which part of the batch of all ranks they are.
    pub share: BatchShare,
    /// In training, how much each class counts in the loss, float32; none where all count alike.
    pub class_weights: Option<Tensor>,
}

/// Which part of the batch of all ranks some samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchShare {
    /// Number of samples that count: all, or 0 for a blank sample that keeps the ranks in step.
    pub counted: usize,
    /// Samples of all ranks.
    pub whole: usize,
}

impl BatchShare {
    /// All of a batch.
    pub fn all(count: usize) -> BatchShare {
        BatchShare { counted: count, whole: count }
    }

    /// 1 if they count, else 0.
    pub fn weight(self) -> f64 {
        f64::from(u8::from(self.counted > 0))
    }
}

impl BatchTensors {
    /// How many there are.
    pub fn count(&self) -> Result<i64> {
        Ok(self.labels.size().first().copied().unwrap_or(0))
    }

    /// The pass that these are sent through.
    pub fn pass(&self, train: bool) -> Pass {
        Pass { mask: self.mask.as_ref().map(Tensor::shallow_clone), ..Pass::whole(train) }
    }

    /// Some of them, which share their memory.
    pub(super) fn part(&self, start: i64, length: i64) -> Result<BatchTensors> {
        Ok(BatchTensors {
            values: self.values.f_narrow(0, start, length)?,
            mask: self.mask.as_ref().map(|mask| mask.f_narrow(0, start, length)).transpose()?,
            labels: self.labels.f_narrow(0, start, length)?,
            share: self.share,
            class_weights: self.class_weights.as_ref().map(Tensor::shallow_clone),
        })
    }

    /// A copy in new memory.
    pub(crate) fn copied(&self) -> Result<BatchTensors> {
        Ok(BatchTensors {
            values: torch::copied(&self.values)?,
            mask: self.mask.as_ref().map(torch::copied).transpose()?,
            labels: torch::copied(&self.labels)?,
            share: self.share,
            class_weights: self.class_weights.as_ref().map(Tensor::shallow_clone),
        })
    }

    /// Takes over the values of others of the same shape.
    pub(crate) fn take(&self, others: &BatchTensors) -> Result<()> {
        self.values.shallow_clone().f_copy_(&others.values)?;
        if let (Some(mask), Some(other)) = (&self.mask, &others.mask) {
            mask.shallow_clone().f_copy_(other)?;
        }
        self.labels.shallow_clone().f_copy_(&others.labels)?;
        Ok(())
    }

    /// Whether the mean of its loss is over something else than samples: target tokens, or weights of classes.
    pub(super) fn has_own_mean(&self) -> bool {
        let is_tokens = self.labels.dim() == 2 && self.labels.kind() == Kind::Int64;
        is_tokens || self.weights_of_classes().is_some()
    }

    /// How much each class counts, where the labels are classes and that differs.
    pub(super) fn weights_of_classes(&self) -> Option<&Tensor> {
        self.class_weights.as_ref().filter(|_| self.labels.dim() == 1)
    }

    /// What the mean is over: the number of target tokens, or the sum of the weights of the samples' classes.
    pub(super) fn target_count(&self) -> Result<Tensor> {
        match self.weights_of_classes() {
            Some(weights) => Ok(weights.f_index_select(0, &self.labels)?.f_sum(Kind::Float)?),
            None => Ok(self.labels.f_ge(0)?.f_sum(Kind::Float)?),
        }
    }
}

/// The target probabilities, `samples × classes`: `own` for its own class, and the remainder for the class of the image
/// that it was mixed with.
pub fn mixed_targets(labels: &Tensor, others: &[i64], own: f64, classes: i64) -> Result<Tensor> {
    let others = torch::upload(others, &[others.len() as i64], labels.device())?;
    let one = |of: &Tensor| of.f_one_hot(classes)?.f_to_kind(Kind::Float);
    Ok(one(labels)?.f_mul_scalar(own)?.f_add(&one(&others)?.f_mul_scalar(1.0 - own)?)?)
}

/// Moves a batch of images, in NCHW or NHWC order in memory, to the device.
pub fn image_batch(
    images: &[f32],
    labels: &[i64],
    ImageShape { channels, height, width }: ImageShape,
    channels_last: bool,
    device: Device,
) -> Result<BatchTensors> {
    let count = labels.len() as i64;
    let values = if channels_last {
        // The pixels stay where they are: only the strides say that channels come last.
        torch::upload(images, &[count, height, width, channels], device)?.f_permute([0, 3, 1, 2])?
    } else {
        torch::upload(images, &[count, channels, height, width], device)?
    };
    debug_assert_eq!(values.kind(), Kind::Float);
    let labels = torch::upload(labels, &[count], device)?;
    let share = BatchShare::all(count as usize);
    Ok(BatchTensors { values, mask: None, labels, share, class_weights: None })
}
