//! The bare step function against PyTorch's: same model, batch, formats, optimiser and threads.

use std::path::Path;
use std::process::Command;

use super::case::{self, Case};
use super::figures::{Spread, mean};
use super::program::Program;
use super::quiet::Watch;
use super::{Options, built};
use crate::doing::Outcome;
use crate::{peers, setup};

/// Steps before anything is counted: threads, caches and the kernels' own choices settle.
const WARM_UP: usize = 10;

/// Measures every case that was asked for.
pub fn train(root: &Path, options: &Options) -> Outcome {
    let ours = built(root)?.join("examples/bench");
    let pytorch = peers::pytorch()?;
    let python = setup::python()?;
    for case in &options.cases {
        let mut theirs = Command::new(&python);
        theirs.arg(root.join("benches/peers/torch_step.py")).env("PYTHONPATH", &pytorch);
        compare(*case, &mut Command::new(&ours), &mut theirs, options)?;
    }
    Ok("bench: ours over PyTorch's, so less is faster".into())
}

fn compare(
    case: Case,
    ours: &mut Command,
    theirs: &mut Command,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error>> {
    let description = case.description();
    let mut ours = Program::start("our step", ours, &description)?;
    let mut theirs = Program::start("PyTorch's step", theirs, &description)?;
    ours.steps(WARM_UP)?;
    theirs.steps(WARM_UP)?;

    let watch = Watch::begin(&[ours.id(), theirs.id(), std::process::id()]);
    let (mut our_means, mut their_means, mut ratios, mut peaks) = (Vec::new(), Vec::new(), Vec::new(), [0.0; 2]);
    for _ in 0..options.pairs {
        let (our_block, their_block) = (ours.steps(options.steps)?, theirs.steps(options.steps)?);
        let means = [mean(&our_block.seconds), mean(&their_block.seconds)];
        our_means.push(means[0]);
        their_means.push(means[1]);
        ratios.push(means[0] / means[1]);
        peaks = [our_block.peak_bytes, their_block.peak_bytes];
    }
    let quiet = watch.end();

    let Options { pairs, steps, .. } = options;
    println!(
        "resnet18 {}, batch {}, {} threads: {pairs} pairs of {steps} steps",
        case.name(),
        case::BATCH,
        case::threads()
    );
    println!("  ours     {:.1} ms a step", Spread::of(&our_means).times(1e3));
    println!("  PyTorch  {:.1} ms a step", Spread::of(&their_means).times(1e3));
    println!("  ratio    {:.3}", Spread::of(&ratios));
    let [ours, theirs] = peaks.map(|bytes| bytes / f64::from(1 << 20));
    println!("  memory   {ours:.0} MiB against {theirs:.0} MiB at most");
    println!("  machine  {quiet}");
    Ok(())
}
