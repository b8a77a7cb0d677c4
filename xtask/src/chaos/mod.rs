//! `cargo xtask chaos`: runs are killed with SIGKILL at every phase, and must end as if nothing had happened.
//!
//! One run is left undisturbed; its model is the reference. Then each run gets kills drawn from its seed: at a named
//! point of a named process, or after some time; of the rank, the agent, the loop or all of them. `storm` draws,
//! `harness` kills, `verdict` judges. With `--mutant NAME` the same is done to a trainer with a deliberate mistake, and
//! must fail.

mod harness;
mod hosts;
mod notices;
mod parallel;
mod processes;
mod recoveries;
mod spending;
mod storm;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::Disturbance;
use storm::{Kill, Storm};
use verdict::Run;
use xtask::build;
use xtask::doing::Outcome;

/// The options of `cargo xtask chaos`.
#[derive(Debug, Clone)]
pub struct Options {
    runs: u64,
    seed: u64,
    mutant: Option<String>,
    /// Runs whose machine is taken back with a notice; none for some.
    notices: Option<u64>,
    /// Go on after a run of a mutant that fails; without a mutant every run is made.
    keep_going: bool,
}

/// Steps between checkpoints of the job.
const INTERVAL: u64 = 5;

/// The mutants of `--mutants`.
const MUTANTS: [&str; 4] = ["no-rng", "no-optimizer", "no-position", "manifest-first"];

/// Reads the arguments and runs the storm.
pub fn chaos(root: &Path, arguments: &[String]) -> Outcome {
    if arguments == ["--mutants"] {
        return mutants(root);
    }
    if let [first, rest @ ..] = arguments
        && first == "--hosts"
    {
        return hosts::storm(root, rest);
    }
    if let [first, rest @ ..] = arguments
        && first == "--cloud"
    {
        return hosts::cloud::storm(root, rest);
    }
    let options = options(arguments)?;
    let programs = build::programs(root, options.mutant.is_some())?;
    let tally = storm(root, &programs, &options)?;
    tally.print();
    let struck = |point: &&str| tally.histogram.keys().any(|(phase, _)| phase == point);
    let missed: Vec<&str> = storm::points().filter(|point| !struck(point)).collect();
    if options.runs >= 100 && !missed.is_empty() {
        return Err(format!("no kill struck at {}; was a point renamed?", missed.join(", ")).into());
    }
    let others = match options.mutant {
        None => spending::storm(root, &programs, &options)? + &notices::storm(root, &programs, &options)?,
        Some(_) => String::new(),
    };
    match tally.failures.len() {
        0 => Ok(format!("chaos: {} runs, {} kills, all as if undisturbed{others}", tally.runs, tally.kills)),
        failed => Err(format!("chaos: {failed} of {} runs failed (seed {})", tally.runs, options.seed).into()),
    }
}

/// Every mutant must be noticed.
fn mutants(root: &Path) -> Outcome {
    let programs = build::programs(root, true)?;
    for mutant in MUTANTS {
        let options = Options { runs: 40, seed: 1, mutant: Some(mutant.to_owned()), notices: None, keep_going: false };
        let tally = storm(root, &programs, &options)?;
        match tally.failures.first() {
            Some(failure) => eprintln!("mutant {mutant}: noticed in run {}: {}", tally.runs, failure),
            None => return Err(format!("mutant {mutant} was not noticed in {} runs", tally.runs).into()),
        }
    }
    Ok(format!("chaos: all {} mutants were noticed", MUTANTS.len()))
}

/// Whether a problem is the one that a mutant must cause; a slow machine is no proof.
fn gives_away(mutant: &str, problem: &str) -> bool {
    match mutant {
        "manifest-first" => problem.starts_with(verdict::NOT_VERIFIED),
        _ => problem.starts_with(verdict::OTHER_MODEL),
    }
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { runs: 100, seed: 1, mutant: None, notices: None, keep_going: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--runs" => options.runs = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--mutant" => options.mutant = Some(value()?.clone()),
            "--notices" => options.notices = Some(number(value()?)?),
            "--keep-going" => options.keep_going = true,
            _ => {
                return Err(format!(
                    "`{word}` is not known; there are --runs N, --seed S, --notices N, --mutant NAME, --keep-going, --mutants, --hosts … and --cloud …"
                ));
            }
        }
    }
    Ok(options)
}

/// The outcome of all runs.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    kills: u64,
    histogram: BTreeMap<(String, &'static str), u64>,
    seconds: Vec<f64>,
    failures: Vec<String>,
}

fn storm(root: &Path, programs: &build::Programs, options: &Options) -> Result<Tally, String> {
    let folder = std::env::temp_dir().join(format!("gradus-chaos-{}", std::process::id()));
    let job = job(root, &folder, &format!("epochs: 3\n  checkpoint: {{every: {INTERVAL} steps, keep: 2}}"))?;
    let truth = harness::run(programs, &job, &folder.join("truth"), Disturbance::default())?;
    let problems = verdict::judge(&truth, None, INTERVAL);
    if !problems.is_empty() {
        return Err(format!("the undisturbed run is wrong: {}", problems.join("; ")));
    }
    eprintln!("undisturbed: {} steps in {:.2} s, model {}", truth.steps(), truth.seconds, truth.model());
    let scene = Scene { programs, job: &job, folder: &folder, truth: &truth, options };
    let ends_all = |judged: &Judged| judged.failure.is_some() && !options.keep_going && options.mutant.is_some();
    let mut tally = Tally::default();
    for judged in parallel::map_until(options.runs, |number| scene.run(number), ends_all) {
        tally.add(judged);
    }
    if tally.failures.is_empty() || options.mutant.is_some() {
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(tally)
}

/// What all runs of a storm have in common.
struct Scene<'a> {
    programs: &'a build::Programs,
    job: &'a Path,
    folder: &'a Path,
    truth: &'a Run,
    options: &'a Options,
}

/// A run that was killed, compared with the undisturbed one.
struct Judged {
    seconds: f64,
    kills: Vec<(String, &'static str)>,
    /// What is wrong with it, in a line.
    failure: Option<String>,
}

impl Scene<'_> {
    /// Kills the run of this number, and deletes its home if it ended as the undisturbed one.
    fn run(&self, number: u64) -> Judged {
        let Scene { programs, job, folder, truth, options } = *self;
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let kills = Storm::new(seed).kills(truth.steps(), truth.seconds);
        let home = folder.join(format!("run-{number}"));
        let started = Instant::now();
        let disturbance = Disturbance { kills: &kills, mutant: options.mutant.as_deref(), ..Disturbance::default() };
        let (struck, problems) = match harness::run(programs, job, &home, disturbance) {
            Ok(run) => (run.kills.clone(), verdict::judge(&run, Some(truth), INTERVAL)),
            Err(error) => (Vec::new(), vec![error]),
        };
        let seconds = started.elapsed().as_secs_f64();
        let problems: Vec<String> = match &options.mutant {
            Some(mutant) => problems.into_iter().filter(|problem| gives_away(mutant, problem)).collect(),
            None => problems,
        };
        if problems.is_empty() {
            let _ = fs::remove_dir_all(&home);
            return Judged { seconds, kills: struck, failure: None };
        }
        let what = format!(
            "run {number} (seed {seed}): {}; kills: {}; kept in {}",
            problems.join("; "),
            told(&kills),
            home.display()
        );
        if options.mutant.is_none() {
            eprintln!("FAILED {what}");
        }
        Judged { seconds, kills: struck, failure: Some(what) }
    }
}

impl Tally {
    fn add(&mut self, Judged { seconds, kills, failure }: Judged) {
        self.runs += 1;
        self.seconds.push(seconds);
        self.failures.extend(failure);
        for phase_and_target in kills {
            self.kills += 1;
            *self.histogram.entry(phase_and_target).or_default() += 1;
        }
    }

    fn print(&self) {
        eprintln!("kills by phase and process:");
        let mut phases: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((phase, target), count) in &self.histogram {
            phases.entry(phase).or_default().push(format!("{target} {count}"));
        }
        for (phase, targets) in phases {
            eprintln!("  {phase:<16} {}", targets.join(", "));
        }
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        if let (Some(middle), Some(last)) = (seconds.get(seconds.len() / 2), seconds.last()) {
            eprintln!("seconds a run: median {middle:.2}, longest {last:.2}");
        }
    }
}

/// The job: small enough to be run a hundred times, with everything that a resume can lose: dropout draws random
/// numbers, AdamW has state, the order is shuffled. `rest` ends it.
fn job(root: &Path, folder: &Path, rest: &str) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
    let data = root.join("examples/digits.csv.gz");
    let text = format!(
        "name: chaos\ntrain:\n  model: cnn\n  data:\n    path: {}\n  batch: 96\n  threads: 1\n  optimizer: {{adamw: {{lr: 2e-3}}}}\n  {rest}\n",
        data.display()
    );
    let path = folder.join("job.yaml");
    fs::write(&path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    Ok(path)
}

fn told(kills: &[Kill]) -> String {
    kills.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Timeout of one run.
const PATIENCE: Duration = Duration::from_secs(60);
