//! Requests for accelerators, in SkyPilot's syntax: `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8`.

use std::fmt;
use std::str::FromStr;

use crate::units::Bytes;

/// The accepted forms, for messages.
const EXAMPLES: &str = "write for example `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8` or `24GB`";

/// Which GPUs, and how many in one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Accelerators {
    pub kind: AcceleratorKind,
    /// GPUs per machine; `None` for any number.
    pub count: Option<u32>,
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

impl FromStr for Accelerators {
    type Err = String;

    fn from_str(text: &str) -> Result<Accelerators, String> {
        let wrong = |why: &str| format!("`{text}` is not a valid value of `accelerators`: {why}; {EXAMPLES}");
        let (kind, count) = match text.trim().split_once(':') {
            Some((kind, count)) => (kind.trim(), Some(count.trim())),
            None => (text.trim(), None),
        };
        let count = match count.map(str::parse::<u32>) {
            None => None,
            Some(Ok(0)) => return Err(wrong("it asks for none")),
            Some(Ok(count)) => Some(count),
            Some(Err(_)) => return Err(wrong("what follows `:` is how many, a whole number")),
        };
        let first = kind.chars().next().ok_or_else(|| wrong("it names none"))?;
        if !kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ' ' | '+' | '.')) {
            return Err(wrong("a name has letters, digits and `-` only"));
        }
        let (bare, or_more) = kind.strip_suffix('+').map_or((kind, false), |bare| (bare, true));
        let is_memory = first.is_ascii_digit() && bare.trim_end().to_ascii_lowercase().ends_with('b');
        if is_memory {
            let memory = memory(bare).ok_or_else(|| wrong("memory is a whole number of GB"))?;
            return Ok(Accelerators { kind: AcceleratorKind::Memory { memory, or_more }, count });
        }
        if kind.contains('+') {
            return Err(wrong("`+` follows an amount of memory only"));
        }
        Ok(Accelerators { kind: AcceleratorKind::Named(kind.to_owned()), count })
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
        match self.count {
            Some(count) => write!(f, ":{count}"),
            None => Ok(()),
        }
    }
}

crate::units::human_text!(
    Accelerators,
    "accelerators",
    "GPUs as SkyPilot writes them: `A100:8`, `A100-80GB:8`, `40GB+:8`; without a number any will do."
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
    }
}
