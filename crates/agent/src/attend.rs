//! The shell around [`control::Supervisor`]: it has the clock, the files, the socket and the processes, and decides
//! only about the running attempt.

mod read_back;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use control::{Departure, Supervisor, SupervisorInput, SupervisorOutput, is_decision};
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, Start};
use domain::{Elapsed, RunId};
use node::facts::ProgramUser;
use node::{Folder, LaunchSpec, Lock, Spool, SpoolPart};

use crate::attempt::Attempt;
use crate::clock::Clock;
use crate::devices;
use crate::event::Wakeup;
use crate::loop_client::LoopClient;
use crate::loop_request::LoopPlace;
use crate::loop_request::direct::DirectLoop;
use crate::meter::RentMeter;
use crate::reclaim::{self, MetadataService};
use crate::tools::Tools;
use crate::travel::{LeftFiles, LoopFiles, RemoteLoop};
use crate::{AgentSettings, Error, Patience, signals};
use read_back::SpoolReader;

/// A loop that has not answered for longer is away: what would be reported now may be wrong when it is back.
const HEARD_WITHIN: Elapsed = Elapsed(30_000_000);

/// Events that are handled before it is looked at what is due, at most: however much a program reports, the loop is called.
const AT_ONCE: usize = 1_000;

/// Supervises the instance in `settings.folder`.
pub fn run(settings: AgentSettings, patience: Patience) -> Result<Departure, Error> {
    let fail = |doing| {
        let folder = settings.folder.clone();
        move |source| Error { folder, doing, source }
    };
    let folder = Folder::new(&settings.folder);
    let spec = folder.launch_spec().and_then(|spec| spec.ok_or(io::ErrorKind::NotFound.into()));
    let spec = spec.map_err(fail("read `launch.json`"))?;
    let Some(mut lock) = own_lock(&folder).map_err(fail("take the lock"))? else { return Ok(Departure::Attended) };
    if folder.usage().map_err(fail("read the meter"))?.is_some() {
        return Ok(Departure::Spent);
    }
    let clock = Clock::start();
    let meter = folder.meter(clock.started()).map_err(fail("write the meter"))?;
    let meter = RentMeter::start(meter, clock);
    let (events, inbox) = mpsc::channel();
    signals::watch(events.clone()).map_err(fail("watch for signals"))?;
    // Signed only now: a process that reads it may send signals, which are handled from here on.
    lock.sign().map_err(fail("sign the lock"))?;
    if let Some(service) = settings.metadata.clone().or_else(MetadataService::detect) {
        reclaim::watch(service, events.clone());
    }
    devices::watch(events.clone(), patience.devices);
    let spool = Spool::create(&folder).map_err(fail("write the spool"))?;
    let place = match &spec.server {
        None => LoopPlace::Socket(spec.socket.clone()),
        Some(server) => {
            let server = DirectLoop::open(server, &folder, &spec.instance);
            LoopPlace::Direct(Arc::new(server.map_err(fail("prepare to join its server"))?))
        }
    };
    let client = LoopClient::start(place.clone(), patience.call, events.clone());
    let first_answer = Elapsed::from_std(patience.first_answer);
    let first_answer = spec.first_answer.map_or(first_answer, |time| first_answer.min(Elapsed(time.micros())));
    let reader = SpoolReader::start(events.clone());
    let mut agent = Agent {
        supervisor: Supervisor::new(spec.instance.clone(), clock.started(), first_answer).with_incarnation(drawn()),
        clock,
        events,
        client,
        place,
        spool,
        reader,
        patience,
        attempt: None,
        folder: settings.folder.clone(),
        user_home: settings.user_home.clone(),
        access: settings.access.clone(),
        spec,
        run: None,
        left: LeftFiles::default(),
    };
    let departure = agent.attend(&inbox);
    meter.stop();
    // All pending reports are in the spool before the lock is released.
    drop(agent);
    drop(lock);
    Ok(departure)
}

/// The lock passed by the provider, or else the one in the folder if it is free.
fn own_lock(folder: &Folder) -> io::Result<Option<Lock>> {
    let handed = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    match folder.inherit(handed)? {
        Some(lock) => Ok(Some(lock)),
        None => folder.lock(),
    }
}

/// What is pending, up to [`AT_ONCE`].
fn pending(inbox: &Receiver<Wakeup>) -> impl Iterator<Item = Wakeup> {
    inbox.try_iter().take(AT_ONCE)
}

/// A number that no other agent of the same name has drawn. Other programs read it in JSON, whose numbers have 53 bits.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random >> 11).max(1)
}

struct Agent {
    supervisor: Supervisor,
    clock: Clock,
    events: Sender<Wakeup>,
    client: LoopClient,
    place: LoopPlace,
    spool: Spool,
    reader: SpoolReader,
    patience: Patience,
    attempt: Option<Attempt>,
    folder: std::path::PathBuf,
    user_home: Option<std::path::PathBuf>,
    access: store::Access,
    spec: LaunchSpec,
    /// The run that works here, or did last.
    run: Option<RunId>,
    left: LeftFiles,
}

impl Agent {
    fn attend(&mut self, inbox: &Receiver<Wakeup>) -> Departure {
        let mut inputs = VecDeque::from([SupervisorInput::Timer]);
        loop {
            if let Some(departure) = self.take(&mut inputs) {
                return departure;
            }
            let event = match inbox.recv_timeout(self.patience()) {
                Ok(event) => event,
                // This end holds a sender too, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Wakeup::Timer,
            };
            inputs.extend(self.input(event));
            // Pending events are handled before anything is sent, so that one call carries them.
            for event in pending(inbox) {
                inputs.extend(self.input(event));
            }
            inputs.extend(self.turn());
            inputs.push_back(SupervisorInput::Timer);
        }
    }

    /// Translates an event for the supervisor, if it concerns it: most are first handled by the attempt.
    fn input(&mut self, event: Wakeup) -> Option<SupervisorInput> {
        match event {
            Wakeup::Attempt(id, event) => {
                // Events after an attempt's end are ignored.
                let attempt = self.attempt.as_mut().filter(|attempt| *attempt.id() == id)?;
                let events = attempt.hear(event, self.clock.now());
                (!events.is_empty()).then_some(SupervisorInput::Happened { attempt: id, events })
            }
            Wakeup::Answered(reply) => Some(SupervisorInput::Answered(reply.ok().map(Box::new))),
            Wakeup::ReadBack(SpoolPart { through, entries }) => Some(SupervisorInput::ReadBack { through, entries }),
            Wakeup::Signalled => Some(SupervisorInput::Signalled),
            Wakeup::ReclaimNotice(left) => Some(SupervisorInput::ReclaimNotice(Elapsed::from_std(left))),
            Wakeup::OfMachine(report) => {
                let attempt = self.attempt.as_mut()?;
                attempt.note_devices(&report);
                let attempt = attempt.id().clone();
                let events = vec![AgentEvent::Reported { rank: 0, report }];
                Some(SupervisorInput::Happened { attempt, events })
            }
            Wakeup::Timer => None,
        }
    }

    /// Runs the attempt's due timers.
    fn turn(&mut self) -> Vec<SupervisorInput> {
        let now = self.clock.now();
        let is_heard = self.supervisor.unanswered_for(Elapsed::from_std(now)) < HEARD_WITHIN;
        let Some(attempt) = &mut self.attempt else { return Vec::new() };
        let id = attempt.id().clone();
        // What an ended program has measured is sent before its end.
        let due = [attempt.look_at_origin(now), attempt.check_idle(is_heard, now), attempt.stop_observing(now)];
        let happened = |event| SupervisorInput::Happened { attempt: id.clone(), events: vec![event] };
        let mut inputs: Vec<SupervisorInput> = due.into_iter().flatten().map(happened).collect();
        if let Some(end) = attempt.turn(now) {
            self.attempt = None;
            inputs.push(SupervisorInput::Ended { attempt: id, end });
        }
        inputs
    }

    /// Passes inputs to the supervisor and carries out its outputs; returns the departure once it leaves.
    fn take(&mut self, inputs: &mut VecDeque<SupervisorInput>) -> Option<Departure> {
        while let Some(input) = inputs.pop_front() {
            let now = Elapsed::from_std(self.clock.now());
            for output in self.supervisor.step(input, now) {
                match output {
                    SupervisorOutput::Write(entry) => {
                        // A decision is in memory even if the disk fails, and one that is not sent would be the greater
                        // loss. Measurements that only the disk had to keep are counted when they are read back.
                        let _ = self.spool.write(&entry, is_decision(&entry.event));
                    }
                    SupervisorOutput::Forget { before } => {
                        let _ = self.spool.forget(before);
                    }
                    SupervisorOutput::ReadBack(range) => self.reader.read(self.spool.find(range.entries, range.bytes)),
                    SupervisorOutput::Call(heartbeat) => self.client.send(heartbeat),
                    SupervisorOutput::Begin(start) => inputs.extend(self.begin(*start)),
                    SupervisorOutput::Go { nodes } => {
                        let now = self.clock.now();
                        let events =
                            self.attempt.as_mut().map(|attempt| (attempt.id().clone(), attempt.go(nodes, now)));
                        let happened = |(attempt, events)| SupervisorInput::Happened { attempt, events };
                        inputs.extend(events.filter(|(_, events)| !events.is_empty()).map(happened));
                        inputs.extend(self.turn());
                    }
                    SupervisorOutput::End { why, within } => {
                        let within = within.map(|within| Duration::from_micros(within.0));
                        if let Some(attempt) = &mut self.attempt {
                            attempt.end(why, within, self.clock.now());
                        }
                        inputs.extend(self.turn());
                    }
                    SupervisorOutput::Leave(departure) => return Some(departure),
                }
            }
        }
        None
    }

    fn begin(&mut self, mut start: Start) -> Option<SupervisorInput> {
        let id = start.attempt.clone();
        let root = self.folder.ancestors().nth(2).unwrap_or(&self.folder).to_owned();
        let before = self.run.replace(start.run.clone());
        if let Some(before) = before.filter(|before| self.spec.is_remote && *before != start.run) {
            // Its run took the machine over: nothing of the one before is left for it, and nothing takes disk space.
            self.left.add(before);
        }
        if self.spec.is_remote {
            self.left.keep(&start.run);
            let events = self.events.clone();
            // An agent that has ended is told nothing.
            self.left.delete(&root.join("runs"), move |report| drop(events.send(Wakeup::OfMachine(report))));
        }
        let remote = self
            .spec
            .is_remote
            .then(|| RemoteLoop { files: LoopFiles::new(&self.place), folder: start.folder.clone() });
        if remote.is_some() {
            start.folder = root.join("runs").join(start.run.as_str()).to_string_lossy().into_owned();
        }
        let program_user = ProgramUser::of_machine();
        let tools = Tools {
            rank_program: self.spec.rank_program.clone(),
            libtorch: self.spec.libtorch.clone(),
            owner: self.spec.owner.clone(),
            instance: self.spec.instance.clone(),
            folder: self.folder.clone(),
            root,
            remote,
            address: self.spec.address.clone(),
            user_home: program_user.as_ref().map(|user| user.home.clone()).or_else(|| self.user_home.clone()),
            program_user,
            access: self.access.clone(),
            patience: self.patience,
            lease: Duration::from_micros(self.supervisor.lease().0),
            events: self.events.clone(),
        };
        match Attempt::begin(start, tools, self.clock.now()) {
            Ok((attempt, events)) => {
                self.attempt = Some(attempt);
                (!events.is_empty()).then_some(SupervisorInput::Happened { attempt: id, events })
            }
            Err(finding) => {
                let end = AttemptEnd::Failed { finding: *finding, exit_code: None };
                Some(SupervisorInput::Ended { attempt: id, end })
            }
        }
    }

    /// How long until the next timer.
    fn patience(&self) -> Duration {
        let supervisor = Duration::from_micros(self.supervisor.due().0);
        let attempt = self.attempt.as_ref().map_or(Duration::MAX, Attempt::due);
        let due = supervisor.min(attempt).min(self.clock.now() + Duration::from_secs(3600));
        due.saturating_sub(self.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_reports_without_a_pause_does_not_keep_the_agent_from_calling() {
        let (events, inbox) = mpsc::channel();
        (0..2 * AT_ONCE + 1).for_each(|_| events.send(Wakeup::Timer).unwrap());
        let counts = [(); 3].map(|()| pending(&inbox).count());
        assert_eq!(counts, [AT_ONCE, AT_ONCE, 1]);
    }
}
