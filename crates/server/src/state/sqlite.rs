//! How every database of a home is set up.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// How long a statement waits for other processes.
const BUSY: Duration = Duration::from_secs(20);

/// Turns on the write-ahead log, and makes statements wait for other processes. `synchronous` is SQLite's: with `full`
/// an acknowledged commit survives a power failure.
///
/// SQLite changes the mode of a new file under an exclusive lock and does not wait for it: if several processes open
/// the file first, some get "database is locked" at once.
pub fn configure(db: &Connection, synchronous: &str) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    let begun = Instant::now();
    while let Err(error) = db.pragma_update(None, "journal_mode", "wal") {
        if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) || begun.elapsed() >= BUSY {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    db.pragma_update(None, "synchronous", synchronous)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn processes_that_open_a_new_database_at_once_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..40 {
            let path = folder.path().join(format!("{round}.db"));
            let start = Barrier::new(8);
            let open = || {
                start.wait();
                configure(&Connection::open(&path)?, "full")
            };
            std::thread::scope(|scope| {
                let openers: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                openers.into_iter().for_each(|opener| opener.join().unwrap().unwrap());
            });
        }
    }
}
