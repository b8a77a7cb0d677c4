//! Pipelines of a server, and the run, sweep or pipeline that a name refers to.

use domain::{PipelineId, RunId, Timestamp};
use plan::{NamedWork, RunOrSweep};
use serde_json::Value;

use super::Server;
use super::runs::{is_plain, taken};
use crate::error::{Error, exit};

impl Server {
    /// A pipeline, as the API shows it.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn pipeline(&self, id: &PipelineId) -> Result<Value, Error> {
        self.get(&format!("/v1/pipelines/{id}"))
    }

    /// All pipelines, the newest first; none of a server of an earlier version, which has none in its API.
    fn pipelines(&self) -> Result<Vec<Value>, Error> {
        match self.get("/v1/pipelines") {
            Ok(mut page) => Ok(taken(&mut page["pipelines"])),
            Err(error) if error.code() == exit::USAGE => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The run, sweep or pipeline that a name on the command line refers to: its name, a unique prefix of it, or `last`. A
    /// prefix that a pipeline and the runs of its tasks share is the pipeline, and so is `last` where one of them is the newest.
    ///
    /// # Errors
    /// As [`Server::find`].
    pub fn find_named(&self, name: &str) -> Result<NamedWork, Error> {
        if !is_plain(name) {
            return self.find_any(name).map(NamedWork::from);
        }
        let pipelines = self.pipelines()?;
        if name == "last" {
            return self.newest(&pipelines);
        }
        let starting: Vec<&Value> = pipelines.iter().filter(|one| word(one, "pipeline").starts_with(name)).collect();
        let Some(first) = starting.first() else { return self.find_any(name).map(NamedWork::from) };
        if starting.iter().any(|one| word(one, "pipeline") == name) {
            return Ok(NamedWork::Pipeline(PipelineId::new(name)));
        }
        let runs = taken(&mut self.get(&format!("/v1/runs?trials=false&limit=1000&name={name}"))?["runs"]);
        let sweeps = self.sweeps(20, Some(name))?.unwrap_or_default();
        let is_exact = |one: &Value| word(one, "run") == name || word(one, "sweep") == name;
        if runs.iter().chain(&sweeps).any(is_exact) {
            return self.find_any(name).map(NamedWork::from);
        }
        let is_other = |run: &Value| pipeline_of(&pipelines, &RunId::new(word(run, "run"))).is_none();
        if starting.len() > 1 || !sweeps.is_empty() || runs.iter().any(is_other) {
            return Err(Error::ambiguous(name));
        }
        Ok(NamedWork::Pipeline(PipelineId::new(word(first, "pipeline"))))
    }

    /// What was submitted last: a pipeline in place of the runs of its tasks.
    fn newest(&self, pipelines: &[Value]) -> Result<NamedWork, Error> {
        let newest = pipelines.first();
        let other = match self.find_any("last") {
            Ok(other) => other,
            Err(Error::Server(server::Error::NoRun(name))) => {
                let pipeline = newest.ok_or(Error::Server(server::Error::NoRun(name)))?;
                return Ok(NamedWork::Pipeline(PipelineId::new(word(pipeline, "pipeline"))));
            }
            Err(error) => return Err(error),
        };
        let Some(newest) = newest else { return Ok(other.into()) };
        let submitted = match &other {
            RunOrSweep::Run(run) => match pipeline_of(pipelines, run) {
                Some(pipeline) => return Ok(NamedWork::Pipeline(pipeline)),
                None => self.run(run, 0)?.run()?.submitted,
            },
            RunOrSweep::Sweep(sweep) => self.sweep(sweep)?.record()?.submitted,
        };
        let is_newest = newest["submitted"].as_i64().is_some_and(|at| Timestamp(at) > submitted);
        Ok(if is_newest { NamedWork::Pipeline(PipelineId::new(word(newest, "pipeline"))) } else { other.into() })
    }

    /// Refuses the name of a pipeline, with which those of its runs begin.
    pub(super) fn refuse_pipeline(&self, name: &str) -> Result<(), Error> {
        let Ok(shown) = self.pipeline(&PipelineId::new(name)) else { return Ok(()) };
        Err(Error::pipeline(name, shown["runs"][0].as_str()))
    }
}

/// The pipeline of which a run is a task, also where its submission is not written down as that of the task yet.
fn pipeline_of(pipelines: &[Value], run: &RunId) -> Option<PipelineId> {
    pipelines.iter().find_map(|pipeline| {
        let (id, runs) = (PipelineId::new(word(pipeline, "pipeline")), pipeline["runs"].as_array()?);
        let is_of = runs.iter().any(|known| known == run.as_str()) || id.task(runs.len() + 1) == *run;
        is_of.then_some(id)
    })
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_of_tasks_are_known_by_the_list_and_by_their_names() {
        let pipelines = [json!({ "pipeline": "a-1", "runs": ["a-1-task1"] }), json!({ "pipeline": "b-1", "runs": [] })];
        let of = |run: &str| pipeline_of(&pipelines, &RunId::new(run)).map(String::from);
        assert_eq!(of("a-1-task1").as_deref(), Some("a-1"));
        assert_eq!(of("a-1-task2").as_deref(), Some("a-1"), "submitted, and not written down yet");
        assert_eq!(of("b-1-task1").as_deref(), Some("b-1"));
        assert_eq!((of("a-1-task3"), of("c-1")), (None, None));
    }
}
