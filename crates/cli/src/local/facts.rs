//! What is known of a job before anything runs: the properties of its data, and steps that were measured earlier.

use std::path::Path;

use domain::problem::Problem;
use domain::rank::Report;
use domain::train::{Cache, Task};
use domain::{Duration, Job, Train};
use plan::local::JobFacts;
use server::{Home, Series, State};

use super::machine;
use crate::error::Error;
use crate::fetch::opened::OpenedData;
use crate::figures::counted;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Opens the data of a job. Remote data goes into the cache that the run reads from: all of it, or with `cache` in the job
/// only the ranges that are read.
fn opened(settings: &GlobalSettings, train: &Train, printer: &mut Printer) -> Result<OpenedData, Error> {
    let named = Path::new(&train.data.path);
    match train.data.cache {
        None => OpenedData::fetched(named, settings, printer),
        Some(Cache { budget }) => OpenedData::in_ranges(named, ("cache/pieces", budget.0), settings, printer),
    }
}

/// Accepts the classes of a job's data, or says what is wrong with them: the names of what is predicted, in the order of the
/// outputs.
pub type ClassCheck<'a> = &'a dyn Fn(&[String]) -> Result<(), Problem>;

/// Facts before anything runs: the properties of the data, and the step time if this work ran before.
///
/// # Errors
/// What the data is refused for; [`Error::Unfit`] where the job contradicts it.
pub fn facts(settings: &GlobalSettings, home: &Home, job: &Job, printer: &mut Printer) -> Result<JobFacts, Error> {
    facts_of_classes(settings, home, job, &|_| Ok(()), printer)
}

/// The same of data whose classes are checked, where it has any.
///
/// # Errors
/// As [`facts`]; [`Error::Unfit`] where its classes are wrong.
pub fn facts_of_classes(
    settings: &GlobalSettings,
    home: &Home,
    job: &Job,
    check: ClassCheck<'_>,
    printer: &mut Printer,
) -> Result<JobFacts, Error> {
    let (known, classes) = read(settings, home, job, printer)?;
    let mut problems = contradicted(job, &known);
    if !classes.is_empty() {
        problems.extend(check(&classes).err());
    }
    match problems {
        problems if problems.is_empty() => Ok(known),
        problems => Err(Error::Unfit(problems)),
    }
}

/// The keys of a job that its data contradicts, as far as they are not compared where it is read.
fn contradicted(job: &Job, known: &JobFacts) -> Vec<Problem> {
    let domain::Work::Train(train) = &job.work else { return Vec::new() };
    let mut problems = Vec::new();
    if let (Some(weights), Some(classes)) = (&train.class_weights, known.classes)
        && let Err(given) = weights.of(&vec![1; classes as usize])
    {
        let message = format!("there are {given} weights, and the data has {classes} classes");
        let hint = "write one for each class, in the order of their names, or `balanced`";
        problems.push(Problem::at("train.class_weights", message).hint(hint));
    }
    if let (Some(normalize), Some([channels, ..])) = (&train.data.normalize, known.input_shape)
        && normalize.mean.len() != channels as usize
    {
        let (values, channels) =
            (counted(normalize.mean.len() as u64, "value"), counted(u64::from(channels), "channel"));
        let message = format!("`mean` has {values}, and the images have {channels}");
        let hint = "write one for each channel, or leave `normalize` out to have them measured";
        problems.push(Problem::at("train.data.normalize", message).hint(hint));
    }
    problems
}

/// The facts, and the names of the classes.
fn read(
    settings: &GlobalSettings,
    home: &Home,
    job: &Job,
    printer: &mut Printer,
) -> Result<(JobFacts, Vec<String>), Error> {
    let domain::Work::Train(train) = &job.work else { return Ok((JobFacts::default(), Vec::new())) };
    let staged = opened(settings, train, printer)?;
    if let Some((keys, goal)) = text(train) {
        let outline = data::TextOutline::of(&train.data, keys, goal, staged.path(), train.seed)?;
        let facts = JobFacts {
            samples: outline.counts,
            input_shape: None,
            classes: u32::try_from(outline.classes.len()).ok().filter(|count| *count > 0),
            bytes: None,
            measured_step: measured(home, train)?,
            program: None,
        };
        return Ok((facts, outline.classes));
    }
    if train.task() == Task::ObjectDetection {
        let outline = data::DetectionOutline::of(&train.data, staged.path(), train.seed)?;
        let size = u32::try_from(outline.size).unwrap_or(u32::MAX);
        let facts = JobFacts {
            samples: Some(outline.counts),
            input_shape: Some([3, size, size]),
            classes: u32::try_from(outline.classes.len()).ok(),
            bytes: None,
            measured_step: measured(home, train)?,
            program: None,
        };
        return Ok((facts, outline.classes));
    }
    let outline = data::Outline::of(&train.data, staged.path(), train.seed)?;
    if let Some(text) = &outline.left_out {
        printer.say(text);
    }
    damage(&outline.skipped).into_iter().for_each(|line| printer.say(line));
    let [channels, height, width] = outline.shape.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    let facts = JobFacts {
        samples: Some(outline.counts),
        input_shape: Some([channels, height, width]),
        classes: u32::try_from(outline.classes.len()).ok(),
        // Counted only if needed: for many files it takes a while.
        bytes: train.data.preload.map(|_| machine::bytes_below(staged.path())),
        measured_step: measured(home, train)?,
        program: None,
    };
    Ok((facts, outline.classes))
}

/// Damages that are described one by one.
const DESCRIBED: usize = 3;

/// Lines on what `corrupt: skip` passes over, as far as it is known before the images are decoded.
fn damage(skipped: &[data::Skipped]) -> Vec<String> {
    let mut lines: Vec<String> =
        skipped.iter().take(DESCRIBED).map(|found| format!("damaged: `{}`: {}", found.name, found.why)).collect();
    if let Some(more @ 1..) = skipped.len().checked_sub(DESCRIBED) {
        lines.push(format!("and {more} more; `gradus data inspect` lists them"));
    }
    lines
}

/// The text columns and the training objective; `None` for images.
fn text(train: &Train) -> Option<(&domain::train::Text, data::TextObjective)> {
    let goal = match train.task() {
        Task::ImageClassification | Task::ObjectDetection => return None,
        Task::TextClassification => data::TextObjective::Class,
        Task::MaskedLanguageModel => data::TextObjective::Masked,
        Task::LanguageModel => data::TextObjective::Next,
    };
    Some((train.data.text.as_ref()?, goal))
}

/// Among so many of the newest runs one with the same step is looked for.
const RECENT: usize = 100;

/// The median step of the newest run on this machine whose steps did the same work.
fn measured(home: &Home, train: &Train) -> Result<Option<Duration>, Error> {
    let (mut state, series) = (State::open_lean(home)?, Series::open(home)?);
    state.recall_newest(RECENT)?;
    let is_same =
        |work: &domain::Work| matches!(work, domain::Work::Train(other) if plan::local::has_same_step(train, other));
    let runs = state.world().runs.iter().filter(|(_, run)| is_same(&run.job.work));
    let Some((id, _)) = runs.max_by_key(|(_, run)| run.order) else { return Ok(None) };
    let mut steps: Vec<u64> = Vec::new();
    for (_, point) in series.newest(id, 500)? {
        if let Report::Step(step) = point.report {
            steps.push(step.step_us);
        }
    }
    steps.sort_unstable();
    Ok(steps.get(steps.len() / 2).copied().map(Duration::from_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_moments_are_as_many_as_the_data_says() {
        let keys = |more: &str, data: &str| {
            let text = format!("train: {{model: cnn, data: {{path: d{data}}}, epochs: 1, batch: 8{more}}}");
            let job = Job::parse(&text, "job.yaml").unwrap().job;
            let known = JobFacts { classes: Some(3), input_shape: Some([1, 8, 8]), ..JobFacts::default() };
            contradicted(&job, &known)
                .into_iter()
                .map(|problem| format!("{}: {}", problem.key, problem.message))
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(", class_weights: [1, 2, 3]", ""), Vec::<String>::new());
        assert_eq!(keys(", class_weights: balanced", ", normalize: {mean: [0.5], std: [0.2]}"), Vec::<String>::new());
        let two = keys(", class_weights: [1, 2]", ", normalize: {mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}");
        assert_eq!(
            two,
            [
                "train.class_weights: there are 2 weights, and the data has 3 classes",
                "train.data.normalize: `mean` has 3 values, and the images have 1 channel",
            ]
        );
    }
}
