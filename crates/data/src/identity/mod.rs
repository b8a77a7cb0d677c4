//! The identity of the data that a run is trained on, so that a resumed run notices other data before its first step.
//!
//! An identity lists every sample in the order of the data: its name, size, target and split, and a hash of its content
//! if reading all samples is cheap or hashes are available. A resumed run lists its data again and compares: an added
//! or removed sample shifts the split of the others, and a replaced text shifts token ids, so neither may go unnoticed.
//! Read on in `change` (what differs) and `provenance` (what is done about it).

mod change;
mod compare;
mod listing;
pub mod preparation;
mod provenance;

use std::io::BufWriter;

use serde::{Deserialize, Serialize};

use crate::Part;
use crate::sampling::split::Parts;

pub use change::DataChange;
pub(crate) use listing::{SampleList, hash};
pub use provenance::Provenance;
pub(crate) use provenance::{Reads, Rule, plain};

/// The version of an identity as text.
const SCHEMA: u32 = 1;

/// The letter of a sample that is in no part, because an earlier run was trained on it.
const LEFT_OUT: u8 = b'k';

/// The columns of a [`SampleList`] as they are hashed: with its contents or without, always in this order.
#[derive(Serialize)]
struct HashedColumns<'a> {
    names: &'a [String],
    bytes: &'a [u64],
    contents: &'a [u64],
    targets: &'a [u64],
}

/// The samples of a data set and the split of each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataIdentity {
    schema: u32,
    /// Names of the classes, in label order.
    classes: Vec<String>,
    /// The samples, in the order of the data.
    samples: SampleList,
    /// The split of each: `t` for training, `v` for validation, `e` for test, `k` for none, because an earlier run was trained
    /// on it.
    parts: String,
    /// The tokenizer as a `tokenizer.json`; `None` for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    /// Mean and standard deviation of each channel, if measured: the bits of the numbers, because decimals might be
    /// rounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statistics: Option<[Vec<u32>; 2]>,
}

impl DataIdentity {
    pub(crate) fn new(classes: Vec<String>, samples: SampleList, parts: &Parts) -> DataIdentity {
        let mut letters = vec![b' '; samples.len()];
        for (part, letter) in parts.iter().zip(*b"tve") {
            part.iter().for_each(|sample| letters[*sample as usize] = letter);
        }
        let parts = String::from_utf8(letters).unwrap_or_default();
        DataIdentity { schema: SCHEMA, classes, samples, parts, tokenizer: None, statistics: None }
    }

    /// The same, where samples in no part are those that an earlier run was trained on.
    fn with_left_out(self) -> DataIdentity {
        let parts = self.parts.replace(' ', &char::from(LEFT_OUT).to_string());
        DataIdentity { parts, ..self }
    }

    /// Whether a sample was left out, because an earlier run was trained on it.
    fn is_left_out(&self, sample: usize) -> bool {
        self.parts.as_bytes().get(sample) == Some(&LEFT_OUT)
    }

    /// Reads an identity; `None` for text that is none, or of a later version.
    pub fn from_text(text: &str) -> Option<DataIdentity> {
        let identity: DataIdentity = serde_json::from_str(text).ok()?;
        identity.is_valid().then_some(identity)
    }

    /// Whether the version is known and the columns are complete.
    pub fn is_valid(&self) -> bool {
        self.schema == SCHEMA && self.samples.is_consistent() && self.parts.len() == self.samples.len()
    }

    /// The identity as one line of JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain values are always JSON")
    }

    /// The hash of everything that two runs on the same data have in common, in hexadecimal digits.
    pub fn digest(&self) -> String {
        self.hash_with(&self.samples.contents)
    }

    /// The same without the contents of samples, which not every rank reads.
    pub fn outline_digest(&self) -> String {
        self.hash_with(&[])
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hash of an identity as JSON, computed without holding it in memory.
    fn hash_with(&self, contents: &[u64]) -> String {
        let SampleList { names, bytes, contents: _, targets } = &self.samples;
        let samples = HashedColumns { names, bytes, contents, targets };
        let mut all = BufWriter::with_capacity(1 << 16, blake3::Hasher::new());
        serde_json::to_writer(&mut all, &(&self.classes, samples, &self.parts, &self.tokenizer))
            .expect("plain values are always JSON, and a hash takes all of it");
        all.into_inner().expect("a hash takes all of it").finalize().to_hex().to_string()
    }

    fn part(&self, sample: usize) -> Option<Part> {
        match self.parts.as_bytes().get(sample)? {
            b't' => Some(Part::Train),
            b'v' => Some(Part::Validation),
            b'e' => Some(Part::Test),
            _ => None,
        }
    }
}

#[cfg(test)]
impl DataIdentity {
    /// The letters of the parts of all samples, in the order of the data.
    pub(crate) fn letters(&self) -> &str {
        &self.parts
    }

    /// The split of each sample, by a hash of its content.
    pub(crate) fn splits(&self) -> std::collections::BTreeMap<u64, Part> {
        (0..self.len()).map(|sample| (self.samples.contents[sample], self.part(sample).unwrap())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_earlier_versions() {
        let samples = SampleList {
            names: vec!["a \"quoted\" name".into(), "é".into()],
            bytes: vec![7, u64::MAX],
            contents: vec![1, 2],
            targets: vec![0, 1],
        };
        let mut identity = DataIdentity::new(vec!["x".into()], samples, &[vec![0], vec![], vec![1]]);
        for tokenizer in [None, Some("{\"model\": 1}\n".to_owned())] {
            identity.tokenizer = tokenizer;
            let digest = |samples: &SampleList| {
                let all = serde_json::json!([identity.classes, samples, identity.parts, identity.tokenizer]);
                blake3::hash(all.to_string().as_bytes()).to_hex().to_string()
            };
            assert_eq!(identity.digest(), digest(&identity.samples));
            let outline = SampleList { contents: Vec::new(), ..identity.samples.clone() };
            assert_eq!(identity.outline_digest(), digest(&outline));
        }
    }
}
