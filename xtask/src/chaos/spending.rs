//! Runs that never end by themselves are killed as well, and cost no more than their budget.
//!
//! A loop that was killed stays down for a while, so that nothing can stop its agents: each must stop by itself, while
//! the remaining budget still pays for saving.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::harness::{self, Disturbance};
use super::storm::Storm;
use super::verdict::{self, Run};
use super::{INTERVAL, Options, job, parallel, told};
use xtask::build::Programs;

/// The budget of each run, in micro-dollars: 12 s of rent.
const BUDGET: u64 = 12_000;

/// One such run for so many others.
const OTHERS: u64 = 16;

/// About how many steps such a run makes, and for how long.
const STEPS: u64 = 300;
const SECONDS: f64 = 6.0;

/// The longest time that nobody starts a loop again: longer than the budget lasts.
const AWAY: Duration = Duration::from_secs(14);

/// Kills runs with a budget, and returns how many and their cost, or the first failure.
pub(super) fn storm(root: &Path, programs: &Programs, options: &Options) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("gradus-chaos-budget-{}", std::process::id()));
    let budget = format!("${:.6}", BUDGET as f64 / 1e6);
    let rest =
        format!("epochs: 1000000\n  checkpoint: {{every: {INTERVAL} steps, keep: 2}}\nbudget: {{max: {budget}}}");
    let job = job(root, &folder, &rest)?;
    let spend = |number| spend(programs, options, &job, &folder, number);
    let runs = parallel::map_until(options.runs.div_ceil(OTHERS), spend, Result::is_err);
    let runs = runs.into_iter().collect::<Result<Vec<Run>, String>>()?;
    let kills: usize = runs.iter().map(|run| run.kills.len()).sum();
    let spent: Vec<u64> = runs.iter().map(Run::spent).collect();
    let _ = fs::remove_dir_all(&folder);
    let most = spent.iter().max().copied().unwrap_or(0);
    Ok(format!(
        "; {} with a budget, {kills} kills, at most {:.0} % of it spent",
        spent.len(),
        100.0 * most as f64 / BUDGET as f64
    ))
}

/// Kills the run of this number; returns it, or what is wrong with it.
fn spend(programs: &Programs, options: &Options, job: &Path, folder: &Path, number: u64) -> Result<Run, String> {
    let seed = options.seed.wrapping_mul(1_000_033).wrapping_add(number);
    let mut storm = Storm::new(seed);
    let (drawn, away) = (storm.kills(STEPS, SECONDS), storm.away(AWAY));
    let home = folder.join(format!("run-{number}"));
    let run = harness::run(programs, job, &home, Disturbance { kills: &drawn, away, ..Disturbance::default() })?;
    let problems = verdict::judge_spending(&run, BUDGET);
    match problems.is_empty() {
        true => Ok(run),
        false => Err(format!(
            "a run with a budget (seed {seed}): {}; kills: {}, away for {} ms; kept in {}",
            problems.join("; "),
            told(&drawn),
            away.as_millis(),
            home.display()
        )),
    }
}
