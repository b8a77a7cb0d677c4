//! The provenance of a run's data: what it was trained on before, and what is there now.

use std::collections::{HashMap, HashSet};

use super::DataIdentity;
use super::change::DataChange;
use super::listing::{Key, SampleList, hash};
use crate::identity::preparation::Preparation;
use crate::sampling::random::{Purpose, key};
use crate::sampling::split::Parts;
use crate::{Error, Part};

/// Compares opened data with the data that a run was trained on, and keeps its split.
///
/// For a new run, or for data that is opened for other purposes, it only records the identity.
#[derive(Debug, Default)]
pub struct Provenance {
    /// Identity of the data that the run was trained on; `None` for a new run.
    earlier: Option<DataIdentity>,
    /// Identity found by the last start of a run without a checkpoint: its statistics are reused if the data is the
    /// same, and nothing is refused if it is not.
    prepared: Option<DataIdentity>,
    /// Identity of the data of an earlier run, whose training samples are left out here.
    trained_on: Option<DataIdentity>,
    /// Whether changed data is accepted.
    accepts: bool,
    /// Whether samples are listed at all.
    lists: bool,
    /// Whether contents may be read to be compared.
    reads: bool,
    /// Progress of opening the data.
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

/// The rule that assigns new samples to parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// Drawn by shares of training, validation and test.
    Shares([f64; 3]),
    /// As the layout of the data divides them, new or not.
    AsDrawn,
    /// As the sample before.
    InOrder,
}

/// A label as earlier versions wrote it: `7` for `007`.
pub(crate) fn plain(label: &str) -> String {
    label.parse::<i64>().map_or_else(|_| label.to_owned(), |number| number.to_string())
}

impl Provenance {
    /// For data that is not trained on: it is neither listed nor compared.
    pub fn unknown() -> Provenance {
        Provenance::default()
    }

    /// For a resumed run: `earlier` is the identity in its checkpoint, `accepts` whether the user accepts other data,
    /// and `reads` whether contents are compared here.
    pub fn of_run(earlier: Option<DataIdentity>, accepts: bool, reads: bool) -> Provenance {
        Provenance { earlier, accepts, lists: true, reads, ..Provenance::default() }
    }

    /// For a run without a checkpoint that was started before, with the identity found then.
    pub fn of_new_run(prepared: Option<DataIdentity>, reads: bool) -> Provenance {
        Provenance { prepared, ..Provenance::of_run(None, false, reads) }
    }

    /// For a run that continues an earlier one with what is new since then.
    pub fn leaving_out(self, trained_on: Option<DataIdentity>) -> Provenance {
        Provenance { trained_on, ..self }
    }

    /// Number of samples that the run had before, if it has started.
    pub(crate) fn samples_before(&self) -> Option<usize> {
        self.earlier.as_ref().or(self.prepared.as_ref()).map(DataIdentity::len)
    }

    /// Whether the run has recorded these classes, and not what is predicted, which are the same where the samples are.
    pub(crate) fn has_recorded(
        &self,
        classes: &[String],
        predicted: &[String],
        samples: impl FnOnce() -> SampleList,
    ) -> bool {
        let earlier = self.earlier.as_ref().or(self.prepared.as_ref());
        earlier
            .is_some_and(|earlier| earlier.classes == classes && (classes != predicted || earlier.samples == samples()))
    }

    /// Whether the run has recorded a class of this name.
    pub(crate) fn has_class(&self, name: &str) -> bool {
        let earlier = self.earlier.as_ref().or(self.prepared.as_ref());
        earlier.is_some_and(|earlier| earlier.classes.iter().any(|class| class == name))
    }

    /// The classes as the run has recorded them: earlier versions wrote `7` for `007`, as which it counts then.
    fn as_recorded(&self, classes: &[String]) -> Vec<String> {
        let plain: Vec<String> = classes.iter().map(|class| plain(class)).collect();
        let earlier = self.earlier.as_ref().or(self.prepared.as_ref());
        match earlier.is_some_and(|earlier| earlier.classes == plain) {
            true => plain,
            false => classes.to_vec(),
        }
    }

    /// Progress of opening the data; may be read from another thread.
    pub fn preparation(&self) -> Preparation {
        self.preparation.clone()
    }

    /// The identity of the data, once it is open.
    pub fn found(&self) -> Option<&DataIdentity> {
        self.found.as_ref()
    }

    /// How the data differs from what the run was trained on, if that was accepted.
    pub fn change(&self) -> Option<&DataChange> {
        self.change.as_ref()
    }

    /// Returns the parts that `drawn` assigns; if changed data is accepted, samples stay in their earlier part, and new
    /// ones are assigned by `rule`.
    ///
    /// # Errors
    /// [`Error::Changed`] if the samples differ and the change is not accepted.
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
            self.as_recorded(classes),
            list(Reads { contents: self.reads, preparation: &self.preparation })?,
            &drawn,
        );
        self.prepared = self.prepared.take().filter(|prepared| DataChange::between(prepared, &found).is_none());
        self.change = self.earlier.as_ref().and_then(|earlier| DataChange::between(earlier, &found));
        let parts = match (&self.earlier, &self.change) {
            (Some(_), Some(change)) if !self.accepts || !change.can_be_accepted() => {
                return Err(Error::Changed(Box::new(change.clone())));
            }
            // Also without a change: an earlier accepted split was not drawn.
            (Some(earlier), _) => keep(earlier, &found, rule, seed),
            (None, _) => match &self.trained_on {
                Some(earlier) => only_new(earlier, &found, rule, seed)?,
                None => drawn,
            },
        };
        if parts[Part::Train as usize].is_empty() && self.trained_on.is_some() {
            let why = "no training sample is new: the earlier run was trained on all of them".into();
            return Err(Error::Split { why, hint: "add samples, or leave `trained_on` out".into() });
        }
        if parts[Part::Train as usize].is_empty() {
            let why = "no sample that the run was trained on remains, and there are no new ones".into();
            return Err(Error::Split { why, hint: "put samples back, or start a new run".into() });
        }
        let found = DataIdentity::new(found.classes, found.samples, &parts);
        self.found = Some(if self.trained_on.is_some() { found.with_left_out() } else { found });
        Ok(parts)
    }

    /// The tokenizer of the run, if it has one already: a vocabulary that is trained again has other ids.
    pub(crate) fn tokenizer(&self) -> Option<&str> {
        // Weights of an earlier run go with its tokenizer.
        self.earlier.as_ref().or(self.prepared.as_ref()).or(self.trained_on.as_ref())?.tokenizer.as_deref()
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
        let known = self.earlier.as_ref().or(self.prepared.as_ref()).or(self.trained_on.as_ref())?;
        let [mean, std] = known.statistics.as_ref()?;
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

/// Keeps the part of each earlier sample, and assigns new ones by the rule.
fn keep(earlier: &DataIdentity, found: &DataIdentity, rule: Rule, seed: u64) -> Parts {
    let mut parts = Parts::default();
    // The usual case, which takes no table of all samples.
    if earlier.samples == found.samples {
        for sample in (0..found.len()).filter(|sample| !earlier.is_left_out(*sample)) {
            parts[earlier.part(sample).unwrap_or(Part::Train) as usize].push(sample as u32);
        }
        return parts;
    }
    let by = Key::of_both(&earlier.samples, &found.samples);
    let known: HashMap<_, usize> = earlier.samples.keys(by).into_iter().zip(0..).collect();
    let mut before = Part::Train;
    for (sample, key) in found.samples.keys(by).into_iter().enumerate() {
        if known.get(&key).is_some_and(|index| earlier.is_left_out(*index)) {
            continue;
        }
        let old = known.get(&key).and_then(|index| earlier.part(*index));
        let drawn = found.part(sample).unwrap_or(Part::Train);
        let part = old.unwrap_or_else(|| part_of_new(key, rule, seed, drawn, before));
        parts[part as usize].push(sample as u32);
        before = part;
    }
    parts
}

/// The split of a run that continues an earlier one: validation and test keep what they had, and training has only what
/// is new.
///
/// # Errors
/// [`Error::Split`] where samples are known by their place alone, and that has changed: one of test could be trained on.
fn only_new(earlier: &DataIdentity, found: &DataIdentity, rule: Rule, seed: u64) -> Result<Parts, Error> {
    let by = Key::of_both(&earlier.samples, &found.samples);
    if by == Key::Place && !found.samples.begins_with(&earlier.samples) {
        let why = "its samples have no names or hashes, and it does not begin with those of the earlier run".into();
        return Err(Error::Split { why, hint: "append new samples at the end, or leave `trained_on` out".into() });
    }
    let mut parts = keep(earlier, found, rule, seed);
    let known: HashSet<_> = earlier.samples.keys(by).into_iter().collect();
    let keys = found.samples.keys(by);
    let is_new = |sample: &u32| !known.contains(&keys[*sample as usize]);
    if rule == Rule::InOrder {
        let all_new: Vec<u32> = (0..found.len() as u32).filter(is_new).collect();
        for (part, new) in parts.iter_mut().zip(divided_in_order(&all_new, found)) {
            part.retain(|sample| !is_new(sample));
            part.extend(new);
            part.sort_unstable();
        }
    }
    parts[Part::Train as usize].retain(is_new);
    Ok(parts)
}

/// New samples in the proportions in which all of the data was drawn. By the sample before, what is appended would all be
/// test data.
fn divided_in_order(new: &[u32], found: &DataIdentity) -> Parts {
    let drawn = |part: Part| (0..found.len()).filter(|sample| found.part(*sample) == Some(part)).count();
    let (training, validation) = (drawn(Part::Train), drawn(Part::Validation));
    let up_to = |samples: usize| (new.len() * samples).div_ceil(found.len().max(1)).min(new.len());
    let (training, validation) = (up_to(training), up_to(training + validation));
    [new[..training].to_vec(), new[training..validation].to_vec(), new[validation..].to_vec()]
}

/// The part of a new sample: drawn from its key, so that it does not depend on other new samples.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity of samples that are known by their place alone, three quarters of them for training.
    fn identity(targets: &[u64], rule: Rule, trained_on: Option<&DataIdentity>) -> Result<DataIdentity, Error> {
        let (all, training) = (targets.len() as u32, targets.len() as u32 * 3 / 4);
        let drawn: Parts = [(0..training).collect(), Vec::new(), (training..all).collect()];
        let list = SampleList { targets: targets.to_vec(), ..SampleList::default() };
        let mut provenance = Provenance::of_run(None, false, true).leaving_out(trained_on.cloned());
        provenance.divide(&[], drawn, rule, 5, |_| Ok(list))?;
        Ok(provenance.found().unwrap().clone())
    }

    #[test]
    fn a_sample_of_test_is_not_new_because_it_has_moved() {
        let shares = Rule::Shares([0.75, 0.0, 0.25]);
        let first = identity(&[0, 1, 0, 2], shares, None).unwrap();
        assert_eq!(first.letters(), "ttte");
        for moved in [&[1, 0, 1, 0, 2, 0][..], &[1, 0, 2, 0, 1][..], &[0, 1, 0][..]] {
            let error = identity(moved, shares, Some(&first)).unwrap_err();
            assert!(error.to_string().contains("does not begin with those"), "{error}");
        }
        assert!(identity(&[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0], shares, Some(&first)).is_ok());
    }

    #[test]
    fn what_is_appended_in_order_is_not_all_for_test() {
        let first = identity(&[0; 4], Rule::InOrder, None).unwrap();
        let second = identity(&[0; 8], Rule::InOrder, Some(&first)).unwrap();
        assert_eq!(second.letters(), "kkkettte");
        let third = identity(&[0; 16], Rule::InOrder, Some(&second)).unwrap();
        assert_eq!(third.letters(), "kkkekkkettttttee");
    }
}
