//! The common index of every format: samples with their labels and parts.

use std::collections::BTreeMap;

use domain::train::Labels;

use super::encoded::Encoded;
use crate::Part;

/// All samples of a data set, in the order of their names.
#[derive(Debug)]
pub(crate) struct Index {
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// One label a sample.
    pub labels: Vec<u32>,
    /// The part that the layout of the data names for each sample; `None` when the split is drawn.
    pub homes: Option<Vec<Part>>,
    /// The images.
    pub content: Content,
    /// Samples that were skipped.
    pub skipped: Vec<Skipped>,
    /// Images that a later member of the same name replaces.
    pub replaced: Vec<String>,
    /// Image files of unsupported formats, by extension.
    pub unread: Vec<String>,
    /// Images of archives whose names lead elsewhere.
    pub renamed: Option<Renamed>,
}

impl Index {
    /// Samples of which none was skipped, replaced, left unread or renamed.
    pub fn whole(classes: Vec<String>, labels: Vec<u32>, homes: Option<Vec<Part>>, content: Content) -> Index {
        let (skipped, replaced, unread, renamed) = (Vec::new(), Vec::new(), Vec::new(), None);
        Index { classes, labels, homes, content, skipped, replaced, unread, renamed }
    }

    /// A sentence about files that are skipped because their format is not supported: kinds, counts and the first of
    /// them.
    pub fn left_out(&self) -> Option<String> {
        let first = self.unread.first()?;
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for name in &self.unread {
            let kind = name.rsplit('.').next().unwrap_or_default().to_uppercase();
            *kinds.entry(kind).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let count = self.unread.len();
        let them = if count == 1 { "file is left out: its format is" } else { "files are left out: their formats are" };
        Some(format!("{count} image {them} not read ({}); the first is `{first}`", kinds.join(", ")))
    }
}

/// Images, as they were found.
#[derive(Debug)]
pub(crate) enum Content {
    /// Image files.
    Encoded(Encoded),
    /// Plain pixels.
    Decoded(Decoded),
}

/// The part that the name of a file or folder implies.
pub(super) type Home = Option<Part>;

/// How a data set is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub by_folders: ByFolders,
    /// Whether damaged samples are skipped and counted.
    pub skip: bool,
    /// What the labels are.
    pub labels: Labels,
}

/// Whether the parts are those that folders or files are named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByFolders {
    No,
    Yes,
    /// If any sample names one, and then all must.
    IfAny,
}

impl ByFolders {
    /// Whether samples with these parts need one each.
    pub(super) fn asks(self, mut homes: impl Iterator<Item = Home>) -> bool {
        match self {
            ByFolders::No => false,
            ByFolders::Yes => true,
            ByFolders::IfAny => homes.any(|home| home.is_some()),
        }
    }
}

/// Images as plain pixels: sample by sample, then channel by channel, then row by row.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    /// The largest value of a pixel, which maps to 1.0.
    pub full: u8,
    pub pixels: Vec<u8>,
}

/// Images whose names in an archive are absolute or hold `..`; they are read under names below its root.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Renamed {
    /// How many.
    pub count: u64,
    /// The first of them, as it is written.
    pub name: String,
    /// The name that it is read under.
    pub read_as: String,
}

/// An image that was skipped because it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// File, or path inside an archive.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}
