//! `gradus-rank`: one rank of a training run, started by an agent with the path of its specification.
//!
//! Exit code 0: trained, or stopped by order. 1: failed, and a finding was reported. 2: usage error. 75: the agent is
//! gone. Its stdout and stderr are logs; reports go over the agent's socket.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use domain::finding::{Cause, Finding};
use domain::rank::{Rendezvous, Report, Spec};
use domain::threads::Threads;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tch::Device;
use train::channel::Channel;
use train::fold::fold;
use train::fold::torchscript::torchscript;
use train::ranks::all_reduce;
use train::run::standalone::lr_range::lr_range;
use train::run::{Ending, RunOptions, exported, run, standalone};
use train::torch;

fn main() -> ExitCode {
    formats::install();
    // Before any tensor: the CUDA half registers its devices, and the allocator is configured.
    torch::open_cuda();
    torch::steady_allocator();
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let spec = match first.as_deref() {
        Some("--version" | "-V") => return version(),
        Some("bench") => return bench(&arguments.next().unwrap_or_default()),
        Some("environment") => return environment(&arguments.collect::<Vec<_>>()),
        Some("fold") => {
            return answer(&arguments.next().unwrap_or_default(), |[from, to]: [PathBuf; 2], _| fold(&from, &to));
        }
        Some("torchscript") => {
            return answer(&arguments.next().unwrap_or_default(), |[from, to]: [PathBuf; 2], _| {
                torchscript(&from, &to)
            });
        }
        Some("evaluate") => return answer(&arguments.next().unwrap_or_default(), exported::evaluate),
        Some("all-reduce") => return answer(&arguments.next().unwrap_or_default(), all_reduce::measure),
        Some("lr-range") => return answer(&arguments.next().unwrap_or_default(), lr_range),
        Some("--job" | "--out" | "--accept-data-change") => {
            standalone::spec(&first.into_iter().chain(arguments).collect::<Vec<_>>())
        }
        Some(path) if !path.starts_with('-') => read(path),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    #[expect(clippy::disallowed_methods, reason = "a rank's main reads the environment")]
    if let Some(socket) = std::env::var_os(chaos::VARIABLE) {
        chaos::aim(Path::new(&socket), "rank");
    }
    let spec = match spec.and_then(launched) {
        Ok(spec) => spec,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match Channel::connect(&spec.socket) {
        Ok(channel) => train(&spec, channel),
        Err(error) => {
            eprintln!("error: cannot reach the agent at `{}`: {error}", spec.socket);
            ExitCode::FAILURE
        }
    }
}

/// The specification with the rank assigned by the launcher, in torchrun's variables.
#[expect(clippy::disallowed_methods, reason = "a rank's main reads the environment")]
fn launched(mut spec: Spec) -> Result<Spec, String> {
    let Ok(size) = std::env::var("WORLD_SIZE") else { return Ok(spec) };
    let value = |name: &str| std::env::var(name).map_err(|_| format!("`WORLD_SIZE` is set and `{name}` is not"));
    fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
        text.trim().parse().map_err(|_| format!("`{name}` is `{text}`, which is no number that fits"))
    }
    spec.world_size = number("WORLD_SIZE", &size)?;
    spec.rank = number("RANK", &value("RANK")?)?;
    if spec.world_size > 1 {
        let local_rank = std::env::var("LOCAL_RANK").unwrap_or_else(|_| "0".to_owned());
        let usual = || domain::rank::patience().saturating_add(data::preloading(&spec.train.data).as_secs());
        let patience_s = spec.meeting.as_ref().map_or_else(usual, |meeting| meeting.patience_s);
        spec.meeting = Some(Rendezvous {
            host: value("MASTER_ADDR")?,
            port: number("MASTER_PORT", &value("MASTER_PORT")?)?,
            local_rank: number("LOCAL_RANK", &local_rank)?,
            is_kept: std::env::var("TORCHELASTIC_USE_AGENT_STORE").is_ok_and(|kept| kept == "True"),
            patience_s,
            prefix: std::env::var("TORCHELASTIC_RESTART_COUNT").map_or_else(|_| String::new(), |count| attempt(&count)),
        });
    }
    Ok(spec)
}

/// Prefix of keys in torchrun's store after a number of restarts, as in PyTorch's own programs (`_create_c10d_store`):
/// torchrun keeps the store, so keys of an earlier start are still in it.
fn attempt(restarts: &str) -> String {
    format!("/worker/attempt_{restarts}/")
}

/// The usage message.
const USAGE: &str = "usage: gradus-rank SPEC.json
       gradus-rank environment THREADS RANKS      the variables that an agent starts RANKS ranks with, as JSON
       gradus-rank --job JOB.yaml --out FOLDER [--accept-data-change]
                                                  without an agent, on each of several nodes for example as
       torchrun --nnodes 2 --nproc-per-node 1 --master-addr HOST --no-python gradus-rank --job JOB.yaml --out FOLDER";

/// Answers benchmark requests on stdin; stdout has only the answers.
fn bench(case: &str) -> ExitCode {
    let (requests, answers) = (std::io::stdin().lock(), std::io::stdout().lock());
    match train::bench::answer(case, device(0), requests, answers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the variables with which an agent starts each of `RANKS` ranks of `THREADS` threads here, as a JSON object.
fn environment(arguments: &[String]) -> ExitCode {
    let numbers: Vec<u32> = arguments.iter().filter_map(|number| number.parse().ok()).collect();
    let ([per_rank, ranks], Ok(cores)) = (&numbers[..], std::thread::available_parallelism()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let cores = u32::try_from(cores.get()).unwrap_or(u32::MAX);
    let variables = Threads { per_rank: *per_rank, ranks: *ranks, cores }.environment();
    println!("{}", serde_json::json!(std::collections::BTreeMap::from(variables)));
    ExitCode::SUCCESS
}

/// Does what a request asks for on the first device; request and answer are JSON.
fn answer<Request: DeserializeOwned, Answer: Serialize>(
    request: &str,
    act: fn(Request, Device) -> Result<Answer, train::Error>,
) -> ExitCode {
    let request = match serde_json::from_str(request) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("error: the request cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    match act(request, device(0)) {
        Ok(found) => {
            println!("{}", serde_json::json!(found));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", serde_json::json!({ "finding": error.finding() }));
            ExitCode::FAILURE
        }
    }
}

/// The accelerator with this index, or the CPU.
fn device(place: usize) -> Device {
    if tch::Cuda::is_available() { Device::Cuda(place) } else { Device::Cpu }
}

/// Runs, sends the last report, and closes the channel.
fn train(spec: &Spec, channel: Channel) -> ExitCode {
    let place = spec.meeting.as_ref().map_or(0, |meeting| meeting.local_rank);
    let device = device(place as usize);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(spec, setting(device), &channel)));
    let last_word = match outcome {
        Ok(Ok(Ending::Trained)) => Report::Trained,
        Ok(Ok(Ending::Stopped { step })) => Report::Stopped { step },
        Ok(Err(error)) => Report::Failed(error.finding()),
        // The panic has printed where it happened, to the log.
        Err(_) => Report::Failed(Finding::new(Cause::Internal, "the rank panicked; its log says where")),
    };
    let failed = matches!(last_word, Report::Failed(_));
    channel.send(last_word);
    channel.finish();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(path: &str) -> Result<Spec, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("`{path}` is no specification of a rank: {error}"))
}

fn version() -> ExitCode {
    let libtorch = torch::version().unwrap_or_else(|error| format!("of unknown version: {error}"));
    println!("gradus-rank {} (libtorch {libtorch})", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}

#[cfg(not(feature = "mutants"))]
fn setting(device: Device) -> RunOptions {
    RunOptions::on(device)
}

/// With the mistake that the chaos test names in `GRADUS_MUTANT`.
#[cfg(feature = "mutants")]
fn setting(device: Device) -> RunOptions {
    use checkpoint::Mutant;
    use train::state::OmittedState;

    #[expect(clippy::disallowed_methods, reason = "a rank's main reads the environment")]
    let name = std::env::var("GRADUS_MUTANT").unwrap_or_default();
    let mutant: Option<Mutant> = match name.as_str() {
        "" => None,
        name => Some(name.parse().expect("`GRADUS_MUTANT` names a mutant")),
    };
    let omitted = OmittedState {
        random: mutant == Some(Mutant::NoRng),
        optimizer: mutant == Some(Mutant::NoOptimizer),
        position: mutant == Some(Mutant::NoPosition),
        ..OmittedState::default()
    };
    RunOptions { omitted, mutant, ..RunOptions::on(device) }
}
