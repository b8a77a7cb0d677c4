//! What projects and users may spend in a month: how much of it is spent, and how much is spoken for by runs that have not ended.
//!
//! A run or sweep of a project or user with an allowance has a budget, and budgets of open ones count as if they were spent. So no
//! number of them together spends more than the allowance, however they race.

use std::collections::BTreeMap;

use domain::{Money, RunId};
use serde::{Deserialize, Serialize};

use super::ledger::LedgerLine;

/// What may be spent in a calendar month of UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowances {
    /// By all runs of a home together.
    pub month: Option<Money>,
    /// By the runs of each project.
    pub projects: BTreeMap<String, Money>,
    /// By the runs of each user: one of this machine, or the name of a token.
    pub users: BTreeMap<String, Money>,
}

/// Work that has not ended, or asks to begin, and the most that it may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaidWork {
    /// Whose cost that is: a run, or the trials of a sweep so far; none for what has not begun.
    pub runs: Vec<RunId>,
    pub project: Option<String>,
    pub user: Option<String>,
    pub most: Money,
}

impl PaidWork {
    /// What it may still cost beyond what it has cost, by all lines of the ledger.
    pub fn beyond(&self, lines: &[LedgerLine]) -> Money {
        let spent: Money = lines.iter().filter(|line| self.runs.contains(&line.run)).map(|line| line.amount).sum();
        (self.most - spent).max(Money::default())
    }
}

/// Whose allowance it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowanceOwner {
    /// All runs of a home together.
    Home,
    /// A project.
    Project(String),
    /// A user.
    User(String),
}

impl AllowanceOwner {
    /// Whether work of this project and user counts.
    pub fn counts(&self, project: Option<&str>, user: Option<&str>) -> bool {
        match self {
            AllowanceOwner::Home => true,
            AllowanceOwner::Project(name) => project == Some(name.as_str()),
            AllowanceOwner::User(name) => user == Some(name.as_str()),
        }
    }
}

/// How much of an allowance is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllowanceUse {
    /// Whose it is.
    pub owner: AllowanceOwner,
    pub allowed: Money,
    /// Spent this month.
    pub spent: Money,
    /// What runs that have not ended may spend beyond that.
    pub reserved: Money,
}

impl AllowanceUse {
    /// What another run may spend.
    pub fn left(&self) -> Money {
        (self.allowed - (self.spent + self.reserved)).max(Money::default())
    }

    /// The highest of 50, 80 and 100 per cent that is spent, if any is.
    pub fn alert(&self) -> Option<u32> {
        let (spent, allowed) = (i128::from(self.spent.micros()), i128::from(self.allowed.micros()));
        [100, 80, 50].into_iter().find(|percent| spent * 100 >= allowed * i128::from(*percent))
    }

    /// What the month comes to if it goes on as it began; `passed` of its `length` is over.
    pub fn forecast(&self, passed: u64, length: u64) -> Money {
        let whole = i128::from(self.spent.micros()) * i128::from(length) / i128::from(passed.max(1));
        Money::from_micros(i64::try_from(whole).unwrap_or(i64::MAX))
    }
}

/// How much of each allowance is used, by what was paid this month and by work that has not ended. Whatever such work has
/// spent, by all lines of the ledger, it cannot spend again.
pub fn uses(
    allowances: &Allowances,
    month: &[LedgerLine],
    all_lines: &[LedgerLine],
    open: &[PaidWork],
) -> Vec<AllowanceUse> {
    let all = allowances.month.map(|allowed| (AllowanceOwner::Home, allowed));
    let projects = allowances.projects.iter().map(|(name, allowed)| (AllowanceOwner::Project(name.clone()), *allowed));
    let users = allowances.users.iter().map(|(name, allowed)| (AllowanceOwner::User(name.clone()), *allowed));
    let of = |(owner, allowed): (AllowanceOwner, Money)| {
        let counts =
            |project: &Option<String>, user: &Option<String>| owner.counts(project.as_deref(), user.as_deref());
        let spent = month.iter().filter(|line| counts(&line.project, &line.user)).map(|line| line.amount).sum();
        let open = open.iter().filter(|work| counts(&work.project, &work.user));
        let reserved = open.map(|work| work.beyond(all_lines)).sum();
        AllowanceUse { owner, allowed, spent, reserved }
    };
    all.into_iter().chain(projects).chain(users).map(of).collect()
}

#[cfg(test)]
mod tests {
    use domain::{Elapsed, InstanceId, Timestamp};

    use super::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    fn line(run: &str, project: Option<&str>, amount: &str) -> LedgerLine {
        LedgerLine {
            run: RunId::new(run),
            instance: InstanceId::new(run),
            provider: "aws".into(),
            user: None,
            project: project.map(str::to_owned),
            started: Timestamp(0),
            elapsed: Elapsed(1),
            amount: money(amount),
            race: false,
            adjusts: None,
            is_final: true,
        }
    }

    #[test]
    fn budgets_of_open_runs_count_as_spent() {
        let projects = [("vision".to_owned(), money("$100"))].into();
        let users = [("ann".to_owned(), money("$50"))].into();
        let allowances = Allowances { month: Some(money("$150")), projects, users };
        let ann = Some("ann".to_owned());
        let hers = LedgerLine { user: ann.clone(), ..line("b", None, "$20") };
        let month = [line("a", Some("vision"), "$30"), hers, line("c", Some("vision"), "$5")];
        let vision = Some("vision".to_owned());
        let open = [PaidWork { runs: vec![RunId::new("c")], project: vision, user: ann, most: money("$40") }];
        let found = uses(&allowances, &month, &month, &open);
        let shown = found
            .iter()
            .map(|one| format!("{:?} {} {} {} {:?}", one.owner, one.spent, one.reserved, one.left(), one.alert()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "Home $55.00 $35.00 $60.00 None",
                "Project(\"vision\") $35.00 $35.00 $30.00 None",
                "User(\"ann\") $20.00 $35.00 $0.00 None",
            ]
        );
        let left = |project, user| {
            let counted = found.iter().filter(|one| one.owner.counts(project, user));
            counted.map(AllowanceUse::left).min().unwrap()
        };
        assert_eq!((left(Some("vision"), None), left(Some("other"), Some("ben"))), (money("$30"), money("$60")));
        assert_eq!(left(Some("other"), Some("ann")), Money::default());
    }

    /// A run that began in the month before may spend only what is left of its budget.
    #[test]
    fn what_was_spent_in_earlier_months_is_not_reserved_again() {
        let allowances = Allowances { month: Some(money("$50")), ..Allowances::default() };
        let run = PaidWork { runs: vec![RunId::new("a")], project: None, user: None, most: money("$100") };
        let all = [line("a", None, "$80"), line("a", None, "$5")];
        let found = uses(&allowances, &all[1..], &all, &[run]);
        assert_eq!((found[0].spent, found[0].reserved, found[0].left()), (money("$5"), money("$15"), money("$30")));
    }

    #[test]
    fn trials_of_a_sweep_count_to_its_budget_together() {
        let month = [line("s-t1", None, "$3"), line("s-t2", None, "$2"), line("other", None, "$1")];
        let runs = || vec![RunId::new("s-t1"), RunId::new("s-t2")];
        let sweep = |most| PaidWork { runs: runs(), project: None, user: None, most };
        assert_eq!(sweep(money("$8")).beyond(&month), money("$3"));
        assert_eq!(sweep(money("$4")).beyond(&month), Money::default());
        let allowances = Allowances { month: Some(money("$10")), ..Allowances::default() };
        assert_eq!(uses(&allowances, &month, &month, &[sweep(money("$8"))])[0].left(), money("$1"));
    }

    #[test]
    fn alerts_are_at_50_80_and_100_per_cent() {
        let used = |spent: &str| {
            let (owner, spent) = (AllowanceOwner::Home, money(spent));
            AllowanceUse { owner, allowed: money("$10"), spent, reserved: Money::default() }
        };
        let alert = |spent: &str| used(spent).alert();
        for (spent, expected) in [("$4.999999", None), ("$5", Some(50)), ("$8", Some(80)), ("$10", Some(100))] {
            assert_eq!(alert(spent), expected, "{spent}");
        }
        assert_eq!(used("$3").forecast(10, 30), money("$9"));
    }

    /// A thousand submissions that each see what the ones before them have taken.
    #[test]
    fn no_number_of_runs_spends_more_than_the_allowance() {
        let allowances = Allowances { month: Some(money("$100")), ..Allowances::default() };
        let mut open = Vec::new();
        for number in 0..1000 {
            let asked = Money::from_micros(1 + 777_777 * (number % 7));
            let left = uses(&allowances, &[], &[], &open)[0].left();
            if asked <= left {
                let runs = vec![RunId::new(format!("r{number}"))];
                open.push(PaidWork { runs, project: None, user: None, most: asked });
            }
        }
        let taken: Money = open.iter().map(|work| work.most).sum();
        assert!(taken <= money("$100") && taken > money("$99"), "{taken}");
    }
}
