//! Stand-ins for the parts of `sweep:` that are read from the tree: their schema, and a parser that skips them.

use schemars::JsonSchema;
use serde::Deserialize;

/// Keys and what they may be, which [`super`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ranges;

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Ranges, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Ranges)
    }
}

/// The rows of a table, which [`super`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TrialRows;

impl<'de> Deserialize<'de> for TrialRows {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<TrialRows, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| TrialRows)
    }
}

impl JsonSchema for TrialRows {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TrialRows".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let row = schemars::json_schema!({ "type": "object", "format": "figures", "additionalProperties": true });
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": row }] })
    }
}

impl JsonSchema for Ranges {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ranges".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "format": "figures", "additionalProperties": true })
    }
}
