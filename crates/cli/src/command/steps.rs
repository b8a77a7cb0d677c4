//! Steps of a case, made and timed by a rank: `gradus-rank bench`, asked for one block after another.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use domain::threads::Threads;
use serde_json::Value;

use super::rank;
use crate::error::Error;
use crate::exit;
use crate::settings::Settings;

/// A rank that makes steps when it is asked.
pub struct Steps {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The time was up.
    TooLong,
    /// The rank could not go on; it has said why on stderr.
    Ended,
}

impl Steps {
    /// Starts a rank for `case`: a `train:` section, and what its data would say.
    ///
    /// # Errors
    /// [`Error::Code`] when the tensor library or the executable is not there.
    pub fn start(settings: &Settings, case: &Value, threads: u32) -> Result<Steps, Error> {
        let program = &settings.rank_program;
        let mut command = rank::command(settings, "bench", &case.to_string())?;
        let cores = std::thread::available_parallelism().map_or(threads, |cores| cores.get() as u32);
        command.envs(Threads { per_rank: threads, ranks: 1, cores }.environment());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| Error::Code {
            message: format!("cannot start `{}`, which makes the steps: {error}", program.display()),
            hint: Some("install `gradus` and `gradus-rank` together, or say where it is with `GRADUS_RANK`".to_owned()),
            code: exit::WORLD,
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let answers = output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
            // Whoever no longer listens has ended the rank.
            answers.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        Ok(Steps { child, input, lines })
    }

    /// Has `count` steps made (`steps`, or `apart` for those whose gradients wait), and returns the answer; waits for `limit` at most, where there is one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn ask(&mut self, question: &str, count: u32, limit: Option<Duration>) -> Result<Value, Silence> {
        let asked = self.input.as_mut().map(|input| writeln!(input, "{question} {count}"));
        if !matches!(asked, Some(Ok(()))) {
            return Err(Silence::Ended);
        }
        let line = match limit {
            None => self.lines.recv().map_err(|_| Silence::Ended),
            Some(limit) => self.lines.recv_timeout(limit).map_err(|error| match error {
                std::sync::mpsc::RecvTimeoutError::Timeout => Silence::TooLong,
                std::sync::mpsc::RecvTimeoutError::Disconnected => Silence::Ended,
            }),
        };
        serde_json::from_str(&line?).map_err(|_| Silence::Ended)
    }

    /// Lets the rank end by itself, and tells whether it ended well.
    pub fn finish(mut self) -> bool {
        self.input = None;
        self.child.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        // One that has ended is not killed again, and nobody is told of one that cannot be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The quarter, the half and three quarters of an answer's seconds of a step; none where it holds none.
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
