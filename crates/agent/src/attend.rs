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

use cloud::local::folder::{self, Folder, Lock};
use domain::run::AttemptEnd;
use domain::wire::{self, Orders, Start, Tick, Word};
use domain::{AttemptId, Elapsed};

use crate::attempt::{Attempt, Tools, Why};
use crate::clock::Clock;
use crate::event::Event;
use crate::meter::Meter;
use crate::post::Post;
use crate::spool::Spool;
use crate::{Departure, Error, Patience, Settings, signals};

/// Between the starts of two calls, unless a word that matters waits.
const GAP: Duration = Duration::from_millis(30);

/// Until a failed call is repeated.
const RETRY: Duration = Duration::from_millis(50);

/// Words in one call.
const BATCH: usize = 2000;

/// How long a signalled agent tries to say its last words.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Looks after the instance in `settings.folder`.
pub fn run(settings: Settings, patience: Patience) -> Result<Departure, Error> {
    let fail = |doing| {
        let folder = settings.folder.clone();
        move |source| Error { folder, doing, source }
    };
    let folder = Folder::new(&settings.folder);
    let order = folder.order().and_then(|order| order.ok_or(io::ErrorKind::NotFound.into()));
    let order = order.map_err(fail("read `launch.json`"))?;
    let Some(mut lock) = own_lock(&folder).map_err(fail("take the lock"))? else { return Ok(Departure::Attended) };
    if folder.usage().map_err(fail("read the meter"))?.is_some() {
        return Ok(Departure::Spent);
    }
    let clock = Clock::start();
    let meter = folder.meter(clock.started()).map_err(fail("write the meter"))?;
    let meter = Meter::start(meter, clock);
    let (events, inbox) = mpsc::channel();
    signals::watch(events.clone()).map_err(fail("watch for signals"))?;
    // Signed only now: whoever reads it sends signals, and these are watched for.
    lock.sign().map_err(fail("sign the lock"))?;
    let spool = Spool::create(&folder).map_err(fail("write the spool"))?;
    let post = Post::start(order.socket.clone(), patience.call, events.clone());
    let mut agent = Agent {
        clock,
        events,
        post,
        spool,
        patience,
        attempt: None,
        begun: BTreeSet::new(),
        lease: Lease { last_answer: Duration::ZERO, length: patience.first_answer, is_refused: false },
        calls: Calls { is_under_way: false, last: Duration::ZERO, next: Duration::ZERO, backoff: Duration::ZERO },
        leaving: None,
        folder: settings.folder.clone(),
        access: settings.access.clone(),
        order,
    };
    let departure = agent.attend(&inbox);
    meter.stop();
    // All that it had to say is in the spool before the lock says that it is gone.
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
    events: Sender<Event>,
    post: Post,
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
    order: folder::Order,
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
    /// Waited for the loop to take the last words until then.
    until: Duration,
}

impl Lease {
    fn ends(&self) -> Duration {
        self.last_answer + self.length
    }
}

impl Agent {
    fn attend(&mut self, inbox: &Receiver<Event>) -> Departure {
        loop {
            self.turn();
            if let Some(departure) = self.departure() {
                return departure;
            }
            let due = self.due().saturating_sub(self.clock.now());
            let event = match inbox.recv_timeout(due) {
                Ok(event) => event,
                // This end holds a sender too, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Timer,
            };
            self.handle(event);
            // All that waits is taken before anything is sent, so that one call carries it.
            while let Ok(event) = inbox.try_recv() {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Attempt(id, happening) => {
                // What comes after an attempt's end is about nothing.
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| *attempt.id() == id) {
                    for word in attempt.hear(happening, now) {
                        self.spool.push(&id, word);
                    }
                }
            }
            Event::Answered(Ok(orders)) => self.answered(orders, now),
            Event::Answered(Err(_)) => {
                self.calls.is_under_way = false;
                self.calls.backoff = now + RETRY;
                self.lease.is_refused |= now > self.lease.ends();
            }
            Event::Signalled => self.leave(Departure::Signalled, Why::Signalled, now),
            Event::Timer => {}
        }
    }

    fn answered(&mut self, orders: Orders, now: Duration) {
        self.calls.is_under_way = false;
        self.calls.next = now + Duration::from_micros(orders.next.micros());
        let length = Duration::from_micros(orders.lease.micros());
        self.lease = Lease { last_answer: now, length, is_refused: false };
        self.spool.acknowledge(orders.acknowledged);
        for order in orders.orders {
            match order {
                wire::Order::Start(start) => self.start(*start, now),
                wire::Order::Stop { attempt } => self.stop(attempt, now),
                wire::Order::Leave => self.leave(Departure::Ordered, Why::Leave, now),
            }
        }
    }

    fn start(&mut self, start: Start, now: Duration) {
        if self.leaving.is_some() || self.begun.contains(&start.attempt) {
            return;
        }
        if let Some(older) = &mut self.attempt {
            // The order is repeated, and finds the machine free once the older attempt has ended.
            older.end(Why::Replaced, now);
            return;
        }
        let id = start.attempt.clone();
        self.begun.insert(id.clone());
        let tools = Tools {
            rank_program: self.order.rank_program.clone(),
            libtorch: self.order.libtorch.clone(),
            owner: self.order.owner.clone(),
            instance: self.order.instance.clone(),
            folder: self.folder.clone(),
            access: self.access.clone(),
            patience: self.patience,
            lease: self.lease.length,
            events: self.events.clone(),
        };
        match Attempt::begin(start, tools, now) {
            Ok((attempt, words)) => {
                self.attempt = Some(attempt);
                for word in words {
                    self.spool.push(&id, word);
                }
            }
            Err(finding) => {
                let end = AttemptEnd::Failed { finding: *finding, exit_code: None };
                self.spool.push(&id, Word::Ended { end });
            }
        }
    }

    fn stop(&mut self, id: AttemptId, now: Duration) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| *attempt.id() == id) {
            attempt.end(Why::Stop, now);
        } else if self.begun.insert(id.clone()) {
            // Stopped before its start was ever ordered: it will not be started, and the loop waits for its end.
            self.spool.push(&id, Word::Ended { end: AttemptEnd::Stopped { step: None } });
        }
    }

    fn leave(&mut self, departure: Departure, why: Why, now: Duration) {
        // An order to leave overtakes a departure that takes its time; nothing else is a reason to begin again.
        let before = self.leaving.as_ref().map(|leaving| leaving.departure);
        if before == Some(Departure::Ordered) || (before.is_some() && departure != Departure::Ordered) {
            return;
        }
        self.leaving = Some(Leaving { departure, until: now + LAST_WORDS });
        if let Some(attempt) = &mut self.attempt {
            attempt.end(why, now);
        }
    }

    /// Does what is due.
    fn turn(&mut self) {
        let now = self.clock.now();
        if self.leaving.is_none() && self.lease.is_refused {
            self.leave(Departure::LeaseOver, Why::LeaseOver, now);
        }
        if let Some(attempt) = &mut self.attempt {
            let id = attempt.id().clone();
            if let Some(end) = attempt.turn(now) {
                self.spool.push(&id, Word::Ended { end });
                self.attempt = None;
                if let Some(leaving) = &mut self.leaving {
                    leaving.until = now + LAST_WORDS;
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
        self.post.send(Tick {
            schema: wire::SCHEMA,
            instance: self.order.instance.clone(),
            started: self.clock.started(),
            elapsed: Elapsed::from_std(now),
            entries: self.spool.send(BATCH),
        });
    }

    /// When the next call is to be made, if none is under way.
    fn call_due(&self) -> Duration {
        let wanted = match (self.spool.is_urgent(), self.spool.is_empty()) {
            (true, _) => Duration::ZERO,
            (false, false) => self.calls.last + GAP,
            (false, true) => self.calls.next,
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
        let has_said_all = match leaving.departure {
            // The loop has given up what happens here.
            Departure::Ordered | Departure::Attended | Departure::Spent => true,
            Departure::LeaseOver | Departure::Signalled => self.spool.is_empty() || self.clock.now() >= leaving.until,
        };
        has_said_all.then_some(leaving.departure)
    }
}
