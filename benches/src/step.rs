//! A run's step against the bare step function, and what a snapshot of the state costs.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use crate::case::{self, Case};
use crate::measure::figures::{Spread, mean};
use crate::measure::program::{Program, as_in_a_run, number, numbers};
use crate::measure::quiet::{Watch, undisturbed};
use crate::run::{Run, Step};
use crate::{Options, built};
use xtask::build;
use xtask::doing::Outcome;

/// Steps before anything is counted.
const WARM_UP: usize = 10;

/// Snapshots and plain copies that are timed.
const SNAPSHOTS: usize = 15;

/// Steps between the checkpoints of the run.
const INTERVAL: f64 = 100.0;

/// Measures every requested case.
pub fn step(root: &Path, options: &Options) -> Outcome {
    let programs = built(root)?;
    for case in &options.cases {
        // In the build folder, as that lies on a disk: a checkpoint in memory would be too cheap.
        let folder = build::target(root).join(format!("bench/{}.{}", case.name(), std::process::id()));
        let mut bare = as_in_a_run(&programs.join("gradus-rank"))?;
        bare.arg("bench");
        compare(*case, &programs.join("gradus-rank"), &folder, &mut bare, options)?;
    }
    Ok("bench: the run's step over the step function, both as `gradus-rank` has them".into())
}

fn compare(
    case: Case,
    rank: &Path,
    folder: &Path,
    bare: &mut Command,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let mut run = Run::start(rank, folder, case)?;
    run.steps(WARM_UP)?;
    let mut bare = Program::start("the step function", bare, &case.description())?;
    bare.steps(WARM_UP)?;

    let processes = [run.id(), bare.id(), std::process::id()];
    let watch = Watch::begin(&processes);
    let (blocks, tried) =
        undisturbed(options.pairs, &processes, || Ok((run.steps(options.steps)?, bare.steps(options.steps)?.seconds)))?;
    let quiet = watch.end();
    let snapshots = bare.ask(&format!("snapshots {SNAPSHOTS}"))?;

    let seconds = |steps: &[Step]| steps.iter().map(|step| step.seconds).collect::<Vec<f64>>();
    let ratios: Vec<f64> = blocks.iter().map(|(of_run, of_bare)| mean(&seconds(of_run)) / mean(of_bare)).collect();
    let in_run: Vec<Step> = blocks.iter().flat_map(|(of_run, _)| of_run.iter().copied()).collect();
    let alone: Vec<f64> = blocks.iter().flat_map(|(_, of_bare)| of_bare.iter().copied()).collect();
    let (pairs, steps) = (blocks.len(), options.steps);
    let all = seconds(&in_run);
    let total: f64 = all.iter().sum();
    let share = |part: f64| 100.0 * part / total;
    let bare_step = mean(&alone);
    println!(
        "{} {}, batch {}, {} threads: {pairs} pairs of {steps} steps",
        case.model,
        case.format(),
        case.batch(),
        case::threads()
    );
    println!("  in a run   {:.1} ms a step", Spread::of(&all).times(1e3));
    println!("  alone      {:.1} ms a step", Spread::of(&alone).times(1e3));
    println!("  ratio      {:.3} over pairs, {:.3} over all steps", Spread::of(&ratios), mean(&all) / bare_step);
    let waited = share(in_run.iter().map(|step| step.waited).sum());
    let saving = share(in_run.iter().map(|step| step.saving).sum());
    let saved = in_run.iter().filter(|step| step.saving > 1e-3).count();
    println!("  of that    {waited:.2} % waiting for data, {saving:.2} % saving ({saved} checkpoints)");
    tell_snapshots(&snapshots, bare_step)?;
    println!("  machine    {tried} pairs tried, {quiet}");
    Ok(())
}

fn tell_snapshots(answer: &serde_json::Value, step: f64) -> Result<(), Box<dyn Error>> {
    let snapshot = Spread::of(&numbers(answer, "snapshots")?);
    let copy = Spread::of(&numbers(answer, "copies")?);
    let (mebibytes, fresh) = (number(answer, "bytes")? / f64::from(1 << 20), number(answer, "fresh_seconds")?);
    println!(
        "  snapshot   {:.1} ms for {mebibytes:.1} MiB; into fresh memory {:.1} ms",
        snapshot.times(1e3),
        fresh * 1e3
    );
    println!("  plain copy {:.1} ms", copy.times(1e3));
    let (copies, share) = (snapshot.median / copy.median, 100.0 * snapshot.median / (INTERVAL * step));
    println!("  so         {copies:.2} copies a snapshot, {share:.3} % of the time at one in {INTERVAL} steps");
    Ok(())
}
