//! The difference between the data that a run was trained on and the current data, and its message.
//!
//! It is computed in `compare`.

use std::fmt;

/// Samples that are named in a message.
const SHOWN: usize = 3;

/// How the data has changed since a run was trained on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataChange {
    pub(super) removed: Samples,
    pub(super) added: Samples,
    /// Of the same name, with other bytes.
    pub(super) edited: Samples,
    /// Of the same name, with another class, other boxes, or in another split by the layout of the data.
    pub(super) relabelled: Samples,
    /// Whether the samples are the same in another order.
    pub(super) is_reordered: bool,
    pub(super) removed_classes: Vec<String>,
    pub(super) added_classes: Vec<String>,
    pub(super) is_other_tokenizer: bool,
    /// Whether its tokens are of another tokenizer.
    pub(super) is_packed_again: bool,
    /// Whether the digests differ and no details are known.
    pub(super) is_unlisted: bool,
}

/// Some samples, of which the first few are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) count: u64,
    pub(super) first: Vec<String>,
}

impl Samples {
    pub(super) fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(name());
        }
    }
}

impl DataChange {
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

    /// Whether training may continue with the changed data if the user accepts it: the classes are the same, and the
    /// split of the earlier samples is known.
    pub fn can_be_accepted(&self) -> bool {
        let has_same_classes = self.removed_classes.is_empty() && self.added_classes.is_empty();
        has_same_classes && !self.is_packed_again && !self.is_unlisted
    }

    /// Whether anything has changed.
    pub(super) fn is_some(&self) -> bool {
        *self != DataChange::default()
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
            parts.push("the tokenizer differs".into());
        }
        if self.is_packed_again {
            parts.push("it was packed with another tokenizer".into());
        }
        if self.is_unlisted {
            parts.push("its hash differs, and the list of the earlier samples is missing".into());
        }
        f.write_str(&parts.join("; "))
    }
}
