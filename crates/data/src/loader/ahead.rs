//! What the threads of a loader share: the batches that are open, and the slots in them that are still to be filled.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::train::MemoryFormat;

use super::upcoming::{Plan, Upcoming};
use super::{Batch, Mixed};
use crate::augment::{Changes, View};
use crate::cache::NEVER;
use crate::dataset::Scratch;
use crate::elsewhere::When;
use crate::mix::{Form, Mixing};
use crate::prepare::Output;
use crate::rand_augment;
use crate::random::{Draws, Purpose, key};
use crate::recipe::Recipe;
use crate::slots::{Claim, Filled, Numbers, Open, Values};
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

/// How far ahead is said what will be read.
#[derive(Debug)]
pub(super) struct Horizon {
    /// Samples of an epoch, at least 1.
    pub samples: u64,
    pub epochs: u64,
    /// Samples between what is read and what is announced.
    pub ahead: u64,
    pub begun: AtomicBool,
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

    fn fill(&self, plan: &Plan, claim: &mut Claim, slot: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (epoch, pos) = (plan.from.epoch, plan.position(slot as u64));
        let (height, width) = (self.dataset.height(), self.dataset.width());
        let samples = self.dataset.part(self.part);
        let (sample, [view, after], random) = match &self.walk {
            Walk::Natural => (samples[pos as usize], [View::whole(height, width); 2], None),
            Walk::Shuffled(changes) => {
                let sample = samples[self.order.at(epoch, pos) as usize];
                (sample, changes.views(self.seed, epoch, sample, height, width), changes.random)
            }
        };
        let (values, label) = claim.slot(slot);
        *label = i64::from(self.dataset.label(sample));
        let (layout, scaling) = (self.layout, self.scaling.as_slice());
        let when = self.announce(plan, slot as u64, pos);
        let drawn = |place| Draws::new(key(Purpose::Augment, self.seed, &[epoch, u64::from(sample), place]));
        let write = |planes: &[u8], [changed, spare]: &mut [Vec<u8>; 2], values: Values<'_>| {
            let Some((place, random)) = random else {
                return view.write(planes, scaling, layout, values);
            };
            changed.resize(planes.len(), 0);
            view.write(planes, scaling, MemoryFormat::Contiguous, Values::U8(changed));
            for operation in rand_augment::drawn(random, drawn(place), height, width) {
                operation.apply(changed, spare, height, width);
            }
            after.write(changed, scaling, layout, values);
        };
        let Some((recipe, more)) = self.recipe else {
            let mut changed = std::mem::take(&mut scratch.changed);
            let written = self.dataset.planes(sample, when, scratch).map(|planes| write(planes, &mut changed, values));
            scratch.changed = changed;
            return written;
        };
        // The first change of the list is drawn as any other.
        let draws = drawn(0);
        let read = if more || random.is_some() {
            let mut planes = std::mem::take(&mut scratch.planes);
            planes.resize(self.dataset.sample_len(), 0);
            let whole = Output {
                values: Values::U8(&mut planes),
                layout: MemoryFormat::Contiguous,
                scaling: &[],
                size: height,
            };
            let read = self.dataset.write((sample, when), &recipe, draws, scratch, whole)?;
            write(&planes, &mut scratch.changed, values);
            scratch.planes = planes;
            read
        } else {
            self.dataset.write(
                (sample, when),
                &recipe,
                draws,
                scratch,
                Output { values, layout, scaling, size: height },
            )?
        };
        self.measured.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Shared {
    /// When a sample of data that lies elsewhere is needed. Says on the way what will be read soon: each sample of the
    /// batch after the one that is made, when the sample in its place is; and before the first batch, all of that one.
    fn announce(&self, plan: &Plan, slot: u64, pos: u64) -> When {
        let Some(horizon) = &self.horizon else { return When::SOME_TIME };
        let epoch = plan.from.epoch;
        // The one that another rank's is mixed with is announced by that rank.
        if slot < plan.len {
            let first = horizon.begun.swap(true, Ordering::Relaxed);
            let from = if first { horizon.ahead } else { 0 };
            let times = (from..=horizon.ahead).filter_map(|ahead| {
                let time = (epoch * horizon.samples + pos).checked_add(ahead)?;
                let (epoch, pos) = (time / horizon.samples, time % horizon.samples);
                let sample = (epoch < horizon.epochs).then(|| self.order.at(epoch, pos))?;
                Some((self.dataset.part(self.part)[sample as usize], self.when(horizon, epoch, pos)))
            });
            self.dataset.expect(times);
        }
        self.when(horizon, epoch, pos)
    }

    /// When the sample of a position is read, and when it is next.
    fn when(&self, horizon: &Horizon, epoch: u64, pos: u64) -> When {
        let now = epoch * horizon.samples + pos;
        let next = match epoch + 1 < horizon.epochs {
            true => (epoch + 1) * horizon.samples + self.order.position(epoch + 1, self.order.at(epoch, pos)),
            false => NEVER,
        };
        When { now, next }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Cursor;
    use crate::loader::share::Share;

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
                let (epochs, mixes) = (u64::MAX, false);
                let mut upcoming = Upcoming { at: from, epochs, samples: SAMPLES, batch, share, mixes };
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
