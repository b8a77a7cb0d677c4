//! One round of fuzzing: sound bytes are damaged from a seed and read, again and again, for some seconds.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use domain::random::Draws;

use super::mutate::mutate;

/// The outcome of reading damaged bytes.
pub enum Verdict {
    Whole,
    /// Read, with the damage reported.
    Partly,
    Refused,
}

impl Verdict {
    /// Of a reader that has no other answers.
    pub fn of<T, E>(result: Result<T, E>) -> Verdict {
        if result.is_ok() { Verdict::Whole } else { Verdict::Refused }
    }
}

/// Arguments of the command line: the format, the duration in seconds, and the first seed.
pub fn asked() -> Result<(String, f64, u64), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let form = arguments.get(1).cloned().unwrap_or_default();
    let seconds = arguments.get(2).map_or(Ok(10.0), |text| text.parse())?;
    let seed = arguments.get(3).map_or(Ok(1), |text| text.parse())?;
    Ok((form, seconds, seed))
}

/// Damages `sound` and reads it with `look` until the time is over, then prints how many were read and the slowest.
/// `seal` recomputes the checksums of three in four.
pub fn round(
    (form, seconds, seed): (&str, f64, u64),
    sound: &[u8],
    seal: impl Fn(&mut Vec<u8>),
    mut look: impl FnMut(&[u8]) -> Verdict,
) -> Result<(), Box<dyn Error>> {
    std::panic::set_hook(Box::new(|_| {})); // Panics of other libraries are caught and reported as errors.
    let (began, mut slowest, mut next) = (Instant::now(), (Duration::ZERO, 0), seed);
    let (mut whole, mut partly, mut refused) = (0_u64, 0_u64, 0_u64);
    while began.elapsed().as_secs_f64() < seconds {
        let seed = next;
        let mut draws = Draws::new(seed);
        let mut bytes = sound.to_vec();
        mutate(&mut bytes, &mut draws);
        next = draws.bits();
        if !seed.is_multiple_of(4) {
            seal(&mut bytes);
        }
        let one = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| look(&bytes))) {
            Ok(Verdict::Whole) => whole += 1,
            Ok(Verdict::Partly) => partly += 1,
            Ok(Verdict::Refused) => refused += 1,
            Err(_) => {
                let kept = std::env::temp_dir().join(format!("{form}-{seed}"));
                std::fs::write(&kept, bytes)?;
                return Err(format!("{form}: a panic, seed {seed}; the bytes are {}", kept.display()).into());
            }
        }
        slowest = slowest.max((one.elapsed(), seed));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    println!(
        "{form}: {} files, {whole} whole, {partly} with damage told, {refused} refused; slowest {:.0} ms (seed {}); peak memory {peak}",
        whole + partly + refused,
        slowest.0.as_secs_f64() * 1e3,
        slowest.1,
    );
    Ok(())
}
