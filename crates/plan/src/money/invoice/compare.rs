//! A provider's bill beside the ledger: what is equal, what differs, and what only one of them has.

use std::collections::{BTreeMap, BTreeSet};

use domain::run::{BillAdjustment, BilledKind};
use domain::{InstanceId, Money, RunId, Timestamp};

use super::{Invoice, InvoiceAmount, InvoiceFormat, InvoiceLine};
use crate::money::ledger::{LedgerLine, within};

/// A day in microseconds.
const DAY: i64 = 86_400_000_000;
/// Exports are complete so long after usage, as providers document it: AWS and Azure 24 h, Google Cloud usually 48 h.
const LAG: i64 = 2 * DAY;

/// A machine that was rented from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerMachine {
    /// For which run.
    pub run: RunId,
    /// Our name of it.
    pub instance: InstanceId,
    /// The name that it was rented under. Of runs that have had a machine one after the other, it is the same, and the
    /// provider's bill is compared with what they have paid together.
    pub machine: InstanceId,
    /// The provider's names of it, and of others that the same request has rented.
    pub handles: Vec<String>,
    /// Whether the bill of its run is final.
    pub is_billed: bool,
}

impl LedgerMachine {
    /// The provider's names, without the place before them.
    fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.handles.iter().map(|handle| handle.rsplit('/').next().unwrap_or_default());
        names.filter(|name| !name.is_empty())
    }
}

/// What a comparison of one machine comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BilledState {
    /// To the micro-dollar.
    Equal,
    /// The provider has billed more.
    More,
    /// The provider has billed less.
    Less,
    /// The provider has billed less, or nothing, and the machine ended less than 48 h before the file was written.
    Pending,
    /// The provider has billed nothing.
    Missing,
    /// The run is not billed here: its costs still change.
    Open,
}

impl BilledState {
    /// Its word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            BilledState::Equal => "equal",
            BilledState::More => "more",
            BilledState::Less => "less",
            BilledState::Pending => "pending",
            BilledState::Missing => "missing",
            BilledState::Open => "open",
        }
    }
}

/// What the ledger and the provider have of one machine, within the days of the bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineComparison {
    pub run: RunId,
    pub instance: InstanceId,
    pub kind: BilledKind,
    /// By the ledger, with what it was adjusted by before.
    pub ledger: Money,
    /// By the provider.
    pub billed: Money,
    /// The first day of the provider's lines.
    pub at: Timestamp,
    pub state: BilledState,
}

impl MachineComparison {
    /// How much more the provider has billed.
    pub fn difference(&self) -> Money {
        self.billed - self.ledger
    }
}

/// A resource with our tag that nothing here was rented as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownResource {
    /// The provider's name; empty where the bill has none.
    pub name: String,
    pub billed: Money,
}

/// A provider's bill beside the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BillComparison {
    /// The first and the last day of the bill, since 1970-01-01; none of an empty one.
    pub days: Option<(i64, i64)>,
    /// By run and machine.
    pub machines: Vec<MachineComparison>,
    /// Machines with our tag that are unknown.
    pub unknown: Vec<UnknownResource>,
    /// What else has our tag and belongs to no machine, by kind.
    pub other: Vec<(BilledKind, Money)>,
    /// Lines that are not ours.
    pub foreign: usize,
}

impl BillComparison {
    /// What makes the ledger equal to the bill, by run. Machines that are pending, missing or open are left as they are.
    pub fn adjustments(&self) -> BTreeMap<RunId, Vec<BillAdjustment>> {
        let mut found: BTreeMap<RunId, Vec<BillAdjustment>> = BTreeMap::new();
        for one in &self.machines {
            match one.state {
                BilledState::More | BilledState::Less => {
                    let (instance, amount) = (one.instance.clone(), one.difference());
                    let adjustment = BillAdjustment { instance, kind: one.kind, at: one.at, amount };
                    found.entry(one.run.clone()).or_default().push(adjustment);
                }
                BilledState::Equal | BilledState::Pending | BilledState::Missing | BilledState::Open => {}
            }
        }
        found
    }
}

/// Compares a bill with the ledger within the days of the bill. `owners` are the values of our tag; `written` is when the file
/// was written, because exports lag behind.
pub fn compare(
    invoice: &Invoice,
    ledger: &[LedgerLine],
    machines: &[LedgerMachine],
    (owners, written): (&[&str], Timestamp),
) -> BillComparison {
    let Some(days) = span(&invoice.lines) else { return BillComparison::default() };
    let stands = stand_ins(machines);
    let sorted = Sorted::of(invoice, machines, &stands, owners);
    let provider = invoice.format.provider();
    let of_provider = |line: &&LedgerLine| provider.is_none_or(|provider| line.provider == provider);
    let mut paid: BTreeMap<(&InstanceId, BilledKind), Money> = BTreeMap::new();
    let here = within(ledger, (Some(days.0), Some(days.1)));
    for line in here.iter().filter(of_provider) {
        let key = (stand_in(&stands, &line.instance), line.adjusts.unwrap_or(BilledKind::Machine));
        *paid.entry(key).or_default() += line.amount;
    }
    let mut ends: BTreeMap<&InstanceId, i64> = BTreeMap::new();
    for line in ledger.iter().filter(|line| line.adjusts.is_none()) {
        let end = line.started.0.saturating_add_unsigned(line.elapsed.0);
        ends.entry(stand_in(&stands, &line.instance)).and_modify(|last| *last = end.max(*last)).or_insert(end);
    }
    let rented = paid.iter().filter(|(key, amount)| key.1 == BilledKind::Machine && !amount.is_zero());
    let keys: BTreeSet<(&InstanceId, BilledKind)> =
        sorted.billed.keys().chain(rented.map(|(key, _)| key)).copied().collect();
    let known: BTreeMap<&InstanceId, &LedgerMachine> =
        machines.iter().map(|machine| (&machine.instance, machine)).collect();
    let open = machines.iter().filter(|machine| !machine.is_billed);
    let open: BTreeSet<&InstanceId> = open.map(|machine| stand_in(&stands, &machine.instance)).collect();
    let mut compared = Vec::new();
    for key in keys {
        let Some(machine) = known.get(key.0) else { continue };
        let billed = sorted.billed.get(&key);
        let first = billed.map_or(days.0, |(_, first)| *first).clamp(days.0, days.1);
        let mut one = MachineComparison {
            run: machine.run.clone(),
            instance: key.0.clone(),
            kind: key.1,
            ledger: paid.get(&key).copied().unwrap_or_default(),
            billed: billed.map_or(Money::default(), |(amount, _)| amount.rounded()),
            at: Timestamp(first.saturating_mul(DAY)),
            state: BilledState::Equal,
        };
        let is_recent = ends.get(key.0).is_some_and(|end| end.saturating_add(LAG) > written.0);
        one.state = state(!open.contains(key.0), one.difference(), billed.is_some(), is_recent);
        compared.push(one);
    }
    compared.sort_by(|one, other| (&one.run, &one.instance, one.kind).cmp(&(&other.run, &other.instance, other.kind)));
    let unknown = sorted.unknown.into_iter().map(|(name, amount)| UnknownResource { name, billed: amount.rounded() });
    let other = sorted.other.into_iter().map(|(kind, amount)| (kind, amount.rounded()));
    BillComparison {
        days: Some(days),
        machines: compared,
        unknown: unknown.collect(),
        other: other.collect(),
        foreign: sorted.foreign,
    }
}

/// Our names of machines, each with that which stands for it. One machine of the provider may be of several runs here: it was
/// stopped and started again, and is found by its provider's name; or it was taken over, and is found by the name that it was
/// rented under, too. The last of them has the difference.
fn stand_ins(machines: &[LedgerMachine]) -> BTreeMap<&InstanceId, &InstanceId> {
    // By index, each with a later one of the same machine; with itself where there is none.
    let mut later: Vec<usize> = (0..machines.len()).collect();
    let mut last: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for (index, machine) in machines.iter().enumerate() {
        let names = machine.names().map(|name| (true, name));
        for name in names.chain([(false, machine.machine.as_str())]) {
            let mut known = last.insert(name, index).unwrap_or(index);
            while later[known] != known {
                known = later[known];
            }
            later[known] = index;
        }
    }
    for index in (0..machines.len()).rev() {
        later[index] = later[later[index]];
    }
    machines.iter().zip(&later).map(|(machine, last)| (&machine.instance, &machines[*last].instance)).collect()
}

/// What stands for an instance; itself where that is not known.
fn stand_in<'a>(stands: &BTreeMap<&'a InstanceId, &'a InstanceId>, instance: &'a InstanceId) -> &'a InstanceId {
    stands.get(instance).copied().unwrap_or(instance)
}

fn state(is_billed: bool, difference: Money, is_on_bill: bool, is_recent: bool) -> BilledState {
    match difference.micros() {
        _ if !is_billed => BilledState::Open,
        0 => BilledState::Equal,
        1.. => BilledState::More,
        _ if is_recent => BilledState::Pending,
        _ if is_on_bill => BilledState::Less,
        _ => BilledState::Missing,
    }
}

/// The days of a bill: of the usage of machines, disks and bytes, and not of fees, which may be for a year.
fn span(lines: &[InvoiceLine]) -> Option<(i64, i64)> {
    let has_usage = lines.iter().any(|line| line.kind != BilledKind::Other);
    let counted = || lines.iter().filter(move |line| !has_usage || line.kind != BilledKind::Other);
    Some((counted().map(|line| line.first).min()?, counted().map(|line| line.last).max()?))
}

/// The lines of a bill by what they belong to.
#[derive(Debug, Default)]
struct Sorted<'a> {
    /// The sum, and the first day.
    billed: BTreeMap<(&'a InstanceId, BilledKind), (InvoiceAmount, i64)>,
    unknown: BTreeMap<String, InvoiceAmount>,
    other: BTreeMap<BilledKind, InvoiceAmount>,
    foreign: usize,
}

impl<'a> Sorted<'a> {
    fn of(
        invoice: &Invoice,
        machines: &'a [LedgerMachine],
        stands: &BTreeMap<&'a InstanceId, &'a InstanceId>,
        owners: &[&str],
    ) -> Sorted<'a> {
        let mut handles: BTreeMap<&str, &InstanceId> = BTreeMap::new();
        for machine in machines {
            handles.extend(machine.names().map(|name| (name, &machine.instance)));
        }
        let instances: BTreeMap<&str, &InstanceId> =
            machines.iter().map(|machine| (machine.instance.as_str(), &machine.instance)).collect();
        let mut sorted = Sorted::default();
        for line in &invoice.lines {
            let is_ours = line.owner.as_deref().is_some_and(|tag| owners.contains(&tag));
            let by_handle = line.names.iter().find_map(|name| handles.get(name.as_str()));
            // One request may rent several machines with the tag of the first, so the provider's name comes first. Another
            // home may have runs of the same name: a name of ours counts beside our owner, or where no line has an owner.
            let may_name = is_ours || invoice.format == InvoiceFormat::Simple;
            let tags = line.instance.iter().chain(&line.names).filter(|_| may_name);
            let by_name = || tags.map(String::as_str).find_map(|name| instances.get(name));
            if let Some(instance) = by_handle.or_else(by_name).copied() {
                let key = (stand_in(stands, instance), line.kind);
                let sum = sorted.billed.entry(key).or_insert((InvoiceAmount::default(), line.first));
                *sum = (sum.0 + line.amount, sum.1.min(line.first));
            } else if is_ours && line.kind == BilledKind::Machine {
                let name = line.names.first().cloned().unwrap_or_default();
                let sum = sorted.unknown.entry(name).or_default();
                *sum = *sum + line.amount;
            } else if is_ours {
                let sum = sorted.other.entry(line.kind).or_default();
                *sum = *sum + line.amount;
            } else {
                sorted.foreign += 1;
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests;
