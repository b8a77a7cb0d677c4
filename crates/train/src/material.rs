//! What a run learns from: pictures or texts, and the batches of them on the device.
//!
//! Everything that depends on the kind of data is here, so that the loop in [`crate::run`] reads the same for both.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::bound::ImageStorage;
use data::{
    Cursor, Dataset, DetectionBatch, DetectionDataset, DetectionLoader, Loader, LoaderOptions, LoaderStats, Part,
    Provenance, RankShare, Skipped, TextBatch, TextDataset, TextLoader, TextObjective,
};
use domain::finding::{Cause, Finding};
use domain::rank::{Report, Spec};
use domain::train::{MemoryFormat, Task, Train};
use tch::{Device, Tensor};

use crate::channel::Channel;
use crate::detect::{self, Truth};
use crate::error::Error;
use crate::model::{Input, Output, Picture, Shape, Text};
use crate::step::{Of, Samples, pictures, shares};
use crate::torch;

/// A data set that is open.
#[derive(Debug, Clone)]
pub enum Material {
    /// Pictures and their classes.
    Pictures(Arc<Dataset>),
    /// Pictures in which objects are marked.
    Scenes(Arc<DetectionDataset>),
    /// Rows of words.
    Texts(Arc<TextDataset>),
}

/// A stream of batches.
pub enum Feed {
    /// Of pictures.
    Pictures { loader: Box<Loader>, picture: Picture, classes: i64, channels_last: bool },
    /// Of scenes.
    Scenes { loader: DetectionLoader, channels_last: bool },
    /// Of rows of words.
    Texts(TextLoader),
}

/// One batch on the device.
#[derive(Debug)]
pub struct Fed {
    /// Its values.
    pub samples: Samples,
    /// Where training stands once it is used.
    pub cursor_after: Cursor,
    /// From 0.
    pub epoch: u64,
    /// How long it was waited for.
    pub wait: Duration,
}

impl Material {
    /// Opens the data, and tells what was left out.
    pub fn open(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<Material, Error> {
        let (train, path) = (&spec.train, Path::new(&spec.data));
        let goal = match train.task() {
            Task::Pictures => return Ok(Material::Pictures(Arc::new(open_pictures(spec, channel, provenance)?))),
            Task::Boxes => return Ok(Material::Scenes(Arc::new(open_scenes(spec, channel, provenance)?))),
            Task::Texts => TextObjective::Class,
            Task::MaskedWords => TextObjective::Masked,
            Task::NextWord => TextObjective::Next,
        };
        let keys = train.data.text.as_ref().ok_or_else(|| {
            let message = format!("`{}` reads text, and where it stands in the data is not said", train.model.name());
            Finding::new(Cause::Job, message).hint("write for example `text: {columns: [text], label: label}`")
        })?;
        let texts = TextDataset::open_known(&train.data, keys, goal, path, train.seed, provenance)?;
        Ok(Material::Texts(Arc::new(texts)))
    }

    /// What goes into the network and what comes out; `train` is what it was opened for.
    pub fn shape(&self, train: &Train) -> Shape {
        match self {
            Material::Pictures(dataset) => Shape {
                input: Input::Picture(Picture {
                    channels: dataset.channels() as i64,
                    height: dataset.height() as i64,
                    width: dataset.width() as i64,
                }),
                output: Output::Classes(dataset.classes().len() as i64),
            },
            Material::Scenes(scenes) => {
                let size = scenes.size() as i64;
                Shape {
                    input: Input::Picture(Picture { channels: 3, height: size, width: size }),
                    output: Output::Boxes(scenes.classes().len() as i64),
                }
            }
            Material::Texts(texts) => {
                let length = train.data.text.as_ref().map_or(0, |text| i64::from(text.length));
                let output = match texts.goal() {
                    TextObjective::Class => Output::Classes(texts.classes().len() as i64),
                    TextObjective::Masked | TextObjective::Next => Output::Words,
                };
                Shape { input: Input::Text(Text { vocabulary: texts.vocabulary() as i64, length }), output }
            }
        }
    }

    /// Samples of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        match self {
            Material::Pictures(dataset) => dataset.counts(),
            Material::Scenes(scenes) => scenes.counts(),
            Material::Texts(texts) => texts.counts(),
        }
    }

    /// Names of the classes, in label order; none where words are learnt.
    pub fn classes(&self) -> &[String] {
        match self {
            Material::Pictures(dataset) => dataset.classes(),
            Material::Scenes(scenes) => scenes.classes(),
            Material::Texts(texts) => texts.classes(),
        }
    }

    /// In which form samples are kept, and how large one is: pixels from top to bottom, or words.
    pub fn kept(&self) -> (ImageStorage, u32) {
        match self {
            Material::Pictures(dataset) => (dataset.kept(), u32::try_from(dataset.height()).unwrap_or(u32::MAX)),
            Material::Scenes(scenes) => (ImageStorage::Files, u32::try_from(scenes.size()).unwrap_or(u32::MAX)),
            Material::Texts(_) => (ImageStorage::Memory, 0),
        }
    }

    /// Shuffled batches of the training split from `from` on; of each, this share.
    pub fn train(&self, train: &Train, from: Cursor, share: RankShare) -> Feed {
        let epochs = u64::from(train.epochs);
        match self {
            Material::Pictures(dataset) => {
                let options =
                    LoaderOptions { augment: train.data.augment.clone(), ..options(train, train.batch, share) };
                pictures_from(dataset, train, Loader::train(Arc::clone(dataset), options, from, epochs))
            }
            Material::Scenes(scenes) => {
                let (batch, augment) = (train.batch as usize, &train.data.augment);
                let loader =
                    DetectionLoader::train(Arc::clone(scenes), batch, train.seed, augment, from, epochs, share);
                Feed::Scenes { loader, channels_last: train.memory_format == MemoryFormat::ChannelsLast }
            }
            Material::Texts(texts) => {
                let batch = train.batch as usize;
                Feed::Texts(TextLoader::train(Arc::clone(texts), batch, train.seed, from, epochs).shared(share))
            }
        }
    }

    /// Batches of one split as its samples come, once; of each, this share. Scenes are all for every rank: the precision
    /// of detections is no sum over parts.
    pub fn evaluate(&self, train: &Train, part: Part, share: RankShare) -> Feed {
        let batch = train.batch.div_ceil(train.accumulate.max(1));
        match self {
            Material::Pictures(dataset) => {
                let loader = Loader::evaluate(Arc::clone(dataset), part, options(train, batch, share));
                pictures_from(dataset, train, loader)
            }
            Material::Scenes(scenes) => Feed::Scenes {
                loader: DetectionLoader::evaluate(Arc::clone(scenes), part, batch as usize),
                channels_last: train.memory_format == MemoryFormat::ChannelsLast,
            },
            Material::Texts(texts) => {
                Feed::Texts(TextLoader::evaluate(Arc::clone(texts), part, batch as usize, train.seed).shared(share))
            }
        }
    }
}

impl Feed {
    /// What its loader has done so far, where that is measured.
    pub fn measured(&self) -> Option<LoaderStats> {
        match self {
            Feed::Pictures { loader, .. } => Some(loader.measured()),
            Feed::Scenes { .. } | Feed::Texts(_) => None,
        }
    }

    /// The next batch, moved to the device; none after the last.
    pub fn next(&mut self, device: Device) -> Option<Result<Fed, Error>> {
        match self {
            Feed::Pictures { loader, picture, classes, channels_last } => {
                let batch = loader.next()?;
                let (picture, classes, channels_last) = (*picture, *classes, *channels_last);
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after(), batch.epoch(), batch.wait());
                    let Picture { channels, height, width } = picture;
                    let mut samples = if batch.is_empty() {
                        // A rank that there is no sample left for still has something to work at.
                        let blank = vec![0.0; (channels * height * width) as usize];
                        pictures(&blank, &[0], picture, channels_last, device)?
                    } else {
                        pictures(batch.images(), batch.labels(), picture, channels_last, device)?
                    };
                    if let Some(mixed) = batch.mixed() {
                        samples.labels = shares(&samples.labels, &mixed.labels, mixed.own, classes)?;
                    }
                    samples.of = Of { counted: batch.len(), whole: batch.of_all() as usize };
                    Ok(Fed { samples, cursor_after, epoch, wait })
                }))
            }
            Feed::Scenes { loader, channels_last } => {
                let batch = loader.next()?;
                let channels_last = *channels_last;
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after, batch.epoch, batch.wait);
                    Ok(Fed { samples: scenes(&batch, channels_last, device)?, cursor_after, epoch, wait })
                }))
            }
            Feed::Texts(loader) => {
                let batch = loader.next()?;
                Some(batch.map_err(Error::from).and_then(|batch| {
                    let (cursor_after, epoch, wait) = (batch.cursor_after, batch.epoch, batch.wait);
                    Ok(Fed { samples: words(&batch, device)?, cursor_after, epoch, wait })
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
        layout: train.memory_format,
        augment: Vec::new(),
        ..LoaderOptions::default()
    }
}

fn pictures_from(dataset: &Dataset, train: &Train, loader: Loader) -> Feed {
    let picture =
        Picture { channels: dataset.channels() as i64, height: dataset.height() as i64, width: dataset.width() as i64 };
    Feed::Pictures {
        loader: Box::new(loader),
        picture,
        classes: dataset.classes().len() as i64,
        channels_last: train.memory_format == MemoryFormat::ChannelsLast,
    }
}

fn scenes(batch: &DetectionBatch, channels_last: bool, device: Device) -> torch::Result<Samples> {
    let (count, size) = (batch.objects.len() as i64, batch.size as i64);
    let values = Tensor::f_from_slice(&batch.images)?.f_view([count, 3, size, size])?.f_to_device(device)?;
    let values = if channels_last { torch::channels_last(&values)? } else { values };
    let truth = |object: &data::GroundTruthBox| Truth { class: object.class, edges: object.edges };
    let frames: Vec<Vec<Truth>> = batch.objects.iter().map(|objects| objects.iter().map(truth).collect()).collect();
    Ok(Samples {
        values,
        mask: None,
        labels: detect::truths(&frames, device)?,
        of: Of { counted: batch.counted, whole: batch.whole },
    })
}

fn words(batch: &TextBatch, device: Device) -> torch::Result<Samples> {
    let size = [batch.rows as i64, batch.length as i64];
    let values = Tensor::f_from_slice(&batch.tokens)?.f_view(size)?.f_to_device(device)?;
    let mask = match (&batch.places, &batch.mask) {
        (Some(places), _) => Some(Tensor::f_from_slice(places)?.f_view(size)?.f_to_device(device)?),
        (None, Some(mask)) => Some(Tensor::f_from_slice(mask)?.f_view(size)?.f_to_device(device)?),
        (None, None) => None,
    };
    let labels = Tensor::f_from_slice(&batch.labels)?;
    // A row of a single word has as many labels either way, and both forms score it alike.
    let labels = if batch.labels.len() == batch.rows { labels } else { labels.f_view(size)? };
    let of = Of { counted: batch.counted, whole: batch.whole };
    Ok(Samples { values, mask, labels: labels.f_to_device(device)?, of })
}

fn open_scenes(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<DetectionDataset, Error> {
    let scenes = DetectionDataset::open_known(&spec.train.data, Path::new(&spec.data), spec.train.seed, provenance)?;
    for text in scenes.notes() {
        channel.send(Report::Note { text: text.clone() });
    }
    tell_skipped(scenes.skipped(), channel);
    Ok(scenes)
}

fn open_pictures(spec: &Spec, channel: &Channel, provenance: &mut Provenance) -> Result<Dataset, Error> {
    let dataset = Dataset::open_known(&spec.train.data, Path::new(&spec.data), spec.train.seed, provenance)?;
    tell_skipped(dataset.skipped(), channel);
    Ok(dataset)
}

fn tell_skipped(skipped: &[Skipped], channel: &Channel) {
    if let Some(first) = skipped.first() {
        let count = skipped.len();
        let text =
            format!("{count} pictures cannot be read and are left out; the first is `{}`: {}", first.name, first.why);
        channel.send(Report::Note { text });
    }
}
