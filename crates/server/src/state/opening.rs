//! Opens a log: creates it on first use, seals its values, brings its rows up to the newest event.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{log, rows};
use crate::error::Error;
use crate::secrets::SecretKey;

/// Whether the rows are up to date, so that nothing has to be written before they are read.
fn is_current(db: &Connection) -> bool {
    let newest = log::newest(db);
    log::is_sealed(db) && newest.is_ok_and(|newest| rows::head(db).is_ok_and(|head| head == Some(newest)))
}

/// A read transaction in which the rows are up to date.
pub fn reading<'a>(db: &'a Connection, path: &Path, key: &SecretKey) -> Result<Transaction<'a>, Error> {
    loop {
        let transaction = db.unchecked_transaction().map_err(Error::sqlite("read", path))?;
        if is_current(&transaction) {
            return Ok(transaction);
        }
        // A process of an earlier version has appended without them, or there are none yet.
        drop(transaction);
        bring_up(db, path, key, false)?;
    }
}

/// Reads from the rows in one transaction; unreadable rows are rebuilt.
pub fn read<T>(
    db: &Connection,
    path: &Path,
    key: &SecretKey,
    read: impl Fn(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    let first = reading(db, path, key).and_then(|transaction| read(&transaction));
    match first {
        Err(Error::State { source, .. }) if rows::is_unusable(&source) => {
            bring_up(db, path, key, true)?;
            reading(db, path, key).and_then(|transaction| read(&transaction))
        }
        first => first,
    }
}

/// Creates missing tables and brings the rows up to date; rebuilds all of them if they are damaged.
fn bring_up(db: &Connection, path: &Path, key: &SecretKey, is_damaged: bool) -> Result<(), Error> {
    let doing = |doing| Error::sqlite(doing, path);
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(doing("open"))?;
    log::create(&transaction).map_err(doing("open"))?;
    let has_sealed = log::seal_values(&transaction, path, key)?;
    if is_damaged {
        rows::clear(&transaction).map_err(doing("write"))?;
    }
    rows::catch_up(&transaction, path)?;
    transaction.commit().map_err(doing("write"))?;
    if has_sealed {
        // Pages and journals still contain overwritten data.
        db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").map_err(doing("write"))?;
    }
    Ok(())
}
