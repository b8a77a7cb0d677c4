//! `gradus run`: from a job file to a model and a bill.

use domain::Work;
use server::{Home, State, submit};

use crate::error::Error;
use crate::follow::result::{confirm, finish};
use crate::follow::watch::Since;
use crate::local::draft::{draft, known, lines};
use crate::local::job_file::{JobArgs, require_secrets};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::sweep::preview::Preview;

/// Arguments of `gradus run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Skip the confirmation before money is spent
    #[arg(long, short)]
    yes: bool,
    /// Start a new run even if an unfinished run of the same job exists
    #[arg(long)]
    new: bool,
    /// Profile each step, and write a trace for `chrome://tracing` or Perfetto
    #[arg(long)]
    profile: bool,
}

/// Plans, confirms, submits and follows.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (mut job, plan) = draft(&args.job, settings, &home, printer)?;
    require_secrets(&job)?;
    if args.profile {
        match &mut job.work {
            Work::Train(train) => train.profile = true,
            Work::Command(_) => {
                let message = "`--profile` works only with `train:`; this job runs a program".to_owned();
                return Err(Error::Usage {
                    message,
                    hint: "remove `--profile`, and use the profiler of your framework".to_owned(),
                });
            }
        }
    }
    let file = std::fs::canonicalize(&args.job.file).map_err(Error::file("open", &args.job.file))?;
    let file = file.to_string_lossy().into_owned();
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, &job, printer)?;
        let preview = Preview::of(&job, sweep, &plan, known, &args.job.file.to_string_lossy())?;
        let flags = (args.new, args.yes);
        return crate::sweep::run(settings, printer, &home, job, plan, &preview, &file, flags);
    }
    let mut state = State::open(&home)?;
    let unfinished = if args.new { None } else { submit::unfinished(&home, &state, &job, &plan, &file) };
    if let Some(run) = unfinished {
        printer.say(format!("resuming run {run}; use `--new` to start another"));
        let since = Since::Event(state.world().last_seq);
        drop(state);
        return finish(settings, printer, &home, &run, since);
    }
    if !printer.is_json() {
        for line in lines(&job, &plan) {
            printer.say(line);
        }
    }
    confirm(printer, &plan, args.yes)?;
    let run = submit::submit(&mut state, job, plan, &file)?;
    drop(state);
    finish(settings, printer, &home, &run, Since::Start)
}
