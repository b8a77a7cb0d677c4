//! Images in a folder with a list of their classes: COCO's JSON, the `metadata.csv` and `metadata.jsonl` of
//! HuggingFace's image folders, or any CSV of paths and classes.
//!
//! A list names files by relative paths; one that points outside the folder is refused. If a list annotates objects,
//! the class of an image is the one whose annotations cover most of it, and the annotations become its metadata
//! ([`Annotation`]).

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use domain::train::Labels;
use plugin::LABELS;
use serde::Deserialize;
use serde_json::{Number, Value};

use super::annotations::{self, Annotation};
use super::class_names::{Named, numbered};
use super::coco::{Coco, CocoAnnotation, CocoImage};
use super::encoded::Encoded;
use super::index::{Content, Home, Index, Reading, Skipped};
use super::labels::{home, homes_of, is_image};
use super::targets;
use super::tree::home_of;
use crate::Error;
use crate::error::layout;
use crate::files::plain_file;

/// No list marks objects of more classes.
const MOST_CLASSES: u32 = 1 << 16;
/// The longest line of a list.
const LONGEST_LINE: u64 = 1 << 20;
const LISTS: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// One line of a list: the file, its class, the part, and a note.
struct Row {
    path: PathBuf,
    class: Option<Named>,
    home: Home,
    note: Box<[u8]>,
}

/// The images that a COCO JSON lists.
pub(super) fn coco(path: &Path, reading: &Reading) -> Result<Index, Error> {
    let coco = Coco::read(path)?;
    let root = folder_of(path, &coco.images)?;
    // Every category is a class, in the order of the ids, so that annotations have classes as well as images.
    let names = coco.names();
    let classes: HashMap<i64, u32> = names.keys().copied().zip(0..).collect();
    let mut annotated: HashMap<i64, Vec<Annotation>> = HashMap::new();
    for CocoAnnotation { image_id, category_id, bbox, area, iscrowd } in coco.annotations {
        let class = classes.get(&category_id).copied();
        let annotation = class.zip(<[f64; 4]>::try_from(&bbox[..]).ok()).map(|(class, bbox)| {
            let area = area.unwrap_or(bbox[2] * bbox[3]);
            Annotation { class, bbox, area, crowd: iscrowd != 0 }
        });
        let annotation = annotation.filter(Annotation::is_sound).ok_or_else(|| {
            let why = format!("the annotation {bbox:?} of category {category_id} in image {image_id} makes no sense");
            layout(path, why, "correct it: a box is left, top, width and height, and its category is listed")
        })?;
        annotated.entry(image_id).or_default().push(annotation);
    }
    let names: Vec<String> = names.into_values().collect();
    let is_used = |class: u32| annotated.values().flatten().any(|annotation| annotation.class == class);
    let divided = names.iter().zip(0..).find(|(name, class)| !targets::is_name(name) && is_used(*class));
    if let Some((name, _)) = divided.filter(|_| reading.labels == Labels::MultiLabel) {
        let why = format!("the name of its category `{name}` contains `|`, which divides labels");
        return Err(layout(path, why, "rename it"));
    }
    let mut rows = Vec::with_capacity(coco.images.len());
    for CocoImage { id, file_name, .. } in coco.images {
        let all = annotated.remove(&id).unwrap_or_default();
        let class = match reading.labels {
            Labels::MultiLabel => {
                let found: BTreeSet<u32> = all.iter().map(|annotation| annotation.class).collect();
                let found = found.into_iter().filter_map(|class| names.get(class as usize));
                Some(Named::Word(targets::joined(found.map(String::as_str))))
            }
            Labels::Class | Labels::Number => annotations::covering(&all).map(|class| Named::Number(class.into())),
        };
        rows.push(Row { path: inside(path, &file_name)?, class, home: None, note: annotations::note(all) });
    }
    index(path, root, rows, Some(names), reading)
}

/// The split that the name of a list implies: `train2017` for `instances_train2017.json`.
fn split_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit('_').next().unwrap_or_default().to_owned()
}

/// The folder of the images: of `annotations/instances_train2017.json` it is `train2017` or `images/train2017`.
fn folder_of(path: &Path, images: &[CocoImage]) -> Result<PathBuf, Error> {
    let Some(first) = images.first() else {
        return Err(layout(path, "it lists no image", "see that its `images` are there"));
    };
    let first = inside(path, &first.file_name)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let above = folder.join("..");
    let split = split_of(path);
    let mut all = Vec::new();
    for folder in [folder, &above] {
        all.extend([folder.join(&split), folder.join("images").join(&split), folder.join("images"), folder.to_owned()]);
    }
    all.into_iter().find(|root| root.join(&first).is_file()).ok_or_else(|| {
        let why = format!("the image `{}` in this list does not exist next to it", first.display());
        layout(path, why, format!("put the images into the folder `{split}` or `images` next to it or one level up"))
    })
}

/// The images listed by HuggingFace metadata in a folder, or in each folder of a part; `None` if there is no list with
/// classes: with captions alone, the folders are the classes.
pub(super) fn folder(root: &Path, reading: &Reading) -> Result<Option<Index>, Error> {
    let mut folders = vec![root.to_owned()];
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.extend(entries.filter(|path| path.is_dir()));
    folders.sort();
    let (mut rows, mut marked) = (Vec::new(), None);
    for folder in folders {
        let Some(list) = LISTS.map(|list| folder.join(list)).into_iter().find(|list| list.is_file()) else {
            continue;
        };
        let below = folder.strip_prefix(root).unwrap_or(Path::new(""));
        let found = match list.extension().is_some_and(|ending| ending == "csv") {
            true => {
                let columns = Columns::of(&list)?.filter(|columns| columns.head.is_some());
                table(&list, &columns.ok_or_else(|| wrong(&list, "it has no column `file_name`".into()))?)?
            }
            false => lines(&list, reading.labels, &mut marked)?,
        };
        for Line { file, class, note, home } in found {
            let path = below.join(inside(&list, &file)?);
            rows.push(Row { home: home.or(home_of(&path)), path, class, note });
        }
    }
    if rows.iter().all(|row| row.class.is_none()) {
        return Ok(None);
    }
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].path == pair[1].path) {
        let why = format!("its lists name `{}` twice", pair[0].path.display());
        return Err(layout(root, why, "leave one of the lines out"));
    }
    // Marks are of classes by number, also of those that cover no image.
    let names = marked.map(|most: u32| (0..=most).map(|class| class.to_string()).collect());
    index(root, root.to_owned(), rows, names, reading).map(Some)
}

/// The images that a CSV lists with their classes: a table with a column of paths, or lines of a path and a class.
/// `None` if it is not such a list.
pub(super) fn csv(list: &Path, reading: &Reading) -> Result<Option<Index>, Error> {
    let Some(columns) = Columns::of(list)? else { return Ok(None) };
    let found = table(list, &columns)?;
    let folder = list.parent().unwrap_or(Path::new(""));
    let Some(first) = found.first() else {
        return Err(layout(list, "it lists no image", "give each image a line"));
    };
    let first = inside(list, &first.file)?;
    let stem = list.file_stem().unwrap_or_default();
    let root = [folder.to_owned(), folder.join("images"), folder.join(stem)]
        .into_iter()
        .find(|root| root.join(&first).is_file());
    let root = root.ok_or_else(|| {
        let why = format!("the image `{}` in this list does not exist next to it", first.display());
        layout(list, why, "name files by paths from the folder of the list, or from `images` in it")
    })?;
    let mut rows = Vec::with_capacity(found.len());
    for Line { file, class, note, home } in found {
        let path = inside(list, &file)?;
        rows.push(Row { home: home.or(home_of(&path)), path, class, note });
    }
    index(list, root, rows, None, reading).map(Some)
}

/// Names of the columns of a CSV that hold the paths of images, and the part that an image belongs to.
const FILES: [&str; 8] = ["file_name", "filename", "file", "path", "filepath", "image_path", "image", "img"];
const PARTS: [&str; 3] = ["split", "subset", "part"];

/// Which columns of a CSV hold what.
struct Columns {
    /// Absent where the first line is an image already.
    head: Option<csv::StringRecord>,
    file: usize,
    label: Option<usize>,
    part: Option<usize>,
}

impl Columns {
    /// The columns of a list of images; `None` if it is not one.
    fn of(list: &Path) -> Result<Option<Columns>, Error> {
        let refused = |source| Error::Read { name: list.display().to_string(), source };
        let start = BufReader::new(plain_file::open(list).map_err(refused)?).take(LONGEST_LINE);
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(start);
        let Some(Ok(head)) = reader.records().next() else { return Ok(None) };
        let column = |names: &[&str]| {
            names.iter().find_map(|name| head.iter().position(|column| column.trim().eq_ignore_ascii_case(name)))
        };
        if let Some(file) = column(&FILES) {
            let (label, part) = (column(&LABELS).or(column(&["class_name", "class_id"])), column(&PARTS));
            return Ok(Some(Columns { file, label, part, head: Some(head) }));
        }
        let is_image = head.get(0).is_some_and(|file| is_image(Path::new(file.trim()))) && head.len() == 2;
        Ok(is_image.then_some(Columns { head: None, file: 0, label: Some(1), part: None }))
    }
}

/// One line of a list.
struct Line {
    file: String,
    class: Option<Named>,
    note: Box<[u8]>,
    home: Home,
}

fn wrong(list: &Path, why: String) -> Error {
    layout(list, why, "each line needs a `file_name`, and a `label` for its class")
}

/// The lines of a `metadata.jsonl`; the highest class that is marked in images is added to `marked`.
fn lines(list: &Path, labels: Labels, marked: &mut Option<u32>) -> Result<Vec<Line>, Error> {
    let refused = |source| Error::Read { name: list.display().to_string(), source };
    let mut reader = BufReader::new(plain_file::open(list).map_err(refused)?);
    let (mut found, mut line) = (Vec::new(), Vec::new());
    for number in 1_u64.. {
        line.clear();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(refused)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let value: Value =
            serde_json::from_slice(&line).map_err(|error| wrong(list, format!("line {number} is no JSON: {error}")))?;
        let name = value.get("file_name").and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong(list, format!("line {number} has no `file_name`")))?;
        let marks = match value.get("objects") {
            Some(objects) => objects_of(objects).ok_or_else(|| {
                let why = format!("the `objects` in line {number} make no sense");
                layout(
                    list,
                    why,
                    "give `bbox`, a list of left, top, width and height, and `categories`, a list of numbers",
                )
            })?,
            None => Vec::new(),
        };
        let class = LABELS.iter().find_map(|key| label(value.get(key)?, labels));
        let covering = annotations::covering(&marks).map(|class| Named::Number(class.into()));
        let class = covering.or(class);
        if let (Labels::MultiLabel, None, Some(other)) = (labels, &class, said(&value)) {
            let why = format!("the label `{other}` in line {number} is neither names nor whole numbers");
            return Err(layout(list, why, "write for example `[\"cat\", \"dog\"]`, with names without `|`"));
        }
        *marked = marks.iter().map(|mark| mark.class).max().max(*marked);
        let note = if marks.is_empty() { line.trim_ascii().into() } else { annotations::note(marks) };
        found.push(Line { file: name.to_owned(), class, note, home: None });
    }
    Ok(found)
}

/// What a line of JSON says as its label, if anything.
fn said(line: &Value) -> Option<&Value> {
    let is_said = |label: &&Value| !label.is_null() && label.as_str().is_none_or(|text| !text.trim().is_empty());
    LABELS.iter().find_map(|key| line.get(key).filter(is_said))
}

/// A whole number, also as programs write it that know floats alone.
fn whole(number: &Number) -> Option<i64> {
    let float = || number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 2_f64.powi(53));
    number.as_i64().or_else(|| float().map(|value| value as i64))
}

/// The label in a line of JSON: a list where there may be several.
fn label(value: &Value, labels: Labels) -> Option<Named> {
    match (value, labels) {
        (Value::Number(number), Labels::Number) => Some(Named::Word(number.to_string())),
        (Value::Number(number), Labels::Class | Labels::MultiLabel) => whole(number).map(Named::Number),
        (Value::String(text), _) => Named::parse(text),
        (Value::Array(each), Labels::MultiLabel) => {
            let each: Option<Vec<String>> = each.iter().map(word).collect();
            each.map(|each| Named::Word(targets::joined(each.iter().map(String::as_str))))
        }
        (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_), _) => None,
    }
}

/// One of several labels: a name or a whole number.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if targets::is_name(text) => Some(text.clone()),
        Value::Number(number) => whole(number).map(|number| number.to_string()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `{"bbox": [[left, top, width, height], …], "categories": [3, …]}`
fn objects_of(value: &Value) -> Option<Vec<Annotation>> {
    #[derive(Deserialize)]
    struct Objects {
        bbox: Vec<[f64; 4]>,
        #[serde(alias = "category", alias = "label", alias = "labels")]
        categories: Vec<u32>,
    }
    let Objects { bbox, categories } = Objects::deserialize(value).ok()?;
    let mark = |(bbox, class): ([f64; 4], u32)| Annotation { class, bbox, area: bbox[2] * bbox[3], crowd: false };
    let marks: Vec<Annotation> = bbox.iter().copied().zip(categories.iter().copied()).map(mark).collect();
    let sound = marks.iter().all(|mark| mark.is_sound() && mark.class < MOST_CLASSES);
    (bbox.len() == categories.len() && sound).then_some(marks)
}

/// The rows of a CSV that lists images.
fn table(list: &Path, columns: &Columns) -> Result<Vec<Line>, Error> {
    let refused = |source| Error::Read { name: list.display().to_string(), source };
    let broken = |error: csv::Error| wrong(list, format!("it cannot be read: {error}"));
    let Columns { head, file, label, part } = columns;
    let file_of = plain_file::open(list).map_err(refused)?;
    let mut reader = csv::ReaderBuilder::new().has_headers(head.is_some()).from_reader(file_of);
    let mut found = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let class = label.and_then(|label| record.get(label)).and_then(Named::parse);
        let home = part.and_then(|part| record.get(part)).and_then(|part| home(part.trim()));
        let head = head.iter().flatten().zip(&record).enumerate().filter(|(column, _)| column != file);
        let note: serde_json::Map<String, Value> =
            head.map(|(_, (column, value))| (column.to_owned(), value.into())).collect();
        let note = serde_json::to_vec(&note).unwrap_or_default().into();
        found.push(Line { file: record.get(*file).unwrap_or_default().trim().to_owned(), class, note, home });
    }
    Ok(found)
}

/// A path that stays in the folder of the list, from there.
fn inside(list: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = Path::new(name);
    let path = if path.is_absolute() { below(list, path) } else { Some(path.to_owned()) };
    let is_plain = |path: &PathBuf| {
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
            && !path.as_os_str().is_empty()
            && !name.contains('\0')
    };
    path.filter(is_plain).ok_or_else(|| {
        let why = format!("`{}` leads out of its folder", name.escape_debug());
        layout(list, why, "name files by relative paths, or put the list into a folder above all of its images")
    })
}

/// Where an absolute path leads from the folder of the list, if it is below it.
fn below(list: &Path, path: &Path) -> Option<PathBuf> {
    let folder = list.parent()?;
    // `parent` of a bare name is empty, which stands for the current folder.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folders = [std::path::absolute(folder), std::fs::canonicalize(folder)];
    folders.into_iter().flatten().find_map(|folder| path.strip_prefix(folder).ok().map(Path::to_owned))
}

/// Whether a file is a CSV whose first line with a path names an image.
pub fn lists_images(path: &Path) -> bool {
    let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    let columns = || Columns::of(path).ok().flatten();
    let Some(Columns { head, file, .. }) = is_csv.then(columns).flatten() else { return false };
    let Ok(start) = plain_file::open(path) else { return false };
    let start = BufReader::new(start).take(LONGEST_LINE);
    let mut reader = csv::ReaderBuilder::new().has_headers(head.is_some()).flexible(true).from_reader(start);
    let first = reader.records().next().and_then(Result::ok);
    first.is_some_and(|first| first.get(file).is_some_and(|name| is_image(Path::new(name.trim()))))
}

fn index(
    list: &Path,
    root: PathBuf,
    rows: Vec<Row>,
    names: Option<Vec<String>>,
    reading: &Reading,
) -> Result<Index, Error> {
    let (mut paths, mut named, mut notes, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut skipped = Vec::new();
    for Row { path, class, home, note } in rows {
        // Nothing is a label of nothing, where there may be any number.
        let none = (reading.labels == Labels::MultiLabel).then(|| Named::Word(targets::joined([])));
        let Some(class) = class.or(none) else {
            let (name, why) = (path.display().to_string(), "the list gives it no class".to_owned());
            if !reading.skip {
                return Err(Error::Image { name, why });
            }
            skipped.push(Skipped { name, why });
            continue;
        };
        paths.push(path);
        named.push(class);
        notes.push(note);
        places.push(home);
    }
    if paths.is_empty() {
        return Err(layout(list, "it lists no image with a class", "see that its images are marked"));
    }
    let (classes, labels) = numbered(named, names);
    let homes = homes_of(&root, &places, &classes, &labels, reading)?;
    let content = Content::Encoded(Encoded::files(&root, paths, notes));
    Ok(Index { skipped, ..Index::whole(classes, labels, homes, content) })
}
