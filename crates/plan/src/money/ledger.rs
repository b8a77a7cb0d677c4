//! What was paid, counted under runs, users, projects, days or providers. Every way of counting has the same sum, to the
//! micro-dollar.

use std::collections::{BTreeMap, BTreeSet};

use domain::run::BilledKind;
use domain::{Elapsed, InstanceId, Money, RunId, Timestamp};

/// What one machine has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLine {
    pub run: RunId,
    pub instance: InstanceId,
    pub provider: String,
    /// Who has asked for the run, where that is known.
    pub user: Option<String>,
    pub project: Option<String>,
    /// When its rent began.
    pub started: Timestamp,
    pub elapsed: Elapsed,
    pub amount: Money,
    /// Whether it lost a race.
    pub race: bool,
    /// For an adjustment to the provider's bill, what that has billed; none for rent.
    pub adjusts: Option<BilledKind>,
    /// Whether this is on a bill, and not only metered so far.
    pub is_final: bool,
}

/// What costs are counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostGroup {
    Run,
    User,
    Project,
    /// Days of UTC. The rent of a machine is divided among the days on which it was rented.
    Day,
    Provider,
}

/// What was paid under one name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostTotal {
    /// The run, user, project or provider; a day as its number since 1970-01-01. None where it is not known.
    pub key: Option<String>,
    pub amount: Money,
    /// The part of it for machines that lost a race.
    pub race: Money,
    /// The part of it that is adjustments to providers' bills.
    pub adjusted: Money,
    /// Time that machines were rented, all together.
    pub elapsed: Elapsed,
    /// Runs in it.
    pub runs: usize,
    /// Whether all of it is on bills.
    pub is_final: bool,
}

/// A day in microseconds.
const DAY: i64 = 86_400_000_000;

/// The day of a moment, since 1970-01-01.
pub fn day_of(at: Timestamp) -> i64 {
    at.0.div_euclid(DAY)
}

/// Divides what a machine has cost among the days on which it was rented. The parts are whole micro-dollars, and their sum is
/// the whole.
pub fn by_day(line: &LedgerLine) -> Vec<LedgerLine> {
    let total = i128::from(line.elapsed.0);
    let (mut parts, mut at, mut time, mut paid) = (Vec::new(), line.started.0, 0_i128, 0_i64);
    loop {
        let next = (day_of(Timestamp(at)) + 1).saturating_mul(DAY);
        let part = i128::from(next.saturating_sub(at)).min(total - time);
        time += part;
        // What was paid until then, rounded down; the last part has what is left.
        let until = match time == total {
            true => line.amount.micros(),
            false => i64::try_from(i128::from(line.amount.micros()) * time / total).unwrap_or(i64::MAX),
        };
        let elapsed = Elapsed(u64::try_from(part).unwrap_or(0));
        let amount = Money::from_micros(until - paid);
        parts.push(LedgerLine { started: Timestamp(at), elapsed, amount, ..line.clone() });
        if time == total {
            return parts;
        }
        (at, paid) = (next, until);
    }
}

/// The lines of some days: from the first to the last, both included.
pub fn within(lines: &[LedgerLine], days: (Option<i64>, Option<i64>)) -> Vec<LedgerLine> {
    let (first, last) = days;
    if first.is_none() && last.is_none() {
        return lines.to_vec();
    }
    let parts = lines.iter().flat_map(by_day);
    let is_within = |line: &LedgerLine| {
        let day = day_of(line.started);
        first.is_none_or(|first| day >= first) && last.is_none_or(|last| day <= last)
    };
    parts.filter(is_within).collect()
}

/// What was paid under each name: the dearest first, days in their order. What has no name comes last.
pub fn totals(lines: &[LedgerLine], group: CostGroup) -> Vec<CostTotal> {
    let parts: Vec<LedgerLine>;
    let lines = match group {
        CostGroup::Day => {
            parts = lines.iter().flat_map(by_day).collect();
            &parts
        }
        CostGroup::Run | CostGroup::User | CostGroup::Project | CostGroup::Provider => lines,
    };
    let mut found: BTreeMap<Option<String>, (CostTotal, BTreeSet<&RunId>)> = BTreeMap::new();
    for line in lines {
        let key = match group {
            CostGroup::Run => Some(line.run.to_string()),
            CostGroup::User => line.user.clone(),
            CostGroup::Project => line.project.clone(),
            CostGroup::Day => Some(format!("{:08}", day_of(line.started))),
            CostGroup::Provider => Some(line.provider.clone()),
        };
        let (total, runs) = found
            .entry(key.clone())
            .or_insert_with(|| (CostTotal { key, is_final: true, ..CostTotal::default() }, BTreeSet::new()));
        total.amount += line.amount;
        total.race += if line.race { line.amount } else { Money::default() };
        total.adjusted += if line.adjusts.is_some() { line.amount } else { Money::default() };
        total.elapsed = Elapsed(total.elapsed.0.saturating_add(line.elapsed.0));
        total.is_final &= line.is_final;
        runs.insert(&line.run);
    }
    let counted = |(total, runs): (CostTotal, BTreeSet<&RunId>)| CostTotal { runs: runs.len(), ..total };
    let mut totals: Vec<CostTotal> = found.into_values().map(counted).collect();
    if group == CostGroup::Day {
        for total in &mut totals {
            total.key = total.key.as_ref().and_then(|day| day.parse::<i64>().ok()).map(|day| day.to_string());
        }
        return totals;
    }
    totals.sort_by(|one, other| {
        (one.key.is_none(), other.amount, &one.key).cmp(&(other.key.is_none(), one.amount, &other.key))
    });
    totals
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(run: &str, user: Option<&str>, started: i64, elapsed: u64, micros: i64) -> LedgerLine {
        LedgerLine {
            run: RunId::new(run),
            instance: InstanceId::new(format!("{run}-i1")),
            provider: "aws".into(),
            user: user.map(str::to_owned),
            project: None,
            started: Timestamp(started),
            elapsed: Elapsed(elapsed),
            amount: Money::from_micros(micros),
            race: false,
            adjusts: None,
            is_final: true,
        }
    }

    fn check(lines: &[LedgerLine], group: CostGroup, expected: &str) {
        let shown = totals(lines, group)
            .into_iter()
            .map(|total| format!("{} {} {}", total.key.unwrap_or("-".into()), total.amount.micros(), total.runs));
        assert_eq!(shown.collect::<Vec<_>>().join(", "), expected);
    }

    #[test]
    fn costs_are_counted_under_names() {
        let hour = 3_600_000_000;
        let lines = [
            line("a", Some("ann"), DAY - hour, 2 * hour as u64, 101),
            line("a", Some("ann"), 0, 1, 5),
            line("b", Some("bob"), 0, 1, 200),
            line("c", None, 3 * DAY, 1, 900),
        ];
        check(&lines, CostGroup::Run, "c 900 1, b 200 1, a 106 1");
        check(&lines, CostGroup::User, "bob 200 1, ann 106 1, - 900 1");
        check(&lines, CostGroup::Day, "0 255 2, 1 51 1, 3 900 1");
        check(&lines, CostGroup::Provider, "aws 1206 3");
        check(&lines, CostGroup::Project, "- 1206 3");
        check(&within(&lines, (Some(1), Some(2))), CostGroup::Run, "a 51 1");
        check(&[], CostGroup::Day, "");
    }

    proptest! {
        #[test]
        fn parts_of_days_add_up(started in -DAY..100 * DAY, elapsed in 0_u64..40 * DAY as u64, micros in 0_i64..1_000_000_000_000) {
            let line = line("a", None, started, elapsed, micros);
            let parts = by_day(&line);
            prop_assert_eq!(parts.iter().map(|part| part.amount).sum::<Money>(), line.amount);
            prop_assert_eq!(parts.iter().map(|part| part.elapsed.0).sum::<u64>(), elapsed);
            prop_assert!(parts.iter().all(|part| part.amount >= Money::default()));
            let days: Vec<i64> = parts.iter().map(|part| day_of(part.started)).collect();
            prop_assert!(days.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        }
    }
}
