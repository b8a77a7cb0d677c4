//! `hang_after:` of a job file: for how long an attempt may be silent until it counts as hung.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Duration;

/// For how long an attempt may be silent until it counts as hung: its stack traces are written down, then it is ended, and started again from its newest checkpoint. A limit that is not stated is chosen for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HangLimits {
    /// Of `train`, before the first step: no progress was reported for this long. Default: `30m`, and the time that `preload` needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<HangLimit>,
    /// Of `train`, between two steps; an evaluation may take three times as long as training on as many samples in addition. Of a `run` program, between two calls to the package `gradus`, in place of the `hang_after` of `gradus.init()`. Default for `train`: the longest of `2m`, ten times the 99th percentile of recent steps, and twenty times their median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<HangLimit>,
    /// Of `train`, while a checkpoint or a model is written, unless `step` is longer. Default: the longer of `10m` and three times the longest save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<HangLimit>,
}

/// A limit on silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangLimit {
    /// It is reached after so long.
    After(Duration),
    /// It is never reached.
    Off,
}

impl HangLimits {
    /// Whether the job states none.
    pub fn is_default(&self) -> bool {
        *self == HangLimits::default()
    }
}

impl HangLimit {
    /// After how long it is reached; `None` for never.
    pub fn after(self) -> Option<Duration> {
        match self {
            HangLimit::After(after) => Some(after),
            HangLimit::Off => None,
        }
    }
}

impl FromStr for HangLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<HangLimit, String> {
        if text.trim() == "false" {
            return Ok(HangLimit::Off);
        }
        let wrong =
            |_: String| format!("`{text}` is no limit; write a duration such as `10m`, or `false` for no limit");
        text.parse::<Duration>().map(HangLimit::After).map_err(wrong)
    }
}

impl fmt::Display for HangLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HangLimit::After(after) => after.fmt(f),
            HangLimit::Off => f.write_str("false"),
        }
    }
}

impl Serialize for HangLimit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HangLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<HangLimit, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for HangLimit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HangLimit".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "number", "boolean"],
            "format": "limit",
            "not": { "const": true },
            "description": "A length of time, such as `10m`, or `false` for no limit; a bare number is seconds."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_they_are_read() {
        let check = |text: &str, json: &str, limits: HangLimits| {
            let job = crate::Job::parse(&format!("{text}\n{TRAIN}"), "job.yaml").unwrap().job;
            assert_eq!(job.hang_after, limits, "{text}");
            let written = serde_json::to_value(&job).unwrap();
            assert_eq!(written.get("hang_after").map_or(String::new(), ToString::to_string), json, "{text}");
            assert_eq!(serde_json::from_value::<crate::Job>(written).unwrap(), job, "{text}");
        };
        let after = |text: &str| Some(HangLimit::After(text.parse().unwrap()));
        check("budget: {max: $5}", "", HangLimits::default());
        check("hang_after: {}", "", HangLimits::default());
        let limits = HangLimits { setup: after("45m"), step: after("10m"), save: Some(HangLimit::Off) };
        let text = "budget: {max: $5}\nhang_after: {setup: 45m, step: 600, save: false}";
        check(text, r#"{"setup":"45m","step":"10m","save":"false"}"#, limits);
        // Over the API a job may have it as JSON has it.
        assert_eq!(
            serde_json::from_str::<HangLimits>(r#"{"save": false, "step": 600, "setup": "45m"}"#).unwrap(),
            limits
        );
        for wrong in [r#"{"save": true}"#, r#"{"save": "soon"}"#, r#"{"evaluation": "5m"}"#] {
            assert!(serde_json::from_str::<HangLimits>(wrong).is_err(), "{wrong}");
        }
    }

    const TRAIN: &str = "train: {model: mlp, data: {path: /data}, epochs: 1, batch: 8}\n";
}
