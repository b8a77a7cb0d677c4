//! What the threads of a loader share: the batches that are open, and the slots in them that are still to be filled.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::train::{Augment, MemoryFormat};

use super::Batch;
use super::share::Share;
use crate::augment::View;
use crate::dataset::Scratch;
use crate::prepare::Output;
use crate::random::{Draws, Purpose, key};
use crate::recipe::Recipe;
use crate::slots::{Claim, Filled, Numbers, Open, Values};
use crate::{Cursor, Dataset, Error, Order, Part};

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
    Shuffled(Vec<Augment>),
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
    pub batch: Arc<Open>,
    pub done: usize,
    /// The error of the lowest slot that could not be filled.
    pub failure: Option<(usize, Error)>,
}

/// Which samples a batch holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub from: Cursor,
    /// Our samples of it.
    pub len: u64,
    /// All its samples.
    pub all: u64,
    pub after: Cursor,
}

/// The plans that are still to come. Where they begin makes no difference to what it costs: nothing here is kept a
/// sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upcoming {
    pub at: Cursor,
    pub epochs: u64,
    pub samples: u64,
    /// Samples of a full batch, those of all ranks.
    pub batch: u64,
    pub share: Share,
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

impl Iterator for Upcoming {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        if self.at.epoch >= self.epochs || self.samples == 0 {
            return None;
        }
        let from = self.at;
        let all = self.batch.min(self.samples - from.pos);
        let after = match from.pos + all {
            pos if pos < self.samples => Cursor { pos, ..from },
            _ => Cursor { epoch: from.epoch + 1, pos: 0 },
        };
        self.at = after;
        let ours = self.share.of(all);
        let from = Cursor { pos: from.pos + ours.start, ..from };
        Some(Plan { from, len: ours.end - ours.start, all, after })
    }
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
        self.flying.front().is_some_and(|front| front.done as u64 >= front.plan.len)
    }

    /// Batches that are complete.
    pub fn ready(&self) -> usize {
        self.flying.iter().filter(|flying| flying.done as u64 >= flying.plan.len).count()
    }

    /// Slots of the first batch that has some left; opens one if there is room.
    pub fn task(&mut self, shared: &Shared, reach: Reach) -> Option<Task> {
        let reached = if reach == Reach::Front { 1 } else { shared.ahead };
        for place in 0..reached {
            if place == self.flying.len() {
                let plan = self.upcoming.next()?;
                let batch = match self.spare.pop() {
                    Some(spare) => spare.open(plan.len as usize),
                    None => Open::new(shared.batch, shared.dataset.sample_len(), plan.len as usize, shared.numbers),
                };
                self.flying.push_back(Flying { plan, batch, done: 0, failure: None });
            }
            let Flying { plan, batch, .. } = &self.flying[place];
            if let Some(claim) = batch.claim(shared.taken) {
                return Some(Task { number: self.first + place as u64, plan: *plan, claim });
            }
        }
        None
    }
}

impl Flying {
    pub fn land(self, shared: &Arc<Shared>, wait: Duration) -> Result<Batch, Error> {
        if let Some((_, error)) = self.failure {
            return Err(error);
        }
        let filled = self.batch.close().map_err(|_| Error::Internal("a complete batch is still written to".into()))?;
        Ok(Batch { filled: Some(filled), plan: self.plan, wait, shared: Arc::clone(shared) })
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
        let complete = flying.done as u64 >= flying.plan.len;
        drop(state);
        if complete && place == 0 {
            self.ready.notify_one();
        }
    }

    fn fill(&self, plan: &Plan, claim: &mut Claim, slot: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let Cursor { epoch, pos } = plan.from;
        let pos = pos + slot as u64;
        let (height, width) = (self.dataset.height(), self.dataset.width());
        let samples = self.dataset.part(self.part);
        let (sample, view) = match &self.walk {
            Walk::Natural => (samples[pos as usize], View::whole(height, width)),
            Walk::Shuffled(augment) => {
                let sample = samples[self.order.at(epoch, pos) as usize];
                (sample, View::drawn(augment, self.seed, epoch, sample, height, width))
            }
        };
        let (values, label) = claim.slot(slot);
        *label = i64::from(self.dataset.label(sample));
        let (layout, scaling) = (self.layout, self.scaling.as_slice());
        let Some((recipe, more)) = self.recipe else {
            let planes = self.dataset.planes(sample, scratch)?;
            view.write(planes, scaling, layout, values);
            return Ok(());
        };
        // The first change of the list is drawn as any other.
        let draws = Draws::new(key(Purpose::Augment, self.seed, &[epoch, u64::from(sample), 0]));
        let read = if more {
            let mut planes = std::mem::take(&mut scratch.planes);
            planes.resize(self.dataset.sample_len(), 0);
            let whole = Output {
                values: Values::U8(&mut planes),
                layout: MemoryFormat::Contiguous,
                scaling: &[],
                size: height,
            };
            let read = self.dataset.write(sample, &recipe, draws, scratch, whole)?;
            view.write(&planes, scaling, layout, values);
            scratch.planes = planes;
            read
        } else {
            self.dataset.write(sample, &recipe, draws, scratch, Output { values, layout, scaling, size: height })?
        };
        self.measured.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A data set that no test could hold.
    const SAMPLES: u64 = 100_000_000;

    /// Everything that a loader computes its next batch from is a few numbers that can be copied, so resuming reads no
    /// list of samples, wherever it begins.
    fn is_a_few_numbers<T: Copy>() {
        assert!(size_of::<T>() <= 64, "{} bytes", size_of::<T>());
    }

    proptest! {
        #[test]
        fn resuming_costs_nothing_a_sample(
            epoch in 0_u64..1000,
            at in 0_u64..SAMPLES,
            batch in 1_u64..10_000,
            world in 1_u32..=8,
            seed: u64,
        ) {
            is_a_few_numbers::<Upcoming>();
            is_a_few_numbers::<Order>();
            let order = Order::new(SAMPLES, seed);
            let from = Cursor { epoch, pos: at / batch * batch };
            let mut covered = from.pos;
            for rank in 0..world {
                let share = Share::new(rank, world).unwrap();
                let mut upcoming = Upcoming { at: from, epochs: u64::MAX, samples: SAMPLES, batch, share };
                let plan = upcoming.next().unwrap();
                prop_assert_eq!((plan.from.pos, plan.from.epoch), (covered, epoch));
                covered += plan.len;
                let positions = (plan.from.pos..covered).step_by(1 + plan.len as usize / 7);
                for pos in positions {
                    prop_assert_eq!(order.position(epoch, order.at(epoch, pos)), pos);
                }
                let wanted = from.pos + plan.all;
                let ended = wanted == SAMPLES;
                let after = if ended { Cursor { epoch: epoch + 1, pos: 0 } } else { Cursor { epoch, pos: wanted } };
                prop_assert_eq!((plan.after, upcoming.at), (after, after));
            }
            prop_assert_eq!(covered, (from.pos + batch).min(SAMPLES));
        }
    }
}
