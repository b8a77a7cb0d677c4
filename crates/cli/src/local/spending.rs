//! What may be spent in a month: `budgets.json` of the home folder, and whether it admits another run.

use std::fs::{File, OpenOptions};

use domain::{Job, Money, Plan, Rate};
use plan::money::allowance::{AllowanceUse, Allowances, OpenRun, of_project, uses};
use plan::money::ledger::{LedgerLine, within};
use server::state::StateReader;
use server::{Home, State};

use super::ledger;
use crate::error::{Error, exit};
use crate::printer::Printer;

/// A month of UTC.
pub struct Month {
    /// Its first day, since 1970-01-01.
    pub first: i64,
    /// Its days.
    pub days: i64,
    /// Microseconds of it that are over.
    pub passed: u64,
}

impl Month {
    /// The month that now is in.
    pub fn now() -> Month {
        let now = jiff::Timestamp::now();
        let date = now.to_zoned(jiff::tz::TimeZone::UTC).date();
        let today = crate::figures::day_of(now);
        let first = today - i64::from(date.day() - 1);
        let begun = first.saturating_mul(86_400_000_000);
        let passed = u64::try_from(now.as_microsecond().saturating_sub(begun)).unwrap_or(0);
        Month { first, days: i64::from(date.days_in_month()), passed }
    }

    /// Its length in microseconds.
    pub fn length(&self) -> u64 {
        u64::try_from(self.days).unwrap_or(31).saturating_mul(86_400_000_000)
    }
}

/// What the user has set in `budgets.json`; nothing where there is none.
///
/// # Errors
/// [`Error::File`] or [`Error::Usage`] when it cannot be read.
pub fn allowances(home: &Home) -> Result<Allowances, Error> {
    let path = home.root().join("budgets.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Allowances::default()),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    serde_json::from_slice(&text).map_err(|error| Error::Usage {
        message: format!("`{}` cannot be read: {error}", path.display()),
        hint: "write for example `{\"month\": \"$5000\", \"projects\": {\"vision\": \"$1200\"}}`".to_owned(),
    })
}

/// How much of each allowance is used.
///
/// # Errors
/// [`Error`] when the state of the home cannot be read.
pub fn used(allowances: &Allowances, home: &Home, state: &State) -> Result<Vec<AllowanceUse>, Error> {
    let month = Month::now();
    let mut lines: Vec<LedgerLine> = StateReader::open(home)?.costs()?;
    lines.extend(ledger::open_lines(home, state.world()));
    let lines = within(&lines, (Some(month.first), None));
    let open = state.world().runs.iter().filter(|(_, run)| run.bill.is_none() && run.rate() != Rate::default());
    let open: Vec<OpenRun> = open
        .map(|(id, run)| OpenRun {
            run: id.clone(),
            project: run.job.project.clone(),
            most: run.job.budget.map_or(run.plan.reserve, |budget| budget.max),
        })
        .collect();
    Ok(uses(allowances, &lines, &open))
}

/// Whether a run may be submitted: its budget fits into what is left of this month for its project, and for all. While what
/// this returns is held, no other process of this home is admitted.
///
/// # Errors
/// [`Error::Usage`] for a run without a budget, [`Error::Code`] where too little is left.
pub fn admit(job: &Job, plan: &Plan, home: &Home, printer: &mut Printer) -> Result<Option<File>, Error> {
    let allowances = allowances(home)?;
    let counts = allowances.month.is_some()
        || job.project.as_ref().is_some_and(|project| allowances.projects.contains_key(project));
    if !counts || plan.offer.rate == Rate::default() {
        return Ok(None);
    }
    let path = home.root().join("budgets.lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(Error::file("open", &path))?;
    lock.lock().map_err(Error::file("lock", &path))?;
    let used = used(&allowances, home, &State::open_lean(home)?)?;
    let mut left: Option<(Money, &AllowanceUse)> = None;
    for one in of_project(&used, job.project.as_deref()) {
        let name = name(one);
        if let Some(percent) = one.alert() {
            printer
                .say(format!("note: {name} has spent {} of {} this month, over {percent} %", one.spent, one.allowed));
        }
        if left.is_none_or(|(least, _)| one.left() < least) {
            left = Some((one.left(), one));
        }
    }
    let Some((left, least)) = left else { return Ok(Some(lock)) };
    let Some(budget) = job.budget else {
        let message = format!("{} may spend {} this month, and this run has no budget", name(least), least.allowed);
        return Err(Error::Usage { message, hint: format!("write `budget: {{max: …}}`, at most {left}") });
    };
    if budget.max <= left {
        return Ok(Some(lock));
    }
    let message = format!(
        "{} has {left} left of {} this month ({} spent, {} for runs that have not ended), and the run may spend {}",
        name(least),
        least.allowed,
        least.spent,
        least.reserved,
        budget.max
    );
    let hint = Some("lower the run's `budget`, or raise the one in `budgets.json` of the home folder".to_owned());
    Err(Error::Code { message, hint, code: exit::WORLD })
}

/// Whose allowance it is.
pub fn name(one: &AllowanceUse) -> String {
    one.project.as_ref().map_or("this home".to_owned(), |project| format!("project `{project}`"))
}
