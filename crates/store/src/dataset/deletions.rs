//! Garbage collection of a data set in two phases, as in restic and rustic.
//!
//! An object that the head does not refer to is first marked with the time (`deletions.json`), and removed by a later
//! push with `--delete` once the grace period is over, if it was not rewritten meanwhile, no head refers to it and no
//! other push is in progress ([`super::lock`]). So a reader of an older head has the grace period to finish, and a push
//! loses nothing. An object that is needed again loses its mark.

use std::collections::{BTreeMap, HashSet};

use data::chunk::ContentHash;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::lock::{Lock, Purpose};
use crate::remote::swap::ObjectRevision;
use crate::remote::{Object, Remote};
use crate::{Error, Meter, head};

/// The name of the marks.
const NAME: &str = "deletions.json";
const SCHEMA: u32 = 1;
const LARGEST: u64 = 64 << 20;

/// When objects were found unneeded, in seconds by the clock of the store.
type Marks = BTreeMap<String, i64>;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    marked: Marks,
}

/// Counts of unneeded objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Deleted {
    /// Objects that were removed.
    pub removed: u64,
    /// Objects that are marked and wait for the end of the grace period, or of other pushes.
    pub marked: u64,
}

/// The objects to mark and to remove.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    marked: Marks,
    due: Vec<String>,
}

/// Decides by a listing. `needed` are the objects of the head, `lately` those of the head before it; `grace` is in seconds.
fn decide(
    objects: &[Object],
    (needed, lately): (&HashSet<String>, &HashSet<String>),
    marked: &Marks,
    now: i64,
    grace: i64,
) -> Decision {
    let mut decision = Decision { marked: Marks::new(), due: Vec::new() };
    for object in objects.iter().filter(|object| is_ours(&object.name) && !needed.contains(&object.name)) {
        let mark = marked.get(&object.name).filter(|_| !lately.contains(&object.name));
        // One that was written since belongs to a push that is not finished.
        let since = mark.copied().unwrap_or(now).max(object.written.min(now));
        let is_marked = mark.is_some() || grace == 0;
        if is_marked && now - since >= grace {
            decision.due.push(object.name.clone());
        }
        decision.marked.insert(object.name.clone(), since);
    }
    decision
}

fn is_ours(name: &str) -> bool {
    ["bundles/", "manifests/"]
        .iter()
        .any(|folder| name.strip_prefix(folder).is_some_and(|id| ContentHash::parse(id).is_some()))
}

/// Removes the marks of objects that the data set needs; for a push that does not delete. `objects` is the listing.
///
/// # Errors
/// Network errors.
pub(crate) async fn keep(remote: &Remote, objects: &[Object], needed: &HashSet<String>) -> Result<(), Error> {
    if !objects.iter().any(|object| object.name == NAME) {
        return Ok(());
    }
    let (mut marks, seen) = load(remote).await?;
    let before = marks.len();
    marks.retain(|name, _| !needed.contains(name));
    match marks.len() == before {
        true => Ok(()),
        false => save(remote, marks, seen.as_ref()).await,
    }
}

/// Marks objects that the head does not refer to, and removes those marked for `grace` seconds. `lately` are the
/// objects of the previous head, and `id` is that of the caller's own lock.
///
/// # Errors
/// Network errors; [`Error::Raced`] if another process marks at the same time.
pub(crate) async fn prune(
    remote: &Remote,
    id: ContentHash,
    lately: &HashSet<String>,
    grace: i64,
) -> Result<Deleted, Error> {
    let (lock, listing) = Lock::take(remote, Purpose::Removal, id).await?;
    let is_alone = !listing.has_pushes && !listing.has_removals;
    let pruned = lock.during(remote, async {
        let (marks, seen) = load(remote).await?;
        // Read after the locks of others, so that no head is passed over.
        let Some(found) = head::load(remote, &Meter::default()).await? else { return Ok(Deleted::default()) };
        let needed = found.objects().collect();
        let Decision { marked, mut due } = decide(&listing.objects, (&needed, lately), &marks, listing.now, grace);
        if !is_alone {
            due.clear();
        }
        let left = marked.len() as u64 - due.len() as u64;
        if marked != marks {
            save(remote, marked, seen.as_ref()).await?;
        }
        let removals = stream::iter(&due).map(|name| remote.remove(name));
        removals.buffer_unordered(remote.limits.streams).try_collect::<()>().await?;
        Ok(Deleted { removed: due.len() as u64, marked: left })
    });
    let pruned = pruned.await;
    lock.release(remote).await;
    pruned
}

async fn load(remote: &Remote) -> Result<(Marks, Option<ObjectRevision>), Error> {
    let Some((bytes, version)) = remote.get(NAME, LARGEST).await? else { return Ok((Marks::new(), None)) };
    // Without marks only the grace period begins again.
    let record = serde_json::from_slice::<Record>(&bytes).ok().filter(|record| record.schema == SCHEMA);
    Ok((record.map(|record| record.marked).unwrap_or_default(), Some(ObjectRevision { bytes, version })))
}

async fn save(remote: &Remote, marked: Marks, seen: Option<&ObjectRevision>) -> Result<(), Error> {
    let text = serde_json::to_vec(&Record { schema: SCHEMA, marked });
    remote.swap(NAME, text.map_err(|error| Error::Internal(error.to_string()))?, seen).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_marked_and_removed_after_the_grace_time() {
        let name = |letter: &str| format!("bundles/{}", letter.repeat(64));
        let object = |letter: &str, written| Object { name: name(letter), bytes: 1, etag: None, written };
        let check = |written: i64,
                     marked: Option<i64>,
                     (needed, lately): (&str, &str),
                     grace: i64,
                     expected: (Option<i64>, bool)| {
            let marked: Marks = marked.map(|time| (name("a"), time)).into_iter().collect();
            let set = |letters: &str| letters.chars().map(|letter| name(&letter.to_string())).collect();
            let found = decide(&[object("a", written)], (&set(needed), &set(lately)), &marked, 1000, grace);
            assert_eq!((found.marked.get(&name("a")).copied(), !found.due.is_empty()), expected);
        };
        // Marked first, and due when the grace period is over.
        check(10, None, ("", ""), 100, (Some(1000), false));
        check(10, Some(901), ("", ""), 100, (Some(901), false));
        check(10, Some(900), ("", ""), 100, (Some(900), true));
        // Written again by a push that has not finished.
        check(950, Some(800), ("", ""), 100, (Some(950), false));
        // Needed, and needed until now.
        check(10, Some(800), ("a", ""), 100, (None, false));
        check(10, Some(800), ("", "a"), 100, (Some(1000), false));
        check(10, None, ("", ""), 0, (Some(1000), true));
        let others = ["bundles/mine.txt", "a.jpg", "gradus.json"];
        let others = others.map(|name| Object { name: name.into(), bytes: 1, etag: None, written: 0 });
        let found = decide(&others, (&HashSet::new(), &HashSet::new()), &Marks::new(), 1000, 0);
        assert_eq!(found, Decision { marked: Marks::new(), due: Vec::new() });
    }
}
