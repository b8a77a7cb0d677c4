//! What the suite writes down: one line of JSON for the machine, one for each case, one for the end of each section.
//!
//! A line stands alone, so a file that was cut off at any byte says all that its whole lines say.

use serde_json::{Map, Value, json};

/// Whether a case came out as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Passed,
    /// It did not.
    Failed,
    /// Figures for which there is no right and wrong.
    Stated,
}

/// How a section ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The script came to its end.
    Done,
    /// The script failed.
    Failed,
    /// It was ended at its limit.
    TimedOut,
    /// There is no CUDA device.
    NoDevice,
    /// There are no libraries of PyTorch of this version.
    NoLibtorch,
    /// The time of the whole was used up before.
    NoTime,
}

impl End {
    const ALL: [(End, &str); 6] = [
        (End::Done, "done"),
        (End::Failed, "failed"),
        (End::TimedOut, "timed out"),
        (End::NoDevice, "no device"),
        (End::NoLibtorch, "no libtorch"),
        (End::NoTime, "no time left"),
    ];

    /// As lines and tables have it.
    pub fn name(self) -> &'static str {
        End::ALL.iter().find(|(end, _)| *end == self).map_or("", |(_, name)| name)
    }
}

/// One line of results.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Where and when; the first line of each start of the suite.
    Machine { date: String, device: Option<String>, facts: Map<String, Value> },
    /// What a script found of one case.
    Case { section: String, case: String, verdict: Verdict, note: String, figures: Map<String, Value> },
    /// The end of a section.
    Ended { section: String, end: End, seconds: f64, note: String },
}

impl Line {
    /// The JSON of the line.
    pub fn to_json(&self) -> Value {
        match self {
            Line::Machine { date, device, facts } => json!({"date": date, "device": device, "facts": facts}),
            Line::Case { section, case, verdict, note, figures } => {
                let ok = match verdict {
                    Verdict::Passed => json!(true),
                    Verdict::Failed => json!(false),
                    Verdict::Stated => Value::Null,
                };
                json!({"section": section, "case": case, "ok": ok, "note": note, "figures": figures})
            }
            Line::Ended { section, end, seconds, note } => {
                json!({"section": section, "end": end.name(), "seconds": seconds, "note": note})
            }
        }
    }

    /// What a line of results says; none for one that was cut off or is of another kind.
    pub fn parse(text: &str) -> Option<Line> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = |key: &str| value[key].as_str().map(str::to_owned);
        if let Some(date) = word("date") {
            let facts = value["facts"].as_object().cloned().unwrap_or_default();
            return Some(Line::Machine { date, device: word("device"), facts });
        }
        let (section, note) = (word("section")?, word("note").unwrap_or_default());
        match word("end") {
            None => Line::of_script(&section, text),
            Some(name) => {
                let (end, _) = End::ALL.into_iter().find(|(_, known)| *known == name)?;
                Some(Line::Ended { section, end, seconds: value["seconds"].as_f64()?, note })
            }
        }
    }

    /// What a line says that a section's script printed; none where it is no case.
    pub fn of_script(section: &str, text: &str) -> Option<Line> {
        let value: Value = serde_json::from_str(text).ok()?;
        let verdict = match value.get("ok") {
            Some(Value::Bool(true)) => Verdict::Passed,
            Some(Value::Bool(false)) => Verdict::Failed,
            Some(_) | None => Verdict::Stated,
        };
        Some(Line::Case {
            section: section.to_owned(),
            case: value["case"].as_str()?.to_owned(),
            verdict,
            note: value["note"].as_str().unwrap_or_default().to_owned(),
            figures: value["figures"].as_object().cloned().unwrap_or_default(),
        })
    }
}
