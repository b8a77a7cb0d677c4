//! Time in the conformance suite for this machine: the test blocks until the kernel reports that the agent has written
//! its meter or released its lock.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use cloud::conformance::{Awaited, ProviderWorld};
use domain::Elapsed;
use node::Folder;
use rustix::fs::{FlockOperation, flock, inotify};

/// Ends a hanging test; far longer than any passing one takes.
const WATCHDOG: Duration = Duration::from_secs(120);

/// This machine, on which an agent lives in a folder.
pub struct ThisMachine {
    folder: Folder,
    begun: Instant,
    writes: OnceCell<Receiver<()>>,
}

impl ThisMachine {
    pub fn new(folder: Folder) -> ThisMachine {
        ThisMachine { folder, begun: Instant::now(), writes: OnceCell::new() }
    }

    /// Writes to files of the folder, from now on.
    fn watch(&self) -> Receiver<()> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, self.folder.path(), inotify::WatchFlags::MODIFY).unwrap();
        let (mut watch, mut events) = (File::from(watch), [0; 4096]);
        signals(move |tell| while watch.read(&mut events).is_ok() && tell() {})
    }

    /// One signal when the agent's lock is free.
    fn release(&self) -> Receiver<()> {
        let lock = File::open(self.folder.path().join("agent.lock")).unwrap();
        signals(move |tell| {
            flock(&lock, FlockOperation::LockShared).unwrap();
            tell();
        })
    }

    fn receive(&self, signals: &Receiver<()>) -> bool {
        signals.recv_timeout(WATCHDOG.saturating_sub(self.begun.elapsed())).is_ok()
    }
}

/// Runs blocking code on a separate thread, so that the watchdog can end the wait.
fn signals(wait: impl FnOnce(&dyn Fn() -> bool) + Send + 'static) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || wait(&|| sender.send(()).is_ok()));
    receiver
}

impl ProviderWorld for ThisMachine {
    fn pass(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Listing => false,
            Awaited::Meter => match self.writes.get() {
                Some(writes) => self.receive(writes),
                // Writes before the watch began are noticed at the next check.
                None => self.writes.set(self.watch()).is_ok(),
            },
            Awaited::End => self.receive(&self.release()),
        }
    }

    fn is_metered(&self) -> bool {
        self.folder.usage().unwrap().is_some_and(|usage| usage.elapsed.0 > 0)
    }

    fn longest_rent(&self) -> Elapsed {
        Elapsed::from_std(self.begun.elapsed())
    }
}
