//! The meter: writes the rent so far four times a second, in a thread of its own that nothing else can hold up.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::Elapsed;
use node::MeterFile;

use crate::clock::Clock;

/// Between two lines. A killed agent is billed up to its last line, so this bounds what goes unbilled.
const INTERVAL: Duration = Duration::from_millis(250);

/// A running meter. Stopping it writes a last line.
pub struct RentMeter {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl RentMeter {
    /// Starts to write the time of `clock` to `file`.
    pub fn start(mut file: MeterFile, clock: Clock) -> RentMeter {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            loop {
                let waited = stopped.recv_timeout(INTERVAL);
                // A line that cannot be written is missing from the bill, in the user's favour.
                let _ = file.write(Elapsed::from_std(clock.now()));
                match waited {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        RentMeter { stop, thread }
    }

    /// Writes the last line, and returns when it is durable.
    pub fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
