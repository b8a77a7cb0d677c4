//! What differs between the data that a run was trained on and the data that is there now.

use std::collections::HashMap;
use std::fmt;

use super::DataIdentity;
use super::listing::{Key, SampleList};

/// Samples that are named in a message.
const SHOWN: usize = 3;

/// How the data has changed since a run was trained on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataChange {
    removed: Samples,
    added: Samples,
    /// Of the same name, with other bytes.
    edited: Samples,
    /// Of the same name, with another class, other boxes, or in another split by the layout of the data.
    relabelled: Samples,
    /// Whether the samples are the same in another order.
    is_reordered: bool,
    removed_classes: Vec<String>,
    added_classes: Vec<String>,
    is_other_tokenizer: bool,
    /// Whether its tokens are of another tokenizer.
    is_packed_again: bool,
    /// Whether the digests differ and nothing more is known.
    is_unlisted: bool,
}

/// Some samples, of which the first few are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Samples {
    count: u64,
    first: Vec<String>,
}

impl Samples {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(name());
        }
    }
}

impl DataChange {
    /// What has changed from `old` to `new`, tokenizers aside; `None` if nothing has.
    pub(crate) fn between(old: &DataIdentity, new: &DataIdentity) -> Option<DataChange> {
        let missing = |from: &DataIdentity, of: &DataIdentity| -> Vec<String> {
            of.classes.iter().filter(|class| !from.classes.contains(class)).cloned().collect()
        };
        let mut change = DataChange {
            removed_classes: missing(new, old),
            added_classes: missing(old, new),
            is_reordered: old.classes != new.classes,
            ..DataChange::default()
        };
        let has_same_classes = change.removed_classes.is_empty() && change.added_classes.is_empty();
        change.is_reordered &= has_same_classes;
        change.compare_samples(old, new);
        change.is_some().then_some(change)
    }

    /// The data has another digest, and the list of its samples is lost.
    pub fn unlisted() -> DataChange {
        DataChange { is_unlisted: true, ..DataChange::default() }
    }

    /// A given tokenizer is not the one of before.
    pub(crate) fn other_tokenizer() -> DataChange {
        DataChange { is_other_tokenizer: true, ..DataChange::default() }
    }

    /// The tokens that it is packed as are of another tokenizer than before.
    pub(crate) fn packed_again() -> DataChange {
        DataChange { is_packed_again: true, ..DataChange::default() }
    }

    /// Whether training may continue with the changed data where the user says so: the network's outputs are still the
    /// same classes, and it is known which samples were in which split.
    pub fn can_be_accepted(&self) -> bool {
        let has_same_classes = self.removed_classes.is_empty() && self.added_classes.is_empty();
        has_same_classes && !self.is_packed_again && !self.is_unlisted
    }

    fn is_some(&self) -> bool {
        *self != DataChange::default()
    }

    fn compare_samples(&mut self, old: &DataIdentity, new: &DataIdentity) {
        let by = Key::of_both(&old.samples, &new.samples);
        let (old_keys, new_keys) = (old.samples.keys(by), new.samples.keys(by));
        let old_places: HashMap<_, usize> = old_keys.iter().copied().zip(0..).collect();
        let mut stayed = vec![false; old_keys.len()];
        for (sample, key) in new_keys.iter().enumerate() {
            let Some(place) = old_places.get(key).copied() else {
                self.added.add(|| new.samples.name(sample));
                continue;
            };
            stayed[place] = true;
            let differ = |column: fn(&SampleList) -> &Vec<u64>| match (
                column(&old.samples).get(place),
                column(&new.samples).get(sample),
            ) {
                (Some(old), Some(new)) => old != new,
                (_, _) => false,
            };
            if differ(|listing| &listing.bytes) || differ(|listing| &listing.contents) {
                self.edited.add(|| new.samples.name(sample));
            } else if differ(|listing| &listing.targets) && old.classes == new.classes {
                self.relabelled.add(|| new.samples.name(sample));
            }
        }
        for (place, _) in stayed.iter().enumerate().filter(|(_, stayed)| !**stayed) {
            self.removed.add(|| old.samples.name(place));
        }
        let has_same_samples = self.removed.count == 0 && self.added.count == 0;
        self.is_reordered |= has_same_samples && old_keys != new_keys;
    }
}

impl fmt::Display for DataChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let classes = [(&self.removed_classes, "removed"), (&self.added_classes, "added")];
        for (names, how) in classes.into_iter().filter(|(names, _)| !names.is_empty()) {
            let word = if names.len() == 1 { "class" } else { "classes" };
            parts.push(format!("{} {word} {how} ({})", names.len(), crate::error::shorten(names)));
        }
        let samples = [
            (&self.removed, "removed"),
            (&self.added, "added"),
            (&self.edited, "edited"),
            (&self.relabelled, "relabelled"),
        ];
        for (Samples { count, first }, how) in samples.into_iter().filter(|(samples, _)| samples.count > 0) {
            let word = if *count == 1 { "sample" } else { "samples" };
            let more = if *count > first.len() as u64 { ", …" } else { "" };
            parts.push(format!("{count} {word} {how} ({}{more})", first.join(", ")));
        }
        if self.is_reordered {
            parts.push("its samples or classes are in another order".into());
        }
        if self.is_other_tokenizer {
            parts.push("the tokenizer is another one".into());
        }
        if self.is_packed_again {
            parts.push("it was packed with another tokenizer".into());
        }
        if self.is_unlisted {
            parts.push("its hash is another one, and the list of the old samples is lost".into());
        }
        f.write_str(&parts.join("; "))
    }
}
