//! `gradus plan spot-check`: compare the cost model of spot machines with preemption traces.

use std::path::{Path, PathBuf};

use domain::{Duration, Rate};
use plan::spot::check::{Replay, STARTS};
use plan::spot::{CheckpointOverhead, OutagePolicy, SpotReplay, Trace, check};
use serde_json::{Value, json};

use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::table;

/// Arguments of `gradus plan spot-check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces: SkyPilot spot trace JSON, Parcae events, or a CSV of `time,count`; gzip is accepted
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Machines that the run needs at a time, such as `1,4,16` [default: median of the trace]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Training time of the run without interruptions, such as `12h`
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = Duration::parse_with_unit)]
    pub work: Duration,
    /// Time the run pauses for a checkpoint
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = Duration::parse_with_unit)]
    pub stall: Duration,
    /// Time until a checkpoint is durable, in the background
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = Duration::parse_with_unit)]
    pub lag: Duration,
    /// Time from getting new machines to the first training step
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = Duration::parse_with_unit)]
    pub restart: Duration,
    /// Time to wait for spot machines before falling back to on-demand
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = Duration::parse_with_unit)]
    pub patience: Duration,
    /// Price of a machine on demand
    #[arg(long, value_name = "PRICE", default_value = "1.00/h")]
    pub on_demand_price: Rate,
    /// Mean price of a spot machine; replays draw prices that move about it
    #[arg(long, value_name = "PRICE", default_value = "0.40/h")]
    pub spot_price: Rate,
    /// Seed of the simulated runs and prices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// The result for one trace: waiting and falling back, or why it is unsuitable.
struct Row {
    name: String,
    nodes: u32,
    waiting: Result<SpotReplay, String>,
    falling_back: Result<SpotReplay, String>,
}

/// Predicts from the first half of each trace, replays the second, and prints the error.
///
/// # Errors
/// [`Error::File`] and [`Error::Usage`] for a file that cannot be read or is not a trace.
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    let costs = CheckpointOverhead {
        stall: args.stall.as_secs_f64(),
        lag: args.lag.as_secs_f64(),
        restart: args.restart.as_secs_f64(),
    };
    if args.work.micros() == 0 {
        let message = "`--work` must be above 0".to_owned();
        return Err(Error::Usage { message, hint: "use for example `--work 12h`".to_owned() });
    }
    let price = price(args)?;
    let mut rows = Vec::new();
    for path in &args.traces {
        let trace = read(path)?;
        let usual = [trace.usual().max(1)];
        let all = if args.nodes.is_empty() { &usual[..] } else { &args.nodes[..] };
        for nodes in all.iter().map(|nodes| (*nodes).max(1)) {
            let ask = |policy: OutagePolicy| {
                let work = args.work.as_secs_f64();
                check(&trace, &Replay { nodes, work, costs, policy, price, seed: args.seed })
            };
            let hold = 3600.0;
            rows.push(Row {
                name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
                nodes,
                waiting: ask(OutagePolicy::Wait),
                falling_back: ask(OutagePolicy::FallBack { patience: args.patience.as_secs_f64(), hold }),
            });
        }
    }
    if printer.is_json() {
        printer.json(&json!({
            "work_seconds": args.work.as_secs_f64(),
            "costs": costs,
            "patience_seconds": args.patience.as_secs_f64(),
            "on_demand_price": args.on_demand_price.micros_per_hour() as f64 / 1e6,
            "spot_price": args.spot_price.micros_per_hour() as f64 / 1e6,
            "seed": args.seed,
            "traces": rows.iter().map(row_json).collect::<Vec<_>>(),
            "waiting": summary(&rows, |row| &row.waiting),
            "falling_back": summary(&rows, |row| &row.falling_back),
        }));
        return Ok(exit::DONE);
    }
    for (title, of) in [
        ("wait: spot machines only", waiting as fn(&Row) -> &Result<SpotReplay, String>),
        ("fall back: on-demand machines after `--patience`", falling_back),
    ] {
        printer.data(title);
        people(&rows, of, args.on_demand_price, printer);
        printer.data("");
    }
    Ok(exit::DONE)
}

/// The spot price as a share of the on-demand price.
///
/// # Errors
/// [`Error::Usage`] if machines on demand are free.
fn price(args: &Args) -> Result<f64, Error> {
    let [spot, on_demand] = [args.spot_price, args.on_demand_price].map(|rate| rate.micros_per_hour() as f64);
    if on_demand <= 0.0 {
        let message = "`--on-demand-price` must be above 0".to_owned();
        return Err(Error::Usage { message, hint: "use for example `--on-demand-price 32.77/h`".to_owned() });
    }
    Ok(spot / on_demand)
}

fn waiting(row: &Row) -> &Result<SpotReplay, String> {
    &row.waiting
}

fn falling_back(row: &Row) -> &Result<SpotReplay, String> {
    &row.falling_back
}

/// Reads a trace, decompressing it if necessary.
///
/// # Errors
/// As [`run`].
pub fn read(path: &Path) -> Result<Trace, Error> {
    let text = data::text(path).map_err(Error::file("read the trace", path))?;
    Trace::read(&text).map_err(|why| Error::Usage {
        message: format!("`{}` is not a spot trace: {why}", path.display()),
        hint: "use a JSON file with `metadata.gap_seconds` and `data`, Parcae events, or a CSV of `time,count`".into(),
    })
}

/// Columns of the table of [`people`].
const HEAD: [&str; 13] = [
    "trace",
    "nodes",
    "up h",
    "down h",
    "paid h predicted",
    "paid h",
    "error",
    "$ predicted",
    "$",
    "error",
    "wall h predicted",
    "wall h",
    "in band",
];

fn people(rows: &[Row], of: fn(&Row) -> &Result<SpotReplay, String>, on_demand: Rate, printer: &mut Printer) {
    // A reason is longer than any figure and would widen its column, so these rows come last.
    let (answered, silent): (Vec<_>, Vec<_>) =
        rows.iter().map(|row| cells(row, of(row), on_demand)).partition(|cells| cells.len() == HEAD.len());
    table::lines(&HEAD, &answered).into_iter().for_each(|line| printer.data(line));
    silent.iter().for_each(|cells| printer.data(format!("{}: {}", cells[0], cells[2])));
    let summary = summary(rows, of);
    let percent = |key: &str| format!("{:.1} %", 100.0 * summary[key].as_f64().unwrap_or(f64::NAN));
    printer.data(format!(
        "{} of {} rows evaluated; error of paid hours: mean {}, median {}, {} in total; \
         {} of wall times in the band (P90/P10 {:.2} at the median); \
         second halves alone have P90/P10 {:.2}, their medians are {:.2} × off the prediction",
        summary["answered"],
        summary["traces"],
        percent("paid_error_mean"),
        percent("paid_error_median"),
        percent("paid_error_together"),
        percent("covered"),
        summary["band_ratio_median"].as_f64().unwrap_or(f64::NAN),
        summary["own_ratio_median"].as_f64().unwrap_or(f64::NAN),
        summary["shift"].as_f64().unwrap_or(f64::NAN).exp(),
    ));
    printer.data(format!(
        "predicted again at {STARTS} points of each second half from the data until then: {} of wall times in the band \
         (P90/P10 {:.2} at the median)",
        percent("covered_from_now"),
        summary["band_ratio_from_now_median"].as_f64().unwrap_or(f64::NAN),
    ));
    for (what, costs) in
        [("1 node", &summary["cost"]["one_node"]), ("several nodes", &summary["cost"]["several_nodes"])]
    {
        if costs["answered"] != 0 {
            printer.data(cost_line(what, costs));
        }
    }
}

/// The errors of costs of runs on one node, or on several.
fn cost_line(what: &str, costs: &Value) -> String {
    let percent = |key: &str| match costs[key].as_f64() {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "–".to_owned(),
    };
    format!(
        "cost on {what}, {} rows: {} of the machine time on demand (predicted {}); error from the first half: mean {}, \
         median {}, {} in total; predicted again at {STARTS} points: mean {}, median {}; where the availability of the \
         second half is known: mean {}; {} of costs in the band",
        costs["answered"],
        percent("on_demand_share"),
        percent("on_demand_share_predicted"),
        percent("error_mean"),
        percent("error_median"),
        percent("error_together"),
        percent("error_from_now_mean"),
        percent("error_from_now_median"),
        percent("split_error_mean"),
        percent("covered"),
    )
}

/// A trace's name, its nodes, and the figures of one policy; or why there are none.
fn cells(row: &Row, checked: &Result<SpotReplay, String>, on_demand: Rate) -> Vec<String> {
    let dollars = |seconds: f64| {
        let hours = f64::from(row.nodes) * seconds / 3600.0;
        format!("{:.2}", hours * on_demand.micros_per_hour() as f64 / 1e6)
    };
    let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
    let mut cells = vec![row.name.clone(), row.nodes.to_string()];
    match checked {
        Ok(checked) => {
            let wall = &checked.foreseen.wall;
            cells.extend([
                hours(checked.availability.up),
                hours(checked.availability.down),
                hours(checked.foreseen_paid),
                hours(checked.paid),
                format!("{:+.1} %", 100.0 * checked.paid_error),
                dollars(checked.cost.foreseen),
                dollars(checked.cost.paid),
                format!("{:+.1} %", 100.0 * checked.cost.error),
                format!("{}–{}", hours(wall.low), hours(wall.high)),
                format!("{}–{}", hours(checked.wall.low), hours(checked.wall.high)),
                format!("{:.0} %", 100.0 * checked.covered),
            ]);
        }
        Err(why) => cells.push(why.clone()),
    }
    cells
}

fn summary(rows: &[Row], of: impl Fn(&Row) -> &Result<SpotReplay, String>) -> Value {
    let checked: Vec<&SpotReplay> = rows.iter().filter_map(|row| of(row).as_ref().ok()).collect();
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    let errors: Vec<f64> = checked.iter().map(|one| one.paid_error.abs()).collect();
    let ratio = checked.iter().map(|one| one.foreseen.wall.high / one.foreseen.wall.low).collect();
    let own = checked.iter().map(|one| one.wall.high / one.wall.low).collect();
    let shifts: Vec<f64> = checked.iter().map(|one| (one.wall.middle / one.foreseen.wall.middle).ln()).collect();
    let shift = (shifts.iter().map(|shift| shift * shift).sum::<f64>() / shifts.len() as f64).sqrt();
    let covered: Vec<f64> = checked.iter().map(|one| one.covered).collect();
    let now: Vec<f64> = checked.iter().filter_map(|one| Some(one.from_now?.covered)).collect();
    let now_ratio = checked.iter().filter_map(|one| Some(one.from_now?.ratio)).collect();
    let total = |of: fn(&SpotReplay) -> f64| checked.iter().map(|one| of(one)).sum::<f64>();
    let together = total(|one| one.foreseen_paid) / total(|one| one.paid) - 1.0;
    json!({
        "traces": rows.len(),
        "answered": checked.len(),
        "paid_error_mean": (!errors.is_empty()).then(|| mean(&errors)),
        "paid_error_median": median(errors),
        "paid_error_together": (!checked.is_empty()).then_some(together.abs()),
        "covered": (!covered.is_empty()).then(|| mean(&covered)),
        "band_ratio_median": median(ratio),
        "own_ratio_median": median(own),
        "covered_from_now": (!now.is_empty()).then(|| mean(&now)),
        "band_ratio_from_now_median": median(now_ratio),
        "shift": (!shifts.is_empty()).then_some(shift),
        "cost": {
            "one_node": costs(rows, &of, |nodes| nodes == 1),
            "several_nodes": costs(rows, &of, |nodes| nodes > 1),
        },
    })
}

/// How well costs are predicted, over the rows with such numbers of nodes.
fn costs(rows: &[Row], of: &impl Fn(&Row) -> &Result<SpotReplay, String>, is_meant: fn(u32) -> bool) -> Value {
    let meant = rows.iter().filter(|row| is_meant(row.nodes));
    let checked: Vec<&SpotReplay> = meant.filter_map(|row| of(row).as_ref().ok()).collect();
    let mean = |figures: &[f64]| (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64);
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    let errors: Vec<f64> = checked.iter().map(|one| one.cost.error.abs()).collect();
    let split: Vec<f64> = checked.iter().filter_map(|one| Some(one.cost.split_error?.abs())).collect();
    let now: Vec<f64> = checked.iter().filter_map(|one| Some(one.from_now?.cost_error?.abs())).collect();
    let covered: Vec<f64> = checked.iter().map(|one| one.cost.covered).collect();
    let total = |of: fn(&SpotReplay) -> f64| checked.iter().map(|one| of(one)).sum::<f64>();
    let share = |part: f64, all: f64| (all > 0.0).then(|| part / all);
    json!({
        "answered": checked.len(),
        "on_demand_share": share(total(|one| one.cost.split.on_demand), total(|one| one.paid)),
        "on_demand_share_predicted": share(total(|one| one.foreseen.mean.on_demand), total(|one| one.foreseen.mean.paid())),
        "error_mean": mean(&errors),
        "error_median": median(errors),
        "error_together": share(total(|one| one.cost.foreseen) - total(|one| one.cost.paid), total(|one| one.cost.paid)),
        "split_error_mean": mean(&split),
        "error_from_now_mean": mean(&now),
        "error_from_now_median": median(now),
        "covered": mean(&covered),
    })
}

fn row_json(row: &Row) -> Value {
    let side = |checked: &Result<SpotReplay, String>| match checked {
        Ok(checked) => json!(checked),
        Err(why) => json!({ "unanswered": why }),
    };
    json!({
        "trace": row.name,
        "nodes": row.nodes,
        "waiting": side(&row.waiting),
        "falling_back": side(&row.falling_back),
    })
}
