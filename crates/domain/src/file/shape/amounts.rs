//! Numbers and amounts within bounds: parsing of scalars, and the messages if it fails.

use serde_json::Value as Json;

use super::super::elsewhere::of_amount;
use super::super::keys::{Cores, Gigabytes};
use super::super::scalar::{Dialect, Scalar, python_text};
use super::super::tree::{Raw, clip};
use super::ways::{found, human_name};
use super::{Alternative, Place, Walk};
use crate::accelerators::Accelerators;
use crate::gpu::{DescribedLink, GpuMemory, MemoryBandwidth, PeakRate, PowerLimit};
use crate::hang::HangLimit;
use crate::money::{Money, Rate};
use crate::train::{Every, Span};
use crate::units::{Bytes, Duration, Fraction};
use crate::workload::Count;

impl Walk<'_, '_> {
    pub(super) fn integer(&mut self, way: Alternative, value: i128, line: u32, place: &Place) -> Option<Json> {
        let most = match way["format"].as_str() {
            Some("uint8") => i128::from(u8::MAX),
            Some("uint32") => i128::from(u32::MAX),
            _ => i128::from(u64::MAX),
        };
        let most = way["maximum"].as_u64().map_or(most, |given| most.min(given.into()));
        let least = i128::from(way["minimum"].as_i64().unwrap_or(0));
        if value < least || value > most {
            let bound = if value < least { format!("at least {least}") } else { format!("at most {most}") };
            self.problem(line, &place.path, format!("`{value}` is out of range: it must be {bound}"), None);
            return None;
        }
        u64::try_from(value).ok().map(Json::from)
    }

    pub(super) fn number(&mut self, way: Alternative, value: f64, raw: &Raw, line: u32, place: &Place) -> Option<Json> {
        let bounds = [
            (value.is_finite(), "a finite number".to_owned()),
            (way["minimum"].as_f64().is_none_or(|least| value >= least), format!("at least {}", way["minimum"])),
            (way["maximum"].as_f64().is_none_or(|most| value <= most), format!("at most {}", way["maximum"])),
            (
                way["exclusiveMinimum"].as_f64().is_none_or(|low| value > low),
                format!("above {}", way["exclusiveMinimum"]),
            ),
            (
                way["exclusiveMaximum"].as_f64().is_none_or(|high| value < high),
                format!("below {}", way["exclusiveMaximum"]),
            ),
        ];
        for (holds, bound) in bounds {
            if !holds {
                let message = format!("`{}` is out of range: it must be {bound}", clip(&raw.text));
                self.problem(line, &place.path, message, None);
                return None;
            }
        }
        Some(Json::from(value))
    }

    /// A human-readable amount. Its own parser reports the problem, with the hint after `; `.
    pub(super) fn human(
        &mut self,
        format: &str,
        raw: &Raw,
        meaning: &Scalar,
        line: u32,
        place: &Place,
    ) -> Option<Json> {
        if format == "env" {
            let text = python_text(raw);
            if text.is_none() {
                let hint = "write a value in quotes; `\"\"` is the empty text";
                let message = format!("expected text, found {}", found(raw, meaning));
                self.problem(line, &place.path, message, Some(hint.to_owned()));
            }
            return text.map(Json::from);
        }
        let text = match (meaning, place.dialect) {
            (Scalar::Text, _) | (Scalar::Float(_), Dialect::Core) => raw.text.clone(),
            (Scalar::Int(value), _) => value.to_string(),
            (Scalar::Float(value), Dialect::Python) => value.to_string(),
            (Scalar::Bool(false), _) if format == "limit" => "false".to_owned(),
            (Scalar::Null | Scalar::Bool(_) | Scalar::Date, _) => {
                let message = format!("expected {}, found {}", human_name(format), found(raw, meaning));
                self.problem(line, &place.path, message, None);
                return None;
            }
        };
        let error = match format {
            "money" => text.parse::<Money>().err(),
            "rate" => text.parse::<Rate>().err(),
            "bytes" => text.parse::<Bytes>().err(),
            "duration" => text.parse::<Duration>().err(),
            "fraction" => text.parse::<Fraction>().err(),
            "span" => text.parse::<Span>().err(),
            "every" => text.parse::<Every>().err(),
            "cores" => text.parse::<Cores>().err(),
            "gigabytes" => text.parse::<Gigabytes>().err(),
            "accelerators" => text.parse::<Accelerators>().err(),
            "count" => text.parse::<Count>().err(),
            "gpu_memory" => text.parse::<GpuMemory>().err(),
            "bandwidth" => text.parse::<MemoryBandwidth>().err(),
            "flops" => text.parse::<PeakRate>().err(),
            "watts" => text.parse::<PowerLimit>().err(),
            "link" => text.parse::<DescribedLink>().err(),
            "limit" => text.parse::<HangLimit>().err(),
            _ => None,
        };
        let Some(error) = error else { return Some(Json::from(text)) };
        let (message, hint) = match error.split_once("; ") {
            Some((message, hint)) => (message, Some(hint.to_owned())),
            None => (error.as_str(), None),
        };
        let hint = hint.map(|hint| of_amount(&place.path).map_or(hint, str::to_owned));
        self.problem(line, &place.path, message.to_owned(), hint);
        None
    }
}
