//! TensorBoard event files, read as they grow: the scalars of each step.
//!
//! A file is a row of records (TFRecord), each framed by its length and two checksums; a record is an `Event` of
//! `tensorflow/core/util/event.proto`. `server::tensorboard` writes the same format.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::steps::ObservedStep;

/// Most bytes that one look reads of a file; more waits for the next.
const MOST: u64 = 4 << 20;

/// Before a record: its length, and a checksum of it; after it: a checksum.
const HEAD: usize = 12;
const TAIL: usize = 4;

/// Last part of a tag that is the loss of training, the learning rate or the epoch.
const LOSS: [&str; 10] = [
    "loss",
    "train/loss",
    "loss/train",
    "train_loss",
    "training_loss",
    "training/loss",
    "train/loss_step",
    "train_loss_step",
    "loss_step",
    "loss_metrics/global_avg_loss",
];
const RATE: [&str; 6] = ["lr", "learning_rate", "train/lr", "train/learning_rate", "training/lr", "lr/train"];
const EPOCH: [&str; 2] = ["epoch", "train/epoch"];

/// A file that was read up to a place.
#[derive(Debug, Default)]
pub(super) struct ScalarFile {
    at: u64,
    /// Whether it is no event file.
    is_other: bool,
}

impl ScalarFile {
    /// What was written since the last look, the scalars of a step together.
    pub fn read(&mut self, path: &Path) -> Vec<ObservedStep> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.at))?;
            file.take(MOST).read_to_end(&mut bytes)
        });
        if self.is_other || read.is_err() {
            return Vec::new();
        }
        let mut steps: BTreeMap<u64, ObservedStep> = BTreeMap::new();
        let mut rest = bytes.as_slice();
        while let Some(length) = rest.first_chunk().map(|length| u64::from_le_bytes(*length)) {
            let whole = length.saturating_add((HEAD + TAIL) as u64);
            if whole > MOST {
                // At the beginning it is no event file; later, something large such as a video, which no look would hold.
                self.is_other = self.at == 0;
                self.at = self.at.saturating_add(whole);
                break;
            }
            let Some(record) = rest.get(HEAD..HEAD + length as usize) else { break };
            let Some(after) = rest.get(HEAD + length as usize + TAIL..) else { break };
            event(record, &mut steps);
            self.at += (rest.len() - after.len()) as u64;
            rest = after;
        }
        steps.into_values().collect()
    }
}

/// Adds the scalars of an `Event` to those of its step. What is malformed or of another kind is left out.
fn event(record: &[u8], steps: &mut BTreeMap<u64, ObservedStep>) {
    let (mut at, mut step, mut summary) = (0.0, 0, None);
    for (number, value) in Fields(record) {
        match (number, value) {
            (1, Field::Long(bits)) => at = f64::from_le_bytes(bits),
            (2, Field::Number(number)) => step = number,
            (5, Field::Bytes(bytes)) => summary = Some(bytes),
            _ => {}
        }
    }
    for (number, value) in Fields(summary.unwrap_or_default()) {
        if let (1, Field::Bytes(value)) = (number, value)
            && let Some((tag, number)) = scalar(value)
        {
            let seen = steps.entry(step).or_insert_with(|| ObservedStep { step, ..ObservedStep::default() });
            seen.at = at;
            put(seen, tag, number);
        }
    }
}

/// A `Summary.Value`: its tag, and its number if it is one.
fn scalar(value: &[u8]) -> Option<(&str, f64)> {
    let (mut tag, mut number) = (None, None);
    for (field, value) in Fields(value) {
        match (field, value) {
            (1, Field::Bytes(bytes)) => tag = std::str::from_utf8(bytes).ok(),
            (2, Field::Short(bits)) => number = Some(f64::from(f32::from_le_bytes(bits))),
            (8, Field::Bytes(tensor)) => number = tensor_number(tensor),
            _ => {}
        }
    }
    Some((tag?, number?))
}

/// The number of a `TensorProto` of one 32-bit number, as Keras and TensorFlow 2 write scalars.
fn tensor_number(tensor: &[u8]) -> Option<f64> {
    let (mut is_float, mut is_one, mut number) = (false, true, None);
    for (field, value) in Fields(tensor) {
        match (field, value) {
            (1, Field::Number(kind)) => is_float = kind == 1,
            (2, Field::Bytes(shape)) => is_one = shape.is_empty(),
            (4 | 5, Field::Bytes(bytes)) => number = bytes.try_into().ok().map(f32::from_le_bytes),
            (5, Field::Short(bits)) => number = Some(f32::from_le_bytes(bits)),
            _ => {}
        }
    }
    number.filter(|_| is_float && is_one).map(f64::from)
}

fn put(seen: &mut ObservedStep, tag: &str, number: f64) {
    let known = tag.to_lowercase();
    let is = |names: &[&str]| names.contains(&known.as_str());
    // Lightning's `LearningRateMonitor` names the optimizer, too.
    let is_rate = is(&RATE) || known.starts_with("lr-") && !known.contains('/');
    if is(&LOSS) {
        seen.loss = Some(number);
    } else if is_rate {
        seen.lr = Some(number);
    } else if is(&EPOCH) {
        seen.epoch = Some(number);
    } else {
        seen.others.insert(tag.to_owned(), number);
    }
}

/// A field's value by its wire type.
enum Field<'a> {
    Number(u64),
    Long([u8; 8]),
    Bytes(&'a [u8]),
    Short([u8; 4]),
}

/// The fields of a message, up to its end or to what is malformed.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Long(self.take(8)?.try_into().ok()?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => Field::Short(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Of PyTorch 2.11.0's `SummaryWriter`: scalars of two steps, one of them as TensorFlow 2 writes it, and a text.
    const WRITTEN: &[u8] = include_bytes!("written/pytorch.tfevents");

    #[test]
    fn scalars_are_read_as_the_file_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.1");
        let mut file = ScalarFile::default();
        let mut steps: BTreeMap<u64, ObservedStep> = BTreeMap::new();
        for length in 0..=WRITTEN.len() {
            fs::write(&path, &WRITTEN[..length]).unwrap();
            for seen in file.read(&path) {
                let known = steps.entry(seen.step).or_default();
                known.loss = seen.loss.or(known.loss);
                known.lr = seen.lr.or(known.lr);
                known.others.extend(seen.others);
                known.at = seen.at;
            }
        }
        assert_eq!(file.at, WRITTEN.len() as u64);
        let shown: Vec<String> =
            steps.values().map(|seen| format!("{:?} {:?} {:?}", seen.loss, seen.lr, seen.others)).collect();
        assert_eq!(shown, [r#"Some(0.5) Some(0.25) {"val/f1": 0.75}"#, "Some(0.25) None {}"]);
        assert!(steps[&20].at >= steps[&10].at && steps[&10].at > 1.7e9);
    }

    #[test]
    fn the_scalars_of_a_step_come_together_and_another_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.1");
        fs::write(&path, WRITTEN).unwrap();
        assert_eq!(ScalarFile::default().read(&path).iter().map(|seen| seen.step).collect::<Vec<_>>(), [10, 20]);
        fs::write(&path, "no event file, and long enough").unwrap();
        let mut other = ScalarFile::default();
        assert_eq!((other.read(&path), other.is_other), (Vec::new(), true));
    }

    #[test]
    fn a_record_that_no_look_would_hold_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.1");
        let large = vec![0; MOST as usize - 8];
        let mut written = WRITTEN.to_vec();
        written.extend((large.len() as u64).to_le_bytes());
        written.extend([0; HEAD - 8]);
        written.extend(&large);
        written.extend([0; TAIL]);
        written.extend(WRITTEN);
        fs::write(&path, &written).unwrap();
        let mut file = ScalarFile::default();
        let steps = [file.read(&path), file.read(&path)].concat();
        assert_eq!(steps.iter().map(|seen| seen.step).collect::<Vec<_>>(), [10, 20, 10, 20]);
        assert_eq!(file.at, written.len() as u64);
    }
}
