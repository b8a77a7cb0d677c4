//! Boxes in YOLO format: for `images/…/a.jpg` a file `labels/…/a.txt` with a line per object, its class and then the
//! centre, width and height of its box as fractions of the image. An image without a label file has no objects.
//!
//! The names of the classes are in `classes.txt`, `obj.names` or, as `names:`, in a `data.yaml`; without one of them
//! classes are named by their numbers.

use std::fs;
use std::path::{Path, PathBuf};

use super::listing::{Edges, LabelledBox, LabelledImage, Listing, part_named};
use crate::error::layout;
use crate::files::plain_file;
use crate::formats::is_image;
use crate::{Error, Part};

/// Boxes may leave the image by this share of it, which rounding to few digits does.
const ROUNDING: f64 = 0.01;
/// Folders that link to each other without a circle can still be entered very many times.
const MOST_FOLDERS: u32 = 100_000;
/// No data set of boxes has more classes.
const MOST_CLASSES: u32 = 1 << 16;

/// Reads every image below `root/images` with its labels.
pub(super) fn read(root: &Path) -> Result<Listing, Error> {
    let (folder, labels) = (root.join("images"), root.join("labels"));
    let mut images = Vec::new();
    walk(&folder, &mut images, &mut Entered::default())?;
    let names = names(root)?;
    let mut listing = Listing::default();
    let mut most = None;
    for file in images {
        let inner = file.strip_prefix(&folder).unwrap_or(&file).to_owned();
        let text = labels.join(&inner).with_extension("txt");
        let boxes = if text.is_file() { boxes(&text, names.as_deref())? } else { Vec::new() };
        most = most.max(boxes.iter().map(|marked| marked.class).max());
        listing.samples.push(LabelledImage { file, home: home(&inner), extent: None, boxes, aside: Vec::new() });
    }
    listing.classes = match names {
        Some(names) => names,
        None => (0..=most.unwrap_or(0)).map(|number| number.to_string()).collect(),
    };
    Ok(listing)
}

/// The part that the first folder names.
fn home(inner: &Path) -> Option<Part> {
    let mut components = inner.components();
    let first = components.next()?;
    components.next()?;
    part_named(&first.as_os_str().to_string_lossy())
}

/// The folders that a walk has entered.
#[derive(Default)]
struct Entered {
    /// The present folder and those above it, without links.
    above: Vec<PathBuf>,
    /// Number of folders entered.
    count: u32,
}

/// The images below a folder. Links are followed, but none that leads in a circle.
fn walk(folder: &Path, found: &mut Vec<PathBuf>, entered: &mut Entered) -> Result<(), Error> {
    let failed = |source| Error::Read { name: folder.display().to_string(), source };
    let real = fs::canonicalize(folder).map_err(failed)?;
    if entered.above.contains(&real) {
        return Ok(());
    }
    entered.count += 1;
    if entered.count > MOST_FOLDERS {
        let hint = "remove links that lead from folder to folder";
        return Err(layout(folder, format!("more than {MOST_FOLDERS} folders are found"), hint));
    }
    entered.above.push(real);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            walk(&path, found, entered)?;
            continue;
        }
        if is_image(&path) {
            found.push(path);
        }
    }
    entered.above.pop();
    Ok(())
}

fn boxes(file: &Path, names: Option<&[String]>) -> Result<Vec<LabelledBox>, Error> {
    let text = plain_file::text(file).map_err(|source| Error::Read { name: file.display().to_string(), source })?;
    let mut boxes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| {
            let hint = "write a class and the centre, width and height in shares of the image, as `0 0.5 0.5 0.2 0.1`";
            layout(file, format!("line {}: {why}", number + 1), hint)
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [class, rest @ ..] = fields.as_slice() else { continue };
        let class: u32 = class.parse().map_err(|_| wrong(format!("`{class}` is not a class number")))?;
        if class >= MOST_CLASSES {
            return Err(wrong(format!("class {class} is beyond the last, {}", MOST_CLASSES - 1)));
        }
        let values: Vec<f64> = rest.iter().filter_map(|field| field.parse().ok()).collect();
        let [x, y, w, h] = values[..] else {
            return Err(wrong(format!("it has {} numbers for the box, and four are needed", values.len())));
        };
        if let Some(names) = names
            && class as usize >= names.len()
        {
            return Err(wrong(format!("class {class} is not known: there are {}, counted from 0", names.len())));
        }
        let edges = [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0];
        let is_inside = edges.iter().all(|edge| (-ROUNDING..=1.0 + ROUNDING).contains(edge));
        if !is_inside || w <= 0.0 || h <= 0.0 {
            return Err(wrong(format!("the box {x} {y} {w} {h} does not lie in its image")));
        }
        boxes.push(LabelledBox { class, edges: Edges::Shares(edges.map(|edge| edge.clamp(0.0, 1.0))) });
    }
    Ok(boxes)
}

fn names(root: &Path) -> Result<Option<Vec<String>>, Error> {
    for name in ["classes.txt", "obj.names", "data.yaml", "dataset.yaml"] {
        let file = root.join(name);
        if !file.is_file() {
            continue;
        }
        let text =
            plain_file::text(&file).map_err(|source| Error::Read { name: file.display().to_string(), source })?;
        let names = match name.ends_with(".yaml") {
            true => names_in_yaml(&text),
            false => text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        };
        if names.is_empty() {
            return Err(layout(&file, "it names no classes", "write for example `names: [cat, dog]`"));
        }
        return Ok(Some(names));
    }
    Ok(None)
}

/// The list under `names:`, in the three ways in which it is written: `[a, b]`, `- a` lines, and `0: a` lines.
fn names_in_yaml(text: &str) -> Vec<String> {
    let plain = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or(line));
    let Some(first) = lines.by_ref().find_map(|line| line.strip_prefix("names:")) else { return Vec::new() };
    let first = first.trim();
    if let Some(list) = first.strip_prefix('[') {
        let rest: Vec<&str> = lines.collect();
        let list = format!("{list} {}", rest.join(" "));
        let list = list.split(']').next().unwrap_or_default();
        return list.split(',').map(plain).filter(|name| !name.is_empty()).collect();
    }
    let mut names = Vec::new();
    for line in lines {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        let item = trimmed.strip_prefix("- ").map(plain);
        let keyed = line.starts_with(' ').then(|| trimmed.split_once(':')).flatten();
        let keyed = keyed.filter(|(key, _)| key.parse::<usize>().is_ok_and(|key| key == names.len()));
        match item.or_else(|| keyed.map(|(_, name)| plain(name))) {
            Some(name) => names.push(name),
            None => break,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::names_in_yaml;

    #[test]
    fn names_are_read_in_each_way_of_writing() {
        let check = |text: &str| assert_eq!(names_in_yaml(text), ["disc", "bar"], "{text}");
        check("path: x\nnames: [disc, 'bar']\nnc: 2\n");
        check("names: [disc,\n  bar]\n");
        check("nc: 2\nnames:\n- disc\n- bar # thin\nother: 1\n");
        check("names:\n  0: disc\n  1: \"bar\"\ntrain: images\n");
        assert!(names_in_yaml("nc: 2\n").is_empty());
    }
}
