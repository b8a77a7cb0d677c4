//! Images in tars and zips: an archived folder tree, or WebDataset shards.
//!
//! In a WebDataset the members that share a path up to the first dot of the file name are one sample: an image, its
//! class (`.cls`, or a key of `.json`) and other members, of which a pack stores `.json` and `.txt`. If no image has a
//! class of its own, the folder of an image is its class. Samples are in the order of their paths, so the same images
//! are the same data set, sample for sample, whether they are in a folder, in one tar, or shuffled over many.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::archive::{self, Damage, Entry, Kind, Stop};
use super::unpacked::{self, Tar};
use super::zip::{self, Member};
use crate::Error;
use crate::error::layout;
use crate::files::handles::{Handles, Opened};
use crate::files::remote::AccessTime;
use crate::formats::class_names::{Named, numbered};
use crate::formats::encoded::Encoded;
use crate::formats::encoded::spans::{Beside, Names, Span, Spans, Wrapping};
use crate::formats::index::{Content, Home, Index, Reading, Renamed, Skipped};
use crate::formats::labels::{from_paths, homes_of, is_hidden, is_image, is_unread};

/// A class or JSON member is read when the data is opened; longer ones hold no class.
const LONGEST_CLASS: u32 = 4 << 10;
const LONGEST_JSON: u32 = 1 << 20;

/// The name of an image, the number of its tar, and its position.
type Image = ((String, u32), Span);

/// The archives that samples lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::formats) enum ArchiveKind {
    Tar,
    Zip,
}

/// The relevant members of all archives, by name or key and number of the archive.
#[derive(Default)]
struct Members {
    images: BTreeMap<(String, u32), Span>,
    classes: BTreeMap<(String, u32), Span>,
    jsons: BTreeMap<(String, u32), Span>,
    texts: BTreeMap<(String, u32), Span>,
    /// What compressed tars unpack to.
    held: HashMap<u32, Arc<Opened>>,
    /// Images that came again later in their tar, by name.
    replaced: Vec<String>,
    /// Images of kinds that are not read, by name.
    unread: Vec<String>,
    renamed: Option<Renamed>,
}

/// The samples of some archives, which are one data set; `homes` are the parts that the names of the archives imply.
pub(in crate::formats) fn index(
    kind: ArchiveKind,
    root: &Path,
    tars: Vec<PathBuf>,
    homes: &[Home],
    reading: &Reading,
) -> Result<Index, Error> {
    let mut skipped = Vec::new();
    let mut members = Members::of(kind, &tars, reading.skip, &mut skipped)?;
    let (replaced, unread) = (std::mem::take(&mut members.replaced), std::mem::take(&mut members.unread));
    let renamed = members.renamed.take();
    let handles = Handles::with_held(tars, std::mem::take(&mut members.held));
    let mut images: Vec<Image> = std::mem::take(&mut members.images).into_iter().collect();
    // As a folder is sorted: part by part, so that `a/b` comes before `a-b/c`.
    images.sort_by(|((a, i), _), ((b, j), _)| Path::new(a).cmp(Path::new(b)).then(i.cmp(j)));
    let mut named = Vec::with_capacity(images.len());
    for ((name, tar), _) in &images {
        named.push(members.class(&handles, name, *tar)?);
    }
    // A JSON without a class is a caption or the like, and does not say more than the folders do.
    let by_members = named.iter().any(Option::is_some);
    if by_members {
        skipped.extend(remove_unlabelled(&mut images, &named, reading.skip)?);
    }
    let places: Vec<Home> = images.iter().map(|((_, tar), _)| homes.get(*tar as usize).copied().flatten()).collect();
    let (classes, labels, homes) = if by_members {
        let (classes, labels) = numbered(named.into_iter().flatten().collect(), class_names(&handles));
        let homes = homes_of(root, &places, &classes, &labels, reading)?;
        (classes, labels, homes)
    } else {
        let paths: Vec<PathBuf> = images.iter().map(|((name, _), _)| PathBuf::from(name)).collect();
        from_paths(root, &paths, &places, reading.by_folders)?.into_lists()
    };
    let spans = images.iter().map(|(_, span)| *span).collect();
    let beside = members.beside(&images);
    let names = Names::each(images.iter().map(|((name, _), _)| name.as_str()));
    let content = Content::Encoded(Encoded::Spans(Spans { files: handles, spans, names, beside }));
    Ok(Index { classes, labels, homes, content, skipped, replaced, unread, renamed })
}

/// Removes the images that have no class although others have one; returns the reason for each.
///
/// # Errors
/// [`Error::Image`] for the first of them, unless such images are skipped.
fn remove_unlabelled(images: &mut Vec<Image>, named: &[Option<Named>], skip: bool) -> Result<Vec<Skipped>, Error> {
    let mut skipped = Vec::new();
    for (((name, _), _), _) in images.iter().zip(named).filter(|(_, class)| class.is_none()) {
        let why = "it has no class, neither `.cls` nor a `label` in `.json`".to_owned();
        if !skip {
            return Err(Error::Image { name: name.clone(), why });
        }
        skipped.push(Skipped { name: name.clone(), why });
    }
    let mut classes = named.iter();
    images.retain(|_| matches!(classes.next(), Some(Some(_))));
    Ok(skipped)
}

impl Members {
    /// The members of all archives. Of a damaged one, those before the damage are kept if `skip` is set.
    fn of(kind: ArchiveKind, files: &[PathBuf], skip: bool, skipped: &mut Vec<Skipped>) -> Result<Members, Error> {
        let mut members = Members::default();
        for (path, number) in files.iter().zip(0_u32..) {
            let (what, hint) = match kind {
                ArchiveKind::Tar => ("the tar", "get the file again, or check it with `tar -tf`"),
                ArchiveKind::Zip => ("the zip", "get the file again, or check it with `unzip -t`"),
            };
            let damages = match kind {
                ArchiveKind::Tar => members.list(path, number, skip)?,
                ArchiveKind::Zip => members.list_zip(path, number, skip, skipped)?,
            };
            let damages = damages.map_err(|why| layout(path, format!("{what} is damaged: {why}"), hint))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let sentence = |why| Skipped { name: name.to_string(), why: format!("{what} is damaged: {why}") };
            skipped.extend(damages.into_iter().map(sentence));
        }
        Ok(members)
    }

    /// Adds those of one zip, as [`Members::list`] does those of a tar. An image that cannot be read there is an error, or
    /// is added to `skipped`.
    fn list_zip(
        &mut self,
        path: &Path,
        number: u32,
        skip: bool,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Result<Vec<String>, String>, Error> {
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        let file = Opened::open(path).map_err(refused)?;
        let mut lost = Vec::new();
        let read = zip::members(&file, number, |Member { name: written, piece }| {
            let Some(name) = tidy(&written) else { return };
            match piece {
                Ok(span) => self.add(&written, name, span),
                Err(why) if is_image(Path::new(&name)) => lost.push(Skipped { name, why }),
                Err(_) => {}
            }
        });
        match (read, lost.first()) {
            (Err(Stop::Read(source)), _) => Err(refused(source)),
            (Err(Stop::Damaged(why)), _) if skip => Ok(Ok(vec![format!("{why}; it is skipped entirely")])),
            (Err(Stop::Damaged(why)), _) => Ok(Err(why)),
            (Ok(()), Some(Skipped { name, why })) if !skip => {
                Err(Error::Image { name: name.clone(), why: why.clone() })
            }
            (Ok(()), _) => {
                skipped.append(&mut lost);
                Ok(Ok(Vec::new()))
            }
        }
    }

    /// The metadata members of each image; empty if no image has any.
    fn beside(&self, images: &[Image]) -> Vec<Beside> {
        if self.jsons.is_empty() && self.texts.is_empty() {
            return Vec::new();
        }
        let piece = |pieces: &BTreeMap<(String, u32), Span>, name: &str, tar: u32| {
            pieces.get(&(split(name).0, tar)).filter(|span| span.bytes <= LONGEST_JSON).copied()
        };
        let of = |name: &str, tar| Beside { json: piece(&self.jsons, name, tar), text: piece(&self.texts, name, tar) };
        images.iter().map(|((name, tar), _)| of(name, *tar)).collect()
    }

    /// Adds the members of one tar. With `skip`, returns all members that can be found in a damaged one and the damage;
    /// otherwise the inner error describes the first damage.
    fn list(&mut self, path: &Path, number: u32, skip: bool) -> Result<Result<Vec<String>, String>, Error> {
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        let held: u64 = self.held.values().filter_map(|file| file.length().ok()).sum();
        let Tar { file, cut } = unpacked::open(path, unpacked::MOST.saturating_sub(held))?;
        if let (Some(why), false) = (&cut, skip) {
            return Ok(Err(why.clone()));
        }
        let (mut links, mut sparse) = (Vec::new(), None);
        let before = self.images.len();
        let read = archive::entries(&file, skip, |Entry { name: written, kind }| {
            let Some(name) = tidy(&written) else { return };
            match kind {
                Kind::File { offset, bytes } => {
                    // An image beyond the size limit is refused when it is read, by name.
                    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                    self.add(&written, name, Span { file: number, offset, bytes, wrapping: Wrapping::Plain });
                }
                Kind::Link(target) => links.extend(tidy(&target).map(|target| (written, name, target))),
                Kind::Sparse if is_image(Path::new(&name)) => sparse = Some(name),
                Kind::Sparse => {}
            }
        });
        for (written, name, target) in links {
            if let Some(&span) = self.images.get(&(target, number)) {
                self.add(&written, name, span);
            }
        }
        if matches!(file, Opened::Memory(_)) {
            self.held.insert(number, Arc::new(file));
        }
        match (read, sparse) {
            (Ok(damages), sparse) => {
                let images = self.images.len() - before;
                let mut sentences: Vec<String> = cut.into_iter().collect();
                sentences.extend(damages.into_iter().map(|one| described(one, images)));
                let sparse = sparse.map(|name| format!("`{name}` is stored as a sparse file, which is not read"));
                match sparse {
                    Some(sentence) if !skip => return Ok(Err(sentence)),
                    sentence => sentences.extend(sentence),
                }
                Ok(Ok(sentences))
            }
            (Err(Stop::Damaged(why)), _) => Ok(Err(why)),
            (Err(Stop::Read(source)), _) => Err(refused(source)),
        }
    }

    /// Adds a member of that name, which is `written` so. Of two with one path the later counts, as when unpacking.
    fn add(&mut self, written: &[u8], name: String, span: Span) {
        let (key, ending) = split(&name);
        if is_image(Path::new(&name)) {
            if written.starts_with(b"/") || written.split(|byte| *byte == b'/').any(|part| part == b"..") {
                let first =
                    || Renamed { count: 0, name: String::from_utf8_lossy(written).into_owned(), read_as: name.clone() };
                self.renamed.get_or_insert_with(first).count += 1;
            }
            let before = self.images.insert((name.clone(), span.file), span);
            if before.is_some_and(|before| before != span) {
                self.replaced.push(name);
            }
        } else if is_unread(Path::new(&name)) {
            self.unread.push(name);
        } else if ending == "cls" {
            self.classes.insert((key, span.file), span);
        } else if ending == "json" {
            self.jsons.insert((key, span.file), span);
        } else if ending == "txt" {
            self.texts.insert((key, span.file), span);
        }
    }

    /// The class of an image according to its other members.
    fn class(&self, handles: &Handles, name: &str, tar: u32) -> Result<Option<Named>, Error> {
        let key = (split(name).0, tar);
        if let Some(span) = self.classes.get(&key) {
            let text = read_small(handles, name, *span, LONGEST_CLASS)?.and_then(|bytes| String::from_utf8(bytes).ok());
            return Ok(text.and_then(|text| Named::parse(&text)));
        }
        let Some(span) = self.jsons.get(&key) else {
            return Ok(None);
        };
        let bytes = read_small(handles, name, *span, LONGEST_JSON)?;
        let value: Option<serde_json::Value> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(value.and_then(|value| Named::of_json(&value)))
    }
}

/// Describes what is lost to damage, as far as it is known, in a tar from which so many images are read.
fn described(Damage { why, passed }: Damage, images: usize) -> String {
    match passed {
        Some(bytes) => format!("{why}; {bytes} bytes up to the next file in it are passed over"),
        None => format!("{why}; {images} images of it are read, and how many are missing behind them is not known"),
    }
}

/// The names of the classes from the list that accompanies the tars, if there is one.
fn class_names(handles: &Handles) -> Option<Vec<String>> {
    let path = handles.paths().first()?.with_file_name(crate::pack::CLASSES);
    let text = std::fs::metadata(&path)
        .ok()
        .filter(|file| file.len() <= u64::from(LONGEST_JSON))
        .and_then(|_| crate::files::plain_file::text(&path).ok())?;
    Some(text.lines().map(str::to_owned).collect())
}

/// A path below the root of the tar, without `.`, `..` and empty components: names are labels only, so a path that
/// leads out of the tar starts at its root. `None` for a folder or a hidden file.
fn tidy(bytes: &[u8]) -> Option<String> {
    let name = String::from_utf8_lossy(bytes);
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    (!name.ends_with('/') && !parts.is_empty() && !parts.iter().any(|part| is_hidden(part))).then(|| parts.join("/"))
}

/// Splits the name of a member at the first dot of the file name, into the sample's key and an extension.
fn split(name: &str) -> (String, String) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[file..].find('.') {
        Some(dot) => (name[..file + dot].to_owned(), name[file + dot + 1..].to_lowercase()),
        None => (name.to_owned(), String::new()),
    }
}

fn read_small(handles: &Handles, name: &str, span: Span, most: u32) -> Result<Option<Vec<u8>>, Error> {
    if span.bytes > most {
        return Ok(None);
    }
    let mut text = Vec::new();
    let read = span.read(handles, &mut text, AccessTime::SOME_TIME);
    read.map(|()| Some(text)).map_err(|unread| unread.of(name.to_owned()))
}

/// Expands a pattern with braces: `{000..146}` counts, `{a,b}` lists.
///
/// # Errors
/// A message that says what is wrong with the pattern.
pub(in crate::formats) fn expand(pattern: &str) -> Result<Vec<String>, String> {
    const MOST: usize = 1_000_000;
    let Some(open) = pattern.find('{') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let Some(close) = pattern[open..].find('}').map(|at| open + at) else {
        return Err(format!("the brace that opens in `{pattern}` is not closed"));
    };
    let (before, inside) = (&pattern[..open], &pattern[open + 1..close]);
    let choices: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` in `{pattern}` is no number"));
            let (from, to) = (number(first)?, number(last)?);
            if from > to || to - from >= MOST as u64 {
                return Err(format!("`{{{inside}}}` counts from {from} to {to}"));
            }
            (from..=to).map(|n| format!("{n:0width$}", width = first.len())).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let rest = expand(&pattern[close + 1..])?;
    if choices.len().saturating_mul(rest.len()) > MOST {
        return Err(format!("`{pattern}` means more than {MOST} files"));
    }
    Ok(choices.iter().flat_map(|choice| rest.iter().map(move |rest| format!("{before}{choice}{rest}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_count_and_list() {
        let check = |pattern: &str, expected: &[&str]| assert_eq!(expand(pattern).unwrap(), expected);
        check("a.tar", &["a.tar"]);
        check("s-{008..011}.tar", &["s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"]);
        check("{a,b}-{0..1}", &["a-0", "a-1", "b-0", "b-1"]);
        for wrong in ["a{1..", "a{x..3}", "a{3..1}", "a{0..99999999999}", "{0..9999}{0..9999}"] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_stay_below_the_root() {
        let check =
            |name: &str, expected: Option<&str>| assert_eq!(tidy(name.as_bytes()).as_deref(), expected, "{name}");
        check("./a//1.png", Some("a/1.png"));
        check("/data/a/1.png", Some("data/a/1.png"));
        check("../../a/1.png", Some("a/1.png"));
        check("b/../a/1.png", Some("a/1.png"));
        check("a/", None);
        check("a/.DS_Store", None);
    }

    #[test]
    fn keys_end_at_the_first_dot() {
        let check = |name: &str, key: &str, ending: &str| assert_eq!(split(name), (key.into(), ending.into()));
        check("a/b.c/0001.left.JPG", "a/b.c/0001", "left.jpg");
        check("0001.cls", "0001", "cls");
        check("a.b/plain", "a.b/plain", "");
    }
}
