//! A job file of several YAML documents: a pipeline, whose tasks run one after the other.
//!
//! Each document is a job file of its own; a first one of `name`, `budget` and `schedule` alone is about all of them. A task
//! names what an earlier one has written as `${TASK.outputs}`, in `file_mounts`. Only when that task has succeeded is it known
//! where this is, so that it is a stand-in until then ([`JobPipeline::text`], [`place_outputs`]).

use std::collections::BTreeMap;

use super::lower::{name_from, stem};
use super::tree::{self, MAX_BYTES, Value, clip};
use crate::job::{Budget, Job, Work};
use crate::problem::{Problem, Problems};
use crate::schedule::JobSchedule;

/// Most tasks of a pipeline.
const MOST_TASKS: usize = 100;

/// Keys of the document that is about all tasks.
const OF_ALL: [&str; 3] = ["name", "budget", "schedule"];

/// What makes a document about all tasks a job file, so that it is checked as one.
const STAND_IN_WORK: &str = "train: {model: cnn, data: {path: d}, epochs: 1, batch: 8}\n";

/// What stands for the folder of a task's outputs in the text of a later one.
const STAND_IN: &str = "gradus-outputs-of-task/";

/// Tasks that run one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPipeline {
    /// Its name: that of its first document, or the file's.
    pub name: String,
    /// The most that all tasks may cost together.
    pub budget: Option<Budget>,
    /// When it is run again and again, where `gradus schedules add` has it kept.
    pub schedule: Option<JobSchedule>,
    /// The tasks, in their order; at least one.
    pub tasks: Vec<PipelineTask>,
}

/// One task of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineTask {
    /// Its name, which no other task has.
    pub name: String,
    /// Its job file, with every line where it stands in the file of the pipeline.
    text: String,
}

impl JobPipeline {
    /// Reads a file of several documents; `None` for one of a single document, which is a job file.
    ///
    /// # Errors
    /// Problems that concern all tasks; those of a task are found when its job is parsed.
    pub fn read(text: &str, file_name: &str) -> Result<Option<JobPipeline>, Problems> {
        let in_file = |problems: Vec<Problem>| Problems { file: file_name.to_owned(), problems };
        if text.len() > MAX_BYTES {
            return Ok(None);
        }
        let mut documents = documents(text);
        if documents.len() < 2 {
            return Ok(None);
        }
        if documents.len() > MOST_TASKS {
            let message = format!("the file has more than {MOST_TASKS} documents, the most that a pipeline may have");
            return Err(in_file(vec![Problem::at("", message).hint("divide it between several files")]));
        }
        let (name, tasks) = (name_from(stem(file_name)), Vec::with_capacity(documents.len()));
        let mut pipeline = JobPipeline { name, budget: None, schedule: None, tasks };
        if documents.first().is_some_and(|first| is_of_all(first)) {
            let first = documents.remove(0);
            let job = Job::parse(&format!("{first}{STAND_IN_WORK}"), file_name)?.job;
            (pipeline.name, pipeline.budget, pipeline.schedule) = (job.name, job.budget, job.schedule);
            if let Some(problem) = pipeline.schedule.as_ref().and_then(|schedule| lacking(schedule, &documents)) {
                let line = super::line_of(&first, &problem.key);
                return Err(in_file(vec![Problem { line, ..problem }]));
            }
        }
        for (document, number) in documents.into_iter().zip(1..) {
            let name = key_text(&document, "name").unwrap_or_else(|| format!("{}-{number}", pipeline.name));
            if pipeline.tasks.iter().any(|task| task.name == name) {
                let message = format!("two tasks are called `{}`", clip(&name));
                let line = super::line_of(&document, "name");
                let problem = Problem { line, ..Problem::at("name", message) };
                return Err(in_file(vec![problem.hint("give each task a name of its own")]));
            }
            if tree::read(&document).is_ok_and(|(tree, _)| tree.get("schedule").is_some()) {
                let message = "due times are those of the whole file (a pipeline), and not of one task";
                let problem =
                    Problem { line: super::line_of(&document, "schedule"), ..Problem::at("schedule", message) };
                let hint =
                    "move it to a first document of its own, which may have `name`, `budget` and `schedule` alone";
                return Err(in_file(vec![problem.hint(hint)]));
            }
            pipeline.tasks.push(PipelineTask { name, text: document });
        }
        Ok(Some(pipeline))
    }

    /// Whether the task at this place names the outputs of an earlier one.
    pub fn names_outputs_of(&self, place: usize, earlier: &str) -> bool {
        let named = format!("${{{earlier}.outputs}}");
        let names = |line: &str| line.contains(&named) && !line.trim_start().starts_with('#');
        self.tasks.get(place).is_some_and(|task| task.text.lines().any(names))
    }

    /// The job file of the task at this place, with stand-ins for outputs of earlier tasks.
    pub fn text(&self, place: usize) -> String {
        let Some(task) = self.tasks.get(place) else { return String::new() };
        let mut text = task.text.clone();
        for earlier in &self.tasks[..place] {
            text = text.replace(&format!("${{{}.outputs}}", earlier.name), &format!("{STAND_IN}{}", earlier.name));
        }
        text
    }
}

/// Puts the folders of outputs in the place of their stand-ins; `None` for a job that is only planned, which then does
/// without these mounts. To be called before its paths are resolved.
///
/// # Errors
/// A problem where a stand-in is not under `file_mounts`.
pub fn place_outputs(job: &mut Job, folders: Option<&BTreeMap<String, String>>) -> Result<(), Problem> {
    if let Work::Command(command) = &mut job.work {
        command.file_mounts.retain(|_, source| folders.is_some() || !source.starts_with(STAND_IN));
        for source in command.file_mounts.values_mut() {
            let Some(named) = source.strip_prefix(STAND_IN) else { continue };
            let (task, below) = named.split_once('/').map_or((named, ""), |(task, below)| (task, below));
            if let Some(folder) = folders.and_then(|folders| folders.get(task)) {
                *source = if below.is_empty() { folder.clone() } else { format!("{folder}/{below}") };
            }
        }
    }
    let is_left = serde_json::to_string(&*job).is_ok_and(|text| text.contains(STAND_IN));
    if is_left {
        let message = "outputs of an earlier task are named elsewhere than under `file_mounts`";
        let hint = "write for example `file_mounts: {data: ${prep.outputs}/data}`, and read `data`";
        return Err(Problem::at("file_mounts", message).hint(hint));
    }
    Ok(())
}

/// The documents that are not empty, each with blank lines before it, so that its lines have their numbers. A line that
/// begins with `---` is a marker wherever it stands.
fn documents(text: &str) -> Vec<String> {
    let (mut documents, mut document, mut is_empty) = (Vec::new(), String::new(), true);
    for (line, index) in text.trim_start_matches('\u{feff}').lines().zip(0..) {
        let marked = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if marked.is_some() {
            let ended = std::mem::replace(&mut document, "\n".repeat(index));
            if !std::mem::replace(&mut is_empty, true) {
                documents.push(ended);
            }
            if documents.len() > MOST_TASKS {
                return documents;
            }
        }
        let content = marked.unwrap_or(line).trim();
        is_empty &= content.is_empty() || content.starts_with('#') || content == "..." || line.starts_with('%');
        document.push_str(marked.map_or(line, str::trim_start));
        document.push('\n');
    }
    if !is_empty {
        documents.push(document);
    }
    documents
}

/// The first document that is not empty; a file of a single one as it is.
pub(super) fn first_document(text: &str) -> String {
    let mut documents = documents(text);
    if documents.len() < 2 { text.to_owned() } else { documents.remove(0) }
}

/// What the tasks of a pipeline lack for its `schedule:`.
fn lacking(schedule: &JobSchedule, tasks: &[String]) -> Option<Problem> {
    let has = |key: &str| tasks.iter().any(|task| tree::read(task).is_ok_and(|(tree, _)| tree.get(key).is_some()));
    let (key, message) = match schedule {
        JobSchedule { new_data: true, .. } if !has("train") => {
            ("schedule.new_data", "it is for a `train` task, and this pipeline has none")
        }
        JobSchedule { warm_start: true, .. } if !has("train") && !has("outputs") => {
            let message =
                "a task starts with the model or the `outputs` of the same task before, and none here has any";
            ("schedule.warm_start", message)
        }
        _ => return None,
    };
    Some(Problem::at(key, message).hint("leave the key out"))
}

/// Whether a document has nothing but keys about all tasks.
fn is_of_all(document: &str) -> bool {
    let Ok((tree, _)) = tree::read(document) else { return false };
    matches!(&tree.value, Value::Map(keys) if keys.iter().all(|(key, _)| OF_ALL.contains(&key.raw.text.as_str())))
}

/// The text of a key of a document.
fn key_text(document: &str, key: &str) -> Option<String> {
    let (tree, _) = tree::read(document).ok()?;
    match &tree.get(key)?.1.value {
        Value::Scalar(raw) => Some(raw.text.clone()).filter(|text| !text.is_empty()),
        Value::List(_) | Value::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# about\nname: night\nbudget: {max: $5}\n---\nname: prep\nrun: |\n  echo ---\nworkdir: .\n--- # next\nrun: echo\nfile_mounts:\n  data: ${prep.outputs}/out\n";

    fn read(text: &str) -> JobPipeline {
        JobPipeline::read(text, "dir/job.yaml").unwrap().unwrap()
    }

    #[test]
    fn documents_are_tasks_in_their_order() {
        let pipeline = read(TWO);
        assert_eq!((pipeline.name.as_str(), pipeline.budget.unwrap().max.micros()), ("night", 5_000_000));
        let names: Vec<&str> = pipeline.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["prep", "night-2"]);
        let Work::Command(command) = Job::parse(&pipeline.text(0), "job.yaml").unwrap().job.work else { panic!("run") };
        assert_eq!(command.run, "echo ---\n");

        let bare = read("run: a\n---\nrun: b\n...\n---\n# nothing\n");
        let names: Vec<&str> = bare.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!((bare.name.as_str(), names, bare.budget), ("job", vec!["job-1", "job-2"], None));
        assert_eq!(JobPipeline::read("---\nrun: a\n---\n", "job.yaml").unwrap(), None);
        assert!(Job::parse("---\nrun: a\n---\n# no more\n", "job.yaml").is_ok(), "a single job");
        assert_eq!(JobPipeline::read("run: |\n  ---\n  a\n", "job.yaml").unwrap(), None);
    }

    #[test]
    fn problems_have_the_lines_of_the_file() {
        let pipeline = read("name: a\nrun: b\n---\nname: c\nrun: d\nnum_node: 2\n");
        let problems = Job::parse(&pipeline.text(1), "job.yaml").unwrap_err().problems;
        assert_eq!((problems[0].line, problems[0].key.as_str()), (Some(6), "num_node"));
        let twice = JobPipeline::read("name: a\nrun: b\n---\nname: a\nrun: b\n", "job.yaml").unwrap_err();
        assert_eq!((twice.problems[0].line, twice.problems[0].message.as_str()), (Some(4), "two tasks are called `a`"));
        let due = "name: a\nrun: b\n---\nname: c\nrun: d\nschedule: {cron: 0 3 * * *}\n";
        let due = JobPipeline::read(due, "job.yaml").unwrap_err();
        assert_eq!((due.problems[0].line, due.problems[0].key.as_str()), (Some(6), "schedule"));
        assert!(due.problems[0].message.contains("of the whole file"), "{due}");
    }

    #[test]
    fn a_schedule_is_that_of_the_whole_file() {
        let nightly = |keys: &str, tasks: &str| {
            let text = format!("name: nightly\nschedule: {{cron: 0 3 * * *{keys}}}\n---\n{tasks}");
            JobPipeline::read(&text, "job.yaml").map(Option::unwrap)
        };
        let two = "name: prep\nrun: a ${schedule.date}\noutputs: [out]\n---\nname: fit\nrun: b\n";
        let pipeline = nightly(", timezone: Europe/Berlin, warm_start: true", two).unwrap();
        let schedule = pipeline.schedule.unwrap();
        assert_eq!((pipeline.name.as_str(), pipeline.tasks.len()), ("nightly", 2));
        assert!(schedule.warm_start && schedule.timezone == "Europe/Berlin");
        let refused = |keys: &str, tasks: &str| {
            let problem = nightly(keys, tasks).unwrap_err().problems.remove(0);
            (problem.line, problem.key)
        };
        let at = |key: &str| (Some(2), format!("schedule.{key}"));
        assert_eq!(refused(", warm_start: true", "run: a\n"), at("warm_start"));
        assert_eq!(refused(", warm_start: true, new_data: true", two), at("new_data"));
        assert_eq!(refused(", new_data: true", "train: {model: cnn}\n"), at("new_data"), "it needs `warm_start`");
        assert_eq!(refused(", timezone: Berlin", two), at("timezone"));
        let trained = nightly(", warm_start: true, new_data: true", "train: {model: cnn}\n").unwrap();
        assert!(trained.schedule.unwrap().new_data);
    }

    #[test]
    fn tasks_name_the_times_of_the_whole_file() {
        let text = "schedule: {cron: 0 3 * * *}\n---\nrun: a ${schedule.date}\n---\nrun: b ${schedule.previous_date}\n";
        // At 2026-11-27T02:00:00Z.
        let placed = super::super::due_now(text, crate::time::Timestamp(1_795_744_800_000_000));
        assert!(placed.contains("run: a 2026-11-27\n") && placed.contains("run: b 2026-11-26\n"), "{placed}");
        let without = "run: a ${schedule.date}\n---\nrun: b\n";
        assert_eq!(super::super::due_now(without, crate::time::Timestamp(0)), without);
    }

    #[test]
    fn outputs_are_placed_once_they_are_there() {
        let pipeline = read(TWO);
        assert!(pipeline.names_outputs_of(1, "prep") && !pipeline.names_outputs_of(0, "night-2"));
        let job = Job::parse(&pipeline.text(1), "job.yaml").unwrap().job;
        let mounts = |job: &Job| match &job.work {
            Work::Command(command) => command.file_mounts.clone(),
            Work::Train(_) => panic!("a program"),
        };
        let mut planned = job.clone();
        place_outputs(&mut planned, None).unwrap();
        assert!(mounts(&planned).is_empty());
        let folders = BTreeMap::from([("prep".to_owned(), "/home/runs/prep-1/out puts".to_owned())]);
        let mut placed = job.clone();
        place_outputs(&mut placed, Some(&folders)).unwrap();
        assert_eq!(mounts(&placed)["data"], "/home/runs/prep-1/out puts/out");

        let elsewhere = read("name: a\nrun: b\n---\nrun: cat ${a.outputs}/x\n");
        let mut job = Job::parse(&elsewhere.text(1), "job.yaml").unwrap().job;
        assert!(place_outputs(&mut job, None).unwrap_err().message.contains("elsewhere than under `file_mounts`"));
        let later = read("name: a\nrun: b\nfile_mounts: {x: \"${c.outputs}\"}\n---\nname: c\nrun: d\n");
        assert!(Job::parse(&later.text(0), "job.yaml").is_err(), "a later task has no outputs yet");
    }
}
