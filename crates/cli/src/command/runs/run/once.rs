//! What a command says that submits a job with `schedule:` once.

use std::path::Path;

use domain::Job;
use domain::file::JobPipeline;
use domain::schedule::ScheduledWork;

use crate::printer::Printer;

/// Says that a job with `schedule:` is run once.
pub fn note_job(job: &Job, file: &Path, printer: &mut Printer) {
    let work = if job.sweep.is_some() { ScheduledWork::Sweep } else { ScheduledWork::Run };
    note(job.schedule.is_some(), work, file, printer);
}

/// Says that a pipeline with `schedule:` is run once.
pub fn note_pipeline(pipeline: &JobPipeline, file: &Path, printer: &mut Printer) {
    note(pipeline.schedule.is_some(), ScheduledWork::Pipeline, file, printer);
}

fn note(is_scheduled: bool, work: ScheduledWork, file: &Path, printer: &mut Printer) {
    if is_scheduled {
        let (work, file) = (work.word(), file.display());
        printer.say(format!("note: this is one {work}, now; `gradus schedules add {file}` runs it at its due times"));
    }
}
