//! The agent's loop: everything that wakes it, and everything that is due.
//!
//! The lease is the dead-man switch: when the loop has not answered for longer than it granted, and a call after that
//! moment has failed too, the attempt is ended (its state saved first) and the agent leaves. A machine that slept
//! past its lease therefore asks once more before it gives up.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use domain::run::AttemptEnd;
use domain::wire::{self, AgentEvent, Heartbeat, HeartbeatReply, Start};
use domain::{AttemptId, Elapsed};
use node::{Folder, LaunchSpec, Lock, Spool};

use crate::attempt::{Attempt, StopReason, Tools};
use crate::clock::Clock;
use crate::event::Wakeup;
use crate::loop_client::LoopClient;
use crate::meter::RentMeter;
use crate::{AgentSettings, Departure, Error, Patience, signals};

/// Between the starts of two calls, unless an urgent event waits.
const GAP: Duration = Duration::from_millis(30);

/// Until a failed call is repeated.
const RETRY: Duration = Duration::from_millis(50);

/// Events in one heartbeat.
const BATCH: usize = 2000;

/// How long a signalled agent tries to report what is left.
const LAST_CALL: Duration = Duration::from_millis(300);

/// Looks after the instance in `settings.folder`.
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
    // Signed only now: whoever reads it sends signals, and these are watched for.
    lock.sign().map_err(fail("sign the lock"))?;
    let spool = Spool::create(&folder).map_err(fail("write the spool"))?;
    let client = LoopClient::start(spec.socket.clone(), patience.call, events.clone());
    let mut agent = Agent {
        clock,
        events,
        client,
        spool,
        patience,
        attempt: None,
        begun: BTreeSet::new(),
        lease: Lease { last_answer: Duration::ZERO, length: patience.first_answer, is_refused: false },
        calls: Calls { is_under_way: false, last: Duration::ZERO, next: Duration::ZERO, backoff: Duration::ZERO },
        leaving: None,
        folder: settings.folder.clone(),
        access: settings.access.clone(),
        spec,
    };
    let departure = agent.attend(&inbox);
    meter.stop();
    // All that it had to report is in the spool before the lock says that it is gone.
    drop(agent);
    drop(lock);
    Ok(departure)
}

/// The lock that the provider has handed over, or else the one in the folder when nobody holds it.
fn own_lock(folder: &Folder) -> io::Result<Option<Lock>> {
    let handed = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    match folder.inherit(handed)? {
        Some(lock) => Ok(Some(lock)),
        None => folder.lock(),
    }
}

struct Agent {
    clock: Clock,
    events: Sender<Wakeup>,
    client: LoopClient,
    spool: Spool,
    patience: Patience,
    attempt: Option<Attempt>,
    /// Every attempt that was ever started here, so that a repeated order starts nothing.
    begun: BTreeSet<AttemptId>,
    lease: Lease,
    calls: Calls,
    leaving: Option<Leaving>,
    folder: std::path::PathBuf,
    access: store::Access,
    spec: LaunchSpec,
}

/// How long the agent may go on alone. All times here are since the agent's start.
struct Lease {
    last_answer: Duration,
    length: Duration,
    /// Whether a call that ended after the lease has failed.
    is_refused: bool,
}

struct Calls {
    is_under_way: bool,
    /// Start of the last one.
    last: Duration,
    /// When the loop wants to be called again.
    next: Duration,
    /// None before this, whatever waits.
    backoff: Duration,
}

struct Leaving {
    departure: Departure,
    /// When it stops waiting for the loop to acknowledge the rest.
    until: Duration,
}

impl Lease {
    fn ends(&self) -> Duration {
        self.last_answer + self.length
    }
}

impl Agent {
    fn attend(&mut self, inbox: &Receiver<Wakeup>) -> Departure {
        loop {
            self.turn();
            if let Some(departure) = self.departure() {
                return departure;
            }
            let due = self.due().saturating_sub(self.clock.now());
            let event = match inbox.recv_timeout(due) {
                Ok(event) => event,
                // This end holds a sender too, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Wakeup::Timer,
            };
            self.handle(event);
            // All that waits is taken before anything is sent, so that one call carries it.
            while let Ok(event) = inbox.try_recv() {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Wakeup) {
        let now = self.clock.now();
        match event {
            Wakeup::Attempt(id, event) => {
                // What comes after an attempt's end is about nothing.
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| *attempt.id() == id) {
                    for event in attempt.hear(event, now) {
                        self.spool.push(&id, event);
                    }
                }
            }
            Wakeup::Answered(Ok(reply)) => self.answered(reply, now),
            Wakeup::Answered(Err(_)) => {
                self.calls.is_under_way = false;
                self.calls.backoff = now + RETRY;
                self.lease.is_refused |= now > self.lease.ends();
            }
            Wakeup::Signalled => self.leave(Departure::Signalled, StopReason::Signalled, now),
            Wakeup::Timer => {}
        }
    }

    fn answered(&mut self, reply: HeartbeatReply, now: Duration) {
        self.calls.is_under_way = false;
        self.calls.next = now + Duration::from_micros(reply.next.micros());
        let length = Duration::from_micros(reply.lease.micros());
        self.lease = Lease { last_answer: now, length, is_refused: false };
        self.spool.acknowledge(reply.acknowledged, reply.measured.unwrap_or(reply.acknowledged));
        for order in reply.orders {
            match order {
                wire::AgentCommand::Start(start) => self.start(*start, now),
                wire::AgentCommand::Stop { attempt } => self.stop(attempt, now),
                wire::AgentCommand::Leave => self.leave(Departure::Ordered, StopReason::Leave, now),
            }
        }
    }

    fn start(&mut self, start: Start, now: Duration) {
        if self.leaving.is_some() || self.begun.contains(&start.attempt) {
            return;
        }
        if let Some(older) = &mut self.attempt {
            // The order is repeated, and finds the machine free once the older attempt has ended.
            older.end(StopReason::Replaced, now);
            return;
        }
        let id = start.attempt.clone();
        self.begun.insert(id.clone());
        let tools = Tools {
            rank_program: self.spec.rank_program.clone(),
            libtorch: self.spec.libtorch.clone(),
            owner: self.spec.owner.clone(),
            instance: self.spec.instance.clone(),
            folder: self.folder.clone(),
            access: self.access.clone(),
            patience: self.patience,
            lease: self.lease.length,
            events: self.events.clone(),
        };
        match Attempt::begin(start, tools, now) {
            Ok((attempt, events)) => {
                self.attempt = Some(attempt);
                for event in events {
                    self.spool.push(&id, event);
                }
            }
            Err(finding) => {
                let end = AttemptEnd::Failed { finding: *finding, exit_code: None };
                self.spool.push(&id, AgentEvent::Ended { end });
            }
        }
    }

    fn stop(&mut self, id: AttemptId, now: Duration) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| *attempt.id() == id) {
            attempt.end(StopReason::Stop, now);
        } else if self.begun.insert(id.clone()) {
            // Stopped before its start was ever ordered: it will not be started, and the loop waits for its end.
            self.spool.push(&id, AgentEvent::Ended { end: AttemptEnd::Stopped { step: None } });
        }
    }

    fn leave(&mut self, departure: Departure, reason: StopReason, now: Duration) {
        // An order to leave overtakes a departure that takes its time; nothing else is a reason to begin again.
        let before = self.leaving.as_ref().map(|leaving| leaving.departure);
        if before == Some(Departure::Ordered) || (before.is_some() && departure != Departure::Ordered) {
            return;
        }
        self.leaving = Some(Leaving { departure, until: now + LAST_CALL });
        if let Some(attempt) = &mut self.attempt {
            attempt.end(reason, now);
        }
    }

    /// Does what is due.
    fn turn(&mut self) {
        let now = self.clock.now();
        if self.leaving.is_none() && self.lease.is_refused {
            self.leave(Departure::LeaseOver, StopReason::LeaseOver, now);
        }
        if let Some(attempt) = &mut self.attempt {
            let id = attempt.id().clone();
            if let Some(end) = attempt.turn(now) {
                self.spool.push(&id, AgentEvent::Ended { end });
                self.attempt = None;
                if let Some(leaving) = &mut self.leaving {
                    leaving.until = now + LAST_CALL;
                }
            }
        }
        if !self.calls.is_under_way && self.call_due() <= now {
            self.call(now);
        }
    }

    fn call(&mut self, now: Duration) {
        self.calls.is_under_way = true;
        self.calls.last = now;
        self.client.send(Heartbeat {
            schema: wire::SCHEMA,
            instance: self.spec.instance.clone(),
            started: self.clock.started(),
            elapsed: Elapsed::from_std(now),
            entries: self.spool.send(BATCH),
        });
    }

    /// When the next call is to be made, if none is under way.
    fn call_due(&self) -> Duration {
        let wanted = match (self.spool.is_urgent(), self.spool.is_empty()) {
            (true, _) => Duration::ZERO,
            (false, false) if !self.spool.is_refused() => self.calls.last + GAP,
            (false, _) => self.calls.next,
        };
        wanted.min(self.lease.ends()).max(self.calls.backoff)
    }

    /// When something is due next.
    fn due(&self) -> Duration {
        let call = if self.calls.is_under_way { Duration::MAX } else { self.call_due() };
        let attempt = self.attempt.as_ref().map_or(Duration::MAX, Attempt::due);
        let leaving = self.leaving.as_ref().map_or(Duration::MAX, |leaving| leaving.until);
        let leaving = if self.attempt.is_some() { Duration::MAX } else { leaving };
        call.min(attempt).min(leaving).min(self.clock.now() + Duration::from_secs(3600))
    }

    fn departure(&self) -> Option<Departure> {
        let leaving = self.leaving.as_ref().filter(|_| self.attempt.is_none())?;
        let has_reported_all = match leaving.departure {
            // The loop has given up what happens here.
            Departure::Ordered | Departure::Attended | Departure::Spent => true,
            Departure::LeaseOver | Departure::Signalled => self.spool.is_empty() || self.clock.now() >= leaving.until,
        };
        has_reported_all.then_some(leaving.departure)
    }
}
