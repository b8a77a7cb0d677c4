//! What a refresh has changed, for people and as JSON.

use cloud::catalog::refreshed::PriceTerms;
use cloud::prices::compare::{PriceChange, SuspiciousPrice};
use domain::listing::Price;
use domain::money::decimal;
use serde_json::{Value, json};

use super::{Args, Outcome};
use crate::figures::{counted, grouped};
use crate::printer::Printer;
use crate::table;

/// Changes that are listed, unless all are wanted.
const SHOWN: usize = 40;

/// Names of unknown machines that are listed.
const NAMED: usize = 10;

/// Prints the outcome for people: changes on stdout, everything else as messages.
pub(super) fn lines(outcome: &Outcome<'_>, args: &Args, printer: &mut Printer) {
    let comparison = outcome.comparison;
    let mut changes: Vec<&PriceChange> = comparison.changes.iter().collect();
    if !args.all && changes.len() > SHOWN {
        // The largest changes, and what is new after them; the order of machines stays.
        changes.sort_by(|one, other| size(other).total_cmp(&size(one)));
        changes.truncate(SHOWN);
        changes.sort_by(|one, other| place(one).cmp(&place(other)));
    }
    if !changes.is_empty() {
        let rows: Vec<Vec<String>> = changes.iter().map(|change| row(change)).collect();
        let head = ["machine", "region", "terms", "old", "new", "change"];
        table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    }
    let left = comparison.changes.len() - changes.len();
    if left > 0 {
        printer.say(format!("{} more changes; list them with `--all`", grouped(left as u64)));
    }
    suspicious(&comparison.suspicious, printer);
    unknown(outcome, printer);
    let new = comparison.changes.iter().filter(|change| change.old.is_none()).count();
    printer.say(format!(
        "{} of {} read: {} changed, {} new, {} as before",
        counted(comparison.taken.len() as u64, "price"),
        outcome.cloud,
        grouped((comparison.changes.len() - new) as u64),
        grouped(new as u64),
        grouped(comparison.same as u64),
    ));
    for note in &outcome.fetched.notes {
        printer.say(note);
    }
    if outcome.hidden > 0 {
        printer.say(format!(
            "{} of them not used: prices that you have imported count; `gradus catalog forget NAME` removes an import",
            grouped(outcome.hidden as u64)
        ));
    }
    match outcome.file {
        Some(file) => {
            printer.say(format!("stored as refresh {}; undo with `gradus catalog revert {}`", file.number, file.cloud))
        }
        None if args.dry_run => printer.say("nothing was stored: this was a dry run"),
        None => printer.say("nothing was stored"),
    }
}

/// How much a price has changed; what is new has not.
fn size(change: &PriceChange) -> f64 {
    change.per_cent().map_or(0.0, f64::abs)
}

fn place(change: &PriceChange) -> (&str, &str, PriceTerms) {
    (&change.instance_type, &change.region, change.terms)
}

fn row(change: &PriceChange) -> Vec<String> {
    let amount = |price: &Price| decimal(price.rate.micros_per_hour().unsigned_abs(), 4, 6);
    let old = change.old.as_ref();
    vec![
        change.instance_type.clone(),
        change.region.clone(),
        change.terms.word().to_owned(),
        old.map_or("-".to_owned(), |old| format!("{} ({})", amount(old), old.dated)),
        amount(&change.new),
        change.per_cent().map_or("new".to_owned(), |share| format!("{share:+.1} %")),
    ]
}

fn suspicious(prices: &[SuspiciousPrice], printer: &mut Printer) {
    if prices.is_empty() {
        return;
    }
    let is_left = prices.iter().any(|price| !price.is_taken);
    for price in prices.iter().take(SHOWN) {
        let SuspiciousPrice { region, instance_type, terms, currency, why, .. } = price;
        let amount = money(price.micros);
        let state = if price.is_taken { "taken" } else { "not taken" };
        printer.say(format!(
            "suspicious, {state}: {instance_type} in {region}, {}, {amount} {currency}: {why}",
            terms.word()
        ));
    }
    if prices.len() > SHOWN {
        printer.say(format!("suspicious: {} more; list them with `--json`", grouped((prices.len() - SHOWN) as u64)));
    }
    if is_left {
        printer.say("`--accept` takes suspicious prices, except those of nothing or in an unknown currency");
    }
}

/// A decimal amount with its sign.
fn money(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", decimal(micros.unsigned_abs(), 2, 6))
}

fn unknown(outcome: &Outcome<'_>, printer: &mut Printer) {
    let unknown = &outcome.table.unknown;
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.keys().take(NAMED).map(String::as_str).collect();
        let more = if unknown.len() > NAMED { ", …" } else { "" };
        printer.say(format!(
            "{} of {} that the catalog does not know: {}{more}",
            counted(unknown.values().sum::<usize>() as u64, "row"),
            counted(unknown.len() as u64, "machine"),
            names.join(", ")
        ));
    }
    for (reason, count) in &outcome.table.left_out {
        printer.say(format!("skipped {}: {reason}", counted(*count as u64, "row")));
    }
}

/// The outcome for programs.
pub(super) fn value(outcome: &Outcome<'_>) -> Value {
    let comparison = outcome.comparison;
    let price = |price: &Price| {
        json!({
            "micro_usd_per_hour": price.rate.micros_per_hour(),
            "dated": price.dated,
            "source": price.source,
            "derived": price.derived,
        })
    };
    let change = |change: &PriceChange| {
        json!({
            "instance_type": change.instance_type,
            "region": change.region,
            "terms": change.terms.key(),
            "old": change.old.as_ref().map(price),
            "new": price(&change.new),
            "per_cent": change.per_cent(),
        })
    };
    let suspicious = |suspicious: &SuspiciousPrice| {
        json!({
            "instance_type": suspicious.instance_type,
            "region": suspicious.region,
            "terms": suspicious.terms.key(),
            "micros_per_hour": suspicious.micros,
            "currency": suspicious.currency,
            "why": suspicious.why,
            "taken": suspicious.is_taken,
        })
    };
    let unread = |(region, why): &(String, String)| json!({ "region": region, "why": why });
    json!({
        "cloud": outcome.cloud,
        "dated": outcome.dated,
        "rows": outcome.table.rows,
        "prices": comparison.taken.len(),
        "same": comparison.same,
        "changes": comparison.changes.iter().map(change).collect::<Vec<_>>(),
        "suspicious": comparison.suspicious.iter().map(suspicious).collect::<Vec<_>>(),
        "unknown": outcome.table.unknown,
        "left_out": outcome.table.left_out,
        "unread": outcome.fetched.unread.iter().map(unread).collect::<Vec<_>>(),
        "notes": outcome.fetched.notes,
        "hidden_by_imports": outcome.hidden,
        "refresh": outcome.file.map(|file| file.number),
    })
}
