//! Pull: fetches only missing data; a file appears only after all of it was verified.
//!
//! There is no journal. An unfinished file is below `.gradus/` in the target; its intact parts are found by hashing its
//! chunks, which takes a second per gigabyte and is correct after any crash. Chunks found elsewhere in the target, as
//! after a reordering, are copied and not fetched. When everything is there, it is synced, and the files are moved into
//! place.

pub(crate) mod fetch;
mod local;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use data::chunk::{ChunkManifest, ChunkRef, ContentHash};

use crate::folder::Folder;
use crate::head;
use crate::remote::Remote;
use crate::source::{OWN, walk};
use crate::{Error, Meter, Options, Pulled, plain};
use fetch::{Need, Place};
use local::{State, Survey};

/// Fetches the data set at `remote` into the folder `target`.
///
/// # Errors
/// [`Error`]. Fetched data is retained, and the same call resumes; existing files are complete.
pub fn pull(remote: &Remote, target: &Path, options: &Options, meter: &Meter) -> Result<Pulled, Error> {
    let folder = Folder::open(target).map_err(Error::file("open", target))?;
    let _lock = lock(&folder)?;
    let (mut pulled, names) = match remote.wait(head::load(remote, meter))? {
        Some(found) => newest(remote, &folder, found, options, meter)?,
        None => plain::pull(remote, &folder, options, meter)?,
    };
    pulled.received = meter.read().received;
    if options.delete && !options.dry_run {
        pulled.removed = remove_others(&folder, &names)?;
    }
    if !options.dry_run {
        remove_parts(&folder);
    }
    let _ = folder.remove(&format!("{OWN}/lock"));
    folder.remove_folder(OWN);
    Ok(pulled)
}

/// How many times a pull restarts because its data set was replaced meanwhile.
const REPLACED: usize = 3;

/// Fetches the data set that was found, or the one that has replaced it if its objects were removed meanwhile.
pub(crate) fn newest(
    remote: &Remote,
    folder: &Folder,
    mut found: head::Found,
    options: &Options,
    meter: &Meter,
) -> Result<(Pulled, HashSet<String>), Error> {
    for _ in 0..REPLACED {
        let (location, error) = match chunks(remote, folder, &found.manifest, options, meter) {
            Ok(pulled) => return Ok((pulled, found.manifest.files.into_iter().map(|file| file.name).collect())),
            Err(Error::Missing { location, .. }) => (location.clone(), "it is missing".to_owned()),
            Err(Error::Damaged { location, why }) => (location, why),
            Err(error) => return Err(error),
        };
        match remote.wait(head::load(remote, meter))? {
            // The data set was not replaced, so the data is lost.
            Some(now) if now.seen.bytes == found.seen.bytes => return Err(Error::Damaged { location, why: error }),
            Some(now) => {
                meter.begin_again();
                found = now;
            }
            None => return Err(Error::Replaced { location: remote.location().to_string() }),
        }
    }
    Err(Error::Replaced { location: remote.location().to_string() })
}

/// Removes unfinished files of data sets that are not there any more.
fn remove_parts(folder: &Folder) {
    let Ok(entries) = std::fs::read_dir(folder.path().join(OWN)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() == PART && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            // What cannot be removed takes up space and does no harm.
            let _ = folder.remove(&format!("{OWN}/{name}"));
        }
    }
}

/// One pull at a time works in a folder.
fn lock(folder: &Folder) -> Result<File, Error> {
    let name = format!("{OWN}/lock");
    let file = folder.write(&name).map_err(Error::file("write", folder.path().join(&name)))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => {
            let message = format!("another pull into `{}` is under way", folder.path().display());
            Err(Error::Usage { message, hint: "wait for it, or stop it".into() })
        }
    }
}

pub(crate) fn chunks(
    remote: &Remote,
    folder: &Folder,
    manifest: &ChunkManifest,
    options: &Options,
    meter: &Meter,
) -> Result<Pulled, Error> {
    let Survey { states, elsewhere } = local::survey(folder, manifest, options.threads, meter)?;
    let mut pulled = Pulled { files: manifest.files.len() as u64, bytes: manifest.bytes(), ..Pulled::default() };
    if let [file] = &manifest.files[..] {
        pulled.single = Some(file.name.clone());
    }
    let Missing { unfinished, copies, needs } = missing(manifest, &states, &elsewhere);
    let missing: u64 = needs.iter().map(|need| u64::from(need.piece.bytes)).sum();
    let copied: u64 = copies.iter().map(|(piece, _, _)| u64::from(piece.bytes)).sum();
    let units = fetch::units(manifest, needs, remote.limits.part);
    pulled.new_bytes = missing;
    pulled.to_receive = units.iter().map(|unit| unit.range.end - unit.range.start).sum();
    meter.expect(missing + copied);
    if options.dry_run {
        return Ok(pulled);
    }
    let bytes = unfinished.iter().map(|number| manifest.files[*number].bytes).sum();
    make_room(folder, bytes, &states)?;
    let parts: Arc<[String]> = manifest.files.iter().map(|file| part_name(&file.name)).collect();
    for number in &unfinished {
        let part = &parts[*number];
        let opened = folder.write(part).and_then(|opened| opened.set_len(manifest.files[*number].bytes));
        opened.map_err(Error::file("write", folder.path().join(part)))?;
    }
    let mut failed_copies = Vec::new();
    for (piece, source, place) in copies {
        if local::copy(folder, &source, piece, &parts[place.file], place.offset)? {
            meter.moved(u64::from(piece.bytes));
        } else {
            // It changed since it was looked at.
            failed_copies.push(Need { piece, places: vec![place] });
        }
    }
    let mut all = units;
    all.extend(fetch::units(manifest, failed_copies, remote.limits.part));
    let shared = Arc::new(Folder::open(folder.path()).map_err(Error::file("open", folder.path()))?);
    remote.wait(fetch::all(remote, shared, manifest, all, parts.clone(), meter))?;
    settle(folder, manifest, &unfinished)?;
    Ok(pulled)
}

/// The chunks missing from a folder.
struct Missing {
    /// Numbers of the incomplete files.
    unfinished: Vec<usize>,
    /// Chunks that another file of the folder has.
    copies: Vec<(ChunkRef, (Arc<str>, u64), Place)>,
    /// Chunks that must be fetched.
    needs: Vec<Need>,
}

/// Finds the chunks missing from a folder, each once however many files share it.
fn missing(manifest: &ChunkManifest, states: &[State], elsewhere: &Elsewhere) -> Missing {
    let mut needs: BTreeMap<(u32, u32, u32, ContentHash), Need> = BTreeMap::new();
    let (mut copies, mut unfinished) = (Vec::new(), Vec::new());
    for (number, (file, state)) in manifest.files.iter().zip(states).enumerate() {
        let State::Unfinished { right } = state else { continue };
        unfinished.push(number);
        let mut offset = 0;
        for (piece, is_right) in file.pieces.iter().zip(right.iter().copied().chain(std::iter::repeat(false))) {
            let place = Place { file: number, offset };
            offset += u64::from(piece.bytes);
            if is_right {
                continue;
            }
            match elsewhere.get(&piece.id) {
                Some(source) => copies.push((*piece, source.clone(), place)),
                None => {
                    // A hostile manifest may give one position two hashes: both are fetched, and one is refused.
                    let key = (piece.frame, piece.at, piece.bytes, piece.id);
                    let need = needs.entry(key).or_insert_with(|| Need::new(*piece));
                    need.places.push(place);
                }
            }
        }
    }
    Missing { unfinished, copies, needs: needs.into_values().collect() }
}

/// Characters of the name of an unfinished file.
const PART: usize = 32;

/// The temporary name of a file; independent of the rest of the data set.
pub(crate) fn part_name(name: &str) -> String {
    format!("{OWN}/{}", &ContentHash::of(name.as_bytes()).to_string()[..PART])
}

/// Refuses a pull that exceeds the free disk space before anything is fetched.
fn make_room(folder: &Folder, needed: u64, states: &[State]) -> Result<(), Error> {
    let there: u64 = states.iter().map(State::bytes_there).sum();
    let free = folder.free().map_err(Error::file("look at", folder.path()))?;
    match needed.saturating_sub(there) {
        needed if needed > free => Err(Error::NoSpace { path: folder.path().to_owned(), needed, free }),
        _ => Ok(()),
    }
}

/// Syncs everything, then moves the files into place.
fn settle(folder: &Folder, manifest: &ChunkManifest, unfinished: &[usize]) -> Result<(), Error> {
    folder.sync().map_err(Error::file("sync", folder.path()))?;
    for number in unfinished {
        let name = &manifest.files[*number].name;
        place(folder, name)?;
    }
    folder.sync().map_err(Error::file("sync", folder.path()))
}

/// Moves one file into place. An existing folder or link is an error and not removed.
pub(crate) fn place(folder: &Folder, name: &str) -> Result<(), Error> {
    folder.rename(&part_name(name), name).map_err(Error::file("write", folder.path().join(name)))
}

fn remove_others(folder: &Folder, names: &HashSet<String>) -> Result<u64, Error> {
    let mut removed = 0;
    for file in walk(folder.path())? {
        if !names.contains(&file.name) {
            folder.remove(&file.name).map_err(Error::file("remove", &file.path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Where chunks are in the target already.
pub(crate) type Elsewhere = HashMap<ContentHash, (Arc<str>, u64)>;

/// Reads a chunk and verifies it.
pub(crate) fn is_right(file: &File, offset: u64, id: ContentHash, buffer: &mut Vec<u8>, bytes: u32) -> bool {
    buffer.resize(bytes as usize, 0);
    file.read_exact_at(buffer, offset).is_ok() && ContentHash::of(buffer) == id
}
