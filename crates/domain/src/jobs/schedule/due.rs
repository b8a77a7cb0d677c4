//! Due times: a pure function of an expression of cron, a time zone and the last due time.
//!
//! The time zones are those of the IANA database that is compiled in, so that every machine computes the same times.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::JobSchedule;
use crate::time::Timestamp;

/// The due times of a schedule.
#[derive(Debug, Clone)]
pub struct DueTimes {
    cron: Crontab,
    zone: TimeZone,
    /// Whether it is due in every hour: then the hours that pass count, and not those that the wall clock shows.
    is_hourly: bool,
}

/// Longer than the wall clock was ever set forward or back at once, in seconds.
const LONGEST_CHANGE: i64 = 25 * 3_600;

/// Changes of the wall clock between two due times, at most.
const MOST_CHANGES: usize = 64;

impl JobSchedule {
    /// Its due times.
    ///
    /// # Errors
    /// The key that is wrong, `cron` or `timezone`, and why.
    pub fn times(&self) -> Result<DueTimes, (&'static str, String)> {
        let fields: Vec<&str> = self.cron.split_whitespace().collect();
        if fields.len() != 5 {
            return Err(("cron", format!("five fields are needed, and these are {}", fields.len())));
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let cron = cronexpr::parse_crontab_with(&fields.join(" "), options);
        // The last line says what is wrong, behind a mark of its place.
        let cron = cron.map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim().trim_start_matches("^ ").to_owned();
            ("cron", last)
        })?;
        let zone = TimeZoneDatabase::bundled().get(&self.timezone);
        let zone = zone.map_err(|_| ("timezone", format!("there is no time zone `{}`", self.timezone)))?;
        let times = DueTimes { cron, zone, is_hourly: fields[1] == "*" };
        match times.next(Timestamp(0)) {
            Some(_) => Ok(times),
            None => Err(("cron", "no day of any year is due".to_owned())),
        }
    }
}

impl DueTimes {
    /// The first due time after this one; `None` if there is none within four years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = after.0.div_euclid(1_000_000);
        let next = if self.is_hourly { self.next_by_hours(after) } else { self.next_by_wall_clock(after) };
        next.map(|seconds| Timestamp(seconds.saturating_mul(1_000_000)))
    }

    /// A time as the wall clock of the zone shows it, with the offset: `2026-11-27T03:00:00+01:00`.
    pub fn local(&self, at: Timestamp) -> String {
        let time = jiff::Timestamp::from_second(at.0.div_euclid(1_000_000)).unwrap_or_default();
        time.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// The due times after one, up to another: how many, the first, the last, and the one before the last.
    pub fn between(&self, after: Timestamp, until: Timestamp) -> Option<DueSpan> {
        let first = self.next(after).filter(|next| *next <= until)?;
        let mut span = DueSpan { count: 1, first, last: first, before_last: None };
        while span.count < MOST_DUE
            && let Some(next) = self.next(span.last).filter(|next| *next <= until)
        {
            span = DueSpan { count: span.count + 1, first, last: next, before_last: Some(span.last) };
        }
        Some(span)
    }

    /// The next due time by the wall clock: each time that it shows is due once, also where it is set forward or back.
    fn next_by_wall_clock(&self, after: i64) -> Option<i64> {
        // Where the clock was set shortly before, an earlier time that it showed may come later.
        let from = if self.is_steady(after) { after } else { after - LONGEST_CHANGE };
        let mut wall = self.wall(from)?;
        let mut best: Option<i64> = None;
        loop {
            let Some(next) = self.next_shown(wall) else { return best };
            wall = next;
            if let Some(best) = best
                && wall > self.wall(best)? + LONGEST_CHANGE
            {
                return Some(best);
            }
            let at = self.instant(wall)?;
            if at > after && best.is_none_or(|best| at < best) {
                best = Some(at);
            }
            if let Some(best) = best
                && self.is_steady(best)
            {
                return Some(best);
            }
        }
    }

    /// The next due time by hours that pass: what the wall clock leaves out does not exist, and what it shows twice is due
    /// twice.
    fn next_by_hours(&self, mut after: i64) -> Option<i64> {
        let mut wall = self.wall(after)?;
        for _ in 0..MOST_CHANGES {
            let at = self.next_shown(wall)? - self.offset(after)?;
            let change = self.zone.following(instant(after)?).next().map(|change| change.timestamp().as_second());
            match change {
                Some(change) if change <= at => (after, wall) = (change, self.wall(change)? - 1),
                Some(_) | None => return Some(at),
            }
        }
        None
    }

    /// The next time that the wall clock shows and that is due; both in seconds as if the zone were UTC.
    fn next_shown(&self, wall: i64) -> Option<i64> {
        let next = self.cron.find_next(MakeTimestamp::from_second(wall).ok()?).ok()?;
        Some(next.timestamp().as_second())
    }

    /// When the wall clock shows a time: the first time of two, and for one that is left out as much later.
    fn instant(&self, wall: i64) -> Option<i64> {
        let shown = instant(wall)?.to_zoned(TimeZone::UTC).datetime();
        Some(self.zone.to_ambiguous_timestamp(shown).compatible().ok()?.as_second())
    }

    /// What the wall clock shows at an instant.
    fn wall(&self, at: i64) -> Option<i64> {
        Some(at + self.offset(at)?)
    }

    fn offset(&self, at: i64) -> Option<i64> {
        Some(i64::from(self.zone.to_offset(instant(at)?).seconds()))
    }

    /// Whether the wall clock is not set around an instant.
    fn is_steady(&self, at: i64) -> bool {
        self.offset(at - LONGEST_CHANGE) == self.offset(at + LONGEST_CHANGE)
    }
}

/// Due times that are counted at once, at most.
const MOST_DUE: u32 = 1_000;

/// Some due times in succession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueSpan {
    /// How many.
    pub count: u32,
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
    /// The one before the last, if there are several.
    pub before_last: Option<Timestamp>,
}

fn instant(seconds: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cron: &str, timezone: &str) -> DueTimes {
        JobSchedule::at(cron.to_owned(), Some(timezone.to_owned())).times().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    /// Due times after `after`, in UTC.
    fn check(cron: &str, timezone: &str, after: &str, due: &[&str]) {
        let (times, mut last) = (times(cron, timezone), at(after));
        for wanted in due {
            last = times.next(last).unwrap();
            assert_eq!(last, at(wanted), "`{cron}` in {timezone}: {} for {wanted}", times.local(last));
        }
    }

    #[test]
    fn times_of_a_zone_follow_its_summer_time() {
        check("0 3 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", &["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z"]);
        check("0 3 * * *", "UTC", "2026-03-28T02:59:59Z", &["2026-03-28T03:00:00Z", "2026-03-29T03:00:00Z"]);
        check("30 9 * * MON", "America/New_York", "2026-11-27T00:00:00Z", &["2026-11-30T14:30:00Z"]);
        check("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
    }

    #[test]
    fn a_time_that_is_left_out_is_due_as_much_later() {
        // On 2026-03-29, 2:00 to 3:00 is left out in Berlin.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
        );
        // Samoa left out all of 2011-12-30.
        check("0 12 * * *", "Pacific/Apia", "2011-12-30T00:00:00Z", &["2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"]);
    }

    #[test]
    fn a_time_that_occurs_twice_is_due_once() {
        // On 2026-10-25, 2:00 to 3:00 occurs twice in Berlin.
        check("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        check(
            "30 1-3 * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z"],
        );
    }

    #[test]
    fn every_hour_is_due_after_an_hour() {
        let forward = ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"];
        check("0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", &forward);
        let back = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
        check("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", &back);
        check(
            "*/30 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            &["2026-04-04T14:30:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"],
        );
    }

    #[test]
    fn due_times_grow_by_whole_steps_through_a_year() {
        for (cron, zone, least, most) in
            [("15 2 * * *", "Europe/Berlin", 365, 365), ("15 * * * *", "Europe/Berlin", 8_760, 8_760)]
        {
            let (times, mut last) = (times(cron, zone), at("2026-01-01T00:00:00Z"));
            let mut count = 0;
            while let Some(next) = times.next(last).filter(|next| *next < at("2027-01-01T00:00:00Z")) {
                assert!(next > last);
                (last, count) = (next, count + 1);
            }
            assert!((least..=most).contains(&count), "{cron}: {count}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |cron: &str, timezone: &str| {
            JobSchedule::at(cron.to_owned(), Some(timezone.to_owned())).times().unwrap_err()
        };
        assert_eq!(wrong("0 3 * *", "UTC").1, "five fields are needed, and these are 4");
        assert_eq!(wrong("0 3 * * * Europe/Berlin", "UTC").0, "cron");
        assert_eq!(wrong("0 25 * * *", "UTC").0, "cron");
        assert_eq!(wrong("0 0 30 2 *", "UTC").1, "no day of any year is due");
        assert_eq!(
            wrong("0 3 * * *", "Europe/Atlantis"),
            ("timezone", "there is no time zone `Europe/Atlantis`".into())
        );
    }

    #[test]
    fn a_span_counts_what_was_missed() {
        let times = times("0 3 * * *", "UTC");
        let span = times.between(at("2026-11-20T12:00:00Z"), at("2026-11-23T12:00:00Z")).unwrap();
        assert_eq!((span.count, span.first, span.last), (3, at("2026-11-21T03:00:00Z"), at("2026-11-23T03:00:00Z")));
        assert_eq!(span.before_last, Some(at("2026-11-22T03:00:00Z")));
        assert_eq!(times.between(at("2026-11-20T12:00:00Z"), at("2026-11-21T02:59:59Z")), None);
    }
}
