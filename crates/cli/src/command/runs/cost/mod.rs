//! `gradus cost`: the cost of runs, to the micro-dollar.

mod grouped;
mod reconcile;
mod savings;

use domain::run::Bill;
use domain::{Money, Rate, RunId};
use serde_json::json;
use server::{Home, State};

use crate::command::find::{RunOrSweep, find_any};
use crate::error::Error;
use crate::error::exit;
use crate::follow::liveness::meters;
use crate::printer::Printer;
use crate::remote::{self, KnownSweep, Server};
use crate::settings::GlobalSettings;
use crate::table;

/// What a line is called that makes the sum that of the provider's bill.
const ADJUSTED: &str = "adjusted to the provider's bill";

/// Arguments of `gradus cost`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: Option<String>,
    /// Compare what spot machines cost with the same work on demand, without interruptions
    #[arg(long, conflicts_with_all = ["by", "since", "until", "csv"])]
    savings: bool,
    #[command(flatten)]
    grouped: grouped::Grouping,
    #[command(subcommand)]
    command: Option<Subcommand>,
}

/// Commands on costs.
#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Compare a provider's bill with what runs have cost here
    Reconcile(reconcile::Args),
}

/// Prints each rented machine with its price and time, and the sum.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let server = remote::chosen(settings)?;
    if let Some(Subcommand::Reconcile(args)) = &args.command {
        if let Some(server) = &server {
            return Err(remote::only_here("`gradus cost reconcile`", server));
        }
        return reconcile::run(args, settings, printer);
    }
    if args.grouped.is_asked() {
        if let Some(server) = &server {
            return Err(remote::only_here("`gradus cost --by`", server));
        }
        return grouped::run(&args.grouped, settings, printer);
    }
    if let (Some(server), true) = (&server, args.savings) {
        return Err(remote::only_here("`gradus cost --savings`", server));
    }
    if let Some(server) = server {
        return of_server(&args, &server, printer);
    }
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    let world = state.world();
    let only = args.run.map(|name| find_any(world, &name)).transpose()?;
    let is_meant = |id: &RunId, run: &plan::Run| match &only {
        None => true,
        Some(RunOrSweep::Run(only)) => only == id,
        Some(RunOrSweep::Sweep(only)) => run.trial.as_ref().is_some_and(|trial| trial.sweep == *only),
    };
    let mut runs: Vec<_> = world.runs.iter().filter(|(id, run)| is_meant(id, run)).collect();
    runs.sort_by_key(|(_, run)| run.order);
    if args.savings {
        return savings::run(&runs, (&home, &state), settings, printer);
    }
    let meters = meters(&home, world);
    let mut costs = Costs::default();
    for (id, run) in runs {
        let spent = plan::spent(world, run, &meters);
        costs.add(id, run.bill.as_ref(), run.rate(), (spent, run.adjusted()), printer);
    }
    costs.print(printer);
    Ok(exit::DONE)
}

/// The same of a server's runs.
fn of_server(args: &Args, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let only = args.run.as_ref().map(|name| server.find_any(name)).transpose()?;
    let runs = match only {
        Some(RunOrSweep::Run(id)) => vec![id],
        Some(RunOrSweep::Sweep(id)) => return of_sweep(&server.sweep(&id)?, printer),
        None => {
            let (listed, _) = server.list(usize::MAX)?;
            listed.iter().rev().filter_map(|run| run["run"].as_str().map(RunId::new)).collect()
        }
    };
    let mut costs = Costs::default();
    for id in runs {
        let cost = server.cost(&id)?;
        let spent = Money::from_micros(cost.cost_micro_usd);
        // A run with a bill costs what is on it, and what that was adjusted by.
        let adjusted = cost.bill.as_ref().map_or(Money::default(), |bill| spent - bill.total);
        costs.add(&id, cost.bill.as_ref(), cost.rate, (spent, adjusted), printer);
    }
    costs.print(printer);
    Ok(exit::DONE)
}

/// The same of a server's sweep: its trials, by number.
fn of_sweep(known: &KnownSweep, printer: &mut Printer) -> Result<u8, Error> {
    let (meters, mut costs) = (known.meters(), Costs::default());
    for (id, run) in known.world.trials(known.record()?) {
        let spent = plan::spent(&known.world, run, &meters);
        costs.add(id, run.bill.as_ref(), run.rate(), (spent, run.adjusted()), printer);
    }
    costs.print(printer);
    Ok(exit::DONE)
}

/// The table, and its sum.
#[derive(Default)]
struct Costs {
    rows: Vec<Vec<String>>,
    total: Money,
    beyond: Money,
}

impl Costs {
    /// Adds a run, with what it has cost and the part of it that is adjustments; with `--json` it is printed at once.
    fn add(
        &mut self,
        id: &RunId,
        bill: Option<&Bill>,
        rate: Rate,
        (spent, adjusted): (Money, Money),
        printer: &mut Printer,
    ) {
        self.total += spent;
        if printer.is_json() {
            return printer.json(&json!({
                "run": id,
                "final": bill.is_some(),
                "bill": bill,
                "adjusted_micro_usd": adjusted.micros(),
                "cost_micro_usd": spent.micros(),
            }));
        }
        self.beyond += bill.map_or(Money::default(), |bill| bill.adjustment);
        for line in bill.into_iter().flat_map(|bill| &bill.lines) {
            let seconds = format!("{:.6} s", line.usage.elapsed.as_secs_f64());
            let machine = if line.race { format!("{} (race)", line.instance) } else { line.instance.to_string() };
            let cells = [id.to_string(), machine, line.rate.to_string(), seconds, line.amount.to_string()];
            self.rows.push(cells.to_vec());
        }
        if !adjusted.is_zero() {
            let amount = adjusted.to_string();
            self.rows.push(vec![id.to_string(), ADJUSTED.to_owned(), String::new(), String::new(), amount]);
        }
        if bill.is_none() {
            let rent = (spent - adjusted).to_string();
            let cells = [id.to_string(), "not final".to_owned(), rate.to_string(), String::new(), rent];
            self.rows.push(cells.to_vec());
        }
    }

    /// Adds the sum, and how much of it providers have billed beyond the budgets of runs.
    fn close(&mut self) {
        let mut sum = |what: &str, amount: Money| {
            let none = String::new;
            self.rows.push(vec![what.to_owned(), none(), none(), none(), amount.to_string()]);
        };
        sum("total", self.total);
        if !self.beyond.is_zero() {
            sum("beyond budgets", self.beyond);
        }
    }

    fn print(mut self, printer: &mut Printer) {
        if printer.is_json() {
            return;
        }
        self.close();
        let lines = table::lines(&["run", "machine", "price", "time", "cost"], &self.rows);
        lines.into_iter().for_each(|line| printer.data(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjustment_has_a_line_of_its_own() {
        let bill = Bill { lines: Vec::new(), total: Money::from_micros(2_000_000), adjustment: Money::default() };
        let mut costs = Costs::default();
        let (spent, adjusted) = (Money::from_micros(1_750_000), Money::from_micros(-250_000));
        let mut printer = Printer::new(false, false);
        costs.add(&RunId::new("a"), Some(&bill), Rate::default(), (spent, adjusted), &mut printer);
        // Resumed since.
        costs.add(&RunId::new("b"), None, Rate::default(), (spent, adjusted), &mut printer);
        costs.close();
        let rows: Vec<String> = costs.rows.iter().map(|row| format!("{} {} {}", row[0], row[1], row[4])).collect();
        let line = |name: &str| format!("{name} {ADJUSTED} -$0.25");
        assert_eq!(rows, [line("a"), line("b"), "b not final $2.00".to_owned(), "total  $3.50".to_owned()]);
    }

    #[test]
    fn what_is_billed_beyond_budgets_stands_under_the_sum() {
        let rows = |adjustments: &[i64]| {
            let (mut costs, total) = (Costs::default(), Money::from_micros(2_000_000));
            for adjustment in adjustments.iter().copied().map(Money::from_micros) {
                let bill = Bill { lines: Vec::new(), total, adjustment };
                let (cost, mut printer) = ((total, Money::default()), Printer::new(false, false));
                costs.add(&RunId::new("a"), Some(&bill), Rate::default(), cost, &mut printer);
            }
            costs.close();
            costs.rows.iter().map(|row| format!("{} {}", row[0], row[4])).collect::<Vec<_>>()
        };
        assert_eq!(rows(&[0, 0]), ["total $4.00"]);
        assert_eq!(rows(&[500_000, 750_000]), ["total $4.00", "beyond budgets $1.25"]);
    }
}
