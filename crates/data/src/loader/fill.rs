//! One slot of a batch: which image it shows, which changes it undergoes, and how they are read and written.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::train::{Augment, MemoryFormat};

use super::ahead::{Shared, Walk};
use super::dataset::Scratch;
use super::upcoming::BatchPlan;
use crate::Error;
use crate::files::cache::NEVER;
use crate::files::remote::AccessTime;
use crate::sampling::random::{Draws, Purpose, key};
use crate::transform::augment::{Changes, View, operations};
use crate::transform::erase::{drawn, erase};
use crate::transform::mix::Form;
use crate::transform::prepare::Output;
use crate::transform::slots::{Claim, Values};

/// How far ahead remote reads are announced.
#[derive(Debug)]
pub(super) struct Horizon {
    /// Samples of an epoch, at least 1.
    pub samples: u64,
    pub epochs: u64,
    /// Samples between the one that is read and the one that is announced.
    pub ahead: u64,
    pub begun: AtomicBool,
}

impl Shared {
    /// Writes the image of a slot, and its label.
    pub fn fill(&self, plan: &BatchPlan, claim: &mut Claim, slot: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (epoch, pos) = (plan.from.epoch, plan.position(slot as u64));
        let (height, width) = (self.dataset.height(), self.dataset.width());
        let samples = self.dataset.part(self.part);
        let none = Changes::default();
        let (sample, changes) = match &self.walk {
            Walk::Natural => (samples[pos as usize], &none),
            Walk::Shuffled(changes) => (samples[self.order.at(epoch, pos) as usize], changes),
        };
        let who = self.order.drawn_by(pos, sample);
        let draws = |place| Draws::new(key(Purpose::Augment, self.seed, &[epoch, who, place]));
        let view = changes.view(draws, height, width);
        let (values, label) = claim.slot(slot);
        *label = i64::from(self.dataset.label(sample));
        let (layout, scaling) = (self.layout, self.scaling.as_slice());
        let when = self.announce(plan, slot as u64, pos);
        let write = |planes: &[u8], changed: &mut [Vec<u8>; 2], values: Values<'_>| match &changes.rest[..] {
            [] => view.write(planes, scaling, layout, values),
            rest => self.change(rest, (planes, view), draws, changed).write(&changed[0], scaling, layout, values),
        };
        let Some((recipe, more)) = self.recipe else {
            let mut changed = std::mem::take(&mut scratch.changed);
            let written = self.dataset.planes(sample, when, scratch).map(|planes| write(planes, &mut changed, values));
            scratch.changed = changed;
            self.erase(changes, draws, claim, slot);
            return written;
        };
        // The first change of the list is drawn as any other.
        let read = if more || !changes.rest.is_empty() {
            let mut planes = std::mem::take(&mut scratch.planes);
            planes.resize(self.dataset.sample_len(), 0);
            let whole = Output {
                values: Values::U8(&mut planes),
                layout: MemoryFormat::Contiguous,
                scaling: &[],
                size: height,
            };
            let read = self.dataset.write((sample, when), &recipe, draws(0), scratch, whole)?;
            write(&planes, &mut scratch.changed, values);
            scratch.planes = planes;
            read
        } else {
            self.dataset.write(
                (sample, when),
                &recipe,
                draws(0),
                scratch,
                Output { values, layout, scaling, size: height },
            )?
        };
        self.erase(changes, draws, claim, slot);
        self.measured.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Carries out the changes from the first one of bytes on, into the first of the two memories, and returns what is
    /// shown of that.
    fn change(
        &self,
        rest: &[(u64, Augment)],
        (planes, mut view): (&[u8], View),
        draws: impl Fn(u64) -> Draws,
        [changed, spare]: &mut [Vec<u8>; 2],
    ) -> View {
        let (height, width) = (self.dataset.height(), self.dataset.width());
        let whole = View::whole(height, width);
        let show = |view: View, planes: &[u8], into: &mut Vec<u8>| {
            into.resize(planes.len(), 0);
            view.write(planes, &self.scaling, MemoryFormat::Contiguous, Values::U8(into));
        };
        show(view, planes, changed);
        view = whole;
        for (place, change) in rest {
            let operations = operations(*change, &mut draws(*place), height, width);
            if !operations.is_empty() && view != whole {
                show(view, changed, spare);
                std::mem::swap(changed, spare);
                view = whole;
            }
            for operation in operations {
                operation.apply(changed, spare, height, width);
            }
            view.change(*change, draws(*place));
        }
        view
    }

    /// Erases a part of the finished sample, where the list says so.
    fn erase(&self, changes: &Changes, draws: impl Fn(u64) -> Draws, claim: &mut Claim, slot: usize) {
        let Some((place, erasing)) = changes.erasing else { return };
        let (channels, height, width) = (self.dataset.channels(), self.dataset.height(), self.dataset.width());
        if let Some(rectangle) = drawn(erasing, &mut draws(place), height, width) {
            let (values, _) = claim.slot(slot);
            erase(&rectangle, values, &self.scaling, Form { channels, height, width, layout: self.layout });
        }
    }

    /// Returns when a sample of remote data is needed, and announces upcoming reads: for each sample, the one at the
    /// same slot of the next batch; before the first batch, all of its samples.
    fn announce(&self, plan: &BatchPlan, slot: u64, pos: u64) -> AccessTime {
        let Some(horizon) = &self.horizon else { return AccessTime::SOME_TIME };
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
    fn when(&self, horizon: &Horizon, epoch: u64, pos: u64) -> AccessTime {
        let now = epoch * horizon.samples + pos;
        let next = match epoch + 1 < horizon.epochs {
            true => {
                let position = self.order.position(epoch + 1, self.order.at(epoch, pos));
                position.map_or(NEVER, |position| (epoch + 1) * horizon.samples + position)
            }
            false => NEVER,
        };
        AccessTime { now, next }
    }
}
