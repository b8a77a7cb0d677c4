//! A program that measures itself: it runs one block per line on its stdin, and answers with one line of JSON.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::case;

/// Settings that would change how threads wait or where they run: what the shell has set of them counts for nobody.
const UNSET: [&str; 6] =
    ["OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY", "OMP_DYNAMIC"];

/// Gives a command a thread per core and libgomp's defaults for the rest, as a PyTorch program has them that is started
/// from a shell.
pub fn as_from_a_shell(command: &mut Command) -> &mut Command {
    for name in UNSET {
        command.env_remove(name);
    }
    command.env("OMP_NUM_THREADS", case::threads().to_string())
}

/// A command of `rank`, the executable `gradus-rank`, in the environment in which `gradus run` starts one rank on this
/// machine: `rank` is asked for it, which has it from the function that the agent calls.
pub fn as_in_a_run(rank: &Path) -> Result<Command, Box<dyn Error>> {
    let asked =
        as_from_a_shell(Command::new(rank).args(["environment", &case::threads().to_string(), "1"])).output()?;
    let variables: Value = serde_json::from_slice(&asked.stdout)
        .map_err(|error| format!("`{} environment` prints no JSON: {error}", rank.display()))?;
    let mut command = Command::new(rank);
    as_from_a_shell(&mut command);
    for (name, value) in variables.as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap_or_default());
    }
    Ok(command)
}

/// A running program. It ends when its stdin does.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    child: Child,
    /// `None` only while dropping.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Steps done in one go.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Seconds of each step.
    pub seconds: Vec<f64>,
    /// Most memory that the program ever had.
    pub peak_bytes: f64,
}

impl Program {
    /// Starts it with what describes the case.
    pub fn start(name: &'static str, command: &mut Command, description: &str) -> Result<Program, Box<dyn Error>> {
        let command = command.arg(description).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} has no stdin or no stdout").into());
        };
        Ok(Program { name, child, input: Some(input), output: BufReader::new(output) })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks for a block and waits for the answer.
    pub fn ask(&mut self, request: &str) -> Result<Value, Box<dyn Error>> {
        let gone =
            |why: String| format!("{} did not answer `{request}`: {why}\n  hint: its message is above", self.name);
        let mut input = self.input.as_ref().ok_or_else(|| gone("its stdin is closed".into()))?;
        writeln!(input, "{request}").map_err(|error| gone(error.to_string()))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line).map_err(|error| gone(error.to_string()))?)
    }

    /// Asks for so many steps.
    pub fn steps(&mut self, count: usize) -> Result<Block, Box<dyn Error>> {
        let answer = self.ask(&format!("steps {count}"))?;
        Ok(Block { seconds: numbers(&answer, "seconds")?, peak_bytes: number(&answer, "peak_bytes")? })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A number of an answer.
pub fn number(answer: &Value, key: &str) -> Result<f64, Box<dyn Error>> {
    answer[key].as_f64().ok_or_else(|| format!("`{key}` is missing in {answer}").into())
}

/// A list of numbers of an answer.
pub fn numbers(answer: &Value, key: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let list = answer[key].as_array().map(|list| list.iter().filter_map(Value::as_f64).collect::<Vec<f64>>());
    list.filter(|list| !list.is_empty()).ok_or_else(|| format!("`{key}` is missing in {answer}").into())
}
