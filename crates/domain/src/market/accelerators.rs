//! Requests for accelerators, in SkyPilot's syntax: `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8`; and fractional GPUs:
//! `A100-80GB:1g.10gb`, `A100-80GB:1g.10gb:2`, `L4:0.125`.

use std::fmt;
use std::str::FromStr;

use crate::units::Bytes;

/// The accepted forms, for messages.
const EXAMPLES: &str = "write for example `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8` or `24GB`";

/// Which GPUs, and how many in one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Accelerators {
    pub kind: AcceleratorKind,
    /// The part of a GPU that is asked for; `None` for whole ones.
    pub part: Option<GpuPart>,
    /// GPUs per machine, or such parts; `None` for any number.
    pub count: Option<u32>,
}

/// A part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GpuPart {
    /// A MIG profile as NVIDIA names it: `1g.10gb`.
    Profile(String),
    /// A share of one GPU in millionths, above 0 and below 1,000,000.
    Share(u32),
}

impl GpuPart {
    /// Reads a profile or a share; none for anything else.
    fn read(text: &str) -> Option<GpuPart> {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let lower = text.to_ascii_lowercase();
        if let Some((compute, memory)) = lower.split_once("g.")
            && is_digits(compute)
            && memory.strip_suffix("gb").is_some_and(is_digits)
        {
            return Some(GpuPart::Profile(lower));
        }
        let share: f64 = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0)?;
        let millionths = (share * 1e6).round() as u32;
        (1..1_000_000).contains(&millionths).then_some(GpuPart::Share(millionths))
    }
}

impl fmt::Display for GpuPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuPart::Profile(profile) => f.write_str(profile),
            GpuPart::Share(millionths) => write!(f, "{}", f64::from(*millionths) / 1e6),
        }
    }
}

/// Which GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AcceleratorKind {
    /// A spelling, such as `A100-80GB`; the catalog resolves it.
    Named(String),
    /// Any GPU with this much memory: exactly, or at least.
    Memory {
        /// Of each GPU.
        memory: Bytes,
        /// Whether more will do.
        or_more: bool,
    },
}

impl Accelerators {
    /// Whether a text is a GPU's name and nothing else: no amount of memory, part or number.
    pub fn is_name(text: &str) -> bool {
        let read = text.parse::<Accelerators>();
        matches!(read, Ok(Accelerators { kind: AcceleratorKind::Named(name), part: None, count: None }) if name == text)
    }
}

impl FromStr for Accelerators {
    type Err = String;

    fn from_str(text: &str) -> Result<Accelerators, String> {
        let wrong = |why: &str| format!("`{text}` is not a valid value of `accelerators`: {why}; {EXAMPLES}");
        let (kind, rest) = match text.trim().split_once(':') {
            Some((kind, rest)) => (kind.trim(), Some(rest.trim())),
            None => (text.trim(), None),
        };
        let (first, second) = match rest.map(|rest| rest.split_once(':').unwrap_or((rest, ""))) {
            Some((first, second)) => (first.trim(), Some(second.trim()).filter(|second| !second.is_empty())),
            None => ("", None),
        };
        let part = GpuPart::read(first);
        let count = if part.is_some() { second } else { rest };
        let count = match count.map(str::parse::<u32>) {
            None => None,
            Some(Ok(0)) => return Err(wrong("it asks for none")),
            Some(Ok(count)) => Some(count),
            Some(Err(_)) => return Err(wrong("what follows `:` is how many, a whole number")),
        };
        let letter = kind.chars().next().ok_or_else(|| wrong("it names none"))?;
        if !kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ' ' | '+' | '.')) {
            return Err(wrong("a name has letters, digits and `-` only"));
        }
        let (bare, or_more) = kind.strip_suffix('+').map_or((kind, false), |bare| (bare, true));
        let is_memory = letter.is_ascii_digit() && bare.trim_end().to_ascii_lowercase().ends_with('b');
        if is_memory {
            let memory = memory(bare).ok_or_else(|| wrong("memory is a whole number of GB"))?;
            if part.is_some() {
                return Err(wrong("a part is one of a GPU that is named, such as `A100-80GB:1g.10gb`"));
            }
            return Ok(Accelerators { kind: AcceleratorKind::Memory { memory, or_more }, part, count });
        }
        if kind.contains('+') {
            return Err(wrong("`+` follows an amount of memory only"));
        }
        Ok(Accelerators { kind: AcceleratorKind::Named(kind.to_owned()), part, count })
    }
}

/// Parses `40GB` or `40 GiB`; GPU memory is counted in powers of two in either case.
fn memory(text: &str) -> Option<Bytes> {
    let text = text.trim().to_ascii_lowercase();
    let number = text.strip_suffix("gib").or_else(|| text.strip_suffix("gb"))?.trim_end();
    let gibibytes: u64 = number.parse().ok().filter(|gibibytes| (1..=100_000).contains(gibibytes))?;
    Some(Bytes(gibibytes << 30))
}

impl fmt::Display for Accelerators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            AcceleratorKind::Named(name) => f.write_str(name)?,
            AcceleratorKind::Memory { memory, or_more } => {
                write!(f, "{}GB{}", memory.0 >> 30, if *or_more { "+" } else { "" })?;
            }
        }
        if let Some(part) = &self.part {
            write!(f, ":{part}")?;
        }
        match self.count {
            Some(count) => write!(f, ":{count}"),
            None => Ok(()),
        }
    }
}

crate::units::human_text!(
    Accelerators,
    "accelerators",
    "GPUs as SkyPilot writes them: `A100:8`, `A100-80GB:8`, `40GB+:8`; without a number any will do. A part of one for `gradus plan`: `A100-80GB:1g.10gb`, `L4:0.125`."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerators_read_and_print() {
        let check = |text: &str, printed: &str| {
            assert_eq!(text.parse::<Accelerators>().map(|wanted| wanted.to_string()), Ok(printed.to_owned()), "{text}");
        };
        check("A100", "A100");
        check(" A100:8 ", "A100:8");
        check("A100-80GB", "A100-80GB");
        check("RTX 4090:2", "RTX 4090:2");
        check("4090", "4090");
        check("3080Ti", "3080Ti");
        check("40GB+:8", "40GB+:8");
        check("40 GiB +", "40GB+");
        check("24gb:4", "24GB:4");
        check("A100-80GB:1G.10GB", "A100-80GB:1g.10gb");
        check("A100-80GB:1g.10gb:2", "A100-80GB:1g.10gb:2");
        check("L4:0.125", "L4:0.125");
        check("A100: .5 :2", "A100:0.5:2");
    }

    #[test]
    fn wrong_accelerators_say_what_is_accepted() {
        let check = |text: &str, why: &str| {
            let error = text.parse::<Accelerators>().unwrap_err();
            assert!(error.contains(why) && error.contains("`40GB+:8`"), "{text}: {error}");
        };
        check("", "names none");
        check(":8", "names none");
        check("A100:", "how many");
        check("A100:0", "asks for none");
        check("A100:-1", "how many");
        check("A100:1.5", "how many");
        check("A100:8:2", "how many");
        check("A100+", "`+` follows");
        check("40.5GB", "whole number");
        check("0GB+", "whole number");
        check("4000000GB", "whole number");
        check("A100/8", "letters, digits");
        check("A100:1g.10gb:0", "asks for none");
        check("A100:1g.10gb:x", "how many");
        check("A100:1g.10", "how many");
        check("A100:0.0", "how many");
        check("40GB:0.5", "a GPU that is named");
    }

    #[test]
    fn a_name_is_no_memory_part_or_number() {
        for name in ["X100", "RTX-PRO-6000", "my GPU"] {
            assert!(Accelerators::is_name(name), "{name}");
        }
        for other in ["", " X100", "X100:8", "X100:1g.10gb", "X100:0.5", "96GB", "40GB+", "X,1"] {
            assert!(!Accelerators::is_name(other), "{other}");
        }
    }
}
