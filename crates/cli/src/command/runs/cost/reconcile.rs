//! `gradus cost reconcile`: a provider's bill beside what runs have cost here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use cloud::rented::name_prefix;
use domain::run::BillAdjustment;
use domain::{Event, InstanceId, Money, RunId, Timestamp};
use plan::World;
use plan::money::invoice::{BillComparison, BilledState, Invoice, InvoiceFormat, LedgerMachine, compare, read_invoice};
use serde_json::json;
use server::state::StateReader;
use server::{Home, State};

use crate::error::{Error, exit};
use crate::figures::day_text;
use crate::local::ledger::open_lines;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus cost reconcile`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The provider's export as CSV, plain or gzipped: a Cost and Usage Report of AWS, a billing export of Google Cloud, cost
    /// details of Azure, or `resource,day,usd`; or JSON of the Cost Explorer of AWS; all files of it
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Adjust the costs of runs to the bill, where both are final
    #[arg(long)]
    accept: bool,
}

/// Prints what is equal and what differs, and accepts it if that is asked for.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let invoice = read(&args.files)?;
    if args.accept && !invoice.format.names_disks() {
        let message = "this bill does not say of which machine a disk is: costs adjusted to it would lack all disks";
        let hint = "leave `--accept` out to compare them, or accept a Cost and Usage Report of AWS".to_owned();
        return Err(Error::Usage { message: message.to_owned(), hint });
    }
    let written = args.files.iter().map(|path| written(path)).collect::<Result<Vec<_>, _>>()?;
    let written = written.into_iter().min().unwrap_or_default();
    let home = Home::open(&settings.home)?;
    let mut state = State::open(&home)?;
    let world = state.world();
    let mut ledger = StateReader::open(&home)?.costs()?;
    ledger.extend(open_lines(&home, world));
    // Labels of Google Cloud cannot hold any owner: there it is the digest in the names of its machines.
    let prefix = name_prefix(home.owner());
    let owners = [home.owner(), prefix.trim_start_matches("gradus-").trim_end_matches('-')];
    let found = compare(&invoice, &ledger, &machines(world, invoice.format), (&owners, written));
    print(&found, printer);
    if args.accept {
        let events = events(&found, world, &args.files);
        accept(events, &mut state, printer)?;
    }
    Ok(exit::DONE)
}

/// The lines of all files, which must be of one provider. The same file again, under any name, would bill everything twice.
fn read(files: &[PathBuf]) -> Result<Invoice, Error> {
    let mut all: Option<Invoice> = None;
    let mut seen = BTreeMap::new();
    for path in files {
        let text = data::text(path).map_err(Error::file("read", path))?;
        let mut read = read_invoice(&text).map_err(|error| Error::Usage {
            message: format!("`{}`, {error}", path.display()),
            hint: error.hint.clone(),
        })?;
        let is_empty = read.lines.is_empty();
        let digest = node::sha256(text.as_bytes()).map_err(Error::file("read", path))?;
        if let Some(other) = seen.insert(digest, path).filter(|_| !is_empty) {
            return Err(Error::Usage {
                message: format!("`{}` and `{}` are the same file", other.display(), path.display()),
                hint: "name each file of the bill once".to_owned(),
            });
        }
        match &mut all {
            None => all = Some(read),
            Some(invoice) if invoice.format == read.format => invoice.lines.append(&mut read.lines),
            Some(_) => {
                let name = path.display();
                return Err(Error::Usage {
                    message: format!(
                        "`{name}` is of another provider than the files before it, or another kind of bill"
                    ),
                    hint: "reconcile each provider's bill on its own".to_owned(),
                });
            }
        }
    }
    all.ok_or_else(|| Error::Usage { message: "there is no bill".to_owned(), hint: "name its files".to_owned() })
}

/// When a file was written: what it lacks may come until two days after its usage.
fn written(path: &Path) -> Result<Timestamp, Error> {
    let modified = std::fs::metadata(path).and_then(|file| file.modified()).map_err(Error::file("read", path))?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)))
}

/// Every machine that was rented from here and may be on such a bill: two providers may give the same name.
fn machines(world: &World, format: InvoiceFormat) -> Vec<LedgerMachine> {
    let provider = format.provider();
    let is_meant = |known: &plan::Instance| provider.is_none_or(|provider| known.offer.provider == provider);
    let machine = |(id, known): (&InstanceId, &plan::Instance)| LedgerMachine {
        run: known.run.clone(),
        instance: id.clone(),
        machine: known.machine_name(id).clone(),
        handles: known.handle.iter().chain(known.doubles.keys()).map(|handle| handle.0.clone()).collect(),
        is_billed: world.runs.get(&known.run).is_some_and(|run| run.bill.is_some()),
    };
    // Of those that have had a machine one after the other, the last has the difference.
    let mut meant: Vec<_> = world.instances.iter().filter(|(_, known)| is_meant(known)).collect();
    meant.sort_by_key(|(_, known)| (known.intended, known.before));
    meant.into_iter().map(machine).collect()
}

/// One event for each run that differs.
fn events(found: &BillComparison, world: &World, files: &[PathBuf]) -> Vec<Event> {
    let source: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let adjusted = found.adjustments().into_iter();
    let event = |(run, adjustments): (RunId, Vec<BillAdjustment>)| {
        let before = world.runs.get(&run).map(plan::Run::adjusted).unwrap_or_default();
        Event::BillAdjusted { run, source: source.join(", "), before, adjustments }
    };
    adjusted.map(event).collect()
}

/// Another process has adjusted or resumed one of the runs since they were compared; then none is adjusted.
fn changed(error: server::Error) -> Error {
    match error {
        server::Error::Illegal(illegal) => Error::Code {
            message: format!("nothing was adjusted, because costs changed meanwhile: {}", illegal.why),
            hint: Some("compare the bill again".to_owned()),
            code: exit::WORLD,
        },
        other => Error::Server(other),
    }
}

fn accept(events: Vec<Event>, state: &mut State, printer: &mut Printer) -> Result<(), Error> {
    let runs = events.len();
    let amount = |event: &Event| match event {
        Event::BillAdjusted { adjustments, .. } => adjustments.iter().map(|one| one.amount).sum::<Money>(),
        _ => Money::default(),
    };
    let sum: Money = events.iter().map(amount).sum();
    if !events.is_empty() {
        state.append(events).map_err(changed)?;
    }
    if printer.is_json() {
        printer.json(&json!({ "accepted_runs": runs, "adjusted_micro_usd": sum.micros() }));
    } else if runs == 0 {
        printer.data("nothing to adjust");
    } else {
        let noun = if runs == 1 { "run" } else { "runs" };
        printer.data(format!("{runs} {noun} adjusted by {sum}; `gradus cost` now agrees with the bill on them"));
    }
    Ok(())
}

fn print(found: &BillComparison, printer: &mut Printer) {
    if printer.is_json() {
        return print_json(found, printer);
    }
    let Some((first, last)) = found.days else { return printer.data("the bill has no lines") };
    printer.data(format!("the bill has {} to {} (UTC)", day_text(first), day_text(last)));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for one in &found.machines {
        let state = match one.state {
            BilledState::Equal => String::new(),
            BilledState::Pending => "may come: exports lag up to 48 h".to_owned(),
            BilledState::Missing => "not on the bill".to_owned(),
            BilledState::Open => "not final here".to_owned(),
            BilledState::More => "billed more".to_owned(),
            BilledState::Less => "billed less".to_owned(),
        };
        let amounts = [one.ledger, one.billed, one.difference()].map(|money| money.to_string());
        let names = [one.run.to_string(), one.instance.to_string(), one.kind.word().to_owned()];
        rows.push(names.into_iter().chain(amounts).chain([state]).collect());
    }
    let (ledger, billed) = sums(found);
    let amounts = [ledger, billed, billed - ledger].map(|money| money.to_string());
    let names = ["total", "", ""].map(str::to_owned);
    rows.push(names.into_iter().chain(amounts).chain([String::new()]).collect());
    let lines = table::lines(&["run", "machine", "for", "here", "bill", "difference", ""], &rows);
    lines.into_iter().for_each(|line| printer.data(line));
    for one in &found.unknown {
        let name = if one.name.is_empty() { "a machine without a name" } else { one.name.as_str() };
        printer.data(format!("unknown here, with our tag: {name}, {}", one.billed));
    }
    for (kind, amount) in &found.other {
        printer.data(format!("with our tag, of no machine: {}, {amount}", kind.word()));
    }
    if found.foreign > 0 {
        let noun = if found.foreign == 1 { "line is" } else { "lines are" };
        printer.data(format!("{} {noun} not ours", found.foreign));
    }
}

fn print_json(found: &BillComparison, printer: &mut Printer) {
    for one in &found.machines {
        printer.json(&json!({
            "run": one.run,
            "machine": one.instance,
            "kind": one.kind.word(),
            "ledger_micro_usd": one.ledger.micros(),
            "billed_micro_usd": one.billed.micros(),
            "difference_micro_usd": one.difference().micros(),
            "state": one.state.word(),
        }));
    }
    for one in &found.unknown {
        printer.json(&json!({ "unknown": one.name, "billed_micro_usd": one.billed.micros() }));
    }
    for (kind, amount) in &found.other {
        printer.json(&json!({ "other": kind.word(), "billed_micro_usd": amount.micros() }));
    }
    let (ledger, billed) = sums(found);
    printer.json(&json!({
        "first_day": found.days.map(|days| day_text(days.0)),
        "last_day": found.days.map(|days| day_text(days.1)),
        "ledger_micro_usd": ledger.micros(),
        "billed_micro_usd": billed.micros(),
        "foreign_lines": found.foreign,
    }));
}

/// What our machines have cost by the ledger, and by the bill.
fn sums(found: &BillComparison) -> (Money, Money) {
    let ledger = found.machines.iter().map(|one| one.ledger).sum();
    (ledger, found.machines.iter().map(|one| one.billed).sum())
}
