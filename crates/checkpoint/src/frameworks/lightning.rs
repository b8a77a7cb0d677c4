//! A `.ckpt` file of Lightning: one of `torch.save`, whose dictionary begins with the epoch and the step.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The pickle is the first entry of the archive, and begins with numbers and the version.
const BEGINNING: u64 = 64 << 10;

/// The step of a file, if it is one of Lightning's.
pub(super) fn step(name: &str, path: &Path) -> Option<u64> {
    let stem = name.strip_suffix(".ckpt")?;
    let mut start = Vec::new();
    File::open(path).ok()?.take(BEGINNING).read_to_end(&mut start).ok()?;
    match pickled_step(&start) {
        Some(step) => Some(step),
        // It may be cut short: the name says which step it should have been.
        None => named_step(stem),
    }
}

/// The step in a name such as `epoch=1-step=500` or `last-step=500-v1`.
fn named_step(stem: &str) -> Option<u64> {
    let digits = stem.rsplit_once("step=")?.1;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// The value of the key `global_step`, which follows it but for what remembers the key.
fn pickled_step(bytes: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"global_step";
    let at = bytes.windows(KEY.len()).position(|window| window == KEY)?;
    let mut rest = &bytes[at + KEY.len()..];
    loop {
        let (operation, after) = rest.split_first()?;
        rest = match operation {
            // BINPUT, LONG_BINPUT, MEMOIZE.
            b'q' => after.get(1..)?,
            b'r' => after.get(4..)?,
            0x94 => after,
            // BININT1, BININT2, BININT.
            b'K' => return after.first().map(|byte| u64::from(*byte)),
            b'M' => return after.first_chunk().map(|two| u64::from(u16::from_le_bytes(*two))),
            b'J' => return after.first_chunk().and_then(|four| u64::try_from(i32::from_le_bytes(*four)).ok()),
            _ => return None,
        };
    }
}
