//! Locks of pushes and removals, so that nothing is removed that an unfinished push relies on.
//!
//! A lock is an object below `locks/`, rewritten every few minutes; one that was not rewritten for an hour is stale. A
//! push and a removal each write theirs before they list those of others, so of two that start concurrently one sees
//! the other: the removal gives way, and the push waits for a removal in progress. Times are those of the store's
//! clock, as shown by the own lock.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use data::chunk::ContentHash;
use futures::future::{Either, select};
use object_store::PutMode;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::remote::{Object, Remote};

/// The folders of locks.
const PUSHES: &str = "locks/push/";
const REMOVALS: &str = "locks/removal/";

/// Between two writes of a lock, and after how long without one it is stale, in seconds.
const REFRESH: Duration = Duration::from_secs(300);
const STALE: i64 = 3600;

/// The operation that a lock allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Push,
    Removal,
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Lock {
    name: String,
}

/// A listing made under a lock.
pub(crate) struct Listing {
    pub objects: Vec<Object>,
    /// When the lock was written, in seconds by the clock of the store.
    pub now: i64,
    /// Whether another push or removal holds a lock.
    pub has_pushes: bool,
    pub has_removals: bool,
}

/// A name for the locks of one push, which it takes again after a kill.
pub(crate) fn draw_id() -> ContentHash {
    let drawn = [RandomState::new(), RandomState::new()].map(|state| state.hash_one(std::process::id()));
    ContentHash::of(format!("{drawn:?}").as_bytes())
}

/// Whether an object is a lock.
pub(crate) fn is_lock(name: &str) -> bool {
    [PUSHES, REMOVALS].iter().any(|folder| name.strip_prefix(folder).is_some_and(|id| ContentHash::parse(id).is_some()))
}

impl Lock {
    /// Takes a lock and lists the objects. Stale locks are removed.
    ///
    /// # Errors
    /// Network errors.
    pub async fn take(remote: &Remote, purpose: Purpose, id: ContentHash) -> Result<(Lock, Listing), Error> {
        let folder = match purpose {
            Purpose::Push => PUSHES,
            Purpose::Removal => REMOVALS,
        };
        let lock = Lock { name: format!("{folder}{id}") };
        lock.write(remote).await?;
        let listing = lock.list(remote, id).await?;
        Ok((lock, listing))
    }

    /// Takes the lock of a push, after removals that are under way.
    ///
    /// # Errors
    /// [`Error::Usage`] if one does not end.
    pub async fn for_push(remote: &Remote, id: ContentHash) -> Result<(Lock, Listing), Error> {
        let (lock, mut listing) = Lock::take(remote, Purpose::Push, id).await?;
        let began = Instant::now();
        while listing.has_removals {
            if began.elapsed() >= remote.limits.patience {
                lock.release(remote).await;
                let message = format!("another push is removing what is no longer needed at `{}`", remote.location());
                return Err(Error::Usage { message, hint: "run the same command again when it has ended".into() });
            }
            sleep(Duration::from_millis(500)).await;
            lock.write(remote).await?;
            listing = lock.list(remote, id).await?;
        }
        Ok((lock, listing))
    }

    async fn write(&self, remote: &Remote) -> Result<(), Error> {
        remote.put(&self.name, b"{\"schema\":1}\n".to_vec(), PutMode::Overwrite).await.map(drop)
    }

    async fn list(&self, remote: &Remote, id: ContentHash) -> Result<Listing, Error> {
        let objects = remote.list().await?;
        let own = objects.iter().find(|object| object.name == self.name);
        // Without it the store's clock is unknown.
        let now = own.ok_or_else(|| Error::Raced { location: remote.address(&self.name) })?.written;
        let mut listing = Listing { objects: Vec::new(), now, has_pushes: false, has_removals: false };
        for object in &objects {
            if !is_lock(&object.name) || object.name.ends_with(&id.to_string()) {
                continue;
            }
            if now - object.written >= STALE {
                remote.remove(&object.name).await?;
                continue;
            }
            listing.has_pushes |= object.name.starts_with(PUSHES);
            listing.has_removals |= object.name.starts_with(REMOVALS);
        }
        listing.objects = objects;
        Ok(listing)
    }

    /// Does `work`, and writes the lock again meanwhile.
    pub async fn during<T>(&self, remote: &Remote, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let refresh = async {
            loop {
                sleep(REFRESH).await;
                if let Err(error) = self.write(remote).await {
                    return error;
                }
            }
        };
        match select(std::pin::pin!(work), std::pin::pin!(refresh)).await {
            Either::Left((done, _)) => done,
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Checks that no process has treated this lock as stale, for example while a laptop was suspended.
    ///
    /// # Errors
    /// [`Error::Raced`] if one has.
    pub async fn check(&self, remote: &Remote) -> Result<(), Error> {
        match remote.look(&self.name).await? {
            Some(_) => Ok(()),
            None => Err(Error::Raced { location: remote.location().to_string() }),
        }
    }

    /// Releases the lock; what cannot be removed is stale in an hour.
    pub async fn release(self, remote: &Remote) {
        remote.remove_once(&self.name).await;
    }
}
