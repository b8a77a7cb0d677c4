//! What the threads of a loader share: the batches that are open, and the slots in them that are still to be filled.
//! Read on in `fill`, how one is.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::train::MemoryFormat;

use super::fill::Horizon;
use super::upcoming::{Plan, Upcoming};
use super::{Batch, Mixed};
use crate::augment::Changes;
use crate::dataset::Scratch;
use crate::mix::{Form, Mixing};
use crate::recipe::Recipe;
use crate::slots::{Claim, Filled, Numbers, Open};
use crate::{Dataset, Error, Order, Part};

/// What all threads of a loader see.
pub(super) struct Shared {
    pub dataset: Arc<Dataset>,
    pub part: Part,
    pub walk: Walk,
    pub order: Order,
    pub seed: u64,
    pub layout: MemoryFormat,
    pub scaling: Vec<(f32, f32)>,
    pub numbers: Numbers,
    /// Which part of a picture file is shown, and whether the list has other changes than a mirror image besides.
    pub recipe: Option<(Recipe, bool)>,
    /// What is read ahead, where the data lies elsewhere.
    pub horizon: Option<Horizon>,
    /// How the pictures of a batch are mixed, if they are.
    pub mixing: Option<Mixing>,
    pub measured: Counters,
    /// Our samples in a full batch.
    pub batch: usize,
    /// Slots that a thread takes at a time.
    pub taken: usize,
    /// Batches that are open or complete and not handed out.
    pub ahead: usize,
    pub state: Mutex<State>,
    /// A batch may be opened.
    pub room: Condvar,
    /// The first batch is complete.
    pub ready: Condvar,
}

/// What was done so far, by all threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub samples: AtomicU64,
    /// Nanoseconds spent on them.
    pub busy: AtomicU64,
    /// Bytes of files read.
    pub read: AtomicU64,
}

/// In which order a part is gone through.
pub(super) enum Walk {
    Shuffled(Changes),
    Natural,
}

pub(super) struct State {
    pub upcoming: Upcoming,
    /// Batches in the order in which they are handed out.
    pub flying: VecDeque<Flying>,
    /// Number of batches handed out, and so the number of the first one flying.
    pub first: u64,
    pub spare: Vec<Filled>,
    pub ended: bool,
}

/// A batch between its opening and its handing out.
pub(super) struct Flying {
    pub plan: Plan,
    pub stage: Stage,
    pub done: usize,
    /// The error of the lowest slot that could not be filled.
    pub failure: Option<(usize, Error)>,
}

/// Where the memory of a batch is.
pub(super) enum Stage {
    /// Its slots are given out.
    Open(Arc<Open>),
    /// A thread mixes its pictures.
    Mixing,
    /// They are mixed.
    Closed(Filled, Mixed),
}

/// Slots to be filled.
pub(super) struct Task {
    /// Number of the batch.
    number: u64,
    plan: Plan,
    claim: Claim,
}

/// Which batches slots are taken from.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reach {
    /// The one that is handed out next.
    Front,
    /// All that there is room for.
    Ahead,
}

impl State {
    pub fn take_complete(&mut self) -> Option<Flying> {
        if !self.is_complete() {
            return None;
        }
        self.first += 1;
        self.flying.pop_front()
    }

    /// Whether the batch that is handed out next has all its samples; one without any has from the start.
    pub fn is_complete(&self) -> bool {
        self.flying.front().is_some_and(Flying::is_complete)
    }

    /// Batches that are complete.
    pub fn ready(&self) -> usize {
        self.flying.iter().filter(|flying| flying.is_complete()).count()
    }

    /// Slots of the first batch that has some left; opens one if there is room.
    pub fn task(&mut self, shared: &Shared, reach: Reach) -> Option<Task> {
        let reached = if reach == Reach::Front { 1 } else { shared.ahead };
        for place in 0..reached {
            if place == self.flying.len() {
                let plan = self.upcoming.next()?;
                let batch = match self.spare.pop() {
                    Some(spare) => spare.open(plan.slots as usize),
                    None => Open::new(shared.batch, shared.dataset.sample_len(), plan.slots as usize, shared.numbers),
                };
                self.flying.push_back(Flying { plan, stage: Stage::Open(batch), done: 0, failure: None });
            }
            let Flying { plan, stage, .. } = &self.flying[place];
            if let Stage::Open(batch) = stage
                && let Some(claim) = batch.claim(shared.taken)
            {
                return Some(Task { number: self.first + place as u64, plan: *plan, claim });
            }
        }
        None
    }
}

impl Flying {
    /// Whether all its slots are filled, or one of them never will be.
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
        // A batch is closed when its slots are done, and that takes all claims to be gone.
        drop(claim);
        let mut state = self.lock();
        let place = (number - state.first) as usize;
        let flying = &mut state.flying[place];
        flying.done += slots.len();
        let earlier = |slot: usize| flying.failure.as_ref().is_none_or(|(known, _)| slot < *known);
        if let Some((slot, error)) = failure
            && earlier(slot)
        {
            flying.failure = Some((slot, error));
        }
        if !flying.is_to_mix() {
            let complete = flying.is_complete();
            drop(state);
            if complete && place == 0 {
                self.ready.notify_one();
            }
            return;
        }
        let stage = std::mem::replace(&mut flying.stage, Stage::Mixing);
        drop(state);
        let mixed = catch_unwind(AssertUnwindSafe(|| self.mix(&plan, stage)));
        let mut state = self.lock();
        let place = (number - state.first) as usize;
        let flying = &mut state.flying[place];
        match mixed {
            Ok(Some((filled, mixed))) => flying.stage = Stage::Closed(filled, mixed),
            Ok(None) | Err(_) => {
                flying.failure = Some((0, Error::Internal("the pictures of a batch cannot be mixed".into())));
                flying.stage = Stage::Open(Open::new(0, 0, 0, self.numbers));
            }
        }
        drop(state);
        if place == 0 {
            self.ready.notify_one();
        }
    }

    /// Mixes the pictures of a batch whose slots are all filled; none if somebody still writes to it.
    fn mix(&self, plan: &Plan, stage: Stage) -> Option<(Filled, Mixed)> {
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
        Some((filled, Mixed { labels, own: blend.own }))
    }
}
