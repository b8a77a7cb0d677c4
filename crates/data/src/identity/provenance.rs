//! Where a run's data comes from: what it was trained on so far, and what is there now.

use std::collections::HashMap;

use super::DataIdentity;
use super::change::DataChange;
use super::listing::{Key, SampleList, hash};
use crate::identity::preparation::Preparation;
use crate::sampling::random::{Purpose, key};
use crate::sampling::split::Parts;
use crate::{Error, Part};

/// Compares data that is opened with what a run was trained on, and keeps its split.
///
/// Of a run that starts, or of data that is opened for other reasons, it only remembers what is found.
#[derive(Debug, Default)]
pub struct Provenance {
    /// What the run was trained on; none for a new run.
    earlier: Option<DataIdentity>,
    /// What a run without a checkpoint found when it was last started: its figures are used again if the data is the
    /// same, and nothing is refused if it is not.
    prepared: Option<DataIdentity>,
    /// Whether changed data is accepted.
    accepts: bool,
    /// Whether samples are listed at all.
    lists: bool,
    /// Whether contents may be read to be compared.
    reads: bool,
    /// Counts what is done while the data is opened.
    preparation: Preparation,
    found: Option<DataIdentity>,
    change: Option<DataChange>,
}

/// How samples are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads<'a> {
    /// Whether contents may be read to be compared.
    pub contents: bool,
    pub preparation: &'a Preparation,
}

/// By what rule samples are divided that no run has seen yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// Drawn by shares of training, validation and test.
    Shares([f64; 3]),
    /// As the layout of the data divides them, new or not.
    AsDrawn,
    /// As the sample before.
    InOrder,
}

impl Provenance {
    /// For data that is not trained on: nothing is listed or compared.
    pub fn unknown() -> Provenance {
        Provenance::default()
    }

    /// For a run: `earlier` is what its checkpoint was trained on, `accepts` says whether the user accepts other data,
    /// and `reads` whether contents are to be compared here.
    pub fn of_run(earlier: Option<DataIdentity>, accepts: bool, reads: bool) -> Provenance {
        Provenance { earlier, accepts, lists: true, reads, ..Provenance::default() }
    }

    /// For a run that has no checkpoint, and was started before with what it found then.
    pub fn of_new_run(prepared: Option<DataIdentity>, reads: bool) -> Provenance {
        Provenance { prepared, ..Provenance::of_run(None, false, reads) }
    }

    /// Number of samples that the run knew before, if it has begun.
    pub(crate) fn samples_before(&self) -> Option<usize> {
        self.earlier.as_ref().or(self.prepared.as_ref()).map(DataIdentity::len)
    }

    /// How far opening the data has come; may be asked from another thread.
    pub fn preparation(&self) -> Preparation {
        self.preparation.clone()
    }

    /// What was found, once the data is open.
    pub fn found(&self) -> Option<&DataIdentity> {
        self.found.as_ref()
    }

    /// How the data differs from what the run was trained on, where that was accepted.
    pub fn change(&self) -> Option<&DataChange> {
        self.change.as_ref()
    }

    /// The parts that `drawn` divides the samples into; where changed data is accepted, samples stay in the part that
    /// they were in, and new ones are divided by `rule`.
    ///
    /// # Errors
    /// [`Error::Changed`] if the samples are not those of before and that is not accepted.
    pub(crate) fn divide(
        &mut self,
        classes: &[String],
        drawn: Parts,
        rule: Rule,
        seed: u64,
        list: impl FnOnce(Reads<'_>) -> Result<SampleList, Error>,
    ) -> Result<Parts, Error> {
        if !self.lists {
            return Ok(drawn);
        }
        let found = DataIdentity::new(
            classes.to_vec(),
            list(Reads { contents: self.reads, preparation: &self.preparation })?,
            &drawn,
        );
        self.prepared = self.prepared.take().filter(|prepared| DataChange::between(prepared, &found).is_none());
        self.change = self.earlier.as_ref().and_then(|earlier| DataChange::between(earlier, &found));
        let parts = match (&self.earlier, &self.change) {
            (Some(_), Some(change)) if !self.accepts || !change.can_be_accepted() => {
                return Err(Error::Changed(Box::new(change.clone())));
            }
            // Also where nothing has changed: what was accepted before was not drawn.
            (Some(earlier), _) => keep(earlier, &found, rule, seed),
            (None, _) => drawn,
        };
        if parts[Part::Train as usize].is_empty() {
            let why = "no sample that the run was trained on is left, and none is new".into();
            return Err(Error::Split { why, hint: "put samples back, or start a new run".into() });
        }
        self.found = Some(DataIdentity::new(found.classes, found.samples, &parts));
        Ok(parts)
    }

    /// The tokenizer of the run, if it has one already: a vocabulary that is trained again has other ids.
    pub(crate) fn tokenizer(&self) -> Option<&str> {
        self.earlier.as_ref().or(self.prepared.as_ref())?.tokenizer.as_deref()
    }

    /// Whether a tokenizer that was given, as JSON, may be used; if not, that of before is.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is another one than before and changes are not accepted.
    pub(crate) fn allows_tokenizer(&mut self, given: &str) -> Result<bool, Error> {
        let earlier = self.earlier.as_ref().and_then(|earlier| earlier.tokenizer.as_deref());
        let Some(earlier) = earlier else { return Ok(true) };
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        if earlier == given || value(earlier) == value(given) {
            return Ok(true);
        }
        let change = DataChange::other_tokenizer();
        if !self.accepts {
            return Err(Error::Changed(Box::new(change)));
        }
        self.change.get_or_insert(change);
        Ok(false)
    }

    /// Remembers the tokenizer that is used.
    pub(crate) fn uses_tokenizer(&mut self, json: &str) {
        if let Some(found) = &mut self.found {
            found.tokenizer = Some(json.to_owned());
        }
    }

    /// Mean and standard deviation of each channel as they were measured before: the network was trained on images that
    /// they have normalised.
    pub(crate) fn statistics(&self) -> Option<(Vec<f32>, Vec<f32>)> {
        let [mean, std] = self.earlier.as_ref().or(self.prepared.as_ref())?.statistics.as_ref()?;
        let numbers = |bits: &[u32]| bits.iter().copied().map(f32::from_bits).collect();
        Some((numbers(mean), numbers(std)))
    }

    /// Remembers them.
    pub(crate) fn uses_statistics(&mut self, mean: &[f32], std: &[f32]) {
        let bits = |numbers: &[f32]| numbers.iter().copied().map(f32::to_bits).collect();
        if let Some(found) = &mut self.found {
            found.statistics = Some([bits(mean), bits(std)]);
        }
    }
}

/// Each sample where it was, and new ones by the rule.
fn keep(earlier: &DataIdentity, found: &DataIdentity, rule: Rule, seed: u64) -> Parts {
    let mut parts = Parts::default();
    // The usual case, which takes no table of all samples.
    if earlier.samples == found.samples {
        for sample in 0..found.len() {
            parts[earlier.part(sample).unwrap_or(Part::Train) as usize].push(sample as u32);
        }
        return parts;
    }
    let by = Key::of_both(&earlier.samples, &found.samples);
    let known: HashMap<_, usize> = earlier.samples.keys(by).into_iter().zip(0..).collect();
    let mut before = Part::Train;
    for (sample, key) in found.samples.keys(by).into_iter().enumerate() {
        let old = known.get(&key).and_then(|place| earlier.part(*place));
        let drawn = found.part(sample).unwrap_or(Part::Train);
        let part = old.unwrap_or_else(|| part_of_new(key, rule, seed, drawn, before));
        parts[part as usize].push(sample as u32);
        before = part;
    }
    parts
}

/// The part of a sample that is new: drawn by what it is, so that it does not depend on what else is new.
fn part_of_new((what, time): (u64, u32), rule: Rule, seed: u64, drawn: Part, before: Part) -> Part {
    let draw = key(Purpose::Split, seed, &[hash(&what.to_le_bytes()), u64::from(time)]) as f64 / 2_f64.powi(64);
    match rule {
        Rule::Shares([training, validation, test]) => {
            if draw < training || validation + test == 0.0 {
                Part::Train
            } else if draw < training + validation || test == 0.0 {
                Part::Validation
            } else {
                Part::Test
            }
        }
        Rule::AsDrawn => drawn,
        Rule::InOrder => before,
    }
}
