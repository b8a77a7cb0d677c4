//! Costs counted under runs, users, projects, days or providers.

use domain::Money;
use plan::money::allowance::AllowanceOwner;
use plan::money::ledger::{CostGroup, CostTotal, totals, within};
use serde_json::json;
use server::state::StateReader;
use server::{Home, State};

use crate::error::{Error, exit};
use crate::figures::{day_of, day_text};
use crate::local::disks::disk_lines;
use crate::local::ledger::open_lines;
use crate::local::spending::{self, Month};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// How costs are counted.
#[derive(Debug, Default, clap::Args)]
pub struct Grouping {
    /// Count costs under each run, user, project, day (UTC) or provider
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "run")]
    by: Option<Group>,
    /// Only rent from this day on, such as `2026-11-01` (UTC)
    #[arg(long, value_name = "DATE", value_parser = date, conflicts_with = "run")]
    since: Option<i64>,
    /// Only rent up to this day, which is included (UTC)
    #[arg(long, value_name = "DATE", value_parser = date, conflicts_with = "run")]
    until: Option<i64>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "run")]
    csv: bool,
}

/// What costs are counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    Run,
    User,
    Project,
    Day,
    Provider,
}

impl Group {
    fn word(self) -> &'static str {
        match self {
            Group::Run => "run",
            Group::User => "user",
            Group::Project => "project",
            Group::Day => "day",
            Group::Provider => "provider",
        }
    }

    fn of(self) -> CostGroup {
        match self {
            Group::Run => CostGroup::Run,
            Group::User => CostGroup::User,
            Group::Project => CostGroup::Project,
            Group::Day => CostGroup::Day,
            Group::Provider => CostGroup::Provider,
        }
    }
}

impl Grouping {
    /// Whether costs are to be counted under something.
    pub fn is_asked(&self) -> bool {
        self.by.is_some() || self.since.is_some() || self.until.is_some() || self.csv
    }

    /// Refuses a time that ends before it begins, in which nothing can have been spent.
    fn check(&self) -> Result<(), Error> {
        match (self.since, self.until) {
            (Some(since), Some(until)) if since > until => Err(Error::Usage {
                message: format!("`--since {}` is after `--until {}`", day_text(since), day_text(until)),
                hint: "exchange the two".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// A day, since 1970-01-01.
fn date(text: &str) -> Result<i64, String> {
    let date: jiff::civil::Date =
        text.parse().map_err(|_| format!("`{text}` is no day; write for example `2026-11-24`"))?;
    let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?;
    Ok(day_of(midnight.timestamp()))
}

/// Prints what was paid under each name, and the sum.
///
/// # Errors
/// [`Error`].
pub fn run(grouping: &Grouping, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    grouping.check()?;
    let home = Home::open(&settings.home)?;
    let state = State::open_lean(&home)?;
    let mut lines = StateReader::open(&home)?.costs()?;
    // What is not billed yet, as far as it is metered.
    let disks = disk_lines(&home, state.world(), &lines, server::clock::now())?;
    lines.extend(open_lines(&home, state.world()));
    lines.extend(disks);
    let group = grouping.by.unwrap_or(Group::Run);
    let lines = within(&lines, (grouping.since, grouping.until));
    let found = totals(&lines, group.of());
    print(grouping, group, &found, printer);
    if !grouping.csv {
        budgets(&home, &state, printer)?;
    }
    Ok(exit::DONE)
}

/// Shows how much of each allowance of `budgets.json` is used this month, and what the month comes to.
fn budgets(home: &Home, state: &State, printer: &mut Printer) -> Result<(), Error> {
    let allowances = spending::allowances(home)?;
    let month = Month::now();
    for one in spending::used(&allowances, home, state)? {
        let forecast = one.forecast(month.passed, month.length());
        if printer.is_json() {
            let (project, user) = match &one.owner {
                AllowanceOwner::Home => (None, None),
                AllowanceOwner::Project(project) => (Some(project), None),
                AllowanceOwner::User(user) => (None, Some(user)),
            };
            printer.json(&json!({
                "budget": project,
                "user": user,
                "allowed_micro_usd": one.allowed.micros(),
                "spent_micro_usd": one.spent.micros(),
                "reserved_micro_usd": one.reserved.micros(),
                "forecast_micro_usd": forecast.micros(),
                "alert_percent": one.alert(),
            }));
            continue;
        }
        let alert = one.alert().map_or(String::new(), |percent| format!("; over {percent} %"));
        printer.data(format!(
            "{}: {} of {} spent this month, {} for runs that have not ended, on course for {forecast}{alert}",
            spending::name(&one),
            one.spent,
            one.allowed,
            one.reserved
        ));
    }
    Ok(())
}

fn print(grouping: &Grouping, group: Group, found: &[CostTotal], printer: &mut Printer) {
    let key = |total: &CostTotal| match (&total.key, group) {
        (Some(key), Group::Day) => key.parse().map_or_else(|_| key.clone(), day_text),
        (Some(key), _) => key.clone(),
        (None, _) => "unknown".to_owned(),
    };
    let sum: Money = found.iter().map(|total| total.amount).sum();
    let adjusted: Money = found.iter().map(|total| total.adjusted).sum();
    if printer.is_json() {
        for total in found {
            printer.json(&json!({
                group.word(): total.key.as_ref().map(|_| key(total)),
                "cost_micro_usd": total.amount.micros(),
                "race_micro_usd": total.race.micros(),
                "adjusted_micro_usd": total.adjusted.micros(),
                "rented_us": total.elapsed.0,
                "runs": total.runs,
                "final": total.is_final,
            }));
        }
        return printer.json(&json!({ "total_micro_usd": sum.micros(), "adjusted_micro_usd": adjusted.micros() }));
    }
    if grouping.csv {
        printer.data(format!("{},cost_usd,race_usd,rented_hours,runs,final,adjusted_usd", group.word()));
        for total in found {
            let (cost, race) = (decimal(total.amount), decimal(total.race));
            let (name, hours) = (quoted(&key(total)), total.elapsed.as_secs_f64() / 3600.0);
            let adjusted = decimal(total.adjusted);
            printer.data(format!("{name},{cost},{race},{hours:.6},{},{},{adjusted}", total.runs, total.is_final));
        }
        return;
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for total in found {
        let open = if total.is_final { String::new() } else { "not final".to_owned() };
        let hours = format!("{:.2} h", total.elapsed.as_secs_f64() / 3600.0);
        let race = if total.race == Money::default() { String::new() } else { total.race.to_string() };
        rows.push(vec![key(total), total.runs.to_string(), hours, race, total.amount.to_string(), open]);
    }
    let none = String::new;
    rows.push(vec!["total".to_owned(), none(), none(), none(), sum.to_string(), none()]);
    if !adjusted.is_zero() {
        rows.push(vec![super::ADJUSTED.to_owned(), none(), none(), none(), adjusted.to_string(), none()]);
    }
    let lines = table::lines(&[group.word(), "runs", "rented", "race", "cost", ""], &rows);
    lines.into_iter().for_each(|line| printer.data(line));
}

/// Dollars with six digits after the point.
fn decimal(money: Money) -> String {
    let micros = money.micros();
    format!(
        "{}{}.{:06}",
        if micros < 0 { "-" } else { "" },
        micros.unsigned_abs() / 1_000_000,
        micros.unsigned_abs() % 1_000_000
    )
}

/// A value as RFC 4180 writes it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ends_after_it_begins() {
        let check = |since: &str, until: &str| {
            let (since, until) = (date(since).ok(), date(until).ok());
            Grouping { since, until, ..Grouping::default() }.check().map_err(|error| error.to_string())
        };
        assert_eq!(check("2026-11-01", "2026-11-01"), Ok(()));
        let wrong = check("2026-12-01", "2026-11-01").unwrap_err();
        assert_eq!(wrong, "`--since 2026-12-01` is after `--until 2026-11-01`");
    }
}
