//! What a run of a schedule with `warm_start` starts with: the model, or the outputs, of an earlier run.

use std::path::Path;

use domain::{Job, Problem, RunId, Work};
use serde_json::Value;
use server::Home;

use super::pipeline::outputs;

/// Where a program finds the outputs of the run before, below its working folder.
const LAST_OUTPUTS: &str = "last-outputs";

/// Has a job start with what an earlier run has written: with its model, for training on new samples alone if that is asked for, or
/// with its `outputs`. A program that keeps none starts as it is.
///
/// # Errors
/// A problem where that is not here any more.
pub fn warm_start(job: &mut Job, last: Option<&RunId>, only_new: bool, home: &Home) -> Result<(), Problem> {
    let Some(last) = last else { return Ok(()) };
    if matches!(&job.work, Work::Command(command) if command.outputs.is_empty()) {
        return Ok(());
    }
    let folder = outputs(home, last, job);
    if !Path::new(&folder).exists() {
        let message = format!("the files of run `{last}`, which this one starts with, are not here any more");
        return Err(Problem::at(KEY, message).hint(START_OVER));
    }
    match &mut job.work {
        Work::Train(train) => {
            train.weights = Some(format!("{folder}/model.safetensors"));
            if only_new {
                train.data.trained_on = Some(samples_of(home, last)?);
            }
        }
        Work::Command(command) => {
            command.file_mounts.insert(LAST_OUTPUTS.to_owned(), folder);
        }
    }
    Ok(())
}

/// Refuses data whose classes are not those of the model that training starts with: they are names in the order of the outputs.
///
/// # Errors
/// A problem that says how they differ, or that the classes of the model cannot be read.
pub fn require_classes(last: Option<&RunId>, classes: &[String], home: &Home) -> Result<(), Problem> {
    let Some(last) = last else { return Ok(()) };
    let path = home.run(last).join("export/model.json");
    let card = std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(model) =
        card.and_then(|mut card| serde_json::from_value::<Vec<String>>(card.get_mut("classes")?.take()).ok())
    else {
        let message = format!("the classes of the model of run `{last}`, in `{}`, cannot be read", path.display());
        return Err(Problem::at(KEY, message).hint(START_OVER));
    };
    let Some(difference) = plan::local::class_difference(&model, classes) else { return Ok(()) };
    let message = format!("the data has other classes than the model of run `{last}`: {difference}");
    Err(Problem::at(KEY, message).hint(format!("correct the data; or {START_OVER}")))
}

/// The key that asks for it.
const KEY: &str = "schedule.warm_start";

/// What begins again with the weights that the job file names, or none.
const START_OVER: &str =
    "start over from the job file: `gradus schedules rm SCHEDULE`, then `gradus schedules add FILE`";

/// The newest list of the samples that a run was trained on.
fn samples_of(home: &Home, run: &RunId) -> Result<String, Problem> {
    let folder = home.run(run).join("checkpoints");
    let files = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let is_list = |name: &str| name.starts_with("data-") && name.ends_with(".json");
    let lists = files.filter(|file| file.file_name().to_str().is_some_and(is_list));
    let newest = lists.max_by_key(|file| file.metadata().and_then(|about| about.modified()).ok());
    newest.map(|file| file.path().to_string_lossy().into_owned()).ok_or_else(|| {
        let message = format!("run `{run}` has no list of the samples that it was trained on");
        Problem::at("schedule.new_data", message).hint(format!("leave the key out, or {START_OVER}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home whose run `night-1` has exported a model of these classes.
    fn with_model(classes: &str) -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let export = home.run(&RunId::new("night-1")).join("export");
        std::fs::create_dir_all(&export).unwrap();
        std::fs::write(export.join("model.json"), format!("{{\"classes\": {classes}}}")).unwrap();
        (folder, home)
    }

    #[test]
    fn data_of_other_classes_is_refused_with_what_to_type() {
        let last = RunId::new("night-1");
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let (_folder, home) = with_model("[\"cat\", \"dog\"]");
        let check = |names: &[&str]| require_classes(Some(&last), &named(names), &home);
        assert_eq!(check(&["cat", "dog"]), Ok(()));
        assert_eq!(require_classes(None, &named(&["eel"]), &home), Ok(()), "the first run starts as its file says");
        let swapped = check(&["dog", "cat"]).unwrap_err();
        assert!(
            swapped.message.contains("`night-1`") && swapped.message.contains("their order differs"),
            "{swapped:?}"
        );
        assert!(swapped.hint.unwrap().contains("gradus schedules rm"));
        assert!(check(&["cat"]).unwrap_err().message.contains("the data lacks `dog`"));
        let (_folder, home) = with_model("7");
        let unreadable = require_classes(Some(&last), &named(&["cat"]), &home).unwrap_err();
        assert!(unreadable.message.contains("cannot be read"), "{unreadable:?}");
    }

    #[test]
    fn a_task_that_keeps_nothing_starts_as_it_is() {
        let (_folder, home) = with_model("[]");
        let last = RunId::new("night-1");
        let mut job = Job::parse("run: echo\n", "job.yaml").unwrap().job;
        let before = job.clone();
        warm_start(&mut job, Some(&last), true, &home).unwrap();
        assert_eq!(job, before);
        let mut job = Job::parse("run: echo\noutputs: [out]\n", "job.yaml").unwrap().job;
        assert!(warm_start(&mut job, Some(&last), false, &home).is_err(), "its outputs are gone");
    }
}
