use domain::Elapsed;

use super::*;
use crate::money::invoice::read_invoice;

const HOUR: i64 = 3_600_000_000;

/// The machine with this number: an hour from the begin of this day on.
fn line(number: u64, day: i64, micros: i64) -> LedgerLine {
    let run = RunId::new(format!("r{number}"));
    LedgerLine {
        instance: run.instance(1),
        run,
        provider: "aws".into(),
        user: None,
        project: None,
        started: Timestamp(day * DAY),
        elapsed: Elapsed(HOUR as u64),
        amount: Money::from_micros(micros),
        race: false,
        adjusts: None,
        is_final: true,
    }
}

fn machine(number: u64) -> LedgerMachine {
    let run = RunId::new(format!("r{number}"));
    let (instance, handles) = (run.instance(1), vec![format!("us-east-1/i-0{number}")]);
    LedgerMachine { machine: instance.clone(), instance, run, handles, is_billed: true }
}

fn simple(lines: &str) -> Invoice {
    read_invoice(&format!("resource,day,usd\n{lines}")).unwrap()
}

/// Our machines on a report of AWS: resource, owner, instance, usage type, day, amount.
fn report(lines: &[[&str; 6]]) -> Invoice {
    let mut text = "lineItem/ResourceId,resourceTags/user:gradus-owner,resourceTags/user:gradus-instance,\
        lineItem/UsageType,lineItem/UsageStartDate,lineItem/UnblendedCost,lineItem/CurrencyCode\n"
        .to_owned();
    for line in lines {
        text.push_str(&format!("{},USD\n", line.join(",")));
    }
    read_invoice(&text).unwrap()
}

fn shown(found: &BillComparison) -> Vec<String> {
    let line = |one: &MachineComparison| {
        format!("{} {} {} {} {}", one.instance, one.kind.word(), one.ledger, one.billed, one.state.word())
    };
    found.machines.iter().map(line).collect()
}

/// Long after all days of these tests.
const LATER: (&[&str], Timestamp) = (&["me", "0a1b"], Timestamp(100 * DAY));

fn adjusted(found: &BillComparison) -> Vec<LedgerLine> {
    let adjustments = found.adjustments().into_iter();
    let lines = adjustments.flat_map(|(run, adjustments)| adjustments.into_iter().map(move |one| (run.clone(), one)));
    let line = |(run, one): (RunId, BillAdjustment)| LedgerLine {
        run,
        instance: one.instance,
        started: one.at,
        elapsed: Elapsed(0),
        amount: one.amount,
        adjusts: Some(one.kind),
        ..line(1, 0, 0)
    };
    lines.map(line).collect()
}

#[test]
fn each_machine_is_compared() {
    let ledger = [line(1, 0, 1_000_000), line(2, 0, 1_000_000), line(3, 1, 1_000_000), line(4, 1, 1_000_000)];
    let machines = [machine(1), machine(2), machine(3), machine(4)];
    let bill = simple("i-01,1970-01-01,0.4\ni-01,1970-01-01,0.6\ni-02,1970-01-01,1.5\ni-03,1970-01-02,0.25\n");
    let found = compare(&bill, &ledger, &machines, LATER);
    let expected = [
        "r1-i1 machine $1.00 $1.00 equal",
        "r2-i1 machine $1.00 $1.50 more",
        "r3-i1 machine $1.00 $0.25 less",
        "r4-i1 machine $1.00 $0.00 missing",
    ];
    assert_eq!(shown(&found), expected);
    assert_eq!(found.days, Some((0, 1)));
    assert_eq!(found.machines.iter().map(|one| one.difference().micros()).sum::<i64>(), -1_250_000);
}

/// A machine that was stopped after one run and started for another one is one at its provider.
#[test]
fn a_machine_of_several_runs_is_billed_once() {
    let mut ledger = vec![line(1, 0, 1_000_000), line(2, 1, 2_000_000)];
    let machines = [machine(1), LedgerMachine { handles: machine(1).handles, ..machine(2) }];
    let bill = simple("i-01,1970-01-01,1\ni-01,1970-01-02,2.5\n");
    let found = compare(&bill, &ledger, &machines, LATER);
    assert_eq!(shown(&found), ["r2-i1 machine $3.00 $3.50 more"]);
    let (run, mut adjustments) = found.adjustments().pop_last().unwrap();
    let one = adjustments.pop().unwrap();
    assert_eq!((run, one.amount.micros()), (RunId::new("r2"), 500_000));
    ledger.push(LedgerLine { amount: one.amount, adjusts: Some(one.kind), started: one.at, ..line(2, 1, 0) });
    assert_eq!(shown(&compare(&bill, &ledger, &machines, LATER)), ["r2-i1 machine $3.50 $3.50 equal"]);
    let open = [machine(1), LedgerMachine { is_billed: false, handles: machine(1).handles, ..machine(2) }];
    assert_eq!(shown(&compare(&bill, &ledger, &open, LATER)), ["r2-i1 machine $3.50 $3.50 open"]);
}

/// The first of three runs that have had a machine was never told its provider's name of it; then it was stopped and started.
#[test]
fn a_machine_that_was_taken_over_is_billed_once() {
    let ledger = [line(1, 0, 1_000_000), line(2, 0, 2_000_000), line(3, 1, 3_000_000), line(4, 1, 4_000_000)];
    let taken =
        |number: u64, handles: Vec<String>| LedgerMachine { machine: machine(1).instance, handles, ..machine(number) };
    let (first, handles) = (taken(1, Vec::new()), machine(1).handles);
    let started = LedgerMachine { handles: handles.clone(), ..machine(4) };
    let bill = report(&[
        ["i-01", "me", "r1-i1", "BoxUsage:a", "1970-01-01", "4"],
        ["i-01", "me", "r1-i1", "BoxUsage:a", "1970-01-02", "6"],
    ]);
    let all = [first, taken(2, handles), taken(3, Vec::new()), started];
    for count in [4, 3, 2] {
        let found = compare(&bill, &ledger[..count], &all[..count], LATER);
        let paid = Money::from_micros((count * (count + 1) / 2) as i64 * 1_000_000);
        let state = if count == 4 { "equal" } else { "more" };
        assert_eq!(shown(&found), [format!("r{count}-i1 machine {paid} $10.00 {state}")]);
    }
}

#[test]
fn the_same_bill_is_accepted_once() {
    let mut ledger = vec![line(1, 0, 1_000_000), line(2, 0, 1_000_000)];
    let machines = [machine(1), machine(2)];
    let bill = report(&[
        ["i-01", "me", "r1-i1", "BoxUsage:a", "1970-01-01T00:00:00Z", "1.2500004"],
        ["i-02", "me", "r2-i1", "BoxUsage:a", "1970-01-01T00:00:00Z", "0.5"],
        ["i-02", "me", "r2-i1", "DataTransfer-Out-Bytes", "1970-01-01T05:00:00Z", "0.01"],
        ["vol-1", "me", "r2-i1", "EBS:VolumeUsage.gp3", "1970-01-01T00:00:00Z", "0.125"],
    ]);
    let first = compare(&bill, &ledger, &machines, LATER);
    let lines = adjusted(&first);
    assert_eq!(lines.len(), 4);
    ledger.extend(lines);
    let sum: Money = ledger.iter().map(|line| line.amount).sum();
    assert_eq!(sum.micros(), 1_250_000 + 500_000 + 10_000 + 125_000, "the ledger is the bill");
    let second = compare(&bill, &ledger, &machines, LATER);
    assert!(second.adjustments().is_empty(), "{second:?}");
    assert!(second.machines.iter().all(|one| one.state == BilledState::Equal));
    // A newer export of the same days has a little more.
    let newer = simple("i-01,1970-01-01,1.35\ni-02,1970-01-01,0.5\n");
    let third = compare(&newer, &ledger, &machines, LATER);
    assert_eq!(adjusted(&third).iter().map(|line| line.amount.micros()).collect::<Vec<_>>(), [100_000]);
}

#[test]
fn only_the_days_of_the_bill_are_compared() {
    let whole = LedgerLine { elapsed: Elapsed(4 * DAY as u64), ..line(1, 0, 4_000_000) };
    let mut ledger = vec![whole, line(2, 9, 7)];
    let machines = [machine(1), machine(2)];
    let first = compare(&simple("i-01,1970-01-01,1\ni-01,1970-01-02,1.5\n"), &ledger, &machines, LATER);
    assert_eq!(shown(&first), ["r1-i1 machine $2.00 $2.50 more"]);
    ledger.extend(adjusted(&first));
    let rest = compare(&simple("i-01,1970-01-03,1\ni-01,1970-01-04,1\n"), &ledger, &machines, LATER);
    assert_eq!(shown(&rest), ["r1-i1 machine $2.00 $2.00 equal"]);
    let all = "i-01,1970-01-01,1\ni-01,1970-01-02,1.5\ni-01,1970-01-03,1\ni-01,1970-01-04,1\n";
    assert_eq!(shown(&compare(&simple(all), &ledger, &machines, LATER)), ["r1-i1 machine $4.50 $4.50 equal"]);
}

#[test]
fn what_ended_shortly_before_the_export_may_come_later() {
    let ledger = [line(1, 0, 1_000_000), line(2, 0, 1_000_000), line(3, 0, 1_000_000)];
    let machines = [machine(1), machine(2), machine(3)];
    let bill = simple("i-02,1970-01-01,0.5\ni-03,1970-01-01,1.5\n");
    let at = |time: i64| shown(&compare(&bill, &ledger, &machines, (&["me"], Timestamp(time))));
    let early =
        ["r1-i1 machine $1.00 $0.00 pending", "r2-i1 machine $1.00 $0.50 pending", "r3-i1 machine $1.00 $1.50 more"];
    assert_eq!(at(HOUR + LAG - 1), early);
    assert!(at(HOUR + LAG)[0].ends_with("missing") && at(HOUR + LAG)[1].ends_with("less"));
    let early = compare(&bill, &ledger, &machines, (&["me"], Timestamp(DAY)));
    assert_eq!(adjusted(&early).len(), 1, "what is pending is not adjusted");
}

#[test]
fn runs_without_a_bill_are_not_adjusted() {
    let open = LedgerMachine { is_billed: false, ..machine(1) };
    let found = compare(&simple("i-01,1970-01-01,2\n"), &[line(1, 0, 1_000_000)], &[open], LATER);
    assert_eq!(shown(&found), ["r1-i1 machine $1.00 $2.00 open"]);
    assert!(found.adjustments().is_empty());
}

#[test]
fn our_tag_finds_what_is_unknown_here() {
    let bill = report(&[
        ["i-77", "me", "", "BoxUsage:a", "1970-01-01", "3"],
        ["i-77", "me", "", "BoxUsage:a", "1970-01-01", "0.5"],
        ["vol-9", "me", "", "EBS:VolumeUsage.gp3", "1970-01-01", "0.25"],
        ["snap-9", "me", "", "EBS:SnapshotUsage", "1970-01-01", "0.125"],
        ["i-88", "someone", "r1-i1", "BoxUsage:a", "1970-01-01", "9"],
        // The owner is not active as a cost allocation tag, so it may be anyone's.
        ["i-99", "", "r1-i1", "BoxUsage:a", "1970-01-01", "9"],
        ["", "", "", "Requests-Tier1", "1970-01-01", "9"],
    ]);
    let found = compare(&bill, &[], &[machine(1)], LATER);
    assert_eq!(shown(&found), [""; 0]);
    let unknown = [UnknownResource { name: "i-77".into(), billed: Money::from_micros(3_500_000) }];
    assert_eq!(found.unknown, unknown);
    let other = [(BilledKind::Disk, Money::from_micros(250_000)), (BilledKind::Snapshot, Money::from_micros(125_000))];
    assert_eq!((&*found.other, found.foreign), (&other[..], 3));
}

#[test]
fn machines_are_found_by_handle_then_by_tag() {
    let unnamed = LedgerMachine { handles: Vec::new(), ..machine(2) };
    let bill = report(&[
        // Rented with the first one's request, and so with its tag.
        ["i-01", "me", "r2-i1", "BoxUsage:a", "1970-01-01", "1"],
        ["i-55", "0a1b", "r2-i1", "BoxUsage:a", "1970-01-01", "2"],
    ]);
    let found = compare(&bill, &[], &[machine(1), unnamed], LATER);
    assert_eq!(shown(&found), ["r1-i1 machine $0.00 $1.00 more", "r2-i1 machine $0.00 $2.00 more"]);
}

#[test]
fn a_bill_is_about_its_own_provider() {
    let elsewhere = LedgerLine { provider: "gcp".into(), ..line(1, 0, 1_000_000) };
    let bill = report(&[["i-02", "me", "r2-i1", "BoxUsage:a", "1970-01-01", "1"]]);
    assert_eq!(bill.format, InvoiceFormat::Aws);
    let found = compare(&bill, &[elsewhere, line(2, 0, 1_000_000)], &[machine(1), machine(2)], LATER);
    assert_eq!(shown(&found), ["r2-i1 machine $1.00 $1.00 equal"]);
}

#[test]
fn a_fee_for_a_year_does_not_stretch_the_days() {
    let mut bill = report(&[["i-01", "me", "r1-i1", "BoxUsage:a", "1970-01-03", "1"]]);
    let fee = InvoiceLine { first: 0, last: 365, kind: BilledKind::Other, ..bill.lines[0].clone() };
    bill.lines.push(fee);
    let found = compare(&bill, &[line(1, 2, 1_000_000)], &[machine(1)], LATER);
    assert_eq!(found.days, Some((2, 2)));
    assert_eq!(shown(&found)[0], "r1-i1 machine $1.00 $1.00 equal");
    let fees = &found.machines[1];
    assert_eq!((fees.kind, fees.at), (BilledKind::Other, Timestamp(2 * DAY)), "counted on a day of the bill");
    assert_eq!(compare(&simple(""), &[line(1, 0, 1)], &[machine(1)], LATER), BillComparison::default());
}
