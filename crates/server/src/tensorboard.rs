//! TensorBoard event files: the scalars of a run, each step once.
//!
//! A file is a row of records, each framed by its length and two checksums (TFRecord); a record is an `Event` of
//! `tensorflow/core/util/event.proto`, of which four fields and two nested messages are written here by hand: 60 lines.
//! With `prost` they would be 42 lines of structs, two more packages (`prost`, `prost-derive`) and 1.7 CPU-seconds of
//! every first build (measured November 2026); the frames and their checksums would stay.
//! [`encode`] is the whole format as one function; [`EventFile`] keeps such a file while a run goes on.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use domain::Timestamp;
use domain::rank::{Evaluated, EvaluatedSplit, Metrics, Report, Step, TaskMetrics};
use domain::series::Point;

use crate::error::Error;
use crate::report::Curves;

/// An event file that is extended during its run.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// Writes all measurements into `folder`, replacing what was written before.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be written.
    pub fn create(folder: &Path, points: &[Point]) -> Result<EventFile, Error> {
        fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
        // TensorBoard recognizes its files by `tfevents` in the name.
        let path = folder.join("events.out.tfevents.gradus");
        let draft = folder.join("draft");
        fs::write(&draft, encode(points)).map_err(Error::file("write", &draft))?;
        fs::rename(&draft, &path).map_err(Error::file("write", &path))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(Error::file("open", &path))?;
        Ok(EventFile { file, path })
    }

    /// Appends new measurements. When an attempt resumed, TensorBoard is told to discard the repeated steps.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn append(&mut self, points: &[Point]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for Point { at, report, attempt: _ } in points {
            match report {
                Report::Ready(ready) => frame(&mut bytes, &restart(*at, ready.step + 1)),
                Report::Step(step) => frame(&mut bytes, &step_event(*at, step)),
                Report::Evaluated(evaluated) => frame(&mut bytes, &evaluation_event(*at, evaluated)),
                Report::Metrics(metrics) => frame(&mut bytes, &metrics_event(*at, metrics)),
                Report::Hello { .. }
                | Report::Preparing { .. }
                | Report::Pausing { .. }
                | Report::Checkpointed(_)
                | Report::Note { .. }
                | Report::Result(_)
                | Report::Exported(_) => {}
                Report::Devices { .. } | Report::Trained | Report::Stopped { .. } | Report::Failed(_) => {}
            }
        }
        self.file.write_all(&bytes).map_err(Error::file("write", &self.path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A complete event file of these points, in the order of their arrival.
pub fn encode(points: &[Point]) -> Vec<u8> {
    let curves = Curves::of(points);
    let begin = points.first().map(|point| point.at).unwrap_or_default();
    let mut header = event(begin, 0);
    // Field 3: file_version.
    bytes_field(&mut header, 3, b"brain.Event:2");

    let mut file = Vec::new();
    frame(&mut file, &header);
    for (at, step) in &curves.steps {
        frame(&mut file, &step_event(*at, step));
    }
    for (at, evaluated) in curves.validations.iter().chain(&curves.test) {
        frame(&mut file, &evaluation_event(*at, evaluated));
    }
    for (at, metrics) in &curves.metrics {
        frame(&mut file, &metrics_event(*at, metrics));
    }
    file
}

fn metrics_event(at: Timestamp, metrics: &Metrics) -> Vec<u8> {
    let scalars: Vec<(&str, f64)> = metrics.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    scalar_event(at, metrics.step, &scalars)
}

fn step_event(at: Timestamp, step: &Step) -> Vec<u8> {
    let mut scalars = vec![("train/loss", step.loss), ("train/lr", step.lr)];
    // The time of a program's first step is unknown.
    if step.step_us > 0 {
        let seconds = step.step_us as f64 / 1e6;
        scalars.push(("train/samples_per_second", f64::from(step.samples) / seconds));
    }
    scalars.push(("train/data_wait", step.data_wait_us as f64 / 1e6));
    let data = [
        ("data/sample_us", step.data.sample_us),
        ("data/batches_ready", step.data.queue.map(f64::from)),
        ("data/cache_hit_rate", step.data.hit_rate()),
    ];
    scalars.extend(data.into_iter().filter_map(|(name, value)| Some((name, value?))));
    scalar_event(at, step.step, &scalars)
}

fn evaluation_event(at: Timestamp, evaluated: &Evaluated) -> Vec<u8> {
    let part = match evaluated.split {
        EvaluatedSplit::Validation => "validation",
        EvaluatedSplit::Test => "test",
    };
    let accuracy = format!("{part}/{}", evaluated.figures.accuracy_key());
    let mut scalars = vec![(format!("{part}/loss"), evaluated.loss), (accuracy, evaluated.accuracy)];
    let TaskMetrics { top5, f1, perplexity, map50, map: _, rmse, mae } = evaluated.figures;
    let named =
        [("top5", top5), ("f1", f1), ("perplexity", perplexity), ("map50", map50), ("rmse", rmse), ("mae", mae)];
    for (name, value) in named {
        scalars.extend(value.map(|value| (format!("{part}/{name}"), value)));
    }
    let scalars: Vec<(&str, f64)> = scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    scalar_event(at, evaluated.step, &scalars)
}

/// An `Event` with one `Summary.Value` a scalar.
fn scalar_event(at: Timestamp, step: u64, scalars: &[(&str, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let mut message = Vec::new();
        // Field 1: tag; field 2: simple_value, a 32-bit number.
        bytes_field(&mut message, 1, tag.as_bytes());
        key(&mut message, 2, FIXED32);
        message.extend((*value as f32).to_le_bytes());
        bytes_field(&mut summary, 1, &message);
    }
    let mut event = event(at, step);
    // Field 5: summary.
    bytes_field(&mut event, 5, &summary);
    event
}

/// An `Event` with a `SessionLog` START: events of `step` and later are discarded.
fn restart(at: Timestamp, step: u64) -> Vec<u8> {
    let mut event = event(at, step);
    // Field 7: session_log, with field 1, status, at 1.
    bytes_field(&mut event, 7, &[1 << 3, 1]);
    event
}

/// The fields that every `Event` begins with: 1, wall_time in seconds, and 2, step.
fn event(at: Timestamp, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, FIXED64);
    event.extend((at.0 as f64 / 1e6).to_le_bytes());
    key(&mut event, 2, VARINT);
    varint(&mut event, step);
    event
}

// Wire types of https://protobuf.dev/programming-guides/encoding/
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED32: u8 = 5;

fn key(message: &mut Vec<u8>, field: u8, wire_type: u8) {
    message.push(field << 3 | wire_type);
}

fn bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    key(message, field, LENGTH);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// One TFRecord: length, its checksum, the data, its checksum.
fn frame(file: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked_checksum(&length).to_le_bytes());
    file.extend(data);
    file.extend(masked_checksum(data).to_le_bytes());
}

/// CRC-32C, rotated and shifted so that a checksum of data that holds checksums stays good
/// (`tensorflow/core/lib/hash/crc32c.h`).
fn masked_checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::curves::tests::{evaluated, metric, point, ready, step};

    #[test]
    fn a_record_is_framed() {
        // An empty record, as TensorFlow writes it.
        let mut file = Vec::new();
        frame(&mut file, b"");
        assert_eq!(file, [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2]);
    }

    #[test]
    fn numbers_of_any_size_are_written() {
        let check = |value, expected: &[u8]| {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!(bytes, expected);
        };
        check(0, &[0]);
        check(127, &[127]);
        check(300, &[0xac, 0x02]);
        check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn a_step_of_unknown_time_has_no_speed() {
        let has_speed = |step_us| {
            let Report::Step(known) = step(1, 3.0) else { panic!("a step") };
            let bytes = encode(&[point(1, 0, ready(0)), point(1, 1, Report::Step(Step { step_us, ..known }))]);
            bytes.windows(24).any(|bytes| bytes == b"train/samples_per_second")
        };
        assert!(has_speed(10_000) && !has_speed(0));
    }

    #[test]
    fn appending_without_a_resume_gives_the_same_scalars() {
        let folder = tempfile::tempdir().unwrap();
        let points = [
            point(1, 0, ready(0)),
            point(1, 1, step(1, 3.0)),
            point(1, 2, step(2, 2.0)),
            point(1, 3, evaluated(2, EvaluatedSplit::Validation, 0.5)),
            point(1, 4, metric(2, "val/f1", 0.25)),
        ];
        let mut file = EventFile::create(folder.path(), &points[..2]).unwrap();
        file.append(&points[2..]).unwrap();
        let written = fs::read(file.path()).unwrap();
        assert_eq!(written, encode(&points));
        assert!(written.windows(6).any(|bytes| bytes == b"val/f1"));
    }
}
