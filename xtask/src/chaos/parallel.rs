//! Runs side by side, as many as there are cores: most of their time they wait for each other's processes.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Does `work` for each number below `count`, several at a time, and returns what came of it in the order of the numbers.
/// Once `is_last` holds for a result nothing new is begun, and what was begun ends.
pub(super) fn map_until<T: Send>(
    count: u64,
    work: impl Fn(u64) -> T + Sync,
    is_last: impl Fn(&T) -> bool + Sync,
) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::new());
    let run = || {
        while !over.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= count {
                return;
            }
            let result = work(number);
            if is_last(&result) {
                over.store(true, Ordering::SeqCst);
            }
            // Nobody panics while they hold the lock.
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, result));
        }
    };
    std::thread::scope(|scope| (0..workers.min(count)).for_each(|_| drop(scope.spawn(run))));
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_numbers() {
        let squares = map_until(100, |number| number * number, |_| false);
        assert_eq!(squares, (0..100).map(|number| number * number).collect::<Vec<u64>>());
        assert!(map_until(0, |number| number, |_| false).is_empty());
    }

    #[test]
    fn nothing_is_begun_after_the_last() {
        let began = AtomicU64::new(0);
        let work = |number| {
            began.fetch_add(1, Ordering::SeqCst);
            number
        };
        let found = map_until(u64::MAX, work, |_| true);
        assert_eq!((found.len() as u64, found[0]), (began.load(Ordering::SeqCst), 0));
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        assert!(found.len() <= workers, "{found:?}");
    }
}
