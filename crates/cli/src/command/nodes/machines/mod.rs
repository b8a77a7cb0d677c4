//! `gradus machines`: rented machines without a job. One that is taken with `up` is a run of a program that waits, so that it
//! has a plan, a budget, an end and a bill like any other.

mod delete;
mod disk;
mod kept;
mod list;
mod mig;
mod stoppable;
pub mod timetable;
mod up;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cloud::rented::kept::KeptMachine;
use domain::run::{InstanceState, RunState};
use domain::{InstanceId, RunId};
use plan::{Instance, World};
use server::{Home, State};

use crate::command::find::{RunOrSweep, find_any, open_named};
use crate::command::stop;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// The variable by which a job that holds a machine open is known.
const MARK: &str = "GRADUS_MACHINE";

/// Arguments of `gradus machines`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// List rented machines: what each costs, which run has it, and when it ends
    List,
    /// Rent a machine to work on: show its price, ask, and rent it until its time or its budget is over
    Up(Box<up::Args>),
    /// Open a shell on a rented machine, or run a command there
    Ssh(SshArgs),
    /// Stop a machine and keep its disk, which is paid for until it is started again or given back
    Stop(kept::StopArgs),
    /// Start a stopped machine again, with the files that it had: show its price and ask
    Start(kept::StartArgs),
    /// Give a machine back; what is on its disk is deleted
    Down(DownArgs),
}

/// Arguments of `gradus machines ssh`.
#[derive(Debug, clap::Args)]
struct SshArgs {
    /// Machine: the name of its run, a unique prefix of it, or `last`
    machine: String,
    /// Command to run there instead of a shell
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

/// Arguments of `gradus machines down`.
#[derive(Debug, clap::Args)]
struct DownArgs {
    /// Machine: the name of its run, a unique prefix of it, or `last`
    machine: String,
}

/// Carries out the subcommand.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::List => list::run(settings, printer),
        Subcommand::Up(args) => up::run(*args, settings, printer),
        Subcommand::Ssh(args) => ssh(&args, settings),
        Subcommand::Stop(args) => kept::stop_machine(args, settings, printer),
        Subcommand::Start(args) => kept::start_machine(&args, settings, printer),
        Subcommand::Down(args) => {
            let home = Home::open(&settings.home)?;
            if let Some(machine) = kept::find(kept::stopped(&home)?, &args.machine)? {
                kept::refuse_other(&machine, &args.machine, &home)?;
                if !is_up(&machine, &home)? {
                    return delete::delete(&machine, &home, settings, printer);
                }
                // From here on its end deletes it.
                let forgotten = disk::files(&home, &machine.offer.provider).forget(&machine, server::clock::now());
                forgotten.map_err(Error::file("delete", home.root()))?;
            }
            refuse_ended(&args.machine, settings)?;
            stop::run(stop::Args { run: args.machine }, settings, printer)
        }
    }
}

/// Whether a machine is up still that was to be stopped: its stop was written down, and then not asked for.
fn is_up(machine: &KeptMachine, home: &Home) -> Result<bool, Error> {
    let state = State::open_lean(home)?;
    let run = state.world().runs.get(&machine.run());
    let goes_on = run.is_some_and(|run| !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. }));
    let instance = state.world().instances.get(&machine.instance);
    Ok(goes_on && instance.is_some_and(|instance| instance.state == InstanceState::Up))
}

/// Refuses to give back a machine of a run that has ended and never was `gradus machines up`.
fn refuse_ended(name: &str, settings: &GlobalSettings) -> Result<(), Error> {
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, name)?;
    let RunOrSweep::Run(id) = find_any(state.world(), name)? else { return Ok(()) };
    let ended = state.world().runs.get(&id).filter(|run| run.state.is_final() && run.bill.is_some());
    match ended.is_some_and(|run| !run.job.envs.contains_key(MARK)) {
        true => Err(no_machine(&id)),
        false => Ok(()),
    }
}

/// The error for a run that has no machine.
fn no_machine(run: &RunId) -> Error {
    Error::Usage {
        message: format!("run `{run}` has no machine that is up"),
        hint: "`gradus machines list` shows what is rented".to_owned(),
    }
}

/// Becomes `ssh` with what the machine is reached with.
fn ssh(args: &SshArgs, settings: &GlobalSettings) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, &args.machine)?;
    let run = match find_any(state.world(), &args.machine)? {
        RunOrSweep::Run(run) => run,
        RunOrSweep::Sweep(sweep) => {
            let message = format!("`{sweep}` is a sweep, whose trials have a machine each");
            return Err(Error::Usage {
                message,
                hint: "name a trial, as `gradus machines list` shows them".to_owned(),
            });
        }
    };
    let (instance, known) = up_of(state.world(), &run).ok_or_else(|| no_machine(&run))?;
    let config = home.root().join("instances").join(known.machine_name(instance).as_str()).join("ssh_config");
    let Some(handle) = known.handle.as_ref().filter(|_| config.is_file()) else {
        let hint = match known.offer.provider.as_str() {
            "ssh" => format!("it is a node: `gradus ssh {}`", known.offer.kind),
            "local" => "it is this machine".to_owned(),
            _ => format!("it was not reached yet; `{}` says why", config.with_file_name("reach.log").display()),
        };
        return Err(Error::Usage { message: format!("`{instance}` cannot be entered from here"), hint });
    };
    let error = Command::new("ssh").arg("-F").arg(&config).arg(&handle.0).args(&args.command).exec();
    Err(Error::file("start", Path::new("ssh"))(error))
}

/// The newest machine of a run that is up.
fn up_of<'a>(world: &'a World, run: &RunId) -> Option<(&'a InstanceId, &'a Instance)> {
    let run = world.runs.get(run)?;
    world.live_instances_of(run).filter(|(_, instance)| instance.state == InstanceState::Up).last()
}
