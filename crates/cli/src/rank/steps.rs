//! Timed training steps: `gradus-rank bench`, which runs one block of steps per request.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use domain::threads::Threads;
use serde_json::Value;

use crate::error::Error;
use crate::error::exit;
use crate::settings::GlobalSettings;

/// A rank that runs and times steps on request.
pub struct StepBench {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// It timed out.
    TimedOut,
    /// The rank exited; its message is on stderr.
    Ended,
}

impl StepBench {
    /// Starts a rank for `case`: a `train:` section, and what its data would say.
    ///
    /// # Errors
    /// [`Error::Code`] when libtorch or the executable is not there.
    pub fn start(settings: &GlobalSettings, case: &Value, threads: u32) -> Result<StepBench, Error> {
        let program = &settings.rank_program;
        let mut command = super::command(settings, "bench", &case.to_string())?;
        let cores = std::thread::available_parallelism().map_or(threads, |cores| cores.get() as u32);
        command.envs(Threads { per_rank: threads, ranks: 1, cores }.environment());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| Error::Code {
            message: format!("cannot start `{}`: {error}", program.display()),
            hint: Some("install `gradus` and `gradus-rank` together, or set `GRADUS_RANK` to its path".to_owned()),
            code: exit::WORLD,
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let answers = output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
            // If the receiver is gone, the rank has been ended.
            answers.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        Ok(StepBench { child, input, lines })
    }

    /// Runs `count` steps (`steps`, or `apart` for gradient all-reduce after the backward pass) and returns the answer,
    /// within `limit` if there is one.
    ///
    /// Why there is no answer.
    /// Why there is none.
    pub fn ask(&mut self, question: &str, count: u32, limit: Option<Duration>) -> Result<Value, NoAnswer> {
        let asked = self.input.as_mut().map(|input| writeln!(input, "{question} {count}"));
        if !matches!(asked, Some(Ok(()))) {
            return Err(NoAnswer::Ended);
        }
        let line = match limit {
            None => self.lines.recv().map_err(|_| NoAnswer::Ended),
            Some(limit) => self.lines.recv_timeout(limit).map_err(|error| match error {
                std::sync::mpsc::RecvTimeoutError::Timeout => NoAnswer::TimedOut,
                std::sync::mpsc::RecvTimeoutError::Disconnected => NoAnswer::Ended,
            }),
        };
        serde_json::from_str(&line?).map_err(|_| NoAnswer::Ended)
    }

    /// Waits for the rank to exit; whether it succeeded.
    pub fn finish(mut self) -> bool {
        self.input = None;
        self.child.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for StepBench {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Quartiles of an answer's seconds per step; `None` if it has none.
pub fn quartiles(answer: &Value) -> Option<[f64; 3]> {
    let mut seconds: Vec<f64> = answer["seconds"].as_array()?.iter().filter_map(Value::as_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().checked_sub(1)?;
    Some([0.25, 0.5, 0.75].map(|share| seconds[(share * last as f64).round() as usize]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::quartiles;

    #[test]
    fn quartiles_are_those_of_the_sorted_seconds() {
        let check = |seconds: serde_json::Value, expected| {
            assert_eq!(quartiles(&json!({ "seconds": seconds })), expected);
        };
        check(json!([5.0, 1.0, 4.0, 2.0, 3.0]), Some([2.0, 3.0, 4.0]));
        check(json!([7.0]), Some([7.0, 7.0, 7.0]));
        check(json!([]), None);
        assert_eq!(quartiles(&json!({})), None);
    }
}
