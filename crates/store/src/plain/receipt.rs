//! Receipts of transferred files: one JSON line per event, appended; the last line of a name is valid.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};

use serde::{Deserialize, Serialize};

/// Receipts, and progress of files in flight.
#[derive(Debug)]
pub(super) struct Receipts {
    /// `None` in a dry run.
    file: Option<File>,
    done: BTreeMap<String, Done>,
    under_way: BTreeMap<String, UnderWay>,
}

/// A file that is there and here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub bytes: u64,
    /// Of the local file, in nanoseconds.
    pub changed: i128,
    /// The service's name of the object's version.
    pub etag: Option<String>,
}

/// A file of which some parts are moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UnderWay {
    /// A version that all parts of one attempt share.
    pub version: String,
    /// State of each finished part.
    pub parts: BTreeMap<usize, String>,
    /// Of unfinished ones how many bytes are there from their beginning, and the hash of these.
    pub begun: BTreeMap<usize, (u64, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begun {
        name: String,
        version: String,
    },
    Part {
        name: String,
        number: usize,
        known: String,
    },
    /// The first bytes of a part are there.
    Some {
        name: String,
        number: usize,
        bytes: u64,
        known: String,
    },
    Done {
        name: String,
        receipt: Done,
    },
}

impl Receipts {
    /// Reads an opened journal, and continues to append to it.
    pub fn read(mut file: File, is_dry: bool) -> std::io::Result<Receipts> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        let mut receipts = Receipts { file: None, done: BTreeMap::new(), under_way: BTreeMap::new() };
        for line in bytes.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Begun { name, version }) => {
                    receipts.under_way.insert(name, UnderWay { version, ..UnderWay::default() });
                }
                Ok(Line::Part { name, number, known }) => {
                    receipts.under_way.entry(name).or_default().parts.insert(number, known);
                }
                Ok(Line::Some { name, number, bytes, known }) => {
                    receipts.under_way.entry(name).or_default().begun.insert(number, (bytes, known));
                }
                Ok(Line::Done { name, receipt }) => {
                    receipts.under_way.remove(&name);
                    receipts.done.insert(name, receipt);
                }
                // The last one may have been cut short.
                Err(_) => {}
            }
        }
        if !is_dry {
            if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            receipts.file = Some(file);
        }
        Ok(receipts)
    }

    /// The receipt of a file.
    pub fn of(&self, name: &str) -> Option<&Done> {
        self.done.get(name)
    }

    /// Progress of a file, if it is of this version.
    pub fn under_way(&self, name: &str) -> Option<&UnderWay> {
        self.under_way.get(name)
    }

    /// Writes that an upload in parts has begun.
    pub fn begun(&mut self, name: &str, version: &str) -> std::io::Result<()> {
        self.under_way.insert(name.into(), UnderWay { version: version.into(), ..UnderWay::default() });
        self.write(&Line::Begun { name: name.into(), version: version.into() })
    }

    /// Writes that one part of an upload is stored, and how the service names it.
    pub fn part(&mut self, name: &str, number: usize, known: &str) -> std::io::Result<()> {
        self.write(&Line::Part { name: name.into(), number, known: known.into() })
    }

    /// Writes that so many bytes of a part are there, and their hash.
    pub fn some(&mut self, name: &str, number: usize, bytes: u64, known: &str) -> std::io::Result<()> {
        self.write(&Line::Some { name: name.into(), number, bytes, known: known.into() })
    }

    /// Writes that a file was moved.
    pub fn done(&mut self, name: &str, receipt: Done) -> std::io::Result<()> {
        self.under_way.remove(name);
        self.done.insert(name.into(), receipt.clone());
        self.write(&Line::Done { name: name.into(), receipt })
    }

    fn write(&mut self, line: &Line) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        file.write_all(&text)
    }
}
