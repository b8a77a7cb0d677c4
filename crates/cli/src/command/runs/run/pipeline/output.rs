//! What is printed of a pipeline: the same of one of this home as of one of a server.

use domain::Money;
use serde_json::{Value, json};

use crate::error::{Error, exit};
use crate::printer::Printer;

/// The facts about a pipeline.
pub struct PipelineFacts {
    /// The pipeline, as the API shows it.
    pub shown: Value,
    /// The state of each run of its tasks, as one word, and its cost until now; in their order.
    pub runs: Vec<(String, Money)>,
    /// Whether some process runs its tasks, or it has ended.
    pub is_attended: bool,
}

impl PipelineFacts {
    /// The cost of all tasks until now.
    fn spent(&self) -> Money {
        self.runs.iter().map(|(_, cost)| *cost).sum()
    }

    /// The facts for scripts.
    fn json(&self) -> Value {
        let mut value = self.shown.clone();
        value["run_states"] = json!(self.runs.iter().map(|(word, _)| word).collect::<Vec<_>>());
        value["cost_micro_usd"] = json!(self.spent().micros());
        value
    }

    /// The facts for people.
    fn lines(&self) -> Vec<String> {
        let id = text(&self.shown["pipeline"]);
        let mut lines = vec![format!("pipeline {id}: {}", text(&self.shown["word"]))];
        if let Some(why) = failure(&self.shown) {
            lines.push(format!("why      {why}"));
        }
        lines.push(format!("job      {}", text(&self.shown["file"])));
        let runs = list(&self.shown["runs"]);
        for (place, task) in list(&self.shown["tasks"]).iter().enumerate() {
            lines.push(match (runs.get(place), self.runs.get(place)) {
                (Some(run), Some((word, cost))) => format!("task     {task}: {word}, {cost}, run {run}"),
                _ => format!("task     {task}: not started"),
            });
        }
        lines.push(format!("cost     {}", self.spent()));
        if !self.is_attended {
            lines.push(format!(
                "note     no process runs its tasks: start `gradus serve`, or continue with `gradus resume {id}`"
            ));
        }
        lines
    }
}

/// Prints where a pipeline stands.
pub fn show(facts: &PipelineFacts, printer: &mut Printer) {
    match printer.is_json() {
        true => printer.json(&facts.json()),
        false => facts.lines().iter().for_each(|line| printer.data(line)),
    }
}

/// Prints the end of a pipeline, and returns its exit code.
///
/// # Errors
/// [`Error::Code`] if it failed.
pub fn end(shown: &Value, printer: &mut Printer) -> Result<u8, Error> {
    let id = text(&shown["pipeline"]);
    let is_stopped = shown["state"]["how"]["end"] == "stopped";
    match printer.is_json() {
        true => printer.json(shown),
        false => {
            printer.data(format!("pipeline {id}: {}", text(&shown["word"])));
            if is_stopped {
                printer.data(format!("resume   gradus resume {id}"));
            }
        }
    }
    match failure(shown) {
        Some(message) => {
            let hint =
                format!("continue there with `gradus resume {id}`; with another file, submit the pipeline again");
            Err(Error::Code { message, hint: Some(hint), code: exit::RUN_FAILED })
        }
        None => Ok(if is_stopped { exit::RUN_STOPPED } else { exit::DONE }),
    }
}

/// Prints that nothing is to be stopped or resumed, because the pipeline has ended.
pub fn print_already_ended(shown: &Value, done: &str, printer: &mut Printer) -> u8 {
    if printer.is_json() {
        printer.json(shown);
    }
    printer.say(format!("pipeline {} is already {}{done}", text(&shown["pipeline"]), text(&shown["word"])));
    exit::DONE
}

/// Which task has failed, and why; `None` of one that has not.
fn failure(shown: &Value) -> Option<String> {
    let how = &shown["state"]["how"];
    (how["end"] == "failed").then(|| format!("task `{}` failed: {}", text(&how["task"]), text(&how["message"])))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The texts of a list.
pub fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(state: &Value, word: &str) -> Value {
        json!({
            "pipeline": "night-1", "state": state, "word": word, "tasks": ["prep", "fit"], "runs": ["night-1-task1"],
            "file": "/jobs/night.yaml",
        })
    }

    #[test]
    fn tasks_are_listed_with_their_runs_and_the_cost_of_all() {
        let runs = vec![("succeeded".to_owned(), Money::from_micros(1_500_000))];
        let shown = shown(&json!({ "state": "running" }), "running");
        let facts = PipelineFacts { shown, runs, is_attended: false };
        let lines = facts.lines().join("\n");
        let expected = "pipeline night-1: running\njob      /jobs/night.yaml\n\
                        task     prep: succeeded, $1.50, run night-1-task1\ntask     fit: not started\ncost     $1.50\n\
                        note     no process runs its tasks: start `gradus serve`, or continue with `gradus resume night-1`";
        assert_eq!(lines, expected);
        assert_eq!(
            (&facts.json()["run_states"], &facts.json()["cost_micro_usd"]),
            (&json!(["succeeded"]), &json!(1_500_000))
        );
    }

    #[test]
    fn the_end_of_a_pipeline_has_its_exit_code() {
        let ended = |how: Value, word: &str| {
            let shown = shown(&json!({ "state": "ended", "how": how }), word);
            end(&shown, &mut Printer::silent())
        };
        assert_eq!(ended(json!({ "end": "done" }), "done").unwrap(), exit::DONE);
        assert_eq!(ended(json!({ "end": "stopped", "by": "user" }), "stopped").unwrap(), exit::RUN_STOPPED);
        let failed = ended(json!({ "end": "failed", "task": "fit", "message": "code 1" }), "failed").unwrap_err();
        assert_eq!((failed.code(), failed.to_string()), (exit::RUN_FAILED, "task `fit` failed: code 1".to_owned()));
        assert!(failed.hint().unwrap().contains("`gradus resume night-1`"));
    }
}
