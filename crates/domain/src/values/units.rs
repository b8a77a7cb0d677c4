//! Sizes, durations and shares, as people write them.

use std::fmt;
use std::str::FromStr;

/// Reads a type from human text or a bare number, writes it as text, and names its format in the JSON Schema.
macro_rules! human_text {
    ($type:ty, $format:literal, $doc:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = $crate::units::scalar_text(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": ["string", "number"], "format": $format, "description": $doc })
            }
        }
    };
}
pub(crate) use human_text;

/// A number of bytes. In a job file: `512`, `40 GB` (10⁹) or `16 GiB` (2³⁰).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

/// A length of time in microseconds. In a job file: `90s`, `10m`, `1h30m`, `2 days`; a bare number is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Duration(u64);

/// A share between 0 and 1. In a job file: `0.8` or `80%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Fraction(f64);

impl Duration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds * 1_000_000)
    }

    /// So many microseconds.
    pub const fn from_micros(micros: u64) -> Duration {
        Duration(micros)
    }

    /// The length in microseconds.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Reads a length of which each number has a unit, as on the command line: `30` or `1h30` seldom means seconds.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse_with_unit(text: &str) -> Result<Duration, String> {
        let duration: Duration = text.parse()?;
        match time_parts(text).into_iter().find(|(_, unit)| unit.is_empty()) {
            Some((bare, _)) => {
                Err(format!("`{bare}` has no unit; write for example `{bare}d`, `{bare}h`, `{bare}m` or `{bare}s`"))
            }
            None => Ok(duration),
        }
    }

    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Fraction {
    /// So many hundredths; more than 100 are 1.
    pub const fn percent(hundredths: u8) -> Fraction {
        Fraction(if hundredths > 100 { 1.0 } else { hundredths as f64 / 100.0 })
    }

    /// The share as a number between 0 and 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

const BYTE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

const TIME_UNITS: [(&[&str], f64); 6] = [
    (&["us"], 1e-6),
    (&["ms"], 1e-3),
    (&["", "s", "sec", "second", "seconds"], 1.0),
    (&["m", "min", "minute", "minutes"], 60.0),
    (&["h", "hour", "hours"], 3600.0),
    (&["d", "day", "days"], 86400.0),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("`{text}` is no size; write for example `40 GB` or `16 GiB`");
        let (number, unit) = split_unit(text.trim());
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = unit.to_ascii_lowercase();
        let factor = BYTE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(wrong)?;
        let bytes = number * factor as f64;
        if !(0.0..1.8e19).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Duration, String> {
        let wrong = || format!("`{text}` is no duration; write for example `90s`, `10m` or `1h30m`");
        let parts = time_parts(text);
        if parts.is_empty() {
            return Err(wrong());
        }
        let mut seconds = 0.0;
        for (number, unit) in parts {
            let number: f64 = number.parse().map_err(|_| wrong())?;
            let known = TIME_UNITS.iter().find(|(names, _)| names.contains(&unit));
            seconds += number * known.ok_or_else(wrong)?.1;
        }
        if !(0.0..1e12).contains(&seconds) {
            return Err(wrong());
        }
        Ok(Duration((seconds * 1e6).round() as u64))
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Fraction, String> {
        let wrong = || format!("`{text}` is no share; write for example `0.8` or `80%`");
        let text_ = text.trim();
        let value = match text_.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map_err(|_| wrong())? / 100.0,
            None => text_.parse().map_err(|_| wrong())?,
        };
        if !(0.0..=1.0).contains(&value) {
            return Err(format!("`{text}` is not between 0 and 1"));
        }
        Ok(Fraction(value))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (name, shift) in units {
            let unit = 1u64 << shift;
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{} {name}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// The largest units first, without zeros: `1h30m`, `250ms`; `0s` for zero.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, micros) in
            [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)]
        {
            if rest >= micros {
                write!(f, "{}{unit}", rest / micros)?;
                rest %= micros;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

human_text!(Bytes, "bytes", "A size, such as `512`, `40 GB` (10⁹ bytes) or `16 GiB` (2³⁰ bytes).");
human_text!(Duration, "duration", "A length of time, such as `90s`, `10m` or `1h30m`; a bare number is seconds.");
human_text!(Fraction, "fraction", "A share, such as `0.8` or `80%`.");

/// The numbers of a length of time, each with its unit, which is empty where none is written.
fn time_parts(text: &str) -> Vec<(&str, &str)> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (number, tail) = split_unit(rest);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        parts.push((number, tail[..end].trim()));
        rest = tail[end..].trim();
    }
    parts
}

/// Splits `text` into the number at its start and the remainder.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// The text of a scalar, whether it was written as a string or as a number.
pub(crate) fn scalar_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match <serde_json::Value as serde::Deserialize>::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("expected text or a number, found `{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_text_reads_and_prints() {
        let bytes = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0);
        assert_eq!(bytes("512"), Ok(512));
        assert_eq!(bytes("40 GB"), Ok(40_000_000_000));
        assert_eq!(bytes("1.5GiB"), Ok(1_610_612_736));
        assert!(bytes("five").is_err() && bytes("3 parsecs").is_err());

        let time = |text: &str| text.parse::<Duration>().map(|duration| duration.to_string());
        assert_eq!(time("90"), Ok("1m30s".into()));
        assert_eq!(time("1h30m"), Ok("1h30m".into()));
        assert_eq!(time("2 days"), Ok("2d".into()));
        assert_eq!(time("0.25s"), Ok("250ms".into()));
        assert!(time("").is_err() && time("soon").is_err() && time("-1s").is_err());

        let time = |text: &str| Duration::parse_with_unit(text).map(|duration| duration.to_string());
        assert_eq!((time("30d"), time("1h 30m")), (Ok("30d".into()), Ok("1h30m".into())));
        for bare in ["30", " 30 ", "0", "1.5", "1h30", "30 1h"] {
            let why = time(bare).unwrap_err();
            assert!(why.contains("has no unit; write for example"), "{why}");
        }
        assert!(time("1h30").unwrap_err().starts_with("`30` has no unit; write for example `30d`"));
        for wrong in ["soon", "-1", "1e3", ""] {
            assert!(time(wrong).unwrap_err().contains("is no duration"), "{wrong}");
        }

        assert_eq!("80%".parse::<Fraction>().map(Fraction::get), Ok(0.8));
        assert!("1.2".parse::<Fraction>().is_err());
    }
}
