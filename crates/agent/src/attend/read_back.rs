//! The thread that reads measurements back from the spool: a slow disk does not keep the agent from calling the loop.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use node::{SpoolPart, SpoolRead};

use crate::event::Wakeup;

/// What cannot be read is tried again so often, and then passed over: a disk or a limit of open files may recover.
const TRIES: u32 = 3;

/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads parts of the spool; every one is followed by one [`Wakeup::ReadBack`].
pub(super) struct SpoolReader {
    reads: Sender<SpoolRead>,
}

impl SpoolReader {
    /// Starts the thread.
    pub fn start(events: Sender<Wakeup>) -> SpoolReader {
        let (reads, inbox) = mpsc::channel::<SpoolRead>();
        std::thread::spawn(move || {
            for read in inbox {
                if events.send(Wakeup::ReadBack(patiently(&read, PAUSE))).is_err() {
                    return;
                }
            }
        });
        SpoolReader { reads }
    }

    /// Reads a part.
    pub fn read(&self, read: SpoolRead) {
        // The thread lives as long as this end of its channel.
        let _ = self.reads.send(read);
    }
}

fn patiently(read: &SpoolRead, pause: Duration) -> SpoolPart {
    for _ in 1..TRIES {
        if let Ok(part) = read.read() {
            return part;
        }
        std::thread::sleep(pause);
    }
    read.read_readable()
}

#[cfg(test)]
mod tests;
