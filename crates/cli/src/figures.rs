//! Numbers, times and sizes as people read them.

use domain::rank::Report;
use domain::{Duration, Elapsed, Job, Timestamp};

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 run`, `1,234 runs`: a number of things of which one is called `one`.
pub fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        many => format!("{} {one}s", grouped(many)),
    }
}

/// `1:02:03` or `2:03`.
pub fn clock(elapsed: Elapsed) -> String {
    let seconds = elapsed.0.div_ceil(1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// `step 10m (stated in the job)` and the like: after how much silence an attempt of a job counts as hung, by its newest
/// measurements. `None` for a program whose job states nothing.
pub fn hang_limits(job: &Job, newest: &[Report]) -> Option<String> {
    let limits: Vec<String> = agent::hang_limits(job, newest).iter().map(ToString::to_string).collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}

/// A moment in UTC to the second: `2026-11-22T18:49:45Z`.
pub fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(time) => format!("{time:.0}"),
        Err(_) => "unknown".to_owned(),
    }
}

/// A number of bytes for people: three digits, powers of ten as prices are.
pub fn size(bytes: u64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.iter().find(|(_, unit)| bytes as f64 >= *unit) {
        Some((name, unit)) => {
            let value = bytes as f64 / unit;
            let digits = if value >= 100.0 {
                0
            } else if value >= 10.0 {
                1
            } else {
                2
            };
            format!("{value:.digits$} {name}")
        }
        None => format!("{bytes} B"),
    }
}

/// A duration without the digits that an estimate does not have.
pub fn short(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.1}s") } else { Duration::from_secs(seconds.round() as u64).to_string() }
}

/// Days since 1970.
pub fn day_of(stamp: jiff::Timestamp) -> i64 {
    stamp.as_second().div_euclid(86_400)
}

/// A day since 1970-01-01 as `2026-11-24`.
pub fn day_text(day: i64) -> String {
    let stamp = jiff::Timestamp::from_second(day.saturating_mul(86_400)).unwrap_or_default();
    stamp.to_string().chars().take(10).collect()
}

/// Days from a date, `2026-07-20`, `2026-07` or `2026`, to a day; its first day where it names several.
pub fn age(dated: &str, today: i64) -> Option<i64> {
    let mut parts = dated.split('-');
    let mut next = |otherwise: i16| match parts.next() {
        Some(part) => part.parse::<i16>().ok(),
        None => Some(otherwise),
    };
    let (year, month, day) = (next(0)?, next(1)?, next(1)?);
    if parts.next().is_some() {
        return None;
    }
    let date = jiff::civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(today.saturating_sub(day_of(zoned.timestamp())).max(0))
}

/// Days after which a price is marked as old.
pub const OLD_DAYS: i64 = 60;

/// Whether a price of this date is older than [`OLD_DAYS`], or its age is unknown.
pub fn is_old(dated: &str, today: i64) -> bool {
    age(dated, today).is_none_or(|days| days > OLD_DAYS)
}

/// An accuracy of this name as people read it: a share in per cent, or R², which is none.
pub fn accuracy(name: &str, accuracy: f64) -> String {
    match name {
        "R²" => format!("{accuracy:.4}"),
        _ => format!("{:.2} %", 100.0 * accuracy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_grouped() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(clock(Elapsed(3_723_000_000)), "1:02:03");
    }

    #[test]
    fn sizes_have_three_digits() {
        let check = |bytes, text: &str| assert_eq!(size(bytes), text);
        check(0, "0 B");
        check(999, "999 B");
        check(1_970_000, "1.97 MB");
        check(19_700_000, "19.7 MB");
        check(197_000_000_000, "197 GB");
        check(3_000_000_000_000, "3.00 TB");
    }
}
