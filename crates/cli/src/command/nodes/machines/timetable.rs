//! Machines that are stopped in the evening and started in the morning. Whether one is due is a pure function of its timetable,
//! its time zone and the time; `gradus serve` looks once a minute.

use std::str::FromStr;

use cloud::Catalog;
use domain::run::{InstanceState, RunState, StopBy};
use domain::{Event, InstanceId, Timestamp};
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use plan::{Instance, Run};
use server::{Home, OperationNote, Series, State, clock, submit};

use super::MARK;
use super::disk::{charge, of_run, settle};
use super::kept::{self, again, keep};
use super::stoppable::require_stoppable;
use crate::error::Error;
use crate::local::spending::{self, SpendingRequest};
use crate::settings::GlobalSettings;

/// The variable that holds the timetable of a machine.
pub const TIMETABLE: &str = "GRADUS_TIMETABLE";

/// When a machine is on: `8:00-19:00 Europe/Berlin`, `mon-fri 8:00-19:00 Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timetable {
    /// The days on which it is started and stopped, from Monday.
    days: [bool; 7],
    /// Minutes after midnight.
    start: u16,
    stop: u16,
    /// Such as `Europe/Berlin`, or `UTC`.
    pub zone: String,
}

/// What a timetable asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerChange {
    Start,
    Stop,
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl FromStr for Timetable {
    type Err = String;

    fn from_str(text: &str) -> Result<Timetable, String> {
        let wrong = || format!("`{text}` is no timetable, such as `mon-fri 8:00-19:00 Europe/Berlin`");
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, times, zone) = match words[..] {
            [times, zone] => ([true; 7], times, zone),
            [days, times, zone] => (days_of(days).ok_or_else(wrong)?, times, zone),
            _ => return Err(wrong()),
        };
        let (start, stop) = times.split_once('-').ok_or_else(wrong)?;
        let (start, stop) = (minutes(start).ok_or_else(wrong)?, minutes(stop).ok_or_else(wrong)?);
        if start >= stop {
            return Err(format!("`{text}`: a machine is started before it is stopped, on the same day"));
        }
        Ok(Timetable { days, start, stop, zone: zone.to_owned() })
    }
}

/// One day or a range of them.
fn days_of(text: &str) -> Option<[bool; 7]> {
    let day = |name: &str| DAYS.iter().position(|known| *known == name.to_ascii_lowercase());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (day(first)?, day(last)?);
    let is_in = |at: usize| if first <= last { first <= at && at <= last } else { at >= first || at <= last };
    Some(std::array::from_fn(is_in))
}

/// Minutes after midnight of `8:00`.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (hours.parse::<u16>().ok()?, minutes.parse::<u16>().ok().filter(|_| minutes.len() == 2)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

impl Timetable {
    /// The last change until a moment, and when it was: within a week and a day, for each has one a week at least. At a gap of
    /// the clock, as when summer time begins, it comes as much later.
    pub fn last_change(&self, zone: &TimeZone, now: Timestamp) -> Option<(PowerChange, Timestamp)> {
        let now = jiff::Timestamp::from_microsecond(now.0).ok()?;
        let mut date = now.to_zoned(zone.clone()).date();
        for _ in 0..9 {
            let of_day = [(PowerChange::Stop, self.stop), (PowerChange::Start, self.start)];
            let is_day = self.days[usize::try_from(monday_offset(date.weekday())).unwrap_or(0)];
            for (change, minutes) in of_day.into_iter().filter(|_| is_day) {
                let at = moment(date, minutes, zone)?;
                if at <= now {
                    return Some((change, Timestamp(at.as_microsecond())));
                }
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// What is due of a machine that is on or off since a moment: what was done by hand after the last change stays.
    pub fn due(&self, zone: &TimeZone, now: Timestamp, (is_on, since): (bool, Timestamp)) -> Option<PowerChange> {
        let (change, at) = self.last_change(zone, now)?;
        let is_other = is_on == (change == PowerChange::Stop);
        (is_other && since < at).then_some(change)
    }

    /// The time zone that it names.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn time_zone(&self) -> Result<TimeZone, String> {
        match self.zone.as_str() {
            "UTC" => Ok(TimeZone::UTC),
            name => TimeZone::get(name).map_err(|error| format!("the time zone `{name}` is not known: {error}")),
        }
    }
}

fn monday_offset(day: Weekday) -> i8 {
    day.to_monday_zero_offset()
}

/// A time of a day, in a time zone.
fn moment(date: Date, minutes: u16, zone: &TimeZone) -> Option<jiff::Timestamp> {
    let (hour, minute) = (i8::try_from(minutes / 60).ok()?, i8::try_from(minutes % 60).ok()?);
    Some(date.at(hour, minute, 0, 0).to_zoned(zone.clone()).ok()?.timestamp())
}

/// Between two looks of a server.
const EVERY: std::time::Duration = std::time::Duration::from_secs(60);

/// Keeps timetables while this process lives. What was done, and what failed, is in the operations log.
pub fn watch(settings: &GlobalSettings, home: &Home) {
    let (settings, home) = (settings.clone(), home.clone());
    let thread = std::thread::Builder::new().name("timetables".into());
    // Without it the loop works as well.
    let _ = thread.spawn(move || {
        let mut before = Vec::new();
        loop {
            std::thread::sleep(EVERY);
            let notes = keep_timetables(&settings, &home).unwrap_or_else(|error| vec![error.to_string()]);
            // What fails the same way each minute is told once.
            if let Ok(series) = Series::open(&home) {
                for text in notes.iter().filter(|text| !before.contains(*text)) {
                    let note = OperationNote { subject: "timetable".into(), text: text.clone(), is_mistake: false };
                    let _ = series.note(clock::now(), &note);
                }
            }
            before = notes;
        }
    });
}

/// The timetable of a run's machine and its zone; none of one without.
fn timetable_of(run: &Run, state: &State) -> Option<Result<(Timetable, TimeZone), String>> {
    if !run.job.envs.contains_key(MARK) || !run.job.envs.contains_key(TIMETABLE) {
        return None;
    }
    let mut job = run.job.clone();
    state.key().unseal_job(&mut job);
    let read = |text: &String| text.parse::<Timetable>().and_then(|table| table.time_zone().map(|zone| (table, zone)));
    Some(job.envs.get(TIMETABLE).ok_or("its timetable cannot be read".to_owned()).and_then(read))
}

/// Stops and starts what is due; what was done, and what was not and why.
fn keep_timetables(settings: &GlobalSettings, home: &Home) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let mut tell = |what: String, done: Result<bool, String>| match done {
        Ok(true) => notes.push(what),
        Ok(false) => {}
        Err(why) => notes.push(format!("{what} failed: {why}")),
    };
    let mut state = State::open_lean(home)?;
    settle(home, &mut state)?;
    let up: Vec<(InstanceId, Instance)> = {
        let live = state.world().live_instances();
        live.filter(|(_, one)| one.state == InstanceState::Up).map(|(id, one)| (id.clone(), one.clone())).collect()
    };
    for (id, instance) in up {
        let done = stop_due((&id, &instance), &mut state, settings, home);
        tell(format!("stopping `{id}` by its timetable"), done);
    }
    for machine in kept::stopped(home)? {
        let done = start_due(&machine, &mut state, settings, home);
        tell(format!("starting `{}` by its timetable", machine.run()), done);
    }
    Ok(notes)
}

fn stop_due(
    (id, instance): (&InstanceId, &Instance),
    state: &mut State,
    settings: &GlobalSettings,
    home: &Home,
) -> Result<bool, String> {
    // One that is being stopped already may be meant to be deleted.
    let is_open = |run: &&Run| !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. });
    let Some(run) = state.world().runs.get(&instance.run).filter(is_open) else { return Ok(false) };
    let Some(table) = timetable_of(run, state) else { return Ok(false) };
    let (table, zone) = table?;
    let now = clock::now();
    if table.due(&zone, now, (true, instance.intended)) != Some(PowerChange::Stop) {
        return Ok(false);
    }
    let catalog = Catalog::open(&settings.home).map_err(|error| error.to_string())?;
    let machine = keep((id, instance), &catalog, now).map_err(|error| error.to_string())?;
    require_stoppable(&machine, settings, home).map_err(|error| error.to_string())?;
    kept::note_stop(&machine, home).map_err(|error| error.to_string())?;
    let event = Event::StopRequested { run: instance.run.clone(), by: StopBy::User };
    state.append(vec![event]).map(|_| true).map_err(|error| error.to_string())
}

fn start_due(
    machine: &cloud::rented::kept::KeptMachine,
    state: &mut State,
    settings: &GlobalSettings,
    home: &Home,
) -> Result<bool, String> {
    let said = |error: Error| error.to_string();
    let recalled = state.recall(&plan::RunOrSweep::Run(machine.run()));
    recalled.map_err(|error| error.to_string())?;
    let run = of_run(state, machine).map_err(said)?;
    // One that is still being stopped, or started, is looked at again.
    let (true, Some(ended), None) = (run.bill.is_some(), run.ended, kept::starting(state, machine)) else {
        return Ok(false);
    };
    let Some(table) = timetable_of(run, state) else { return Ok(false) };
    let (table, zone) = table?;
    if table.due(&zone, clock::now(), (false, ended)) != Some(PowerChange::Start) {
        return Ok(false);
    }
    let (job, plan, _) = again(of_run(state, machine).map_err(said)?, machine, (None, None)).map_err(said)?;
    let admitted =
        spending::admit(&SpendingRequest::submitted(&job, &plan, settings.user.as_deref()), home).map_err(said)?;
    // Only now: what is refused would be counted each minute.
    charge(machine, home, state).map_err(said)?;
    let (job, plan, file) = again(of_run(state, machine).map_err(said)?, machine, (None, None)).map_err(said)?;
    let submitted = submit::submit_as(state, job, plan, &file, settings.user.clone());
    drop(admitted);
    submitted.map(|_| true).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    /// Central Europe, as POSIX writes it: no database is needed.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn the_last_change_follows_from_timetable_zone_and_time() {
        let check = |table: &str, now: &str, expected: (PowerChange, &str)| {
            let (change, moment) = table.parse::<Timetable>().unwrap().last_change(&berlin(), at(now)).unwrap();
            assert_eq!((change, moment), (expected.0, at(expected.1)), "{table} {now}");
        };
        let daily = "8:00-19:00 Europe/Berlin";
        // Winter: an hour before UTC. A Friday.
        check(daily, "2026-11-27T06:59:59Z", (PowerChange::Stop, "2026-11-26T18:00:00Z"));
        check(daily, "2026-11-27T07:00:00Z", (PowerChange::Start, "2026-11-27T07:00:00Z"));
        check(daily, "2026-11-27T17:59:59Z", (PowerChange::Start, "2026-11-27T07:00:00Z"));
        check(daily, "2026-11-27T18:00:00Z", (PowerChange::Stop, "2026-11-27T18:00:00Z"));
        // Summer: two hours.
        check(daily, "2026-07-01T06:00:00Z", (PowerChange::Start, "2026-07-01T06:00:00Z"));
        // Over the weekend it stays as Friday left it.
        let week = "mon-fri 8:00-19:00 Europe/Berlin";
        check(week, "2026-11-29T12:00:00Z", (PowerChange::Stop, "2026-11-27T18:00:00Z"));
        check(week, "2026-11-30T07:00:00Z", (PowerChange::Start, "2026-11-30T07:00:00Z"));
        check("sun 8:00-19:00 Europe/Berlin", "2026-11-28T12:00:00Z", (PowerChange::Stop, "2026-11-22T18:00:00Z"));
        check("sat-mon 8:00-19:00 Europe/Berlin", "2026-11-29T07:30:00Z", (PowerChange::Start, "2026-11-29T07:00:00Z"));
        // 2:30 does not exist on the day on which summer time begins: it is 3:30.
        check("2:30-19:00 Europe/Berlin", "2026-03-29T01:45:00Z", (PowerChange::Start, "2026-03-29T01:30:00Z"));
    }

    #[test]
    fn what_was_done_by_hand_after_a_change_stays() {
        let table: Timetable = "8:00-19:00 Europe/Berlin".parse().unwrap();
        let check = |now: &str, is_on: bool, since: &str, expected: Option<PowerChange>| {
            assert_eq!(table.due(&berlin(), at(now), (is_on, at(since))), expected, "{now} {is_on} {since}");
        };
        check("2026-11-27T18:00:30Z", true, "2026-11-27T07:01:00Z", Some(PowerChange::Stop));
        // The server was not there at 19:00.
        check("2026-11-27T23:00:00Z", true, "2026-11-27T07:01:00Z", Some(PowerChange::Stop));
        // Started at 20:00 by hand.
        check("2026-11-27T23:00:00Z", true, "2026-11-27T19:00:00Z", None);
        check("2026-11-28T18:00:30Z", true, "2026-11-27T19:00:00Z", Some(PowerChange::Stop));
        check("2026-11-27T07:00:30Z", false, "2026-11-26T18:01:00Z", Some(PowerChange::Start));
        // Stopped at noon by hand.
        check("2026-11-27T15:00:00Z", false, "2026-11-27T11:00:00Z", None);
        check("2026-11-27T12:00:00Z", true, "2026-11-27T07:01:00Z", None);
    }

    #[test]
    fn timetables_are_read_or_say_what_is_wrong() {
        for text in ["8:00-19:00 UTC", "fri-mon 0:00-23:59 UTC", "Mon 08:00-09:30 America/New_York"] {
            assert!(text.parse::<Timetable>().is_ok(), "{text}");
        }
        assert_eq!("8:00-19:00 UTC".parse::<Timetable>().unwrap().time_zone().unwrap(), TimeZone::UTC);
        for text in
            ["", "8:00-19:00", "8-19 UTC", "8:00-24:00 UTC", "19:00-8:00 UTC", "8:0-9:00 UTC", "day 8:00-9:00 UTC"]
        {
            assert!(text.parse::<Timetable>().is_err(), "{text}");
        }
    }
}
