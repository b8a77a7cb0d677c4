//! Catches panics of third-party parsers, because a damaged file must not end the process, and marks them, so that the
//! program's panic hook can stay silent about what is reported as an ordinary error a moment later.
//!
//! A library installs no hook; `main` may, and calls [`expected`] there. Panics of our own code are never marked.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many calls of [`caught`] this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether a panic of this thread would be caught here and reported as an error, for a panic hook.
pub fn expected() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false)
}

/// Runs a parser that may panic; `None` if it did.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_caught_is_expected() {
        assert!(!expected());
        assert_eq!(caught(|| (expected(), caught(expected))), Some((true, Some(true))));
        assert_eq!(caught(|| std::panic::resume_unwind(Box::new(()))), None::<()>);
        assert!(!expected());
        assert!(caught(|| std::thread::spawn(expected).join().unwrap()) == Some(false));
    }
}
