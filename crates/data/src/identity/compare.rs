//! Compares two identities sample by sample.

use std::collections::HashMap;

use super::DataIdentity;
use super::change::DataChange;
use super::listing::{Key, SampleList};

impl DataChange {
    /// The changes from `old` to `new`, except in the tokenizer; `None` if there are none.
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

    fn compare_samples(&mut self, old: &DataIdentity, new: &DataIdentity) {
        // The usual case, which takes no table of all samples.
        if old.samples == new.samples {
            return;
        }
        let by = Key::of_both(&old.samples, &new.samples);
        let (old_keys, new_keys) = (old.samples.keys(by), new.samples.keys(by));
        let old_indices: HashMap<_, usize> = old_keys.iter().copied().zip(0..).collect();
        let mut stayed = vec![false; old_keys.len()];
        for (sample, key) in new_keys.iter().enumerate() {
            let Some(index) = old_indices.get(key).copied() else {
                self.added.add(|| new.samples.name(sample));
                continue;
            };
            stayed[index] = true;
            let differ = |column: fn(&SampleList) -> &Vec<u64>| match (
                column(&old.samples).get(index),
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
        for (index, _) in stayed.iter().enumerate().filter(|(_, stayed)| !**stayed) {
            self.removed.add(|| old.samples.name(index));
        }
        let has_same_samples = self.removed.count == 0 && self.added.count == 0;
        self.is_reordered |= has_same_samples && old_keys != new_keys;
    }
}
