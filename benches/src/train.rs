//! The step function against PyTorch's: same model, batch, formats, optimiser and number of threads. Ours computes in
//! the environment in which `gradus run` starts its ranks, PyTorch's in that of a shell.

use std::path::Path;
use std::process::Command;

use crate::case::{self, Case};
use crate::measure::figures::{Spread, mean};
use crate::measure::load::Load;
use crate::measure::program::{Program, as_from_a_shell, as_in_a_run};
use crate::measure::quiet::{Watch, undisturbed};
use crate::{Options, built};
use xtask::doing::Outcome;
use xtask::{peers, setup};

/// Steps before anything is counted: threads, caches and the kernels' own choices settle.
const WARM_UP: usize = 10;

/// Measures every requested case.
pub fn train(root: &Path, options: &Options) -> Outcome {
    let ours = built(root)?.join("gradus-rank");
    let packages = std::env::join_paths([peers::pytorch()?, peers::transformers()?])?;
    let python = setup::python()?;
    for case in &options.cases {
        let mut theirs = Command::new(&python);
        theirs.arg(root.join("benches/peers/torch_step.py")).env("PYTHONPATH", &packages);
        as_from_a_shell(&mut theirs).env("HF_HUB_OFFLINE", "1").env("TRANSFORMERS_VERBOSITY", "error");
        if options.compiled {
            theirs.arg("compiled");
        }
        compare(*case, as_in_a_run(&ours)?.arg("bench"), &mut theirs, options)?;
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
    let peer = if options.compiled { "torch.compile" } else { "PyTorch" };
    let mut theirs = Program::start("PyTorch's step", theirs, &description)?;
    ours.steps(WARM_UP)?;
    theirs.steps(WARM_UP)?;

    let load = if options.beside_load { Load::start(case::threads())? } else { Load::default() };
    let mut processes = load.ids();
    processes.extend([ours.id(), theirs.id(), std::process::id()]);
    let watch = Watch::begin(&processes);
    let (blocks, tried) =
        undisturbed(options.pairs, &processes, || Ok([ours.steps(options.steps)?, theirs.steps(options.steps)?]))?;
    let quiet = watch.end();
    let means: Vec<[f64; 2]> = blocks.iter().map(|pair| [mean(&pair[0].seconds), mean(&pair[1].seconds)]).collect();
    let of = |side: usize| Spread::of(&means.iter().map(|pair| pair[side]).collect::<Vec<_>>()).times(1e3);
    let ratios: Vec<f64> = means.iter().map(|[ours, theirs]| ours / theirs).collect();
    let peak = |side: usize| blocks.iter().map(|pair| pair[side].peak_bytes).fold(0.0, f64::max) / f64::from(1 << 20);

    let (pairs, steps) = (blocks.len(), options.steps);
    println!(
        "{} {}, batch {}, {} threads{}: {pairs} pairs of {steps} steps",
        case.model,
        case.format(),
        case.batch(),
        case::threads(),
        load,
    );
    println!("  ours     {:.1} ms a step", of(0));
    println!("  {peer:<8} {:.1} ms a step", of(1));
    println!("  ratio    {:.3}", Spread::of(&ratios));
    println!("  memory   {:.0} MiB against {:.0} MiB at most", peak(0), peak(1));
    println!("  machine  {tried} pairs tried, {quiet}");
    Ok(())
}
