//! The meter: writes the rented time four times a second, on a separate thread that nothing else can block.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::Elapsed;
use node::MeterFile;

use crate::clock::Clock;

/// Interval of lines. A killed agent is billed up to its last line, so this bounds the unbilled time.
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
