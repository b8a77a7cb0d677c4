//! One rank's run, from its specification to its last report, in three phases: `prepare` (data, network, checkpoint),
//! `training` (the loop over steps) and `finish` (the test split and the exported model).
//!
//! Everything here happens on one thread. Concurrent are the loader's decoding, the writer's hashing and writing
//! (`checkpointer`) and the connection to the agent ([`crate::channel`]).

mod checkpointer;
mod checks;
mod commands;
pub mod evaluate;
mod export;
pub mod exported;
mod finish;
mod guard;
mod monitor;
mod newest;
mod prepare;
pub mod standalone;
mod training;
mod validation;

use domain::finding::{Cause, Finding};
use domain::rank::{Pause, Report, Spec};
use tch::Device;

use guard::{ROLLBACKS, RollBack};
use training::StepsEnd;

pub(crate) use checks::environment_of;
pub(crate) use guard::lag;

use crate::channel::Channel;
use crate::error::{Error, not_finite_again};
use crate::ranks::Ranks;
use crate::state::OmittedState;
use crate::step::StepConfig;
use crate::torch;

/// How a run ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done, or the target was met; the model is exported.
    Trained,
    /// By order; the state of this step is durable.
    Stopped { step: u64 },
}

/// Settings outside the job: the device, and the deliberate bugs of the chaos test.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Where the network is.
    pub device: Device,
    /// State that a resume omits.
    pub omitted: OmittedState,
    /// Steps whose outcome may be on its way to the host while the next one is begun.
    pub lag: usize,
    /// The mistake that the writer makes.
    #[cfg(feature = "mutants")]
    pub mutant: Option<checkpoint::Mutant>,
}

impl RunOptions {
    /// No mistakes.
    pub fn on(device: Device) -> RunOptions {
        RunOptions {
            device,
            omitted: OmittedState::default(),
            lag: lag(device),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// Shared by every phase of a run.
struct Context<'a> {
    spec: &'a Spec,
    options: RunOptions,
    config: StepConfig,
    channel: &'a Channel,
}

impl Context<'_> {
    /// Reports a note to the user that does not end the run.
    fn note(&self, text: String) {
        self.channel.send(Report::Note { text });
    }

    /// Tells the agent that steps pause, and for what. The first rank reports for all.
    fn pauses(&self, pause: Pause, ranks: &Ranks) {
        if ranks.is_first() {
            self.channel.send(Report::Pausing { pause });
        }
    }
}

/// Trains according to `spec`, resuming from its newest checkpoint, and reports over `channel`.
///
/// All reports but the last are sent here; the caller sends that one according to the result.
///
/// With several ranks, the first reports for all; the others report their process ids and how they ended.
///
/// # Errors
/// Why the rank failed, as the finding that ends its attempt.
pub fn run(spec: &Spec, options: RunOptions, channel: &Channel) -> Result<Ending, Error> {
    let mut spec = spec.clone();
    spec.train.memory_format = Some(spec.train.memory_format_on(options.device.is_cuda()));
    let spec = &spec;
    let config = StepConfig::of(&spec.train, options.device);
    let version = torch::version()?;
    channel.send(Report::Hello {
        rank: spec.rank,
        pid: std::process::id(),
        environment: checks::environment(spec, &config, &version),
    });
    checks::check_spec(spec, &version)?;
    if spec.rank > 0 {
        channel.hush();
    }
    let context = Context { spec, options, config, channel };
    if let Some(why) = torch::refused_cuda_part() {
        context.note(why.to_owned());
    }
    let mut ranks = Ranks::rendezvous(spec)?;
    if ranks.size() > 1 && options.device.is_cuda() {
        context.note(format!("the ranks exchange {}", ranks.exchanges()));
    }
    // Memory may run out outside of a step as well, such as in a score or a copy for a checkpoint.
    torch::unwound(|| Ok(run_among(&context, &mut ranks)))
        .map_err(Error::from)
        .and_then(|ending| ending)
        .map_err(|error| checks::name_smaller_part(&spec.train, &ranks, ranks.name_missing(error)))
}

/// The run of this rank among `ranks`; restarts from the newest checkpoint if the state is not finite.
fn run_among(context: &Context, ranks: &mut Ranks) -> Result<Ending, Error> {
    let mut rolled_back: Option<RollBack> = None;
    for attempt in 0.. {
        let prepared = prepare::prepare(context, ranks, rolled_back.as_ref())?;
        let mut training = training::Training::begin(context, ranks, &prepared.data, prepared.start)?;
        match training.run()? {
            StepsEnd::Stopped { step } => {
                finish::leave_models(&training)?;
                return Ok(Ending::Stopped { step });
            }
            StepsEnd::Done => return finish::finish(training),
            StepsEnd::NotFinite(poisoned) if attempt < ROLLBACKS => {
                training.checkpointer.finish()?;
                context.pauses(Pause::SetUp, ranks);
                context.note(format!("{}: rolled back to the newest checkpoint", poisoned.why));
                rolled_back = Some(poisoned);
            }
            StepsEnd::NotFinite(RollBack { why, samples, .. }) => return Err(not_finite_again(&why, &samples)),
        }
    }
    Err(Finding::new(Cause::Internal, "the number of roll-backs has no end").into())
}
