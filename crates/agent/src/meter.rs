//! The meter: writes the rented time four times a second, on a separate thread that nothing else can block.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::Elapsed;
use node::MeterFile;

use crate::clock::Clock;

/// Interval of lines. A killed agent is billed up to its last line, so this bounds the unbilled time.
const INTERVAL: Duration = Duration::from_millis(250);

/// One in so many lines is synced: a machine that loses power is billed up to the last of these. A sync costs more than all
/// else here.
const LINES_PER_SYNC: u32 = 4;

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
            for line in 1_u32.. {
                let is_last = !matches!(stopped.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
                let elapsed = Elapsed::from_std(clock.now());
                // A line that cannot be written is missing from the bill, in the user's favour.
                let _ = if is_synced(line, is_last) { file.write(elapsed) } else { file.note(elapsed) };
                if is_last {
                    return;
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

/// Whether the line with this number, from 1, is synced.
fn is_synced(line: u32, is_last: bool) -> bool {
    is_last || line.is_multiple_of(LINES_PER_SYNC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_loses_power_is_billed_to_the_second_and_a_stopped_agent_to_its_last_line() {
        let synced: Vec<u32> = (1..=12).filter(|line| is_synced(*line, false)).collect();
        assert_eq!(synced, [4, 8, 12]);
        assert_eq!(INTERVAL * LINES_PER_SYNC, Duration::from_secs(1));
        assert!((1..=12).all(|line| is_synced(line, true)));
    }
}
