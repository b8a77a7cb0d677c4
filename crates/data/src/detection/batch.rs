//! Batches of images with boxes: a function of (data set, seed, epoch, position), as for images.
//!
//! One thread prepares batches ahead of the training step and sends them through a channel of capacity two. With more
//! workers, each prepares some frames of every batch; the frames are the same for any number.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::train::Augment;

use super::frame::{Frame, OriginalImage};
use super::mosaic::mosaic;
use super::{DetectionDataset, GroundTruthBox};
use crate::sampling::random::{Draws, Purpose, key};
use crate::{Cursor, Error, Part, RankShare, SampleOrder};

/// Batches that wait to be used.
const AHEAD: usize = 2;

/// A stream of batches in a fixed order.
#[derive(Debug)]
pub struct DetectionLoader {
    batches: Option<Receiver<Result<DetectionBatch, Error>>>,
    thread: Option<JoinHandle<()>>,
    refused: Option<Error>,
}

/// Frames of one size with their objects.
#[derive(Debug)]
pub struct DetectionBatch {
    /// Normalised values, `count × 3 × size × size`.
    pub images: Vec<f32>,
    /// The objects of each frame.
    pub objects: Vec<Vec<GroundTruthBox>>,
    /// The image that each frame shows; `None` unless it shows one unmodified image.
    pub originals: Vec<Option<Arc<OriginalImage>>>,
    /// Where the first frame is in the order of its epoch.
    pub first: u64,
    /// Height and width.
    pub size: usize,
    /// Frames that count in metrics: all, or 0 if this rank has no frame of its share and runs another rank's for shape
    /// only.
    pub counted: usize,
    /// Frames of the batch over all ranks.
    pub whole: usize,
    /// Where training stands once this batch is used.
    pub cursor_after: Cursor,
    /// From 0.
    pub epoch: u64,
    /// How long the caller waited for it.
    pub wait: Duration,
}

/// The objects of a frame, and the image that it shows.
type Shown = (Vec<GroundTruthBox>, Option<Arc<OriginalImage>>);

/// Scratch buffers with which a thread prepares batches.
struct Maker {
    dataset: Arc<DetectionDataset>,
    part: Part,
    batch: usize,
    seed: u64,
    flip: bool,
    mosaic: bool,
    share: RankShare,
    /// The order of the training samples; `None` for evaluation, in the order of the data.
    order: Option<SampleOrder>,
}

impl DetectionLoader {
    /// Shuffled batches of the training samples, from the cursor to the end of epoch `epochs - 1`; of each, this share.
    pub fn train(
        dataset: Arc<DetectionDataset>,
        batch: usize,
        seed: u64,
        augment: &[Augment],
        from: Cursor,
        epochs: u64,
        share: RankShare,
    ) -> DetectionLoader {
        let samples = dataset.part(Part::Train).len() as u64;
        let Cursor { epoch, pos } = from;
        if epoch < epochs && pos >= samples.max(1) {
            return DetectionLoader {
                batches: None,
                thread: None,
                refused: Some(Error::Position { epoch, pos, samples }),
            };
        }
        let (flip, mosaic) = (augment.contains(&Augment::Flip), augment.contains(&Augment::Mosaic));
        let order = Some(SampleOrder::new(samples, seed));
        Maker { dataset, part: Part::Train, batch: batch.max(1), seed, flip, mosaic, share, order }.start(from, epochs)
    }

    /// Batches of one part as its samples come, once; of each, this share.
    pub fn evaluate(dataset: Arc<DetectionDataset>, part: Part, batch: usize, share: RankShare) -> DetectionLoader {
        DetectionLoader::evaluate_from(dataset, part, batch, share, 0)
    }

    /// The same, from a position on.
    pub fn evaluate_from(
        dataset: Arc<DetectionDataset>,
        part: Part,
        batch: usize,
        share: RankShare,
        pos: u64,
    ) -> DetectionLoader {
        let (flip, mosaic) = (false, false);
        let maker = Maker { dataset, part, batch: batch.max(1), seed: 0, flip, mosaic, share, order: None };
        maker.start(Cursor { epoch: 0, pos }, 1)
    }

    /// The next batch; `None` after the last one, and after an error.
    #[allow(clippy::should_implement_trait)] // Named as in the loader of images.
    pub fn next(&mut self) -> Option<Result<DetectionBatch, Error>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let began = Instant::now();
        let mut batch = self.batches.as_ref()?.recv().ok()?;
        if let Ok(batch) = &mut batch {
            batch.wait = began.elapsed();
        }
        Some(batch)
    }
}

impl Drop for DetectionLoader {
    fn drop(&mut self) {
        // The thread ends when the receiver is dropped.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Maker {
    fn start(self, from: Cursor, epochs: u64) -> DetectionLoader {
        let (sender, receiver) = sync_channel(AHEAD);
        let thread = std::thread::spawn(move || self.work(from, epochs, &sender));
        DetectionLoader { batches: Some(receiver), thread: Some(thread), refused: None }
    }

    fn work(&self, from: Cursor, epochs: u64, sender: &SyncSender<Result<DetectionBatch, Error>>) {
        let samples = self.dataset.part(self.part).len() as u64;
        let mut at = from;
        while at.epoch < epochs && samples > 0 {
            let rows = (self.batch as u64).min(samples - at.pos);
            let after = at.pos + rows;
            let next = if after < samples {
                Cursor { epoch: at.epoch, pos: after }
            } else {
                Cursor { epoch: at.epoch + 1, pos: 0 }
            };
            // The end of the thread would look like that of the data.
            let batch = catch_unwind(AssertUnwindSafe(|| self.batch(at, rows, next)));
            let batch = batch.unwrap_or_else(|_| Err(Error::Internal("a panic while frames were made".into())));
            let failed = batch.is_err();
            if sender.send(batch).is_err() || failed {
                return;
            }
            at = next;
        }
    }

    fn batch(&self, Cursor { epoch, pos }: Cursor, rows: u64, cursor_after: Cursor) -> Result<DetectionBatch, Error> {
        let size = self.dataset.size;
        let ours = self.share.of(rows);
        let counted = (ours.end - ours.start) as usize;
        // A rank without a frame still needs an input for its collective calls; its frame does not count.
        let ours = if ours.is_empty() { 0..1 } else { ours };
        let positions: Vec<u64> = ours.map(|index| pos + index).collect();
        let values = 3 * size * size;
        let mut images = vec![0.0; positions.len() * values];
        let share = positions.len().div_ceil(self.dataset.workers);
        let shares = positions.chunks(share).zip(images.chunks_mut(share * values));
        let objects = if self.dataset.workers == 1 {
            shares.map(|(positions, images)| self.frames(epoch, positions, images)).collect::<Result<Vec<_>, _>>()?
        } else {
            std::thread::scope(|scope| {
                let begun =
                    shares.map(|(positions, images)| scope.spawn(move || self.frames(epoch, positions, images)));
                // All of them, before the first is waited for.
                let workers: Vec<_> = begun.collect();
                let made = workers.into_iter().map(|worker| {
                    worker.join().unwrap_or_else(|_| Err(Error::Internal("a thread that makes frames panicked".into())))
                });
                made.collect::<Result<Vec<_>, _>>()
            })?
        };
        let (objects, originals) = objects.concat().into_iter().unzip();
        let (whole, wait, first) = (rows as usize, Duration::ZERO, positions[0]);
        Ok(DetectionBatch { images, objects, originals, first, size, counted, whole, cursor_after, epoch, wait })
    }

    /// Writes the frames at some positions of an epoch one after another, and returns their objects.
    fn frames(&self, epoch: u64, positions: &[u64], images: &mut [f32]) -> Result<Vec<Shown>, Error> {
        let DetectionDataset { size, mean, std, .. } = &*self.dataset;
        let pixels = size * size;
        let scaling = mean.iter().zip(std).map(|(mean, std)| (1.0 / (255.0 * std), -mean / std));
        let scaling: Vec<(f32, f32)> = scaling.collect();
        let mut objects = Vec::with_capacity(positions.len());
        for (position, image) in positions.iter().zip(images.chunks_exact_mut(3 * pixels)) {
            let frame = self.shown(epoch, *position)?;
            let planes = frame.pixels.chunks_exact(pixels).zip(image.chunks_exact_mut(pixels));
            for ((plane, values), (factor, offset)) in planes.zip(&scaling) {
                for (value, pixel) in values.iter_mut().zip(plane) {
                    *value = f32::from(*pixel) * factor + offset;
                }
            }
            objects.push((frame.objects.clone(), frame.original.clone()));
        }
        Ok(objects)
    }

    /// The frame at a position of an epoch.
    fn shown(&self, epoch: u64, position: u64) -> Result<Arc<Frame>, Error> {
        let part = self.dataset.part(self.part);
        let Some(order) = &self.order else { return self.dataset.frame(part[position as usize]) };
        let number = part[order.at(epoch, position) as usize];
        let mut draws = Draws::new(key(Purpose::Augment, self.seed, &[epoch, u64::from(number)]));
        let mut frame = self.dataset.frame(number)?;
        if self.mosaic {
            let mut other = || self.dataset.frame(part[draws.below(part.len() as u64) as usize]);
            let others = [other()?, other()?, other()?];
            frame = Arc::new(mosaic([&frame, &others[0], &others[1], &others[2]], &mut draws));
        }
        if self.flip && draws.below(2) == 1 {
            frame = Arc::new(frame.mirrored());
        }
        Ok(frame)
    }
}
