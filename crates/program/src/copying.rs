//! Copies a state as fast as memory allows, with several threads where it is large. The program waits meanwhile.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::streamed;

/// Memory, and as much to copy it to.
type Piece<'a> = (&'a [u8], &'a mut [u8]);

/// What a thread takes at a time: one that other work holds up keeps the others waiting for so much at most.
const TAKEN: usize = 1 << 20;

/// Bytes for which another thread pays.
const PAYS: usize = 16 << 20;

/// However many cores there are: what is short is memory's bandwidth, of which a few threads take most.
const MOST: usize = 8;

/// Copies every piece. Lengths of both sides are equal.
pub(crate) fn copy<'a>(pieces: impl IntoIterator<Item = Piece<'a>>) {
    let (mut bytes, mut queue) = (0, Vec::new());
    for (from, to) in pieces {
        bytes += from.len();
        queue.extend(from.chunks(TAKEN).zip(to.chunks_mut(TAKEN)));
    }
    // To count the cores reads files of the system, and a small state may be saved often.
    let cores = if bytes < 2 * PAYS { 1 } else { thread::available_parallelism().map_or(1, NonZero::get) };
    let helpers = threads(bytes, cores) - 1;
    let queue = Mutex::new(queue.into_iter());
    let work = || {
        loop {
            // The lock is given up before the copy.
            let taken = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((from, to)) = taken else { return };
            streamed::copy(from, to);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            // Without a thread to be had, the others do its part.
            let _ = thread::Builder::new().name("gradus-copy".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
}

/// How many threads copy so many bytes, where there are so many cores.
fn threads(bytes: usize, cores: usize) -> usize {
    cores.min(bytes / PAYS).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_arrive_in_their_places() {
        let lengths = [0, 1, TAKEN - 1, TAKEN, 3 * TAKEN + 5, PAYS, 2 * PAYS + 7];
        let from: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(at, length)| (0..*length).map(|byte| (byte / 3 + at) as u8).collect())
            .collect();
        let mut to: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        copy(from.iter().map(Vec::as_slice).zip(to.iter_mut().map(Vec::as_mut_slice)));
        assert!(from == to);
    }

    #[test]
    fn threads_are_as_many_as_cores_and_as_pay() {
        assert_eq!(threads(0, 16), 1);
        assert_eq!(threads(PAYS, 16), 1);
        assert_eq!(threads(3 * PAYS, 16), 3);
        assert_eq!(threads(500_000_000, 2), 2);
        assert_eq!(threads(500_000_000, 1), 1);
        assert_eq!(threads(500_000_000, 64), MOST);
    }
}
