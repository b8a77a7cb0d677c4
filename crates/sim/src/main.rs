//! `cargo xtask sim`: runs schedules on all cores, breaks the rules one by one, or explains one schedule.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sim::{Failure, GoodputCase, Rule, Scenario, ScheduleStats};

const USAGE: &str = "\
usage: cargo xtask sim [--seeds FIRST..LAST]            run these schedules; by default 0..10000
       cargo xtask sim --rules [--seeds FIRST..LAST]    break each rule, and find the first schedule that fails
       cargo xtask sim --rule NAME [--seeds FIRST..LAST] the same of one rule
       cargo xtask sim --before [--seeds FIRST..LAST]   what becomes of them with the design of before
       cargo xtask sim --gangs [--seeds FIRST..LAST]    the same with a run on 5 to 64 machines in each; by default 0..1000
       cargo xtask sim --gangs --explain SEED           print what happens in one of those
       cargo xtask sim --goodput [SEEDS]                how much of their time runs on 1 to 64 machines use, by the rate of failures
       cargo xtask sim --explain SEED [--rule NAME]     print what happens in one schedule
       cargo xtask sim --log SEED                       print the event log of one schedule, one record per line
       cargo xtask sim --shrink SEED [--rule NAME]      print the calmest scenario in which a failing schedule still fails
";

/// Failing schedules whose reason is printed; of the others the seeds are.
const PRINTED: usize = 10;

#[allow(clippy::disallowed_methods, reason = "an executable reads its arguments")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = std::io::stdout().lock();
    let done = match words.as_slice() {
        [] => schedules(&mut out, 0..10_000, &USUAL),
        ["--seeds", seeds] => range(seeds).and_then(|seeds| schedules(&mut out, seeds, &USUAL)),
        ["--gangs"] => schedules(&mut out, 0..1_000, &LARGE),
        ["--gangs", "--seeds", seeds] => range(seeds).and_then(|seeds| schedules(&mut out, seeds, &LARGE)),
        ["--gangs", "--explain", seed] => number(seed).and_then(|seed| explain(&mut out, seed, None, &LARGE)),
        ["--rules"] => rules(&mut out, 0..20_000, &Rule::ALL),
        ["--rules", "--seeds", seeds] => range(seeds).and_then(|seeds| rules(&mut out, seeds, &Rule::ALL)),
        ["--rule", name] => rule(name).and_then(|rule| rules(&mut out, 0..20_000, &[rule])),
        ["--rule", name, "--seeds", seeds] => range(seeds).and_then(|seeds| rules(&mut out, seeds, &[rule(name)?])),
        ["--before"] => before(&mut out, 0..20_000),
        ["--before", "--seeds", seeds] => range(seeds).and_then(|seeds| before(&mut out, seeds)),
        ["--goodput"] => goodput(&mut out, 4),
        ["--goodput", seeds] => number(seeds).and_then(|seeds| goodput(&mut out, seeds)),
        ["--explain", seed] => number(seed).and_then(|seed| explain(&mut out, seed, None, &USUAL)),
        ["--explain", seed, "--rule", name] => {
            number(seed).and_then(|seed| explain(&mut out, seed, Some(rule(name)?), &USUAL))
        }
        ["--log", seed] => number(seed).and_then(|seed| log(&mut out, seed)),
        ["--shrink", seed] => number(seed).and_then(|seed| shrink(&mut out, seed, None)),
        ["--shrink", seed, "--rule", name] => number(seed).and_then(|seed| shrink(&mut out, seed, Some(rule(name)?))),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("{}\n", why.trim_end()).as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("error: `{text}` is no range of seeds; write for example `--seeds 0..10000`");
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let (first, last) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    if first < last { Ok(first..last) } else { Err(wrong()) }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("error: `{text}` is no seed; write a number"))
}

fn rule(name: &str) -> Result<Rule, String> {
    let found = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == name);
    found.ok_or_else(|| format!("error: `{name}` is no rule; there are {:?}", Rule::ALL))
}

/// Which schedules are run.
struct Kind {
    draw: fn(u64) -> Scenario,
    /// What a command says before `--explain`.
    option: &'static str,
}

const USUAL: Kind = Kind { draw: Scenario::draw, option: "" };
const LARGE: Kind = Kind { draw: Scenario::draw_large, option: "--gangs " };

/// Runs schedules on all cores.
fn schedules(out: &mut impl Write, seeds: Range<u64>, kind: &Kind) -> Result<(), String> {
    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new((ScheduleStats::default(), Vec::<Failure>::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = sim::run(seed, (kind.draw)(seed), None, false);
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match result {
                        Ok(stats) => total.0.add(&stats),
                        Err(failure) => total.1.push(failure),
                    }
                }
            });
        }
    });
    let seconds = (std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default() - before).as_secs_f64();
    let (stats, mut failures) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.seed);
    for failure in failures.iter().take(PRINTED) {
        let _ = writeln!(out, "seed {}: {}", failure.seed, failure.why);
    }
    let more: Vec<String> = failures.iter().skip(PRINTED).map(|failure| failure.seed.to_string()).collect();
    if !more.is_empty() {
        let _ = writeln!(out, "and {} more: {}", more.len(), more.join(", "));
    }
    let count = seeds.end - seeds.start;
    let _ = writeln!(
        out,
        "{count} schedules (seeds {seeds:?}) in {seconds:.0} s, {:.0} a second on {threads} cores: {} failed\n\
         {} crashes of the loop, {} machines, {} of them taken over, {} runs of schedules, {} calls to the provider, {} events",
        count as f64 / seconds,
        failures.len(),
        stats.crashes,
        stats.machines,
        stats.taken,
        stats.due,
        stats.calls,
        stats.events
    );
    match failures.first() {
        None => Ok(()),
        Some(failure) => {
            Err(format!("see what happens with `cargo xtask sim {}--explain {}`", kind.option, failure.seed))
        }
    }
}

/// Breaks each rule, and prints after how many schedules that is noticed.
fn rules(out: &mut impl Write, seeds: Range<u64>, rules: &[Rule]) -> Result<(), String> {
    let mut unfound = Vec::new();
    for rule in rules.iter().copied() {
        match seeds.clone().find_map(|seed| sim::check(seed, Some(rule)).err()) {
            Some(failure) => {
                let count = failure.seed - seeds.start + 1;
                // Which machines there are is told by `--explain`.
                let why = failure.why.split(" [").next().unwrap_or_default();
                let (promise, name) = (rule.promise(), format!("{rule:?}"));
                let _ = writeln!(out, "{promise:<4} {name:<24} found after {count:>5} schedules: {why}");
                let _ = out.flush();
            }
            None => unfound.push(rule),
        }
    }
    if unfound.is_empty() { Ok(()) } else { Err(format!("nothing fails without {unfound:?}")) }
}

/// What goes wrong in how many schedules where the design is that of before, by the first thing that does.
fn before(out: &mut impl Write, seeds: Range<u64>) -> Result<(), String> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for seed in seeds.clone() {
        let Err(failure) = sim::check(seed, Some(Rule::DesignOfBefore)) else { continue };
        let kind =
            KINDS.iter().find(|(words, _)| failure.why.contains(words)).map_or("another fault", |(_, kind)| *kind);
        counts.entry(kind).or_insert((0, seed)).0 += 1;
    }
    let count = seeds.end - seeds.start;
    let failed: u64 = counts.values().map(|(count, _)| count).sum();
    let _ = writeln!(out, "{failed} of {count} schedules (seeds {seeds:?}) fail with the design of before, first by:");
    for (kind, (count, seed)) in &counts {
        let _ = writeln!(out, "{count:>8}  {kind} (first in seed {seed})");
    }
    Ok(())
}

/// Words of a failure, and what is wrong then.
const KINDS: [(&str, &str); 7] = [
    ("counts as gone", "leak: a machine counts as gone and costs money"),
    ("machines left", "leak: a machine is left, or a run never ends"),
    ("is billed", "bill: other than what the cloud has metered"),
    ("rented twice", "double: two machines for one request"),
    ("while it booted", "boot: given up while it booted"),
    ("was asked for", "double: more machines than tries allow"),
    ("trained to its end", "double: the same work was done twice"),
];

/// Runs on 1 to 64 machines that end at random, compared with the model.
fn goodput(out: &mut impl Write, seeds: u64) -> Result<(), String> {
    let _ =
        writeln!(out, "one failure in  restart  model  1 node      4      8     16     64  (mean of {seeds} seeds)");
    for (mtbf, restart, hours) in [(3_600.0, 60.0, 12), (21_600.0, 120.0, 48), (2_700.0, 120.0, 12)] {
        let mut line = String::new();
        for nodes in [1, 4, 8, 16, 64] {
            let case = GoodputCase::new(nodes, mtbf, restart, hours);
            let shares: Result<Vec<f64>, Failure> = (0..seeds).map(|seed| case.measured(seed)).collect();
            let shares = shares.map_err(|failure| format!("{nodes} nodes, seed {}: {}", failure.seed, failure.why))?;
            let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
            line.push_str(&format!("  {mean:.4}"));
        }
        let model = GoodputCase::new(1, mtbf, restart, hours).expected();
        let _ = writeln!(out, "{:>11.2} h  {restart:>5.0} s  {model:.4}{line}", mtbf / 3_600.0);
        let _ = out.flush();
    }
    Ok(())
}

fn explain(out: &mut impl Write, seed: u64, rule: Option<Rule>, kind: &Kind) -> Result<(), String> {
    let scenario = (kind.draw)(seed);
    let _ = writeln!(out, "{scenario:#?}");
    print_trace(out, sim::run(seed, scenario, rule, true))
}

fn log(out: &mut impl Write, seed: u64) -> Result<(), String> {
    for record in sim::log(seed).map_err(|failure| failure.why)? {
        let line = serde_json::to_string(&record).map_err(|error| error.to_string())?;
        let _ = writeln!(out, "{line}");
    }
    Ok(())
}

fn shrink(out: &mut impl Write, seed: u64, rule: Option<Rule>) -> Result<(), String> {
    let Some(scenario) = sim::shrink(seed, rule) else { return Err(format!("error: schedule {seed} does not fail")) };
    let _ = writeln!(out, "{scenario:#?}");
    print_trace(out, sim::run(seed, scenario, rule, true))
}

fn print_trace(out: &mut impl Write, result: Result<ScheduleStats, Failure>) -> Result<(), String> {
    match result {
        Ok(stats) => {
            let _ = writeln!(out, "all is well: {stats:?}");
            Ok(())
        }
        Err(failure) => {
            for line in &failure.trace {
                let _ = writeln!(out, "{line}");
            }
            Err(format!("schedule {}: {}", failure.seed, failure.why))
        }
    }
}
