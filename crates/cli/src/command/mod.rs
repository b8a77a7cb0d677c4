//! The commands. One file each: its arguments, whose doc comments are the help text, and one function.

mod access;
mod bench;
mod catalog;
mod completions;
mod data;
mod find;
mod gc;
mod home;
mod models;
mod nodes;
mod offers;
mod plan;
mod reference;
mod runs;

use crate::error::Error;
use crate::printer::Printer;
use crate::remote;
use crate::settings::GlobalSettings;
use access::{login, token};
use models::evaluate;
use nodes::agent;
use runs::{attach, checkpoints, cost, events, logs, program, report, resume, rm, run, serve, status, stop, wait};

/// The commands of `gradus`.
#[derive(Debug, clap::Subcommand)]
pub enum Commands {
    /// Show what a job needs, how long it takes and what it costs, without running it
    Plan(plan::Args),
    /// Run a job: train its model or start its program; resume it after a crash
    #[command(visible_alias = "train")]
    Run(run::Args),
    /// Run a Python script without a job file, with the options of torchrun
    Launch(Box<program::launch::Args>),
    /// Run a job with `schedule:` at its due times: add, list, pause, resume and remove schedules
    Schedules(run::schedules::Args),
    /// Turn a task file of SkyPilot or dstack, or a batch script of Slurm, into a job file
    Import(program::import::Args),
    /// Write a job file for the training script of a folder
    Init(program::init::Args),
    /// List GPU machines of clouds, with their prices
    Offers(offers::Args),
    /// Show the age of GPU prices; fetch current ones, import others or your own machines
    Catalog(catalog::Args),
    /// List runs, or show the state of one
    #[command(aliases = ["ps", "ls", "queue"])]
    Status(status::Args),
    /// Print the output of a run's processes
    Logs(logs::Args),
    /// Follow a run in the background, or take over one whose process is gone
    Attach(attach::Args),
    /// Wait until a run, sweep or pipeline has ended, and exit with its code
    Wait(wait::Args),
    /// Save a checkpoint of a run, sweep or pipeline, then stop it
    #[command(aliases = ["cancel", "down"])]
    Stop(stop::Args),
    /// Resume a stopped, failed or interrupted run, sweep or pipeline from its newest checkpoint
    Resume(resume::Args),
    /// List, show and export trained models
    Models(models::Args),
    /// List, copy and delete the checkpoints of a run
    Checkpoints(checkpoints::Args),
    /// Score a trained model on its own test split or on other data, and write its predictions
    Evaluate(evaluate::Args),
    /// Show what runs have cost: bills, and running totals of runs that have not ended
    Cost(cost::Args),
    /// Pack, inspect, transfer and benchmark data sets
    Data(data::Args),
    /// Benchmark training on this machine
    Bench(bench::Args),
    /// Print the event log: every decision and action
    Events(events::Args),
    /// Write the report and TensorBoard files of a run
    Report(report::Args),
    /// Delete the files of a run that has ended; its bill stays
    Rm(rm::Args),
    /// Free disk space: delete cached data, working folders and checkpoints of trained runs, after showing their sizes
    Gc(gc::Args),
    /// Check the databases of the home folder, and replace damaged ones
    Home(home::Args),
    /// Run the control loop of this home as a server with an HTTP API; runs need no open terminal
    Serve(serve::Args),
    /// Use the runs of a server, from now on, in place of those of this machine
    Login(login::Args),
    /// Use the runs of this machine again
    Logout,
    /// Make, list and remove tokens, with which others may use the server of this home
    Token(token::Args),
    /// Add, list and remove machines that jobs can run on over SSH
    Nodes(nodes::Args),
    /// Check the account of a cloud, and find and end machines that are rented there
    Cloud(nodes::cloud::Args),
    /// List rented machines; rent one to work on, enter it, and give it back
    Machines(nodes::machines::Args),
    /// Check this machine or nodes: GPUs, drivers, disk, clock, names, network and kernel log
    Doctor(nodes::doctor::Args),
    /// Open a shell on a node, or run a command there
    Ssh(nodes::ssh::Args),
    /// Run a command on every machine of a run, in its working folder
    Exec(nodes::exec::Args),
    /// Make ports of a run's machine, such as TensorBoard's, reachable here
    Forward(nodes::forward::Args),
    /// Print the completion script of a shell: bash, zsh, fish, elvish or powershell
    Completions(completions::Args),
    /// Print the manual page, for `man`
    Man,
    /// Run the agent of one machine (started by gradus itself)
    #[command(hide = true)]
    Agent(agent::Args),
    /// Answer a request of the provider `ssh` on this machine (used by gradus itself)
    #[command(hide = true)]
    Node,
    /// Install programs and libraries that are sent to this machine (used by gradus itself)
    #[command(hide = true)]
    NodeFiles,
    /// Let another machine read programs and libraries of this one (used by gradus itself)
    #[command(hide = true)]
    NodeServe,
    /// Say what this machine is, or measure the network to another (used by `gradus doctor` and `gradus nodes add`)
    #[command(hide = true)]
    Facts(nodes::facts::Args),
    /// Print what the reference documents are made of (used by `cargo xtask docs`)
    #[command(hide = true)]
    Reference(reference::Args),
}

impl Commands {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// [`Error`], printed by `main`.
    pub fn run(self, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
        if let Some(what) = self.only_here()
            && let Some(server) = remote::chosen(settings)?
        {
            return Err(remote::only_here(what, &server));
        }
        match self {
            Commands::Plan(args) => plan::run(args, settings, printer),
            Commands::Run(args) => run::run(args, settings, printer),
            Commands::Launch(args) => program::launch::run(*args, settings, printer),
            Commands::Schedules(args) => run::schedules::run(args, settings, printer),
            Commands::Import(args) => program::import::run(&args, printer),
            Commands::Init(args) => program::init::run(&args, printer),
            Commands::Offers(args) => offers::run(args, settings, printer),
            Commands::Catalog(args) => catalog::run(args, settings, printer),
            Commands::Status(args) => status::run(args, settings, printer),
            Commands::Logs(args) => logs::run(args, settings, printer),
            Commands::Attach(args) => attach::run(&args, settings, printer),
            Commands::Wait(args) => wait::run(&args, settings, printer),
            Commands::Stop(args) => stop::run(args, settings, printer),
            Commands::Resume(args) => resume::run(args, settings, printer),
            Commands::Models(args) => models::run(args, settings, printer),
            Commands::Checkpoints(args) => checkpoints::run(&args, settings, printer),
            Commands::Evaluate(args) => evaluate::run(args, settings, printer),
            Commands::Cost(args) => cost::run(args, settings, printer),
            Commands::Data(args) => data::run(args, settings, printer),
            Commands::Bench(args) => bench::run(args, settings, printer),
            Commands::Events(args) => events::run(args, settings, printer),
            Commands::Report(args) => report::run(args, settings, printer),
            Commands::Rm(args) => rm::run(&args, settings, printer),
            Commands::Gc(args) => gc::run(&args, settings, printer),
            Commands::Home(args) => home::run(&args, settings, printer),
            Commands::Serve(args) => serve::run(args, settings, printer),
            Commands::Login(args) => login::run(args, settings, printer),
            Commands::Logout => login::logout(settings, printer),
            Commands::Token(args) => token::run(args, settings, printer),
            Commands::Nodes(args) => nodes::run(args, settings, printer),
            Commands::Cloud(args) => nodes::cloud::run(args, settings, printer),
            Commands::Machines(args) => nodes::machines::run(args, settings, printer),
            Commands::Doctor(args) => nodes::doctor::run(&args, settings, printer),
            Commands::Facts(args) => nodes::facts::run(&args, settings, printer),
            Commands::Ssh(args) => nodes::ssh::run(&args, settings),
            Commands::Exec(args) => nodes::exec::run(&args, settings, printer),
            Commands::Forward(args) => nodes::forward::run(&args, settings, printer),
            Commands::Node => nodes::answer::run(settings, printer),
            Commands::NodeFiles => Ok(nodes::answer::files(printer)),
            Commands::NodeServe => nodes::answer::serve(settings, printer),
            Commands::Completions(args) => completions::run(&args, printer),
            Commands::Man => completions::man(printer),
            Commands::Agent(args) => agent::run(args, settings),
            Commands::Reference(args) => reference::run(args, printer),
        }
    }

    /// Why a command cannot be used with a server: it needs the files or the nodes of a home.
    fn only_here(&self) -> Option<&'static str> {
        match self {
            Commands::Models(args) => args.only_here(),
            Commands::Checkpoints(args) => args.only_here(),
            Commands::Evaluate(_) => Some("`gradus evaluate`"),
            Commands::Report(_) => Some("`gradus report`"),
            Commands::Rm(_) => Some("`gradus rm`"),
            Commands::Nodes(_) => Some("`gradus nodes`"),
            Commands::Cloud(_) => Some("`gradus cloud`"),
            Commands::Machines(_) => Some("`gradus machines`"),
            Commands::Ssh(_) => Some("`gradus ssh`"),
            Commands::Exec(_) => Some("`gradus exec`"),
            Commands::Forward(_) => Some("`gradus forward`"),
            Commands::Token(_) => Some("`gradus token`"),
            Commands::Doctor(args) if args.looks_at_nodes() => Some("`gradus doctor` for nodes"),
            Commands::Launch(_) => Some("`gradus launch`"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    /// The options, of a command and those below it, whose value has one of the names: the words before the value.
    fn options(command: &Command, words: &[String], names: &[&str]) -> Vec<Vec<String>> {
        let has_name = |argument: &&clap::Arg| {
            argument.get_value_names().unwrap_or_default().iter().any(|name| names.contains(&name.as_str()))
        };
        let flags = command.get_arguments().filter(has_name).filter_map(clap::Arg::get_long);
        let own = flags.map(|flag| [words, &[format!("--{flag}")]].concat());
        let below = command.get_subcommands().flat_map(|inner| {
            let words = [words, &[inner.get_name().to_owned()]].concat();
            options(inner, &words, names)
        });
        own.chain(below).collect()
    }

    #[test]
    fn every_duration_needs_its_unit() {
        let (root, start) = (crate::Arguments::command(), ["gradus".to_owned()]);
        let durations = options(&root, &start, &["DURATION"]);
        let names: Vec<String> = durations.iter().map(|words| words[1..].join(" ")).collect();
        let expected = [
            "plan --horizon",
            "plan spot-check --work",
            "plan spot-check --stall",
            "plan spot-check --lag",
            "plan spot-check --restart",
            "plan spot-check --patience",
            "launch --deadline",
            "launch --stop-grace",
            "resume --deadline",
            "data bench --for",
            "data push --grace",
            "data sync --grace",
            "token create --expires",
            "cloud audit --grace",
            "machines up --for",
            "machines up --idle",
            "machines start --for",
        ];
        for name in expected {
            assert!(names.iter().any(|one| one == name), "`{name}` is no duration: {names:?}");
        }
        for words in durations {
            let bare = [words, vec!["30".to_owned()]].concat();
            let said = crate::Arguments::command().try_get_matches_from(&bare).unwrap_err().to_string();
            assert!(said.contains("`30` has no unit; write for example `30d`"), "{bare:?}: {said}");
        }
        let others = options(&root, &start, &["TIME", "SECONDS", "MINUTES", "HOURS", "DAYS"]);
        assert!(others.is_empty(), "not read as durations: {others:?}");
    }
}
