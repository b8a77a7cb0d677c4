//! Parallel work whose results are consumed in order by one thread.
//!
//! A worker may run ahead of the consumer only by a number of items and of bytes, which bounds memory. The item that is
//! consumed next may always be worked on, so there is no deadlock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Items in progress or waiting, per thread.
const AHEAD: u64 = 16;
/// Bytes that wait.
const WAITING: usize = 256 << 20;

struct State<T> {
    /// The next item that no thread works on.
    next: u64,
    /// The item that is consumed next.
    taken: u64,
    /// Finished items and their sizes in bytes.
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

/// Calls `work` for every number of `range` on several threads, and `take` with the results in ascending order on this
/// one.
///
/// Stops at the first error of `take`. `weigh` returns the size of a result in bytes.
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
            let (begun, mut expected) = (AtomicU64::new(0), 5);
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
                    assert_eq!((number, square), (expected, expected * expected));
                    // Four wait at most, and each thread may be at one more.
                    assert!(begun.load(Ordering::SeqCst) <= number + 5 + threads as u64);
                    expected += 1;
                    Ok(())
                },
            );
            assert!(result.is_ok() && expected == 2000);
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
