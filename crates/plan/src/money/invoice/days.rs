//! Days of UTC as providers write them.

/// The day of `2026-11-24`, with or without a time after it, or of `11/24/2026`; as its number since 1970-01-01.
pub fn day(text: &str) -> Option<i64> {
    let text = text.trim();
    let date = text.split(['T', ' ']).next()?;
    let parts = |between: char| {
        let numbers: Option<Vec<i64>> = date.split(between).map(number).collect();
        numbers.filter(|numbers| numbers.len() == 3)
    };
    match (parts('-'), parts('/')) {
        (Some(numbers), _) => civil(numbers[0], numbers[1], numbers[2]),
        (_, Some(numbers)) => civil(numbers[2], numbers[0], numbers[1]),
        (None, None) => None,
    }
}

/// The last day of a time that ends then: midnight belongs to the day before.
pub fn last_day(text: &str) -> Option<i64> {
    let time = text.trim().split(['T', ' ']).nth(1).unwrap_or("00:00:00");
    Some(day(text)? - i64::from(time.starts_with("00:00:00")))
}

fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 of a date in the Gregorian calendar.
fn civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) || year < 1970 {
        return None;
    }
    // Years begin in March, so that a leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_as_providers_write_them() {
        assert_eq!(day("1970-01-01"), Some(0));
        assert_eq!(day("2000-02-29"), Some(11_016));
        assert_eq!(day("2000-03-01"), Some(11_017));
        assert_eq!(day("2026-11-24T13:00:00Z"), day("2026-11-24"));
        assert_eq!(day("2026-11-24 13:00:00 UTC"), day("11/24/2026"));
        assert_eq!(day("2026-12-01").unwrap() - day("2026-11-30").unwrap(), 1);
        assert_eq!(day("2027-01-01").unwrap() - day("2026-01-01").unwrap(), 365);
        for wrong in ["", "2026", "2026-13-01", "2026-02-29", "24/11/2026", "2026-11-00", "yesterday"] {
            assert_eq!(day(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn midnight_ends_the_day_before() {
        assert_eq!(last_day("2026-12-01T00:00:00Z"), day("2026-11-30"));
        assert_eq!(last_day("2026-12-01 01:00:00 UTC"), day("2026-12-01"));
        assert_eq!(last_day("2026-12-01"), day("2026-11-30"));
    }
}
