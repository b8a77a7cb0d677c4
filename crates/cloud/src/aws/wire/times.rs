//! Points in time as AWS writes them.

use domain::Timestamp;

const DAY: i64 = 86_400;

/// `20150830T123600Z`, as requests are dated; the first eight characters are the day.
pub fn stamp(at: Timestamp) -> String {
    let seconds = at.0.div_euclid(1_000_000);
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// `2015-08-30T12:36:00Z`, for tags.
pub fn rfc3339(at: Timestamp) -> String {
    let stamp = stamp(at);
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or_default();
    format!("{}-{}-{}T{}:{}:{}Z", part(0, 4), part(4, 6), part(6, 8), part(9, 11), part(11, 13), part(13, 15))
}

/// Parses `2026-11-23T18:00:00.000Z` and `2026-11-23 18:00:00 GMT`; fractions of a second are dropped.
pub fn read(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let is_shaped = text.get(4..5)? == "-" && text.get(7..8)? == "-" && text.get(13..14)? == ":";
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    (is_shaped && is_time).then_some(Timestamp(seconds * 1_000_000))
}

/// Days since 1970-01-01, by Howard Hinnant's algorithm.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        let check = |text: &str, expected: &str| {
            let read = read(text).map(|at| (stamp(at), rfc3339(at)));
            assert_eq!(read.map_or("none".to_owned(), |(stamp, rfc)| format!("{stamp} {rfc}")), expected, "{text}");
        };
        check("2015-08-30T12:36:00Z", "20150830T123600Z 2015-08-30T12:36:00Z");
        check("2026-11-23T18:00:00.000Z", "20261123T180000Z 2026-11-23T18:00:00Z");
        check("2026-11-23 18:00:00 GMT", "20261123T180000Z 2026-11-23T18:00:00Z");
        check("2024-02-29 23:59:59 UTC", "20240229T235959Z 2024-02-29T23:59:59Z");
        check("1970-01-01T00:00:00Z", "19700101T000000Z 1970-01-01T00:00:00Z");
        check("2000-12-31T00:00:01Z", "20001231T000001Z 2000-12-31T00:00:01Z");
        check("yesterday", "none");
        check("2026-13-01T00:00:00Z", "none");
        check("", "none");
        assert_eq!(read("2015-08-30T12:36:00Z"), Some(Timestamp(1_440_938_160_000_000)));
    }
}
