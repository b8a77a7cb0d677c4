//! What is wrong with the words of a command line, in terms of what to type: flags and commands of other tools, and values
//! that a parser would otherwise name in its own words.

use std::net::SocketAddr;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Error;

/// Flags of other tools, and where gradus has what they mean.
const FLAGS: [(&[&str], &str); 7] = [
    (
        &["--gpus", "--gpu", "--accelerators", "--instance-type"],
        "machines are asked for in the job file: write for example `resources: {accelerators: A100:8}`; \
         `gradus launch SCRIPT --gpus A100:8` starts a script without one",
    ),
    (
        &["--cloud", "--infra", "--region", "--zone", "--use-spot", "--spot", "--cpus", "--memory", "--disk-size"],
        "machines are asked for in the job file: write for example `resources: {infra: aws/us-east-1, use_spot: true}`",
    ),
    (
        &["--num-nodes", "--nnodes", "--nodes"],
        "write `num_nodes: 2` in the job file; `gradus launch SCRIPT --nnodes 2` starts a script without one",
    ),
    (
        &["--epochs", "--batch", "--batch-size", "--lr", "--learning-rate", "--model", "--set", "--optimizer"],
        "write it in the job file below `train:`; a run is continued with other values by `gradus resume RUN --set KEY=VALUE`",
    ),
    (&["--budget", "--max-cost"], "write it in the job file: `budget: {max: $20}`"),
    (&["--deadline", "--timeout", "--time"], "write it in the job file: `deadline: 12h`"),
    (&["--background", "--detach-run", "--async"], "`--detach` continues a run in the background"),
];

/// Commands of other tools, and those of gradus that do the same.
const COMMANDS: [(&[&str], &str); 7] = [
    (
        &["sbatch", "srun", "qsub", "bsub"],
        "`gradus import SCRIPT -o job.yaml` makes a job file of a batch script, and `gradus run job.yaml` runs it",
    ),
    (
        &["torchrun", "accelerate", "python", "exec"],
        "`gradus launch SCRIPT.py` runs a script, with the options of torchrun",
    ),
    (
        &["fit", "submit", "start", "up", "apply", "create", "job", "jobs"],
        "`gradus run JOB` runs a job file; see `gradus status`",
    ),
    (
        &["squeue", "list", "ls", "ps", "runs", "show", "top", "info", "describe", "get"],
        "`gradus status` lists runs, and `gradus status RUN` shows one",
    ),
    (&["scancel", "kill", "terminate", "abort"], "`gradus stop RUN` saves a checkpoint and stops a run"),
    (
        &["delete", "remove", "clean", "prune"],
        "`gradus rm RUN` deletes the files of a run, and `gradus gc` frees disk space",
    ),
    (
        &["check", "validate", "lint", "estimate", "optimize"],
        "`gradus plan JOB` checks a job file, and shows time and cost",
    ),
];

/// The hint for what clap refuses, where another tool has it under that name; `None` for anything else.
fn hint(kind: ErrorKind, word: &str) -> Option<&'static str> {
    let table: &[(&[&str], &str)] = match kind {
        ErrorKind::UnknownArgument => &FLAGS,
        ErrorKind::InvalidSubcommand => &COMMANDS,
        _ => return None,
    };
    let bare = word.split('=').next().unwrap_or(word);
    table.iter().find(|(words, _)| words.contains(&bare)).map(|(_, hint)| *hint)
}

/// The error for such a word; `None` where clap's own says enough.
pub fn instead(error: &clap::Error) -> Option<Error> {
    let context = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(context) else { return None };
    let hint = hint(error.kind(), word)?;
    let message = match context {
        ContextKind::InvalidArg => format!("this command has no `{word}`"),
        _ => format!("gradus has no command `{word}`"),
    };
    Some(Error::Usage { message, hint: hint.to_owned() })
}

/// A whole number, for `--seed`.
///
/// # Errors
/// What was expected.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number from 0, such as `42`".to_owned())
}

/// A number of rows, for `--limit`.
///
/// # Errors
/// What was expected.
pub fn rows(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|rows| *rows > 0).ok_or_else(|| "expected a whole number from 1, such as `20`".to_owned())
}

/// An address to listen on, for `--listen`.
///
/// # Errors
/// What was expected.
pub fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address with its port, such as `127.0.0.1:8080`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_are_led_to_ours() {
        let flag = |word| hint(ErrorKind::UnknownArgument, word).unwrap_or("none");
        assert!(flag("--gpus").contains("resources: {accelerators: A100:8}"));
        assert!(flag("--lr=3").contains("below `train:`"));
        assert_eq!(flag("--nonsense"), "none");
        let command = |word| hint(ErrorKind::InvalidSubcommand, word).unwrap_or("none");
        assert!(command("sbatch").contains("gradus import"));
        assert_eq!(command("--gpus"), "none");
    }

    #[test]
    fn numbers_and_addresses_say_what_was_expected() {
        assert_eq!(whole("42"), Ok(42));
        for wrong in ["abc", "-1", "1.5", ""] {
            assert!(whole(wrong).unwrap_err().contains("whole number"), "{wrong}");
        }
        assert_eq!((rows("1"), rows("0").is_err(), rows("x").is_err()), (Ok(1), true, true));
        assert!(socket("127.0.0.1:8080").is_ok() && socket("8080").unwrap_err().contains("127.0.0.1:8080"));
    }
}
