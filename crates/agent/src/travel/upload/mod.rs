//! Uploads an attempt's outputs to the loop, or its checkpoints to an object store: each checkpoint as soon as it is
//! complete, logs as they grow, and everything at the end.
//!
//! A manifest is sent after the files that it lists, so that there is never one that cannot be restored. What has
//! failed is sent again in the next round; a file that cannot be sent does not keep others back.

mod checkpoints;
mod file_state;
mod files;
mod left;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use domain::files::KEPT;
use domain::{AttemptId, Cause, Fence, RunId};

use super::checkpoints::is_own;
use super::destination::CheckpointDestination;
use super::failure::UploadFailure;
use super::loop_files::{LoopFiles, TravelError};
use crate::event::{AttemptEvent, Wakeup};
use checkpoints::in_checkpoints;
use file_state::FileState;
pub(super) use files::below;

/// Interval of rounds for growing files.
const ROUND: Duration = Duration::from_secs(2);

/// Between two tries at the end.
const AGAIN: Duration = Duration::from_millis(500);

/// The least time for a request.
const LEAST: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum Order {
    /// The checkpoints that are kept elsewhere are here.
    Staged,
    /// A checkpoint is complete.
    Saved,
    /// No more output will be written; everything must be uploaded in time.
    Finish(Deadline),
}

/// When everything must be uploaded.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    /// How long after something has arrived it is put off to, if it is.
    idle: Option<Duration>,
}

/// The thread that uploads an attempt's outputs; ends when this is dropped.
#[derive(Debug)]
pub struct Uploader {
    orders: Sender<Order>,
}

impl Uploader {
    /// Starts the thread for an attempt whose run has its files in `folder`. At its end it sends one
    /// [`AttemptEvent::Uploaded`], after [`Uploader::finish`]. With `has_only_logs`, another machine of the attempt
    /// uploads the other files. Without `files`, the loop is on this machine, and only checkpoints are sent.
    pub fn start(
        (files, destination): (Option<LoopFiles>, Box<dyn CheckpointDestination>),
        (folder, has_only_logs): (PathBuf, bool),
        (run, attempt, fence): (RunId, AttemptId, Fence),
        events: Sender<Wakeup>,
    ) -> Uploader {
        let (orders, inbox) = mpsc::channel();
        let mut upload = Upload {
            files,
            destination,
            folder,
            has_only_logs,
            run,
            attempt,
            fence,
            inbox,
            events,
            is_staged: false,
            deadline: None,
            sent: BTreeMap::new(),
            grown: BTreeMap::new(),
            gone: BTreeSet::new(),
            is_keep_due: false,
            unpublished: BTreeSet::new(),
            hashed: None,
            has_older_loop: false,
            reached: BTreeMap::new(),
            left_reported: None,
        };
        std::thread::spawn(move || {
            while upload.deadline.is_none() {
                match upload.inbox.recv_timeout(ROUND) {
                    Ok(order) => upload.take(order),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if upload.deadline.is_none() {
                    drop(upload.round());
                }
            }
            let result = upload.finish();
            upload.tell(AttemptEvent::Uploaded(result));
        });
        Uploader { orders }
    }

    /// Announces that the newest checkpoints that are kept elsewhere are here: what is here is what is to be there from now on.
    pub fn staged(&self) {
        let _ = self.orders.send(Order::Staged);
    }

    /// Announces a complete checkpoint.
    pub fn saved(&self) {
        let _ = self.orders.send(Order::Saved);
    }

    /// Announces the end of output, and how long there is for it. A second call can only shorten the time.
    pub fn finish(&self, within: Duration) {
        let _ = self.orders.send(Order::Finish(Deadline { at: Instant::now() + within, idle: None }));
    }

    /// Announces the end of output, which is sent for as long as something arrives within each `idle`.
    pub fn finish_while_moving(&self, idle: Duration) {
        let _ = self.orders.send(Order::Finish(Deadline { at: Instant::now() + idle, idle: Some(idle) }));
    }
}

struct Upload {
    /// The loop, if it is on another machine.
    files: Option<LoopFiles>,
    /// Where checkpoints are sent.
    destination: Box<dyn CheckpointDestination>,
    folder: PathBuf,
    has_only_logs: bool,
    run: RunId,
    attempt: AttemptId,
    fence: Fence,
    inbox: Receiver<Order>,
    events: Sender<Wakeup>,
    /// Whether the checkpoints that are kept elsewhere are here.
    is_staged: bool,
    /// Set once no more output will be written.
    deadline: Option<Deadline>,
    /// Files that are there, as they were.
    sent: BTreeMap<String, FileState>,
    /// Bytes of each log that are there.
    grown: BTreeMap<String, u64>,
    /// Checkpoint files of `sent` that the last round has not found.
    gone: BTreeSet<String>,
    /// Whether it is not known there yet which checkpoint files are here.
    is_keep_due: bool,
    /// Checkpoint files of `sent` that nobody can see there yet.
    unpublished: BTreeSet<String>,
    /// The file that was hashed last, and its SHA-256.
    hashed: Option<(String, FileState, String)>,
    /// Whether the loop has taken a hole for a part without contents.
    has_older_loop: bool,
    /// How much of each file has arrived at most since the end of output.
    reached: BTreeMap<String, u64>,
    /// When it was last reported what is left to send.
    left_reported: Option<Instant>,
}

/// The error of a file that was passed over: the first that may not come again.
#[derive(Default)]
struct PassedOver(Option<TravelError>);

impl PassedOver {
    /// Continues after an error of one file; any other ends the round.
    fn note(&mut self, result: Result<(), TravelError>) -> Result<(), TravelError> {
        match result {
            Err(TravelError::Refused(_) | TravelError::Missing(_) | TravelError::Unreachable(_)) => result,
            Err(TravelError::Full(_) | TravelError::Late) | Ok(()) => result,
            Err(error) => {
                self.add(error);
                Ok(())
            }
        }
    }

    fn add(&mut self, error: TravelError) {
        if self.0.as_ref().is_none_or(is_forbidden) {
            self.0 = Some(error);
        }
    }

    fn result(self) -> Result<(), TravelError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Whether a file here may not be read.
fn is_forbidden(error: &TravelError) -> bool {
    matches!(error, TravelError::Disk { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

impl Upload {
    fn take(&mut self, order: Order) {
        match order {
            Order::Staged => self.is_staged = true,
            Order::Saved => {}
            Order::Finish(deadline) => {
                let sooner = self.deadline.map(|before| Deadline { at: before.at.min(deadline.at), idle: None });
                self.deadline = Some(sooner.unwrap_or(deadline));
            }
        }
    }

    /// Takes in what was ordered meanwhile, and returns whether the time is over.
    fn is_over(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(order) => self.take(order),
                Err(TryRecvError::Empty) => break,
                // Nobody waits for it.
                Err(TryRecvError::Disconnected) => {
                    self.take(Order::Finish(Deadline { at: Instant::now(), idle: None }));
                    break;
                }
            }
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline.at)
    }

    /// How much of the usual time of a request is left.
    fn left(&self, usual: Duration) -> Duration {
        let left = self.deadline.map(|deadline| deadline.at.saturating_duration_since(Instant::now()).max(LEAST));
        left.map_or(usual, |left| left.min(usual))
    }

    /// So much of a file has arrived. If it is more than ever before, the end of output waits on.
    fn moved(&mut self, path: &str, bytes: u64) {
        self.report_left();
        let Some(Deadline { at, idle: Some(idle) }) = &mut self.deadline else { return };
        if self.reached.get(path).is_none_or(|reached| bytes > *reached) {
            *at = Instant::now() + *idle;
            self.reached.insert(path.to_owned(), bytes);
            self.tell(AttemptEvent::UploadMoved);
        }
    }

    fn tell(&self, event: AttemptEvent) {
        let _ = self.events.send(Wakeup::Attempt(self.attempt.clone(), event));
    }

    /// Sends what is new, and at the end of output everything. Returns the first error.
    fn round(&mut self) -> Result<(), TravelError> {
        let mut passed_over = PassedOver::default();
        let result = self.checkpoints();
        passed_over.note(result)?;
        if self.files.is_none() {
            return passed_over.result();
        }
        let (logs, listed) = below(&self.folder, "logs");
        passed_over.note(listed)?;
        for path in logs {
            let result = self.log(&path);
            passed_over.note(result)?;
        }
        if self.deadline.is_some() && !self.has_only_logs {
            for folder in KEPT.into_iter().filter(|folder| !matches!(*folder, "checkpoints" | "logs")) {
                let (paths, listed) = below(&self.folder, folder);
                passed_over.note(listed)?;
                for path in paths {
                    let result = self.whole(&path);
                    passed_over.note(result)?;
                }
            }
        }
        passed_over.result()
    }

    /// Sends everything, again and again until it is there or the time is over.
    fn finish(&mut self) -> Result<(), Box<UploadFailure>> {
        let (mut cause, mut is_waiting) = (None, false);
        loop {
            self.report_left();
            match self.round() {
                Ok(()) => return Ok(()),
                Err(error @ TravelError::Full(_)) => {
                    if !is_waiting {
                        self.tell(AttemptEvent::UploadWaits(error.to_string()));
                    }
                    is_waiting = true;
                    cause = Some(error);
                }
                // What has failed before says more.
                Err(TravelError::Late) => cause = cause.or(Some(TravelError::Late)),
                Err(error) => cause = Some(error),
            }
            let is_final = |error: &TravelError| match error {
                // Whoever renews credentials has until the time is over, unless they let nothing begin.
                TravelError::Denied(_) => !self.is_staged,
                TravelError::Store(finding) => finding.cause == Cause::Fenced || !finding.cause.is_transient(),
                error => matches!(error, TravelError::Refused(_) | TravelError::Missing(_)) || is_forbidden(error),
            };
            let is_final = cause.as_ref().is_some_and(is_final);
            if is_final || self.is_over() {
                return Err(Box::new(self.failure(&cause.unwrap_or(TravelError::Late))));
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn failure(&self, error: &TravelError) -> UploadFailure {
        let mut missing = Vec::new();
        let is_sent = |folder: &&str| *folder == "checkpoints" || *folder != "logs" && self.files.is_some();
        for folder in KEPT.into_iter().filter(|folder| is_sent(folder) && !self.has_only_logs) {
            let (paths, listed) = below(&self.folder, folder);
            missing.extend(paths);
            missing.extend(listed.err().map(|_| folder.to_owned()));
        }
        missing.retain(|path| {
            let as_it_is = fs::metadata(self.folder.join(path)).map(|meta| FileState::of(&meta)).ok();
            let is_own = path.strip_prefix("checkpoints/").is_some_and(is_own);
            let is_there = |as_it_is| self.sent.get(path) == Some(&as_it_is) && !self.unpublished.contains(path);
            !is_own && !as_it_is.is_some_and(is_there)
        });
        let step = |path: &String| {
            let step = in_checkpoints(path).strip_prefix("manifest-")?.strip_suffix(".json")?;
            step.parse::<u64>().ok()
        };
        let there = self.sent.keys().filter(|path| !self.unpublished.contains(*path));
        UploadFailure::new(error, &missing, there.filter_map(step).max())
    }
}
