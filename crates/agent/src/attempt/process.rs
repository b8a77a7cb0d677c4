//! A process started by an attempt, and its exit status.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use domain::{AttemptId, Cause, Finding};
use node::folder::not_written;
use node::log::LOG_BOUND;
use node::{processes, session};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::masking;
use crate::event::{AttemptEvent, Wakeup};

/// A process that leads its own session, and dies with the agent.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was never started.
    Never,
}

/// What the log of a program that has failed says of its processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedFirst {
    /// The last lines of the one that failed first; none if the log does not say which it was.
    pub said: Option<String>,
    /// Whether torchrun has found one that failed, and not because another one is gone.
    pub is_by_itself: bool,
    /// Whether all that failed say that another one is gone.
    pub has_lost_another: bool,
}

impl Process {
    /// Starts `command`, its output appended to `log` with the `secrets` in it masked; its end is told by
    /// [`AttemptEvent::Exited`]. It dies with the calling thread.
    pub fn start(
        mut command: Command,
        log: &Path,
        secrets: Vec<String>,
        attempt: &AttemptId,
        events: &Sender<Wakeup>,
    ) -> Result<Process, Box<Finding>> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let opened = file.and_then(|file| Ok((file.try_clone()?, outputs(file, secrets)?)));
        let (bounded, (stdout, stderr, copied)) = opened.map_err(|error| not_written("open", log, &error))?;
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        session::own_and_bound(&mut command);
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Finding::new(Cause::Internal, format!("cannot start `{program}`: {error}"))
                .hint("correct `GRADUS_RANK` if it is set, else install gradus again")
        })?;
        // Its ends of the pipe: the copy ends when the last process has closed its own.
        drop(command);
        let (pid, number) = (child.id(), Pid::from_child(&child));
        let (attempt, events) = (attempt.clone(), events.clone());
        let (runs, ended) = channel();
        std::thread::spawn(move || keep_bounded(&bounded, &ended));
        std::thread::spawn(move || {
            let _runs: Sender<()> = runs;
            // Only looks: until it is reaped, no other process can get this number, so a signal cannot hit a stranger.
            let look = || waitid(WaitId::Pid(number), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            while let Err(rustix::io::Errno::INTR) = look() {}
            // The last lines belong to the verdict. A process that was left behind may hold the pipe open.
            let _ = copied.recv_timeout(DRAINED);
            let _ = events.send(Wakeup::Attempt(attempt, AttemptEvent::Exited(pid)));
        });
        Ok(Process { child })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it and all of its group. Only for a process that was not reaped.
    pub fn signal(&self, signal: Signal) {
        // It may have ended just now, which is what is wanted.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Sends SIGTERM once to each process of its group, and to each other one that carries `tags`. Only for a process
    /// that was not reaped.
    pub fn terminate(&self, tags: &processes::Tags) {
        // Without `/proc` those of other groups are killed at the deadline.
        let _ = processes::signal_once(Pid::from_child(&self.child), tags, Signal::TERM);
    }

    /// Sends a signal to it alone. Only for a process that was not reaped.
    pub fn signal_leader(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Takes the exit of a process that has ended.
    pub fn reap(&mut self) -> Exit {
        match self.child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Never,
            },
            Err(_) => Exit::Never,
        }
    }
}

/// One that was killed while its attempt was swept is still to be reaped.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.try_wait();
    }
}

/// How long the output of a process that has ended is waited for.
const DRAINED: Duration = Duration::from_secs(1);

/// Where a process writes: the log itself, or with secrets a pipe whose masked output is copied there. The receiver is
/// disconnected when everything is in the log.
fn outputs(log: File, secrets: Vec<String>) -> io::Result<(Stdio, Stdio, Receiver<()>)> {
    let (done, copied) = channel();
    if secrets.is_empty() {
        return Ok((log.try_clone()?.into(), log.into(), copied));
    }
    let (reader, writer) = io::pipe()?;
    let stdout = writer.try_clone()?;
    std::thread::spawn(move || {
        let _done: Sender<()> = done;
        masking::copy(reader, log, &secrets);
    });
    Ok((stdout.into(), writer.into(), copied))
}

/// Between two looks at how large a log has become.
const GROWTH: Duration = Duration::from_millis(500);

/// Keeps a log bounded until its process has ended. A disk that gives nothing back keeps it whole.
fn keep_bounded(log: &File, ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(GROWTH) {
        let _ = LOG_BOUND.keep(log);
    }
    let _ = LOG_BOUND.keep(log);
}
