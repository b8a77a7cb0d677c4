//! Formats numbers and times for a report.

use domain::{Elapsed, Timestamp};

/// `2026-11-21 13:04:05`, in UTC.
pub fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "beyond the calendar".into(),
    }
}

/// `0.42 s`, `12.3 s`, `4 m 05 s`, `2 h 07 m`.
pub fn length(elapsed: Elapsed) -> String {
    let seconds = elapsed.as_secs_f64();
    let whole = seconds.round() as u64;
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else if seconds < 3600.0 {
        format!("{} m {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} m", whole / 3600, whole / 60 % 60)
    }
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1.5 MB`, in powers of ten.
pub fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// `97.22 %`.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// An accuracy of this name: a share, or R², which is none.
pub fn score(name: &str, accuracy: f64) -> String {
    match name {
        "R²" => format!("{accuracy:.4}"),
        _ => percent(accuracy),
    }
}

/// A number with about three significant digits, without trailing zeros.
pub fn plain(value: f64) -> String {
    let size = value.abs();
    let text = if size == 0.0 {
        return "0".into();
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 1e-4 {
        // The first digit that counts, and two more.
        let places = (2.0 - size.log10().floor()) as usize;
        format!("{value:.places$}")
    } else {
        return format!("{value:.1e}");
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said() {
        assert_eq!(time(Timestamp(1_700_000_000_000_000)), "2023-11-14 22:13:20");
        assert_eq!(length(Elapsed(420_000)), "0.42 s");
        assert_eq!(length(Elapsed(245_000_000)), "4 m 05 s");
        assert_eq!(length(Elapsed(7_620_000_000)), "2 h 07 m");
        assert_eq!([count(7), count(1000), count(1_234_567)], ["7", "1,000", "1,234,567"]);
        assert_eq!([size(12), size(1_500_000)], ["12 B", "1.5 MB"]);
        assert_eq!([score("accuracy", 0.9722), score("R²", 0.5)], ["97.22 %", "0.5000"]);
    }
}
