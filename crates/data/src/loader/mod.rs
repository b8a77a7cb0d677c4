//! Batches, prepared ahead of the training step.
//!
//! Several batches are open at once. Threads claim slots of the first batch that has any and write each normalized
//! image to its final address; `next` returns batches in order and fills slots itself instead of sleeping. The contents
//! of a slot depend on its position alone, so it does not matter which thread fills it. The number of open batches
//! bounds memory and provides back-pressure. Read on in `ahead`, the loop of the threads.

mod ahead;
pub mod bound;
pub(crate) mod dataset;
mod fill;
pub(crate) mod handover;
mod upcoming;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::train::{Augment, MemoryFormat, Sampling};

use self::ahead::{Counters, Reach, Shared, State, Walk};
use self::dataset::Scratch;
use self::fill::Horizon;
use self::upcoming::{BatchPlan, Upcoming};
use crate::files::cache::CacheCounts;
use crate::sampling::share::RankShare;
use crate::transform::augment::Changes;
use crate::transform::mix::Mixing;
use crate::transform::recipe::ImageTransform;
use crate::transform::slots::{BatchDtype, Filled};
use crate::{Cursor, Dataset, Error, Part};

/// How batches are made.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// Samples per batch over all ranks, at least 1; the last batch of an epoch has the remainder.
    pub batch: usize,
    /// Which part of each batch this loader makes.
    pub share: RankShare,
    /// Seed of the order and the augmentation.
    pub seed: u64,
    /// Decoder threads; with 0, decoding runs inside `next`. The batches are the same for any number.
    pub workers: usize,
    /// Order of an image's values in memory: NCHW or NHWC.
    pub layout: MemoryFormat,
    /// Data type of the values.
    pub numbers: BatchDtype,
    /// Augmentations of training images, in this order; ignored by evaluation.
    pub augment: Vec<Augment>,
    /// In which order training samples are drawn; evaluation ignores it.
    pub sampling: Sampling,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions {
            batch: 32,
            share: RankShare::ALL,
            seed: 0,
            workers: 1,
            layout: MemoryFormat::Contiguous,
            numbers: BatchDtype::F32,
            augment: Vec::new(),
            sampling: Sampling::Shuffle,
        }
    }
}

/// A stream of batches in a fixed order. Dropping it ends its threads.
///
/// It makes 2 to 4 batches ahead, and keeps the memory of one more than that.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    scratch: Scratch,
    /// Why it cannot start.
    refused: Option<Error>,
}

/// Counters of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderStats {
    /// Samples that were made.
    pub samples: u64,
    /// Time that all threads together spent on them.
    pub busy: Duration,
    /// Bytes of image files that were read for them.
    pub read: u64,
    /// Batches that are complete and not yet returned.
    pub ready: usize,
    /// Reads of remote data; `None` for local data.
    pub reads: Option<CacheCounts>,
}

/// How the images of a batch were mixed.
#[derive(Debug, Clone, PartialEq)]
pub struct MixedLabels {
    /// The class of the image that each was mixed with.
    pub labels: Vec<i64>,
    /// Weight of an image's own class in its target, the same for the batch of all ranks; the other class has the
    /// remainder.
    pub own: f64,
}

/// One batch. Its memory returns to the loader on drop, so drop it as soon as its values are copied.
pub struct Batch {
    /// Present until the batch is dropped.
    filled: Option<Filled>,
    plan: BatchPlan,
    mixed: Option<MixedLabels>,
    wait: Duration,
    shared: Arc<Shared>,
}

impl Loader {
    /// Shuffled batches of the training split, from the cursor to the end of epoch `epochs - 1`.
    ///
    /// `from` is where training stands: [`Cursor::START`], or [`Batch::cursor_after`] of the last batch used. Those
    /// that were made ahead and not used are made again, so every sample of an epoch is seen exactly once. A cursor
    /// that does not fit the data is the first error of `next`.
    pub fn train(dataset: Arc<Dataset>, options: LoaderOptions, from: Cursor, epochs: u64) -> Loader {
        let changes = Changes::of(&options.augment);
        Loader::start(dataset, Part::Train, options, Walk::Shuffled(changes), from, epochs)
    }

    /// Batches of one part in natural order, once, without augmentation.
    pub fn evaluate(dataset: Arc<Dataset>, part: Part, options: LoaderOptions) -> Loader {
        Loader::start(dataset, part, options, Walk::Natural, Cursor::START, 1)
    }

    /// The same, from a position on.
    pub fn evaluate_from(dataset: Arc<Dataset>, part: Part, options: LoaderOptions, pos: u64) -> Loader {
        Loader::start(dataset, part, options, Walk::Natural, Cursor { epoch: 0, pos }, 1)
    }

    /// The next batch; `None` after the last one, and after an error.
    ///
    /// An error is that of the first image, in the order of training, that cannot be had.
    #[allow(clippy::should_implement_trait)] // An iterator's items outlive each other; a batch should be dropped first.
    pub fn next(&mut self) -> Option<Result<Batch, Error>> {
        match self.advance(None) {
            Poll::Ready(next) => next,
            Poll::Pending => None, // Unreachable without a deadline.
        }
    }

    /// Like [`Loader::next`], with a deadline: returns `Pending` if the batch is not complete at `due`. Progress is
    /// retained for the next call.
    pub fn next_by(&mut self, due: Instant) -> Poll<Option<Result<Batch, Error>>> {
        self.advance(Some(due))
    }

    fn advance(&mut self, due: Option<Instant>) -> Poll<Option<Result<Batch, Error>>> {
        let began = Instant::now();
        if let Some(error) = self.refused.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if state.ended {
                return Poll::Ready(None);
            }
            if let Some(in_flight) = state.take_complete() {
                state.ended = in_flight.failure.is_some();
                drop(state); // The woken threads need the lock.
                shared.room.notify_all();
                return Poll::Ready(Some(in_flight.land(&shared, began.elapsed())));
            }
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Poll::Pending;
            }
            if let Some(task) = state.task(&shared, Reach::Front) {
                drop(state);
                shared.perform(task, &mut self.scratch);
                state = shared.lock();
            } else if state.in_flight.is_empty() {
                state.ended = true;
            } else if !state.is_complete() {
                state = match left {
                    None => shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(left) => shared.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
        }
    }

    /// Whether the images of its batches are mixed with each other: all but those of a batch that is empty.
    pub fn mixes(&self) -> bool {
        self.shared.mixing.is_some()
    }

    /// Counters since the start, including batches that are not yet returned.
    pub fn measured(&self) -> LoaderStats {
        let Counters { samples, busy, read } = &self.shared.measured;
        LoaderStats {
            samples: samples.load(Ordering::Relaxed),
            busy: Duration::from_nanos(busy.load(Ordering::Relaxed)),
            read: read.load(Ordering::Relaxed),
            ready: self.shared.lock().ready(),
            reads: self.shared.dataset.reads(),
        }
    }

    fn start(
        dataset: Arc<Dataset>,
        part: Part,
        options: LoaderOptions,
        walk: Walk,
        from: Cursor,
        epochs: u64,
    ) -> Loader {
        let share = options.share;
        let all = options.batch.max(1).min(dataset.part(part).len().max(1)) as u64;
        let samples = dataset.count(part);
        let mixing = match &walk {
            Walk::Natural => None,
            Walk::Shuffled(_) => Mixing::of(&options.augment, options.seed),
        };
        let upcoming = Upcoming { at: from, epochs, samples, batch: all, share, mixes: mixing.is_some() };
        let batch = share.most(all) as usize;
        let values = batch * dataset.sample_len();
        let refused = refusal(&dataset, &walk, from, epochs, samples);
        let ended = refused.is_some();
        let state = State { upcoming, in_flight: VecDeque::new(), first: 0, spare: Vec::new(), ended };
        let from_memory = dataset.in_memory();
        let recipe = shown(&dataset, &walk);
        let horizon = horizon(&dataset, &walk, all, samples, epochs);
        let shared = Arc::new(Shared {
            process: std::process::id(),
            order: dataset.order(part, options.sampling, options.seed),
            scaling: dataset.scaling(),
            dataset,
            part,
            walk,
            seed: options.seed,
            layout: options.layout,
            numbers: options.numbers,
            recipe,
            horizon,
            mixing,
            measured: Counters::default(),
            // A rank makes one sample more where its images are mixed with those of others.
            batch: batch + usize::from(mixing.is_some()),
            // A decoded image is worth acquiring the lock for; a copied one is not.
            taken: if from_memory { (TAKEN_VALUES * batch / values.max(1)).max(1) } else { 1 },
            ahead: (AHEAD_BYTES / (size_of::<f32>() * values.max(1))).clamp(2, 4),
            state: Mutex::new(state),
            room: Condvar::new(),
            ready: Condvar::new(),
        });
        // Waking a thread costs more than copying so little.
        let workers = if from_memory && values <= INLINE_VALUES { 0 } else { options.workers };
        let threads = (0..workers).map(|_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.work())
        });
        Loader { threads: threads.collect(), shared, scratch: Scratch::default(), refused }
    }
}

/// Why a loader cannot start: the cursor is not in the data, or the images have no colours to be changed.
fn refusal(dataset: &Dataset, walk: &Walk, from: Cursor, epochs: u64, samples: u64) -> Option<Error> {
    let Cursor { epoch, pos } = from;
    if epoch < epochs && pos >= samples.max(1) {
        return Some(Error::Position { epoch, pos, samples });
    }
    grey(walk, dataset)
}

/// Returns the crop of each image, if images are cropped, and whether other augmentations follow.
fn shown(dataset: &Dataset, walk: &Walk) -> Option<(ImageTransform, bool)> {
    match walk {
        Walk::Natural => dataset.recipe().map(|recipe| (recipe, false)),
        // Data that was opened without crops is used uncropped.
        Walk::Shuffled(changes) => dataset.recipe().and(ImageTransform::of(changes.before(), dataset.height())),
    }
}

/// How far ahead remote samples are announced; `None` for local data and for a single pass in natural order.
fn horizon(dataset: &Dataset, walk: &Walk, batch: u64, samples: u64, epochs: u64) -> Option<Horizon> {
    match walk {
        Walk::Shuffled(_) if dataset.is_remote() => {
            let ahead = batch.max(FEWEST_AHEAD).min(samples.max(1));
            Some(Horizon { samples: samples.max(1), epochs, ahead, begun: AtomicBool::new(false) })
        }
        Walk::Shuffled(_) | Walk::Natural => None,
    }
}

/// Returns the error of an augmentation that needs colours on grayscale images.
fn grey(walk: &Walk, dataset: &Dataset) -> Option<Error> {
    let Walk::Shuffled(changes) = walk else { return None };
    let channels = dataset.channels();
    (channels != 3 && !changes.rest.is_empty()).then_some(Error::Grey { channels })
}

/// Samples that are announced before they are read, at least: requests that are in flight.
const FEWEST_AHEAD: u64 = 32;
/// Values that are written between two trips to the lock: some 20 µs of work.
const TAKEN_VALUES: usize = 1 << 15;
/// Batches up to this size, from memory, are made inside `next`: some 10 µs of work.
const INLINE_VALUES: usize = 1 << 14;
/// Bytes of batches that are made ahead, if at least two of them fit.
const AHEAD_BYTES: usize = 256 << 20;

impl Drop for Loader {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.lock().ended = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches its panics, so joining reports no error.
            let _ = thread.join();
        }
    }
}

impl Batch {
    /// Normalized `f32` values, empty for another dtype: `len × channels × height × width`, or `len × height × width ×
    /// channels` for channels-last.
    pub fn images(&self) -> &[f32] {
        self.filled.as_ref().map_or(&[], Filled::images)
    }

    /// The memory of the values, in numbers of any kind.
    pub fn bytes(&self) -> &[u8] {
        self.filled.as_ref().map_or(&[], Filled::bytes)
    }

    /// Data type of the values.
    pub fn numbers(&self) -> BatchDtype {
        self.filled.as_ref().map_or(BatchDtype::F32, Filled::numbers)
    }

    /// One label per sample: the index of its class in [`Dataset::classes`].
    pub fn labels(&self) -> &[i64] {
        self.filled.as_ref().map_or(&[], Filled::labels)
    }

    /// How the images were mixed; `None` if they were not.
    pub fn mixed(&self) -> Option<&MixedLabels> {
        self.mixed.as_ref()
    }

    /// Samples in this batch.
    pub fn len(&self) -> usize {
        self.plan.len as usize
    }

    /// Whether all samples of the batch are other ranks', as may be at the end of an epoch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples in the batch over all ranks, which weights a mean over ranks.
    pub fn of_all(&self) -> u64 {
        self.plan.all
    }

    /// Cursor to resume from after this batch, as saved in checkpoints.
    pub fn cursor_after(&self) -> Cursor {
        self.plan.after
    }

    /// Epoch of this batch, from 0.
    pub fn epoch(&self) -> u64 {
        self.plan.from.epoch
    }

    /// How long the caller of [`Loader::next`] waited for this batch.
    pub fn wait(&self) -> Duration {
        self.wait
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        let mut state = self.shared.lock();
        if let Some(filled) = self.filled.take()
            && state.spare.len() <= self.shared.ahead
        {
            state.spare.push(filled);
        }
    }
}
