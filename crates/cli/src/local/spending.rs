//! What may be spent in a month: `budgets.json` of the home folder, and whether it admits another run or sweep.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};

use domain::{Job, Money, Plan, Rate, RunId, SweepId};
use plan::money::allowance::{AllowanceOwner, AllowanceUse, Allowances, PaidWork, uses};
use plan::money::ledger::{LedgerLine, within};
use plan::{Run, SweepRecord, World};
use server::state::StateReader;
use server::{Home, State, clock};

use super::disks::disk_lines;
use super::ledger;
use crate::error::{Error, exit};

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
    let paid = paid(home, state)?;
    Ok(uses(allowances, &this_month(&paid), &paid, &open(state.world())))
}

/// What was paid, as far as it is known.
fn paid(home: &Home, state: &State) -> Result<Vec<LedgerLine>, Error> {
    let mut lines: Vec<LedgerLine> = StateReader::open(home)?.costs()?;
    let disks = disk_lines(home, state.world(), &lines, clock::now())?;
    lines.extend(ledger::open_lines(home, state.world()));
    lines.extend(disks);
    Ok(lines)
}

fn this_month(paid: &[LedgerLine]) -> Vec<LedgerLine> {
    within(paid, (Some(Month::now().first), None))
}

/// Runs and sweeps that have not ended; a trial counts to the budget of its sweep.
fn open(world: &World) -> Vec<PaidWork> {
    let is_paid = |offer: &domain::Offer| offer.rate != Rate::default();
    let sweeps = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final() && is_paid(&sweep.plan.offer));
    let budgets: BTreeMap<&SweepId, PaidWork> = sweeps
        .filter_map(|(id, sweep)| {
            let most = sweep.job.budget?.max;
            let (project, user) = (sweep.job.project.clone(), sweep.user.clone());
            Some((id, PaidWork { runs: sweep.trials.clone(), project, user, most }))
        })
        .collect();
    let counts = |run: &Run| !run.trial.as_ref().is_some_and(|trial| budgets.contains_key(&trial.sweep));
    let runs = world.runs.iter().filter(|(_, run)| run.bill.is_none() && is_paid(&run.plan.offer) && counts(run));
    let most = |run: &Run| run.job.budget.map_or(run.plan.reserve, |budget| budget.max);
    let runs = runs.map(|(id, run)| {
        let (project, user) = (run.job.project.clone(), run.user.clone());
        PaidWork { runs: vec![id.clone()], project, user, most: most(run) }
    });
    runs.chain(budgets.values().cloned()).collect()
}

/// Work that asks to be admitted.
#[derive(Debug, Clone)]
pub struct SpendingRequest {
    /// `run` or `sweep`.
    noun: &'static str,
    project: Option<String>,
    user: Option<String>,
    is_paid: bool,
    budget: Option<Money>,
    /// What has run of it before.
    runs: Vec<RunId>,
    /// How a budget is given to it.
    flag: &'static str,
}

impl SpendingRequest {
    /// A job that is submitted, by a user where that is known.
    pub fn submitted(job: &Job, plan: &Plan, user: Option<&str>) -> SpendingRequest {
        SpendingRequest {
            noun: if job.sweep.is_some() { "sweep" } else { "run" },
            project: job.project.clone(),
            user: user.map(str::to_owned),
            is_paid: plan.offer.rate != Rate::default(),
            budget: job.budget.map(|budget| budget.max),
            runs: Vec::new(),
            flag: "write `budget: {max: …}`",
        }
    }

    /// A run that is resumed, perhaps with another budget.
    pub fn resumed(id: &RunId, run: &Run, budget: Option<Money>) -> SpendingRequest {
        SpendingRequest {
            budget: budget.or(run.job.budget.map(|budget| budget.max)),
            runs: vec![id.clone()],
            flag: "add `--budget AMOUNT`",
            ..SpendingRequest::submitted(&run.job, &run.plan, run.user.as_deref())
        }
    }

    /// With other words for how a budget is given.
    pub fn hinting(self, flag: &'static str) -> SpendingRequest {
        SpendingRequest { flag, ..self }
    }

    /// The same of a sweep.
    pub fn resumed_sweep(sweep: &SweepRecord, budget: Option<Money>) -> SpendingRequest {
        SpendingRequest {
            noun: "sweep",
            budget: budget.or(sweep.job.budget.map(|budget| budget.max)),
            runs: sweep.trials.clone(),
            flag: "add `--budget AMOUNT`",
            ..SpendingRequest::submitted(&sweep.job, &sweep.plan, sweep.user.as_deref())
        }
    }
}

/// What was admitted.
#[derive(Debug, Default)]
pub struct SpendingAdmission {
    /// While it is held, no other process of this home is admitted.
    _lock: Option<File>,
    /// What is worth saying of allowances that are almost spent.
    pub notes: Vec<String>,
}

/// Whether work may begin: its budget fits into what is left of this month for its project, for its user, and for all. What this
/// returns is held until the work is on disk.
///
/// # Errors
/// [`Error::Usage`] for work without a budget, [`Error::Code`] where too little is left.
pub fn admit(asked: &SpendingRequest, home: &Home) -> Result<SpendingAdmission, Error> {
    let allowances = allowances(home)?;
    let counts = allowances.month.is_some()
        || asked.project.as_ref().is_some_and(|project| allowances.projects.contains_key(project))
        || asked.user.as_ref().is_some_and(|user| allowances.users.contains_key(user));
    if !counts || !asked.is_paid {
        return Ok(SpendingAdmission::default());
    }
    let path = home.root().join("budgets.lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(Error::file("open", &path))?;
    lock.lock().map_err(Error::file("lock", &path))?;
    let state = State::open_lean(home)?;
    let paid = paid(home, &state)?;
    let mut others = open(state.world());
    others.retain(|work| work.runs.is_empty() || work.runs.iter().any(|run| !asked.runs.contains(run)));
    let uses = uses(&allowances, &this_month(&paid), &paid, &others);
    let counts = |one: &&AllowanceUse| one.owner.counts(asked.project.as_deref(), asked.user.as_deref());
    let counted: Vec<&AllowanceUse> = uses.iter().filter(counts).collect();
    let note = |one: &&AllowanceUse| {
        let percent = one.alert()?;
        Some(format!("note: {} has spent {} of {} this month, over {percent} %", name(one), one.spent, one.allowed))
    };
    let notes = counted.iter().filter_map(note).collect();
    let admitted = SpendingAdmission { _lock: Some(lock), notes };
    let Some(least) = counted.into_iter().min_by_key(|one| one.left()) else { return Ok(admitted) };
    let (left, SpendingRequest { noun, flag, .. }) = (least.left(), asked);
    let Some(most) = asked.budget else {
        let message = format!("{} may spend {} this month, and this {noun} has no budget", name(least), least.allowed);
        return Err(Error::Usage { message, hint: format!("{flag}, at most {left}") });
    };
    let beyond = PaidWork { runs: asked.runs.clone(), project: None, user: None, most }.beyond(&paid);
    if beyond <= left {
        return Ok(admitted);
    }
    let message = format!(
        "{} has {left} left of {} this month ({} spent, {} for runs that have not ended), and the {noun} may spend {beyond}",
        name(least),
        least.allowed,
        least.spent,
        least.reserved,
    );
    let hint = Some(format!("lower the {noun}'s `budget`, or raise the one in `budgets.json` of the home folder"));
    Err(Error::Code { message, hint, code: exit::WORLD })
}

/// Whose allowance it is.
pub fn name(one: &AllowanceUse) -> String {
    match &one.owner {
        AllowanceOwner::Home => "this home".to_owned(),
        AllowanceOwner::Project(project) => format!("project `{project}`"),
        AllowanceOwner::User(user) => format!("user `{user}`"),
    }
}
