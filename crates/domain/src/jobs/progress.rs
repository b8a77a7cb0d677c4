//! What is read of a program that does not use the package `gradus`: its output, and files of its framework.

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is read of a `run` program that does not use the package `gradus`, for the progress line, status and report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Regular expression to find in a line of the program's output. The group `step` is needed, as in `step (?<step>\d+) loss (?<loss>\S+)`; `loss`, `lr`, `epoch`, `samples` (of a step) and `steps` (their total) are known; a group of any other name is a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Whether TensorBoard files and `trainer_state.json` are read that the program writes below its working folder or `$GRADUS_CHECKPOINTS`.
    #[serde(default = "yes")]
    pub files: bool,
}

fn yes() -> bool {
    true
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { regex: None, files: true }
    }
}

impl Progress {
    /// Whether the job says nothing of it.
    pub fn is_default(&self) -> bool {
        *self == Progress::default()
    }

    /// The expression, ready to search with; none if there is none.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn pattern(&self) -> Result<Option<Regex>, String> {
        let Some(text) = &self.regex else { return Ok(None) };
        let regex = Regex::new(text).map_err(|error| error.to_string())?;
        let names: Vec<&str> = regex.capture_names().flatten().collect();
        match (names.contains(&"step"), names.len()) {
            (true, 2..) => Ok(Some(regex)),
            (true, _) => Err("besides `step` it has no named group, such as `(?<loss>\\S+)`".to_owned()),
            (false, _) => Err("it has no group `(?<step>\\d+)`".to_owned()),
        }
    }
}
