//! The training data, images or texts, and batches of them on the device.
//!
//! Code that depends on the kind of data is here, so that the loop in [`crate::run`] is the same for all.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::bound::ImageStorage;
use data::{
    Cursor, Dataset, DetectionBatch, DetectionDataset, DetectionLoader, Loader, LoaderOptions, LoaderStats,
    OriginalImage, Part, Provenance, RankShare, Skipped, Targets, TextBatch, TextDataset, TextLoader, TextObjective,
};
use domain::finding::{Cause, Finding};
use domain::rank::{Report, Spec};
use domain::train::{MemoryFormat, Task, Text, Train};
use tch::Device;

use super::targets::{output, target_tensor};
use crate::channel::Channel;
use crate::detect::{self, GroundTruth};
use crate::error::Error;
use crate::model::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use crate::step::{BatchShare, BatchTensors, image_batch, mixed_targets};
use crate::torch;

/// A data set that is open.
#[derive(Debug, Clone)]
pub enum TrainingData {
    /// Images and their classes.
    Images(Arc<Dataset>),
    /// Images and the boxes of their objects.
    Detection(Arc<DetectionDataset>),
    /// Texts, as rows of token ids.
    Text(Arc<TextDataset>),
}

/// A stream of batches.
pub enum DeviceLoader {
    /// Of images.
    Images { loader: Box<Loader>, dataset: Arc<Dataset>, shape: ImageShape, channels_last: bool },
    /// Of images with boxes.
    Detection { loader: DetectionLoader, channels_last: bool },
    /// Of rows of token ids.
    Text { loader: TextLoader, texts: Arc<TextDataset> },
}

/// The text columns of the data, and the training objective.
///
/// # Errors
/// If the job does not specify them, or its model reads images.
pub fn objective(train: &Train) -> Result<(&Text, TextObjective), Error> {
    let goal = match train.task() {
        Task::TextClassification => TextObjective::Class,
        Task::MaskedLanguageModel => TextObjective::Masked,
        Task::LanguageModel => TextObjective::Next,
        Task::ImageClassification | Task::ObjectDetection => {
            return Err(Finding::new(Cause::Internal, "a model of images has no text").into());
        }
    };
    let keys = train.data.text.as_ref().ok_or_else(|| {
        let message =
            format!("`{}` reads text, and the job does not say where the text is in the data", train.model.name());
        Finding::new(Cause::Job, message).hint("write for example `text: {columns: [text], label: label}`")
    })?;
    Ok((keys, goal))
}

/// One batch on the device.
#[derive(Debug)]
pub struct DeviceBatch {
    /// Its values.
    pub samples: BatchTensors,
    /// Where training stands once it is used.
    pub cursor_after: Cursor,
    /// From 0.
    pub epoch: u64,
    /// How long it was waited for.
    pub wait: Duration,
    /// For detection: the image that each frame shows, if it is one unmodified image.
    pub originals: Vec<Option<Arc<OriginalImage>>>,
    /// Position of the first sample in the order of its epoch; 0 if it is not needed.
    pub first: u64,
}

impl TrainingData {
    /// Opens the data, and reports skipped samples.
    pub fn open(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<TrainingData, Error> {
        let (train, path) = (&spec.train, Path::new(&spec.data));
        match train.task() {
            Task::ImageClassification => {
                return Ok(TrainingData::Images(Arc::new(open_images(spec, channel, provenance)?)));
            }
            Task::ObjectDetection => {
                return Ok(TrainingData::Detection(Arc::new(open_detection(spec, channel, provenance)?)));
            }
            Task::TextClassification | Task::MaskedLanguageModel | Task::LanguageModel => {}
        }
        let (keys, goal) = objective(train)?;
        let tokens = match (&spec.tokens[..], Path::new(&spec.checkpoints)) {
            ("", checkpoints) => checkpoints.with_file_name("tokens"),
            (tokens, _) => Path::new(tokens).to_owned(),
        };
        let texts = TextDataset::open_known(&train.data, keys, goal, path, train.seed, Some(&tokens), provenance)?;
        Ok(TrainingData::Text(Arc::new(texts)))
    }

    /// Input and output shape of the network; `train` is the job for which the data was opened.
    pub fn shape(&self, train: &Train) -> ModelShape {
        match self {
            TrainingData::Images(dataset) => ModelShape {
                input: InputShape::Image(ImageShape {
                    channels: dataset.channels() as i64,
                    height: dataset.height() as i64,
                    width: dataset.width() as i64,
                }),
                output: output(dataset.targets(), dataset.classes()),
            },
            TrainingData::Detection(scenes) => {
                let size = scenes.size() as i64;
                ModelShape {
                    input: InputShape::Image(ImageShape { channels: 3, height: size, width: size }),
                    output: OutputShape::Boxes(scenes.classes().len() as i64),
                }
            }
            TrainingData::Text(texts) => {
                let length = train.data.text.as_ref().map_or(0, |text| i64::from(text.length));
                let output = match texts.goal() {
                    TextObjective::Class => output(texts.targets(), texts.classes()),
                    TextObjective::Masked | TextObjective::Next => OutputShape::Tokens,
                };
                ModelShape {
                    input: InputShape::Text(TextShape {
                        vocabulary: texts.vocabulary() as i64,
                        length,
                        separator: texts.separator().map(i64::from),
                    }),
                    output,
                }
            }
        }
    }

    /// Samples of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        match self {
            TrainingData::Images(dataset) => dataset.counts(),
            TrainingData::Detection(scenes) => scenes.counts(),
            TrainingData::Text(texts) => texts.counts(),
        }
    }

    /// What the labels of samples stand for; `None` where they are classes.
    pub fn targets(&self) -> Option<&Targets> {
        match self {
            TrainingData::Images(dataset) => dataset.targets(),
            TrainingData::Detection(_) => None,
            TrainingData::Text(texts) => texts.targets(),
        }
    }

    /// Names of the classes in label order, or of what else is predicted; empty for a language model.
    pub fn outputs(&self) -> Vec<String> {
        match self {
            TrainingData::Images(dataset) => dataset.outputs(),
            TrainingData::Detection(scenes) => scenes.classes().to_vec(),
            TrainingData::Text(texts) => texts.outputs(),
        }
    }

    /// How samples are stored, and the size of one: height in pixels, or length in tokens.
    pub fn kept(&self) -> (ImageStorage, u32) {
        match self {
            TrainingData::Images(dataset) => (dataset.kept(), u32::try_from(dataset.height()).unwrap_or(u32::MAX)),
            TrainingData::Detection(scenes) => (ImageStorage::Files, u32::try_from(scenes.size()).unwrap_or(u32::MAX)),
            TrainingData::Text(_) => (ImageStorage::Memory, 0),
        }
    }

    /// Shuffled batches of the training split from `from` on; of each, this share.
    pub fn train(&self, train: &Train, from: Cursor, share: RankShare) -> DeviceLoader {
        let epochs = u64::from(train.epochs);
        match self {
            TrainingData::Images(dataset) => {
                let options = LoaderOptions {
                    augment: train.data.augment.clone(),
                    sampling: train.data.sampling,
                    ..options(train, train.batch, share)
                };
                image_loader(dataset, train, Loader::train(Arc::clone(dataset), options, from, epochs))
            }
            TrainingData::Detection(scenes) => {
                let (batch, augment) = (train.batch as usize, &train.data.augment);
                let loader =
                    DetectionLoader::train(Arc::clone(scenes), batch, train.seed, augment, from, epochs, share);
                DeviceLoader::Detection {
                    loader,
                    channels_last: train.memory_format == Some(MemoryFormat::ChannelsLast),
                }
            }
            TrainingData::Text(texts) => {
                let batch = train.batch as usize;
                let loader = TextLoader::train(Arc::clone(texts), batch, train.seed, from, epochs);
                let loader = loader.sampled(train.data.sampling).shared(share);
                DeviceLoader::Text { loader, texts: Arc::clone(texts) }
            }
        }
    }

    /// Batches of one split as its samples come, once; of each, this share.
    pub fn evaluate(&self, train: &Train, part: Part, share: RankShare) -> DeviceLoader {
        let batch = train.batch.div_ceil(train.accumulate.max(1));
        match self {
            TrainingData::Images(dataset) => {
                let loader = Loader::evaluate(Arc::clone(dataset), part, options(train, batch, share));
                image_loader(dataset, train, loader)
            }
            TrainingData::Detection(scenes) => DeviceLoader::Detection {
                loader: DetectionLoader::evaluate(Arc::clone(scenes), part, batch as usize, share),
                channels_last: train.memory_format == Some(MemoryFormat::ChannelsLast),
            },
            TrainingData::Text(texts) => DeviceLoader::Text {
                loader: TextLoader::evaluate(Arc::clone(texts), part, batch as usize, train.seed).shared(share),
                texts: Arc::clone(texts),
            },
        }
    }
}

impl DeviceLoader {
    /// Counters of its loader, if it has any.
    pub fn measured(&self) -> Option<LoaderStats> {
        match self {
            DeviceLoader::Images { loader, .. } => Some(loader.measured()),
            DeviceLoader::Detection { .. } | DeviceLoader::Text { .. } => None,
        }
    }

    /// The next batch, moved to the device; `None` after the last.
    pub fn next(&mut self, device: Device) -> Option<Result<DeviceBatch, Error>> {
        match self {
            DeviceLoader::Images { loader, dataset, shape, channels_last } => {
                let batch = loader.next()?;
                let is_mixed = loader.mixes();
                let (shape, classes, channels_last) = (*shape, dataset.classes().len() as i64, *channels_last);
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after(), batch.epoch(), batch.wait());
                    let ImageShape { channels, height, width } = shape;
                    let mut samples = if batch.is_empty() {
                        // A rank without a sample still needs an input for its collective calls.
                        let blank = vec![0.0; (channels * height * width) as usize];
                        image_batch(&blank, &[0], shape, channels_last, device)?
                    } else {
                        image_batch(batch.images(), batch.labels(), shape, channels_last, device)?
                    };
                    if let Some(targets) = dataset.targets() {
                        let labels = if batch.is_empty() { &[0] } else { batch.labels() };
                        samples.labels = target_tensor(targets, labels, device)?;
                    }
                    if let Some(mixed) = batch.mixed() {
                        samples.labels = mixed_targets(&samples.labels, &mixed.labels, mixed.own, classes)?;
                    } else if is_mixed {
                        // The form of the labels decides which collective calls a step makes, so a blank has that of
                        // the other ranks.
                        samples.labels = mixed_targets(&samples.labels, &[0], 1.0, classes)?;
                    }
                    samples.share = BatchShare { counted: batch.len(), whole: batch.of_all() as usize };
                    Ok(DeviceBatch { samples, cursor_after, epoch, wait, originals: Vec::new(), first: 0 })
                }))
            }
            DeviceLoader::Detection { loader, channels_last } => {
                let batch = loader.next()?;
                let channels_last = *channels_last;
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after, batch.epoch, batch.wait);
                    Ok(DeviceBatch {
                        samples: detection_batch(&batch, channels_last, device)?,
                        cursor_after,
                        epoch,
                        wait,
                        first: batch.first,
                        originals: batch.originals,
                    })
                }))
            }
            DeviceLoader::Text { loader, texts } => {
                let batch = loader.next()?;
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after, batch.epoch, batch.wait);
                    let mut samples = text_batch(&batch, texts.goal(), device)?;
                    if let Some(targets) = texts.targets() {
                        samples.labels = target_tensor(targets, &batch.labels, device)?;
                    }
                    Ok(DeviceBatch { samples, cursor_after, epoch, wait, originals: Vec::new(), first: 0 })
                }))
            }
        }
    }
}

fn options(train: &Train, batch: u32, share: RankShare) -> LoaderOptions {
    LoaderOptions {
        batch: batch as usize,
        share,
        seed: train.seed,
        workers: train.data.workers as usize,
        layout: train.memory_format.unwrap_or_default(),
        augment: Vec::new(),
        ..LoaderOptions::default()
    }
}

fn image_loader(dataset: &Arc<Dataset>, train: &Train, loader: Loader) -> DeviceLoader {
    let shape = ImageShape {
        channels: dataset.channels() as i64,
        height: dataset.height() as i64,
        width: dataset.width() as i64,
    };
    DeviceLoader::Images {
        loader: Box::new(loader),
        dataset: Arc::clone(dataset),
        shape,
        channels_last: train.memory_format == Some(MemoryFormat::ChannelsLast),
    }
}

fn detection_batch(batch: &DetectionBatch, channels_last: bool, device: Device) -> torch::Result<BatchTensors> {
    let (count, size) = (batch.objects.len() as i64, batch.size as i64);
    let values = torch::upload(&batch.images, &[count, 3, size, size], device)?;
    let values = if channels_last { torch::channels_last(&values)? } else { values };
    let truth = |object: &data::GroundTruthBox| GroundTruth { class: object.class, edges: object.edges };
    let frames: Vec<Vec<GroundTruth>> =
        batch.objects.iter().map(|objects| objects.iter().map(truth).collect()).collect();
    Ok(BatchTensors {
        values,
        mask: None,
        labels: detect::ground_truth_tensor(&frames, device)?,
        share: BatchShare { counted: batch.counted, whole: batch.whole },
        class_weights: None,
    })
}

fn text_batch(batch: &TextBatch, goal: TextObjective, device: Device) -> torch::Result<BatchTensors> {
    let size = [batch.rows as i64, batch.length as i64];
    let values = torch::upload(&batch.tokens, &size, device)?;
    let mask = match (&batch.places, &batch.mask) {
        (Some(places), _) => Some(torch::upload(places, &size, device)?),
        (None, Some(mask)) => Some(torch::upload(mask, &size, device)?),
        (None, None) => None,
    };
    // Not by their number: the rows of one rank may have a single token, and the shape decides about collective calls.
    let label_size = match goal {
        TextObjective::Class => &size[..1],
        TextObjective::Masked | TextObjective::Next => &size[..],
    };
    let labels = torch::upload(&batch.labels, label_size, device)?;
    let share = BatchShare { counted: batch.counted, whole: batch.whole };
    Ok(BatchTensors { values, mask, labels, share, class_weights: None })
}

fn open_detection(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<DetectionDataset, Error> {
    let scenes = DetectionDataset::open_known(&spec.train.data, Path::new(&spec.data), spec.train.seed, provenance)?;
    for text in scenes.notes() {
        channel.send(Report::Note { text: text.clone() });
    }
    report_skipped(scenes.skipped(), channel);
    Ok(scenes)
}

fn open_images(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<Dataset, Error> {
    let dataset = Dataset::open_known(&spec.train.data, Path::new(&spec.data), spec.train.seed, provenance)?;
    report_skipped(dataset.skipped(), channel);
    if let Some(text) = dataset.left_out() {
        channel.send(Report::Note { text: text.to_owned() });
    }
    Ok(dataset)
}

fn report_skipped(skipped: &[Skipped], channel: &Channel) {
    if let Some(first) = skipped.first() {
        let count = skipped.len();
        let text =
            format!("{count} images cannot be read and are left out; the first is `{}`: {}", first.name, first.why);
        channel.send(Report::Note { text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_shape_of_the_objective_for_any_length() {
        for (goal, expected) in [(TextObjective::Class, 1), (TextObjective::Masked, 2), (TextObjective::Next, 2)] {
            let batch = TextBatch {
                tokens: vec![3, 4],
                mask: None,
                places: None,
                labels: vec![1, 0],
                rows: 2,
                length: 1,
                counted: 2,
                whole: 2,
                cursor_after: Cursor::START,
                epoch: 0,
                wait: Duration::ZERO,
            };
            assert_eq!(text_batch(&batch, goal, Device::Cpu).unwrap().labels.dim(), expected, "{goal:?}");
        }
    }
}
