//! `gradus-rank`: one rank of a training run, started by an agent with the path of its specification.
//!
//! Exit code 0: trained, or stopped by order. 1: it cannot go on, and a finding was reported. 2: called wrongly.
//! 75: the agent is gone. Its stdout and stderr are logs; what it has to say goes over the agent's socket.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use domain::finding::{Cause, Finding};
use domain::rank::{Report, Spec};
use tch::Device;
use train::channel::Channel;
use train::run::{Ending, Setting, run};
use train::torch;

fn main() -> ExitCode {
    // Before any tensor: the CUDA half registers its devices, and the allocator is told how to behave.
    torch::open_cuda();
    torch::steady_allocator();
    let mut arguments = std::env::args().skip(1);
    let path = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--version" | "-V"), None) => return version(),
        (Some(path), None) if !path.starts_with('-') => path.to_owned(),
        (_, _) => {
            eprintln!("usage: gradus-rank SPEC.json");
            return ExitCode::from(2);
        }
    };
    #[expect(clippy::disallowed_methods, reason = "a rank's main reads the environment")]
    if let Some(socket) = std::env::var_os(chaos::VARIABLE) {
        chaos::aim(Path::new(&socket), "rank");
    }
    let spec = match read(&path) {
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

/// Runs, says the last word, and hangs up.
fn train(spec: &Spec, channel: Channel) -> ExitCode {
    let device = if tch::Cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
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
fn setting(device: Device) -> Setting {
    Setting::on(device)
}

/// With the mistake that the chaos test names in `GRADUS_MUTANT`.
#[cfg(feature = "mutants")]
fn setting(device: Device) -> Setting {
    use checkpoint::Mutant;
    use train::state::LeftOut;

    #[expect(clippy::disallowed_methods, reason = "a rank's main reads the environment")]
    let name = std::env::var("GRADUS_MUTANT").unwrap_or_default();
    let mutant: Option<Mutant> = match name.as_str() {
        "" => None,
        name => Some(name.parse().expect("`GRADUS_MUTANT` names a mutant")),
    };
    let left_out = LeftOut {
        random: mutant == Some(Mutant::NoRng),
        optimizer: mutant == Some(Mutant::NoOptimizer),
        position: mutant == Some(Mutant::NoPosition),
    };
    Setting { device, left_out, mutant }
}
