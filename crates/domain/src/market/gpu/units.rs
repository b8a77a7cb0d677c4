//! Units of a described GPU, in the field's usual ones: `96GB`, `3.35TB/s`, `989TFLOPS`, `700W`, `switch 900GB/s`.
//!
//! Each holds the number in one unit and prints it so, so that what is stored reads back as it was.

use std::fmt;
use std::str::FromStr;

use super::Link;
use crate::units::Bytes;

/// Memory of one GPU in GiB; `GB` of a GPU's name means the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuMemory(f64);

/// Memory bandwidth in GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryBandwidth(f64);

/// A peak dense rate in TFLOP/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakRate(f64);

/// A power limit in watts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLimit(f64);

/// How a described GPU reaches the others of its machine, in GB/s of both directions together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DescribedLink {
    /// Through the host only.
    Pcie,
    /// A bridge between two.
    Bridge(f64),
    /// A mesh without a switch.
    Mesh(f64),
    /// Each with each other at full rate.
    Switch(f64),
}

impl GpuMemory {
    /// The size.
    pub fn bytes(self) -> Bytes {
        Bytes((self.0 * f64::from(1 << 30)).round() as u64)
    }
}

impl MemoryBandwidth {
    /// Bytes a second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 * 1e9
    }
}

impl PeakRate {
    /// FLOP/s.
    pub fn flops(self) -> f64 {
        self.0 * 1e12
    }
}

impl PowerLimit {
    /// Watts.
    pub fn watts(self) -> f64 {
        self.0
    }
}

impl DescribedLink {
    /// The link as estimates take it.
    pub fn link(self) -> Link {
        match self {
            DescribedLink::Pcie => Link::Pcie,
            DescribedLink::Bridge(rate) => Link::Bridge(rate * 1e9),
            DescribedLink::Mesh(rate) => Link::Mesh(rate * 1e9),
            DescribedLink::Switch(rate) => Link::Switch(rate * 1e9),
        }
    }
}

/// The number before one of the units, times the unit's factor, if it is above 0 and at most `most`.
fn amount(text: &str, units: &[(&str, f64)], most: f64) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)?;
    let value = number.parse::<f64>().ok()? * factor;
    (value > 0.0 && value <= most).then_some(value)
}

const SIZES: [(&str, f64); 6] =
    [("", 1.0), ("gb", 1.0), ("gib", 1.0), ("tb", 1024.0), ("tib", 1024.0), ("mib", 1.0 / 1024.0)];
const BANDWIDTHS: [(&str, f64); 6] =
    [("gb/s", 1.0), ("tb/s", 1000.0), ("mb/s", 1e-3), ("gbs", 1.0), ("tbs", 1000.0), ("gbyte/s", 1.0)];
const RATES: [(&str, f64); 9] = [
    ("tflops", 1.0),
    ("tflop/s", 1.0),
    ("tflops/s", 1.0),
    ("pflops", 1000.0),
    ("pflop/s", 1000.0),
    ("pflops/s", 1000.0),
    ("gflops", 1e-3),
    ("gflop/s", 1e-3),
    ("gflops/s", 1e-3),
];
const POWERS: [(&str, f64); 3] = [("", 1.0), ("w", 1.0), ("kw", 1000.0)];

impl FromStr for GpuMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<GpuMemory, String> {
        let wrong = || format!("`{text}` is no memory of one GPU; write for example `96GB`, of one GPU and above 0");
        amount(text, &SIZES, 16_384.0).map(GpuMemory).ok_or_else(wrong)
    }
}

impl FromStr for MemoryBandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<MemoryBandwidth, String> {
        let wrong = || format!("`{text}` is no memory bandwidth; write for example `3.35TB/s` or `864GB/s`");
        amount(text, &BANDWIDTHS, 1e6).map(MemoryBandwidth).ok_or_else(wrong)
    }
}

impl FromStr for PeakRate {
    type Err = String;

    fn from_str(text: &str) -> Result<PeakRate, String> {
        let wrong = || format!("`{text}` is no peak rate; write the dense rate, for example `989TFLOPS`");
        amount(text, &RATES, 1e6).map(PeakRate).ok_or_else(wrong)
    }
}

impl FromStr for PowerLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<PowerLimit, String> {
        let wrong = || format!("`{text}` is no power limit; write the limit of one GPU, for example `700W`");
        amount(text, &POWERS, 1e5).map(PowerLimit).ok_or_else(wrong)
    }
}

impl FromStr for DescribedLink {
    type Err = String;

    fn from_str(text: &str) -> Result<DescribedLink, String> {
        let wrong = || {
            format!(
                "`{text}` is no link; write `pcie`, `bridge 112.5GB/s`, `mesh 300GB/s` or `switch 900GB/s`, \
                 both directions together"
            )
        };
        let (kind, speed) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let speed = || amount(speed, &BANDWIDTHS, 1e5).ok_or_else(wrong);
        Ok(match kind.to_ascii_lowercase().as_str() {
            "pcie" => DescribedLink::Pcie,
            "bridge" => DescribedLink::Bridge(speed()?),
            "mesh" => DescribedLink::Mesh(speed()?),
            "switch" => DescribedLink::Switch(speed()?),
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}GB", self.0)
    }
}

impl fmt::Display for MemoryBandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}GB/s", self.0)
    }
}

impl fmt::Display for PeakRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}TFLOPS", self.0)
    }
}

impl fmt::Display for PowerLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}W", self.0)
    }
}

impl fmt::Display for DescribedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescribedLink::Pcie => f.write_str("pcie"),
            DescribedLink::Bridge(rate) => write!(f, "bridge {rate}GB/s"),
            DescribedLink::Mesh(rate) => write!(f, "mesh {rate}GB/s"),
            DescribedLink::Switch(rate) => write!(f, "switch {rate}GB/s"),
        }
    }
}

crate::units::human_text!(GpuMemory, "gpu_memory", "Memory of one GPU, such as `96GB`.");
crate::units::human_text!(MemoryBandwidth, "bandwidth", "A memory bandwidth, such as `3.35TB/s` or `864GB/s`.");
crate::units::human_text!(PeakRate, "flops", "A peak dense rate, such as `989TFLOPS`.");
crate::units::human_text!(PowerLimit, "watts", "A power limit of one GPU, such as `700W`.");
crate::units::human_text!(
    DescribedLink,
    "link",
    "`pcie`, or `bridge`, `mesh` or `switch` with its bandwidth, both directions together: `switch 900GB/s`."
);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = String> + fmt::Display>(text: &str, expected: &str) {
        match text.parse::<T>() {
            Ok(read) => {
                let printed = read.to_string();
                assert_eq!(printed, expected, "{text}");
                let again = printed.parse::<T>().map(|read| read.to_string());
                assert_eq!(again, Ok(printed), "what is printed reads back");
            }
            Err(error) => assert!(error.contains(expected), "{text}: {error}"),
        }
    }

    #[test]
    fn units_of_gpus_read_and_print() {
        check::<GpuMemory>("96GB", "96GB");
        check::<GpuMemory>("0.094 TiB", "96.256GB");
        check::<GpuMemory>("141", "141GB");
        check::<MemoryBandwidth>("3.35TB/s", "3350GB/s");
        check::<MemoryBandwidth>("864 GB/s", "864GB/s");
        check::<PeakRate>("989 TFLOP/s", "989TFLOPS");
        check::<PeakRate>("2.25PFLOPS", "2250TFLOPS");
        check::<PowerLimit>("700", "700W");
        check::<PowerLimit>("1.2 kW", "1200W");
        check::<DescribedLink>("pcie", "pcie");
        check::<DescribedLink>("Switch 1.8TB/s", "switch 1800GB/s");
    }

    #[test]
    fn impossible_amounts_say_what_to_write() {
        for text in ["0GB", "-1GB", "", "GB", "96 PB", "nanGB", "infGB", "1e9GB"] {
            check::<GpuMemory>(text, "write for example `96GB`");
        }
        check::<MemoryBandwidth>("3350", "`3.35TB/s`");
        check::<MemoryBandwidth>("0TB/s", "`3.35TB/s`");
        check::<PeakRate>("989", "`989TFLOPS`");
        check::<PeakRate>("0TFLOPS", "`989TFLOPS`");
        check::<PowerLimit>("0W", "`700W`");
        check::<DescribedLink>("nvlink", "`switch 900GB/s`");
        check::<DescribedLink>("switch", "`switch 900GB/s`");
        check::<DescribedLink>("switch 0GB/s", "`switch 900GB/s`");
    }

    #[test]
    fn units_are_those_of_estimates() {
        assert_eq!("80GB".parse::<GpuMemory>().map(GpuMemory::bytes), Ok(Bytes(80 << 30)));
        assert_eq!("2TB/s".parse::<MemoryBandwidth>().map(MemoryBandwidth::bytes_per_second), Ok(2e12));
        assert_eq!("1PFLOPS".parse::<PeakRate>().map(PeakRate::flops), Ok(1e15));
        assert_eq!("switch 900GB/s".parse::<DescribedLink>().map(DescribedLink::link), Ok(Link::Switch(900e9)));
    }
}
