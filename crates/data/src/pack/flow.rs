//! Work by many threads, taken in order by one.
//!
//! A thread may run ahead of the one that takes, but only by so many pieces and so many bytes: that is the bound of the
//! memory. The piece that is taken next may always be worked on, so nothing waits for itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Pieces that are worked on or wait, for each thread.
const AHEAD: u64 = 16;
/// Bytes that wait.
const WAITING: usize = 256 << 20;

struct State<T> {
    /// The next piece that nobody works on.
    next: u64,
    /// The piece that is taken next.
    taken: u64,
    /// Pieces that are done, and what each weighs.
    ready: BTreeMap<u64, (thread::Result<T>, usize)>,
    waiting: usize,
    stopped: bool,
}

/// Calls its function when it is dropped.
struct Ending<F: Fn()>(F);

impl<F: Fn()> Drop for Ending<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Calls `work` for every number of `range` on some threads, and `take` with the results in ascending order here.
///
/// Ends early with the first error of `take`. `weigh` tells the bytes of a result.
pub(crate) fn in_order<T: Send, E>(
    range: Range<u64>,
    threads: usize,
    work: impl Fn(u64) -> T + Sync,
    weigh: impl Fn(&T) -> usize + Sync,
    mut take: impl FnMut(u64, T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1) as u64;
    let start = State { next: range.start, taken: range.start, ready: BTreeMap::new(), waiting: 0, stopped: false };
    let state = Mutex::new(start);
    let (room, ready) = (Condvar::new(), Condvar::new());
    // No code of others runs under the lock.
    let lock = || -> MutexGuard<State<T>> { state.lock().unwrap_or_else(PoisonError::into_inner) };
    let labour = || {
        let mut held = lock();
        while !held.stopped && held.next < range.end {
            let close = held.next < held.taken + AHEAD * threads && held.waiting < WAITING;
            if !close && held.next != held.taken {
                held = room.wait(held).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let number = held.next;
            held.next += 1;
            drop(held);
            let result = catch_unwind(AssertUnwindSafe(|| work(number)));
            let weight = result.as_ref().map_or(0, &weigh);
            held = lock();
            held.waiting += weight;
            held.ready.insert(number, (result, weight));
            if number == held.taken {
                ready.notify_one();
            }
        }
    };
    thread::scope(|scope| {
        // The threads end however this ends: by an error, or by a panic of `take`.
        let _ending = Ending(|| {
            lock().stopped = true;
            room.notify_all();
        });
        for _ in 0..threads {
            scope.spawn(labour);
        }
        for number in range.clone() {
            let mut held = lock();
            let (result, weight) = loop {
                match held.ready.remove(&number) {
                    Some(found) => break found,
                    None => held = ready.wait(held).unwrap_or_else(PoisonError::into_inner),
                }
            };
            held.taken = number + 1;
            held.waiting -= weight;
            drop(held);
            room.notify_all();
            take(number, result.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn results_come_in_order_and_not_too_many_wait() {
        for threads in [1, 2, 7] {
            let (begun, mut wanted) = (AtomicU64::new(0), 5);
            let work = |number: u64| {
                begun.fetch_max(number, Ordering::SeqCst);
                number * number
            };
            let result: Result<(), ()> = in_order(
                5..2000,
                threads,
                work,
                |_| WAITING / 4,
                |number, square| {
                    assert_eq!((number, square), (wanted, wanted * wanted));
                    // Four wait at most, and each thread may be at one more.
                    assert!(begun.load(Ordering::SeqCst) <= number + 5 + threads as u64);
                    wanted += 1;
                    Ok(())
                },
            );
            assert!(result.is_ok() && wanted == 2000);
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let found = in_order(
            0..1_000_000,
            3,
            |number| number,
            |_| 8,
            |number, _| if number == 77 { Err(number) } else { Ok(()) },
        );
        assert_eq!(found, Err(77));
        let nothing: Result<(), ()> = in_order(3..3, 2, |_| (), |()| 0, |_, ()| Err(()));
        assert!(nothing.is_ok());
    }
}
