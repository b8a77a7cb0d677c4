//! Stages the inputs of a process on this machine, on a separate thread; with several machines, each is staged first,
//! and all start together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::files::RunInput;
use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::train::{Cache, Data};
use domain::wire::{AgentEvent, NodeAddress, NodeRank, Start};
use domain::{Command, Finding, Train, Work};
use node::oom::KillCounters;
use store::{Limits, Location, Meter, Places};

use super::events::reported;
use super::process::Process;
use super::program::{Container, SetupKey, container_request, forget_setup};
use super::trainer::Seat;
use super::verdict::Role;
use super::watchdog::{SilenceLimits, Watchdog};
use super::workdir::{self, MountTarget, WorkdirSource};
use super::{Attempt, ProgramSetup, Stage, Tools, Working, library, link, peers, program, trainer};
use crate::event::{AttemptEvent, Serving, StagedInput, Wakeup};
use crate::origin::OriginWatch;
use crate::travel::{self, Brought, Uploader};

/// The path of data on this machine; `None` if it is remote.
pub fn place(data: &str) -> Result<Option<PathBuf>, Box<Finding>> {
    let location: Location = data.parse().map_err(|error: store::Error| Box::new(error.finding()))?;
    Ok(location.local().map(Path::to_owned))
}

/// Fetches remote data, or serves chunks of it if the job has a cache. All runs of a home share fetched data: `cache`
/// is next to `runs/RUN`.
pub fn data(data: &Data, start: &Start, tools: &Tools) {
    let run = Path::new(&start.folder);
    let home = run.ancestors().nth(2).unwrap_or(Path::new("/"));
    let (uri, access) = (data.path.clone(), tools.access.clone());
    if let Some(Cache { budget }) = data.cache {
        let (cache, folder) =
            (home.join("cache/pieces"), run.join("attempts").join(start.attempt.as_str()).join("data"));
        let socket = tools.folder.join(format!("{}-data.sock", start.attempt));
        return begin(start, tools, move |_| {
            let (short, handle) =
                link::short(&socket).map_err(|error| *node::folder::not_written("listen at", &socket, &error))?;
            let places = Places { folder: &folder, cache: &cache, socket: &short };
            let served =
                store::serve(&uri, budget.0, places, &access, Limits::default()).map_err(|error| error.finding())?;
            let note = store::left_out_objects(&served.unreadable);
            let (path, origin) = (served.path.clone(), OriginWatch::new(&uri));
            Ok(StagedInput {
                path,
                served: Some(Serving { served, _handle: handle, origin }),
                brought: Brought::default(),
                placed: None,
                container: None,
                setup: None,
                note,
            })
        });
    }
    let cache = home.join("cache/data");
    begin(start, tools, move |brought| {
        if let Some(path) = brought.inputs.get(&RunInput::Data) {
            return Ok(path.clone().into());
        }
        let staged = store::stage(&uri, &cache, &access, Limits::default(), &Meter::default());
        let staged = staged.map_err(|error| error.finding())?;
        Ok(StagedInput { note: store::left_out_objects(&staged.pulled.unreadable), ..staged.path.into() })
    });
}

/// Copies the working folder of a program and its mounts.
pub fn program(start: &Start, tools: &Tools, command: &Command, folder: &Path) {
    let original = command.workdir.clone().map(|path| WorkdirSource::Original(path.into()));
    let kept = (Path::new(&start.folder).join("checkpoints"), command.outputs.clone());
    let (root, user_home, access) = (tools.root.clone(), tools.user_home.clone(), tools.access.clone());
    let target = MountTarget { attempt: folder.to_owned(), root, user_home, access };
    let (mounts, of_setup) = (command.file_mounts.clone(), (start.clone(), command.clone()));
    let log = peers::log(Path::new(&start.folder), &start.attempt, first_rank(start));
    let request = command.image.clone().map(|image| container_request(image, start, tools, folder, log));
    begin(start, tools, move |brought| {
        let workdir = target.attempt.join("workdir");
        let source = brought.inputs.get(&RunInput::Workdir).cloned().map(WorkdirSource::Brought);
        workdir::prepare(source.or(original).as_ref(), &workdir, &kept)?;
        let placed = workdir::place(&mounts, brought, &target)?;
        let container = request.map(|request| Container::start(&request, &placed)).transpose()?;
        let setup = SetupKey::of(&of_setup.0, &of_setup.1, &workdir);
        let note = container.as_ref().and_then(Container::note);
        Ok(StagedInput { placed: Some(placed), container, setup, note, ..workdir.into() })
    });
}

/// Fetches inputs from the loop's machine, if that is another one, does the work, and notifies the attempt; one that
/// has ended meanwhile ignores it.
pub fn begin(
    start: &Start,
    tools: &Tools,
    work: impl FnOnce(&Brought) -> Result<StagedInput, Finding> + Send + 'static,
) {
    let (events, id) = (tools.events.clone(), start.attempt.clone());
    let (files, destination) = (tools.remote.as_ref().map(|remote| remote.files.clone()), tools.destination(start));
    let (start, root) = (start.clone(), tools.root.clone());
    std::thread::spawn(move || {
        let brought = travel::bring(files.as_ref(), destination, &start, &root);
        let staged = brought.and_then(|brought| {
            let staged = work(&brought)?;
            Ok(StagedInput { brought, ..staged })
        });
        let _ = events.send(Wakeup::Attempt(id, AttemptEvent::Staged(staged.map(Box::new).map_err(Box::new))));
    });
}

/// The first rank of this machine among all.
pub fn first_rank(start: &Start) -> u32 {
    let of_node = match &start.job.work {
        Work::Train(train) => train.processes.max(1),
        Work::Command(_) => 1,
    };
    start.member.map_or(0, |place| place.rank * of_node)
}

/// Replaces a job's paths on the loop's machine by those on this one.
fn replaced(train: Train, brought: &Brought) -> Train {
    let mut work = Work::Train(train.clone());
    for (input, path) in &brought.inputs {
        input.replace(&mut work, path.to_string_lossy().into_owned());
    }
    if let Work::Train(replaced) = work { replaced } else { train }
}

impl Attempt {
    /// The inputs are staged: starts the process.
    pub(super) fn staged(&mut self, input: StagedInput, now: Duration) -> Vec<AgentEvent> {
        self.uploader.iter().for_each(Uploader::staged);
        if !matches!(self.stage, Stage::Staging) || self.ending.is_some() {
            return Vec::new();
        }
        let StagedInput { path, served, brought, placed, container, setup, note } = input;
        let notes = note.into_iter().chain(brought.warnings.iter().cloned());
        let mut events: Vec<AgentEvent> = notes.map(|text| reported(Report::Note { text })).collect();
        (self.served, self.placed, self.container) = (served, placed, container);
        self.remember_copies(&brought);
        if let Working::Train { train, .. } = &mut self.work {
            **train = replaced((**train).clone(), &brought);
        }
        let is_set_up = self.is_set_up(setup);
        events.extend(match &self.work {
            Working::Command { command: Command { setup: Some(_), .. }, .. } if is_set_up => {
                let text = "`setup` is left out: this run has done it on this machine, and it would do the same again";
                let mut events = vec![reported(Report::Note { text: text.to_owned() })];
                events.extend(self.prepared(path, now));
                events
            }
            Working::Command { command: Command { setup: Some(text), .. }, .. } => {
                self.start_program(Role::Setup, &text.clone())
            }
            Working::Command { .. } | Working::Train { .. } => self.prepared(path, now),
        });
        events
    }

    /// Whether the set-up with this key need not be repeated. If it must, or another program may change the machine, what was
    /// set up before does not count any more.
    fn is_set_up(&mut self, key: Option<SetupKey>) -> bool {
        let Working::Command { setup, .. } = &mut self.work else { return false };
        let is_done = key.as_ref().is_some_and(|key| key.is_noted(&self.tools.root));
        *setup = ProgramSetup { key, is_left_out: is_done };
        if !is_done {
            forget_setup(&self.tools.root);
        }
        is_done
    }

    /// Starts the trainer on data that is on this machine.
    pub(super) fn start_rank(&mut self, data: &Path, now: Duration) -> Result<Vec<AgentEvent>, Box<Finding>> {
        let Working::Train { train, folder, link, watchdog, peers, .. } = &mut self.work else {
            return Ok(Vec::new());
        };
        let libraries = self.tools.libtorch.as_ref().map(|libtorch| libtorch.join("lib"));
        let unused = libraries.and_then(|libraries| {
            library::unused_gpus(program::gpus_of(&self.start), &libraries, self.tools.remote.is_some())
        });
        let (stated, preloading) = (self.start.job.hang_after, data::preloading(&train.data));
        *watchdog = Watchdog::new(now, SilenceLimits::of(&self.tools.patience, stated, preloading));
        let local_ranks = train.processes.max(1);
        let place = self.start.member.unwrap_or(NodeRank { rank: 0, nodes: 1 });
        let first = place.rank * local_ranks;
        let alone = || NodeAddress { host: program::HERE.to_owned(), port: program::free_port() };
        let meeting = self.nodes.first().cloned().unwrap_or_else(alone);
        let launch = |local_rank: u32, socket: &Path, log: &Path| {
            let (rank, ranks, node) = (first + local_rank, local_ranks * place.nodes, place.rank);
            let seat = Seat { rank, ranks, local_rank, local_ranks, node, meeting: meeting.clone() };
            let mut command =
                trainer::command(&self.start, &self.tools, (**train).clone(), data, folder, socket, seat)?;
            self.tools.tag(&mut command, &self.start.attempt);
            Process::start(command, log, self.start.job.secret_values(), &self.start.attempt, &self.tools.events)
        };
        let process = launch(0, link.path(), &self.log)?;
        for (rank, socket, log) in peers.seats() {
            peers.started(rank, launch(rank, &socket, &log)?);
        }
        self.stage = Stage::Running { process, role: Role::Rank, kills: KillCounters::read() };
        let note = unused.map(|text| reported(Report::Note { text }));
        Ok(std::iter::once(AgentEvent::Started).chain(note).collect())
    }

    /// Whether rank 0, which reports for all ranks of the built-in trainer, is on another machine.
    pub(super) fn is_follower(&self) -> bool {
        self.start.member.is_some_and(|place| place.rank > 0)
    }

    /// All that its ranks need is here: they start, or wait for other machines to be prepared.
    pub(super) fn prepared(&mut self, data: PathBuf, now: Duration) -> Vec<AgentEvent> {
        if self.start.member.is_none() {
            return self.start_work(&data, now);
        }
        self.stage = Stage::Prepared { data };
        // Without an address the others are on this machine too.
        let host = self.tools.address.clone().unwrap_or_else(|| program::HERE.to_owned());
        vec![AgentEvent::Prepared { address: NodeAddress { host, port: program::free_port() } }]
    }

    /// All machines are prepared: the ranks start, unless they were started before.
    pub fn go(&mut self, nodes: Vec<NodeAddress>, now: Duration) -> Vec<AgentEvent> {
        let (Stage::Prepared { data }, None) = (&self.stage, &self.ending) else { return Vec::new() };
        let data = data.clone();
        self.nodes = nodes;
        self.start_work(&data, now)
    }

    fn start_work(&mut self, data: &Path, now: Duration) -> Vec<AgentEvent> {
        if let Working::Command { command, .. } = &self.work {
            return self.start_program(Role::Program, &command.run.clone());
        }
        self.start_rank(data, now).unwrap_or_else(|finding| {
            self.sweep(AttemptEnd::Failed { finding: *finding, exit_code: None }, now);
            Vec::new()
        })
    }
}
