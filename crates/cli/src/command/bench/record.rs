//! The history of measurements: one JSON value per line in an append-only file, so that the figures of a later version
//! can be compared with those of an earlier one.
//!
//! [`compare`] is the one decision: the newest figure of a case against earlier ones on the same machine.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use domain::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Version of a line.
const SCHEMA: u32 = 1;

/// With fewer earlier figures there is no verdict.
const FEWEST: usize = 3;

/// The kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchKind {
    /// The time of a training step.
    Step,
    /// The time until a job has reached an accuracy.
    TimeToTrain,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRecord {
    pub schema: u32,
    pub at: Timestamp,
    pub kind: BenchKind,
    /// The device, and its size.
    pub machine: String,
    /// Version of `gradus`, and the beginning of the SHA-256 of the `gradus-rank` that was measured.
    pub gradus: String,
    pub build: String,
    /// The user's comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The properties that make two measurements comparable.
    pub case: Map<String, Value>,
    /// What came out.
    pub figures: Map<String, Value>,
}

impl BenchRecord {
    /// One of now.
    pub fn now(
        kind: BenchKind,
        settings: &GlobalSettings,
        machine: String,
        note: Option<String>,
    ) -> Result<BenchRecord, Error> {
        Ok(BenchRecord {
            schema: SCHEMA,
            at: server::clock::now(),
            kind,
            machine,
            gradus: env!("CARGO_PKG_VERSION").to_owned(),
            build: build(&settings.rank_program)?,
            note,
            case: Map::new(),
            figures: Map::new(),
        })
    }

    /// The figure that is compared, and its unit; less is better.
    pub fn figure(&self) -> (Option<f64>, &'static str) {
        let (name, unit) = match self.kind {
            BenchKind::Step => ("step_ms", "ms"),
            BenchKind::TimeToTrain => ("seconds", "s"),
        };
        (self.figures.get(name).and_then(Value::as_f64), unit)
    }

    /// A description of the case: the values in the order of their keys, without defaults.
    pub fn told(&self) -> String {
        let word = |(key, value): (&String, &Value)| match value {
            Value::Null | Value::Bool(false) => None,
            Value::Bool(true) => Some(key.replace('_', " ")),
            Value::String(text) if key == "model" || key == "job" => Some(text.clone()),
            Value::String(text) => Some(format!("{key} {text}")),
            other => Some(format!("{key} {other}")),
        };
        let first = ["job", "model"].iter().filter_map(|key| self.case.get_key_value(*key)).filter_map(word);
        let others = self.case.iter().filter(|(key, _)| *key != "model" && *key != "job").filter_map(word);
        first.chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// The start of the SHA-256 of an executable, in hexadecimal, which distinguishes builds of one version.
fn build(program: &Path) -> Result<String, Error> {
    let bytes = fs::read(program).map_err(Error::file("read", program))?;
    let hash = Sha256::digest(bytes);
    Ok(hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// The file that is named, or the one of the home folder.
pub fn file(named: Option<&Path>, settings: &GlobalSettings) -> PathBuf {
    named.map_or_else(|| settings.home.join("bench.jsonl"), Path::to_owned)
}

/// Adds lines to the file, which is made on first use.
///
/// # Errors
/// [`Error::File`].
pub fn append(path: &Path, entries: &[BenchRecord]) -> Result<(), Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(Error::file("open", path))?;
    let mut text = String::new();
    // A line truncated by a crash remains a separate line.
    if fs::read(path).is_ok_and(|old| old.last().is_some_and(|last| *last != b'\n')) {
        text.push('\n');
    }
    for entry in entries {
        text.push_str(&serde_json::to_string(entry).unwrap_or_default());
        text.push('\n');
    }
    // In one write, so that concurrent writers do not mix their lines.
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::file("write", path))
}

/// Every measurement, oldest first; malformed lines are reported and skipped.
///
/// # Errors
/// [`Error::File`].
pub fn read(path: &Path, printer: &mut Printer) -> Result<Vec<BenchRecord>, Error> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("read", path)(error)),
    };
    let (entries, wrong) = parse(&text);
    for (line, why) in wrong {
        printer.say(format!("warning: line {line} of `{}` is left out: {why}", path.display()));
    }
    Ok(entries)
}

/// The measurements of a history's text, and the lines that are none with the reason.
fn parse(text: &str) -> (Vec<BenchRecord>, Vec<(usize, String)>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<BenchRecord>(line) {
            Ok(entry) if entry.schema <= SCHEMA => entries.push(entry),
            Ok(entry) => wrong.push((place + 1, format!("it is of a later version ({})", entry.schema))),
            Err(error) => wrong.push((place + 1, error.to_string())),
        }
    }
    entries.sort_by_key(|entry| entry.at);
    (entries, wrong)
}

/// The newest figure of a case with the earlier ones of the same machine.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchComparison<'a> {
    pub newest: &'a BenchRecord,
    pub figure: f64,
    /// `None` for the first.
    pub before: Option<Before>,
}

/// Earlier measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Before {
    pub count: usize,
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// How a figure stands to those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchVerdict {
    /// There are too few earlier ones.
    Unknown,
    /// Between the least and the most of them.
    Usual,
    /// Below all of them.
    Better,
    /// Above all of them.
    Worse,
}

impl BenchComparison<'_> {
    /// Relative difference of the newest figure from the earlier median: positive if it takes longer.
    pub fn change(&self) -> Option<f64> {
        self.before.map(|before| self.figure / before.median - 1.0)
    }

    /// Whether the newest figure is within, below or above the range of earlier ones.
    pub fn verdict(&self) -> BenchVerdict {
        match self.before {
            Some(before) if before.count < FEWEST => BenchVerdict::Unknown,
            None => BenchVerdict::Unknown,
            Some(before) if self.figure < before.least => BenchVerdict::Better,
            Some(before) if self.figure > before.most => BenchVerdict::Worse,
            Some(_) => BenchVerdict::Usual,
        }
    }
}

/// The key of comparable measurements: the kind, the machine, and the case as text.
type Case<'a> = (BenchKind, &'a str, String);
/// A measurement and its figure.
type Measured<'a> = (&'a BenchRecord, f64);

/// One comparison for each case on each machine, in the order in which they were first measured.
pub fn compare(entries: &[BenchRecord]) -> Vec<BenchComparison<'_>> {
    let mut groups: BTreeMap<Case<'_>, Vec<Measured<'_>>> = BTreeMap::new();
    let mut order = Vec::new();
    for entry in entries {
        let (Some(figure), _) = entry.figure() else { continue };
        let key = (entry.kind, entry.machine.as_str(), Value::Object(entry.case.clone()).to_string());
        let group = groups.entry(key.clone()).or_default();
        if group.is_empty() {
            order.push(key);
        }
        group.push((entry, figure));
    }
    let groups = order.iter().filter_map(|key| groups.get(key)?.split_last());
    groups.map(|(&(newest, figure), earlier)| BenchComparison { newest, figure, before: before(earlier) }).collect()
}

fn before(earlier: &[Measured<'_>]) -> Option<Before> {
    let mut figures: Vec<f64> = earlier.iter().map(|(_, figure)| *figure).collect();
    figures.sort_by(f64::total_cmp);
    let (least, most) = (*figures.first()?, *figures.last()?);
    let middle = figures.len() / 2;
    let median =
        if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) };
    Some(Before { count: figures.len(), median, least, most })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(at: i64, machine: &str, model: &str, step_ms: f64) -> BenchRecord {
        let object = |value: Value| value.as_object().cloned().unwrap();
        BenchRecord {
            schema: SCHEMA,
            at: Timestamp(at),
            kind: BenchKind::Step,
            machine: machine.to_owned(),
            gradus: "0.1.0".to_owned(),
            build: "abc".to_owned(),
            note: None,
            case: object(json!({"model": model, "batch": 8, "recompute": false, "channels_last": true})),
            figures: object(json!({"step_ms": step_ms})),
        }
    }

    /// The newest of these times in milliseconds, against those before: change in per cent, and verdict.
    fn check(times: &[f64], expected: (Option<i64>, BenchVerdict)) {
        let entries: Vec<BenchRecord> = times.iter().zip(0..).map(|(ms, at)| entry(at, "m", "a", *ms)).collect();
        let all = compare(&entries);
        assert_eq!(all.len(), 1);
        let change = all[0].change().map(|change| (100.0 * change).round() as i64);
        assert_eq!((change, all[0].verdict()), expected, "{times:?}");
    }

    #[test]
    fn the_newest_is_held_against_the_median_of_earlier_ones() {
        check(&[10.0], (None, BenchVerdict::Unknown));
        check(&[10.0, 20.0], (Some(100), BenchVerdict::Unknown));
        check(&[10.0, 11.0, 12.0, 11.5], (Some(5), BenchVerdict::Usual));
        check(&[10.0, 11.0, 12.0, 12.0], (Some(9), BenchVerdict::Usual));
        check(&[10.0, 11.0, 12.0, 14.3], (Some(30), BenchVerdict::Worse));
        check(&[12.0, 10.0, 11.0, 10.0, 5.25], (Some(-50), BenchVerdict::Better));
    }

    #[test]
    fn only_the_same_case_on_the_same_machine_is_compared() {
        let entries =
            [entry(1, "m", "a", 10.0), entry(2, "m", "b", 20.0), entry(3, "n", "a", 30.0), entry(4, "m", "a", 12.0)];
        let found: Vec<_> = compare(&entries).iter().map(|one| (one.figure, one.before.map(|b| b.count))).collect();
        assert_eq!(found, [(12.0, Some(1)), (20.0, None), (30.0, None)]);
        assert_eq!(entries[0].told(), "a, batch 8, channels last");
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_line_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/bench.jsonl");
        let entries = [entry(1, "m", "a", 10.0), entry(2, "m", "b", 20.0)];
        append(&path, &entries[..1]).unwrap();
        fs::write(&path, [fs::read(&path).unwrap(), b"{\"schema\": 1, \"at\"".to_vec()].concat()).unwrap();
        append(&path, &entries[1..]).unwrap();
        let (read, wrong) = parse(&fs::read_to_string(&path).unwrap());
        assert_eq!(read, entries);
        assert_eq!(wrong.len(), 1);
        assert_eq!(wrong[0].0, 2);
        let later = serde_json::to_string(&BenchRecord { schema: 2, ..entries[0].clone() }).unwrap();
        assert!(parse(&later).1[0].1.contains("later version"));
    }
}
