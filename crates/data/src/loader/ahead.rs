//! State shared by the threads of a loader: the open batches and the slots that are still to be filled. Read on in
//! `fill`, which fills one slot.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::train::MemoryFormat;

use super::dataset::Scratch;
use super::fill::Horizon;
use super::upcoming::{BatchPlan, Upcoming};
use super::{Batch, MixedLabels};
use crate::transform::augment::Changes;
use crate::transform::mix::{Form, Mixing};
use crate::transform::recipe::ImageTransform;
use crate::transform::slots::{BatchDtype, Claim, Filled, Open};
use crate::{Dataset, Error, Part, TrainOrder};

/// What all threads of a loader see.
pub(super) struct Shared {
    /// The process that made the loader: a forked child has its memory and not its threads.
    pub process: u32,
    pub dataset: Arc<Dataset>,
    pub part: Part,
    pub walk: Walk,
    pub order: TrainOrder,
    pub seed: u64,
    pub layout: MemoryFormat,
    pub scaling: Vec<(f32, f32)>,
    pub numbers: BatchDtype,
    /// The crop of an image file that is used, and whether augmentations other than a horizontal flip follow.
    pub recipe: Option<(ImageTransform, bool)>,
    /// Read-ahead of remote data; `None` if the data is local.
    pub horizon: Option<Horizon>,
    /// How the images of a batch are mixed, if they are.
    pub mixing: Option<Mixing>,
    pub measured: Counters,
    /// Our samples in a full batch.
    pub batch: usize,
    /// Slots that a thread takes at a time.
    pub taken: usize,
    /// Batches that are open or complete but not yet returned.
    pub ahead: usize,
    pub state: Mutex<State>,
    /// A batch may be opened.
    pub room: Condvar,
    /// The first batch is complete.
    pub ready: Condvar,
}

/// Totals over all threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub samples: AtomicU64,
    /// Nanoseconds spent on them.
    pub busy: AtomicU64,
    /// Bytes of files read.
    pub read: AtomicU64,
}

/// The order in which a part is traversed.
pub(super) enum Walk {
    Shuffled(Changes),
    Natural,
}

pub(super) struct State {
    pub upcoming: Upcoming,
    /// Batches in the order in which they are returned.
    pub in_flight: VecDeque<InFlight>,
    /// Number of batches returned, which is the number of the first batch in flight.
    pub first: u64,
    pub spare: Vec<Filled>,
    pub ended: bool,
}

/// A batch from its opening until it is returned.
pub(super) struct InFlight {
    pub plan: BatchPlan,
    pub stage: Stage,
    pub done: usize,
    /// The error of the lowest slot that could not be filled.
    pub failure: Option<(usize, Error)>,
}

/// Where the memory of a batch is.
pub(super) enum Stage {
    /// Its slots are given out.
    Open(Arc<Open>),
    /// A thread mixes its images.
    Mixing,
    /// They are mixed.
    Closed(Filled, MixedLabels),
}

/// Slots to be filled.
pub(super) struct Task {
    /// Number of the batch.
    number: u64,
    plan: BatchPlan,
    claim: Claim,
}

/// The batches from which a thread may claim slots.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reach {
    /// Only the batch that is returned next.
    Front,
    /// Every batch within the limit of open batches.
    Ahead,
}

impl State {
    /// Takes the batch at the front if all its slots are filled.
    pub fn take_complete(&mut self) -> Option<InFlight> {
        if !self.is_complete() {
            return None;
        }
        self.first += 1;
        self.in_flight.pop_front()
    }

    /// Whether the next batch has all its samples; an empty batch is complete from the start.
    pub fn is_complete(&self) -> bool {
        self.in_flight.front().is_some_and(InFlight::is_complete)
    }

    /// Batches that are complete.
    pub fn ready(&self) -> usize {
        self.in_flight.iter().filter(|in_flight| in_flight.is_complete()).count()
    }

    /// Claims slots of the first batch with unclaimed slots; opens a batch if the limit allows.
    pub fn task(&mut self, shared: &Shared, reach: Reach) -> Option<Task> {
        let reached = if reach == Reach::Front { 1 } else { shared.ahead };
        for index in 0..reached {
            if index == self.in_flight.len() {
                let plan = self.upcoming.next()?;
                let batch = match self.spare.pop() {
                    Some(spare) => spare.open(plan.slots as usize),
                    None => Open::new(shared.batch, shared.dataset.sample_len(), plan.slots as usize, shared.numbers),
                };
                self.in_flight.push_back(InFlight { plan, stage: Stage::Open(batch), done: 0, failure: None });
            }
            let InFlight { plan, stage, .. } = &self.in_flight[index];
            if let Stage::Open(batch) = stage
                && let Some(claim) = batch.claim(shared.taken)
            {
                return Some(Task { number: self.first + index as u64, plan: *plan, claim });
            }
        }
        None
    }
}

impl InFlight {
    /// Whether all slots are filled, or one has failed.
    fn is_filled(&self) -> bool {
        self.done as u64 >= self.plan.slots
    }

    /// Whether it is to be mixed now, all its slots being filled.
    fn is_to_mix(&self) -> bool {
        self.plan.mixes && self.is_filled() && self.failure.is_none() && matches!(self.stage, Stage::Open(_))
    }

    fn is_complete(&self) -> bool {
        match self.stage {
            Stage::Open(_) => self.is_filled() && !self.is_to_mix(),
            Stage::Mixing => false,
            Stage::Closed(..) => true,
        }
    }

    /// Turns a filled batch into the returned batch, or into the error of its first sample that failed.
    pub fn land(self, shared: &Arc<Shared>, wait: Duration) -> Result<Batch, Error> {
        if let Some((_, error)) = self.failure {
            return Err(error);
        }
        let (filled, mixed) = match self.stage {
            Stage::Open(batch) => (batch.close().ok(), None),
            Stage::Mixing => (None, None),
            Stage::Closed(filled, mixed) => (Some(filled), Some(mixed)),
        };
        let filled = filled.ok_or_else(|| Error::Internal("a complete batch is still written to".into()))?;
        Ok(Batch { filled: Some(filled), plan: self.plan, mixed, wait, shared: Arc::clone(shared) })
    }
}

impl Shared {
    /// Whether this is a forked child of the process that created the loader. A lock may be held there by a thread that
    /// does not exist in the child, so the loader must not be used.
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The state, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, and the state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decode thread.
    pub fn work(&self) {
        let mut scratch = Scratch::default();
        let mut state = self.lock();
        while !state.ended {
            match state.task(self, Reach::Ahead) {
                Some(task) => {
                    drop(state);
                    self.perform(task, &mut scratch);
                    state = self.lock();
                }
                None => state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Fills the slots of a task and notes that they are done.
    pub fn perform(&self, task: Task, scratch: &mut Scratch) {
        let Task { number, plan, mut claim } = task;
        let slots = claim.slots();
        let began = Instant::now();
        let mut failure = None;
        for slot in slots.clone() {
            let filled = catch_unwind(AssertUnwindSafe(|| self.fill(&plan, &mut claim, slot, scratch)));
            let filled = filled.unwrap_or_else(|_| Err(Error::Internal("a panic while a batch was made".into())));
            if let Err(error) = filled {
                failure = Some((slot, error));
                break;
            }
        }
        self.measured.samples.fetch_add(slots.len() as u64, Ordering::Relaxed);
        self.measured.busy.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        // A batch is complete when its slots are filled and no claim on it remains.
        drop(claim);
        let mut state = self.lock();
        let index = (number - state.first) as usize;
        let in_flight = &mut state.in_flight[index];
        in_flight.done += slots.len();
        let earlier = |slot: usize| in_flight.failure.as_ref().is_none_or(|(known, _)| slot < *known);
        if let Some((slot, error)) = failure
            && earlier(slot)
        {
            in_flight.failure = Some((slot, error));
        }
        if !in_flight.is_to_mix() {
            let complete = in_flight.is_complete();
            drop(state);
            if complete && index == 0 {
                self.ready.notify_one();
            }
            return;
        }
        let stage = std::mem::replace(&mut in_flight.stage, Stage::Mixing);
        drop(state);
        let mixed = catch_unwind(AssertUnwindSafe(|| self.mix(&plan, stage)));
        let mut state = self.lock();
        let index = (number - state.first) as usize;
        let in_flight = &mut state.in_flight[index];
        match mixed {
            Ok(Some((filled, mixed))) => in_flight.stage = Stage::Closed(filled, mixed),
            Ok(None) | Err(_) => {
                in_flight.failure = Some((0, Error::Internal("the images of a batch cannot be mixed".into())));
                in_flight.stage = Stage::Open(Open::new(0, 0, 0, self.numbers));
            }
        }
        drop(state);
        if index == 0 {
            self.ready.notify_one();
        }
    }

    /// Mixes the images of a batch whose slots are all filled; `None` if a thread still writes to it.
    fn mix(&self, plan: &BatchPlan, stage: Stage) -> Option<(Filled, MixedLabels)> {
        let Stage::Open(batch) = stage else { return None };
        let mut filled = batch.close().ok()?;
        let (height, width) = (self.dataset.height(), self.dataset.width());
        let form = Form { channels: self.dataset.channels(), height, width, layout: self.layout };
        let blend = self.mixing?.draw(plan.from.epoch, plan.start, height, width);
        let (len, has_guest) = (plan.len as usize, plan.slots > plan.len);
        blend.apply(filled.values_mut(), len, has_guest, form);
        let own = filled.labels();
        // With the one before it; the first with the guest, or else the last.
        let labels = own.last().into_iter().chain(own).copied().take(len).collect();
        filled.truncate(len);
        Some((filled, MixedLabels { labels, own: blend.own }))
    }
}
