//! The table of comparisons: what each is called, what it takes, what it measures, and the function that does.

use std::path::Path;

use xtask::doing::Outcome;

use crate::{data, likeness, memory, models, options, parity, plan, server, step, train, transfer};

/// One comparison.
struct Comparison {
    name: &'static str,
    /// Its arguments, as in the usage.
    takes: &'static str,
    /// What it measures, and against what.
    what: &'static str,
    run: fn(&Path, &[String]) -> Outcome,
}

const COMPARISONS: [Comparison; 12] = [
    Comparison {
        name: "train",
        takes: "[CASE…] [--pairs N] [--steps N] [--compiled] [--beside-load]",
        what: "a run's step function against PyTorch's; --compiled: against torch.compile; --beside-load: while other \
               processes keep half of the cores busy",
        run: |root, arguments| train::train(root, &options(arguments)?),
    },
    Comparison {
        name: "step",
        takes: "[CASE…] [--pairs N] [--steps N]",
        what: "a run's step against the step function, and snapshots of its state",
        run: |root, arguments| step::step(root, &options(arguments)?),
    },
    Comparison {
        name: "memory",
        takes: "[MODEL…]",
        what: "peak memory with each method that saves some",
        run: memory::memory,
    },
    Comparison {
        name: "parity",
        takes: "--all [MODEL…] | MODEL_FOLDER [IMAGES.tar]",
        what: "every network against its reference (docs/parity.md); an exported resnet18 in torchvision",
        run: compare_outputs,
    },
    Comparison {
        name: "optimizers",
        takes: "",
        what: "every update rule against torch.optim's",
        run: |root, arguments| alone(root, arguments, likeness::optimizers),
    },
    Comparison {
        name: "deployed",
        takes: "[MODEL…]",
        what: "exported models in onnxruntime and torch.jit against torchvision with their weights",
        run: likeness::deployed::deployed,
    },
    Comparison {
        name: "data",
        takes: "[--images N|FOLDER] [--rounds N] [--threads N] [--through python] [--numerics N]",
        what: "images to batches, against other loaders; --through python: ours from Python, too; --numerics: the pixels of N \
               images against torchvision's",
        run: data::data,
    },
    Comparison {
        name: "transfer",
        takes: "",
        what: "bytes and time of transfers against rsync, rclone, s5cmd, aws and gzip",
        run: |root, arguments| alone(root, arguments, transfer::transfer),
    },
    Comparison { name: "plan", takes: "[--rounds N]", what: "the time of a plan over every offer", run: plan_rounds },
    Comparison {
        name: "agent",
        takes: "[--seconds N]",
        what: "the processor time and memory that the agent of a machine takes while a run trains there",
        run: server::agent,
    },
    Comparison {
        name: "server",
        takes: "[--runs N] [--events N] [--agents N] [--seconds N]",
        what: "a server with a history of N settled runs and N agents: start, memory, submit, list, heartbeats",
        run: server::server,
    },
    Comparison {
        name: "models",
        takes: "",
        what: "parameters read from model files against PyTorch's count",
        run: |root, arguments| alone(root, arguments, models::models),
    },
];

/// A comparison that takes no arguments.
fn alone(root: &Path, arguments: &[String], run: fn(&Path) -> Outcome) -> Outcome {
    match arguments {
        [] => run(root),
        _ => Err(usage().into()),
    }
}

fn compare_outputs(root: &Path, arguments: &[String]) -> Outcome {
    match arguments {
        [flag, models @ ..] if flag == "--all" => likeness::likeness(root, models),
        [folder] => parity::parity(root, folder, None),
        [folder, images] => parity::parity(root, folder, Some(images)),
        _ => Err(usage().into()),
    }
}

fn plan_rounds(root: &Path, arguments: &[String]) -> Outcome {
    match arguments {
        [] => plan::plan(root, 9),
        [flag, rounds] if flag == "--rounds" => match rounds.parse() {
            Ok(rounds) if rounds > 0 => plan::plan(root, rounds),
            Ok(_) | Err(_) => Err(format!("`{rounds}` is no number above 0").into()),
        },
        _ => Err(usage().into()),
    }
}

/// Runs the comparison that `arguments` name.
pub fn bench(root: &Path, arguments: &[String]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else { return Err(usage().into()) };
    match COMPARISONS.iter().find(|comparison| comparison.name == name) {
        Some(comparison) => (comparison.run)(root, rest),
        None => Err(usage().into()),
    }
}

/// The usage of the command.
pub fn usage() -> String {
    let mut text = String::from("usage: cargo xtask bench COMPARISON\n");
    for Comparison { name, takes, what, .. } in &COMPARISONS {
        text += &format!("\n  {}\n      {what}", format!("{name} {takes}").trim_end());
    }
    text + "\n\ncases: fp32, fp32-channels_last, bf16, bf16-channels_last of resnet18 on small images; with a model before \
            it, such as\n       resnet50-fp32, those of resnet50, mobilenet_v3_large, bert_mini and gpt_tiny"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_lists_every_comparison() {
        let usage = usage();
        for Comparison { name, .. } in &COMPARISONS {
            assert_eq!(usage.matches(&format!("\n  {name}")).count(), 1, "{name}: {usage}");
        }
        let wrong = |words: &[&str]| {
            let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            bench(Path::new("/nonexistent"), &arguments).unwrap_err().to_string()
        };
        assert_eq!(wrong(&[]), usage);
        assert_eq!(wrong(&["plans"]), usage);
        assert_eq!(wrong(&["optimizers", "sgd"]), usage);
        assert_eq!(wrong(&["plan", "--rounds", "0"]), "`0` is no number above 0");
    }
}
