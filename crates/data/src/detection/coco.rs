//! Boxes in the form of COCO (Lin et al. 2014): a JSON of `images`, `categories` and `annotations`, whose `bbox` is
//! left, top, width and height in pixels.
//!
//! Regions marked `iscrowd` are not single objects: they are not trained on, and detections in them are ignored.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::listing::{Edges, LabelledBox, LabelledImage, Listing, part_named};
use crate::Error;
use crate::error::layout;
use crate::formats::coco::{Coco, CocoAnnotation, CocoImage};

/// The label files at `path`: the file itself, or those of a folder under the names that are usual.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_file() {
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        return Ok(if is_json { vec![path.into()] } else { Vec::new() });
    }
    let mut found = Vec::new();
    for folder in [path.to_owned(), path.join("annotations")] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.map_err(|source| Error::Read { name: folder.display().to_string(), source })?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            let is_usual = name.starts_with("instances") || name.starts_with("annotations") || name.contains("coco");
            if name.ends_with(".json") && is_usual {
                found.push(entry.path());
            }
            // One file within each part's folder, as export programs write it.
            let inner = entry.path().join("_annotations.coco.json");
            if inner.is_file() {
                found.push(inner);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads `files`, all found at `root`, into one listing; they must agree on the categories.
pub(super) fn read(root: &Path, files: &[PathBuf]) -> Result<Listing, Error> {
    let mut listing = Listing::default();
    let mut categories: Option<BTreeMap<i64, String>> = None;
    let mut left_out = [0u64; 2];
    for file in files {
        let coco = Coco::read(file)?;
        let named = coco.names();
        if named.is_empty() {
            return Err(layout(file, "it has no `categories`", "name the classes with an `id` and a `name` each"));
        }
        match &categories {
            Some(first) if *first != named => {
                let hint = "write the same `categories` into every label file";
                return Err(layout(file, "its `categories` are not those of the first label file", hint));
            }
            Some(_) => {}
            None => categories = Some(named.clone()),
        }
        let Coco { images, annotations, .. } = coco;
        let by_id = place(root, file, images, &mut listing.samples)?;
        annotate(file, annotations, &named, &by_id, &mut listing.samples, &mut left_out)?;
    }
    listing.classes = categories.unwrap_or_default().into_values().collect();
    let [crowds, flat] = left_out;
    if crowds > 0 {
        listing.notes.push(format!("{crowds} regions marked `iscrowd` are no single objects: they are not trained on, and detections in them do not count"));
    }
    if flat > 0 {
        listing.notes.push(format!("{flat} boxes without width or height are not trained on"));
    }
    Ok(listing)
}

/// The images of a file by id: their indices in `samples` and their sizes.
type Placed = BTreeMap<i64, (usize, [f64; 2])>;

/// Adds the images of a file, and locates their files in the usual folders.
fn place(root: &Path, file: &Path, images: Vec<CocoImage>, samples: &mut Vec<LabelledImage>) -> Result<Placed, Error> {
    let folder = file.parent().unwrap_or(root);
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    // In `root/train/_annotations.coco.json` the folder names the part, in `instances_train2017.json` the file.
    let home = part_named(&stem(file)).or_else(|| (folder != root).then(|| part_named(&stem(folder))).flatten());
    let split = stem(file).rsplit('_').next().unwrap_or_default().to_owned();
    let folders = [folder.to_owned(), folder.join("images"), root.to_owned(), root.join("images"), root.join(&split)];
    let folders = [&folders[..], &[root.join("images").join(&split)]].concat();
    let mut by_id = Placed::new();
    for image in images {
        let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(&image.file_name).components().all(is_inside) {
            let why = format!("the image `{}` leads out of its folder", image.file_name);
            return Err(layout(
                file,
                &why,
                "make `file_name` relative to the folder of the label file or its `images`, without `..`; a symbolic link in it may \
                 point elsewhere",
            ));
        }
        let found = folders.iter().map(|folder| folder.join(&image.file_name)).find(|path| path.is_file());
        let file = found.ok_or_else(|| {
            let why = format!("the image `{}` of `{}` is not there", image.file_name, file.display());
            layout(root, &why, "put the images next to the label file, or into `images`")
        })?;
        let extent = [image.width.unwrap_or(f64::INFINITY), image.height.unwrap_or(f64::INFINITY)];
        by_id.insert(image.id, (samples.len(), extent));
        let extent = Some(extent).filter(|sides| sides.iter().all(|side| side.is_finite() && *side > 0.0));
        samples.push(LabelledImage { file, home, extent, boxes: Vec::new(), aside: Vec::new() });
    }
    Ok(by_id)
}

/// Adds the boxes of a file to its images; counts regions of many objects, and boxes without area.
fn annotate(
    file: &Path,
    annotations: Vec<CocoAnnotation>,
    categories: &BTreeMap<i64, String>,
    by_id: &Placed,
    samples: &mut [LabelledImage],
    left_out: &mut [u64; 2],
) -> Result<(), Error> {
    for (number, annotation) in annotations.into_iter().enumerate() {
        let wrong = |why: String| layout(file, format!("annotation {}: {why}", number + 1), "correct the label file");
        let Some((sample, [width, height])) = by_id.get(&annotation.image_id) else {
            return Err(wrong(format!("`image_id` {} is not in its `images`", annotation.image_id)));
        };
        let Some(class) = categories.keys().position(|id| *id == annotation.category_id) else {
            return Err(wrong(format!("`category_id` {} is not in its `categories`", annotation.category_id)));
        };
        let [x, y, w, h] = annotation.bbox[..] else {
            return Err(wrong(format!("`bbox` has {} numbers, and four are needed", annotation.bbox.len())));
        };
        if ![x, y, w, h].iter().all(|value| value.is_finite()) || w < 0.0 || h < 0.0 {
            return Err(wrong(format!("`bbox` [{x}, {y}, {w}, {h}] is no box")));
        }
        // A pixel is forgiven: some programs count edges from 1.
        if x < -1.0 || y < -1.0 || x + w > width + 1.0 || y + h > height + 1.0 {
            return Err(wrong(format!("`bbox` [{x}, {y}, {w}, {h}] leaves its image of {width}×{height}")));
        }
        let marked = LabelledBox { class: class as u32, edges: Edges::Pixels([x, y, x + w, y + h]) };
        let (is_crowd, is_flat) = (annotation.iscrowd != 0, w == 0.0 || h == 0.0);
        match is_crowd || is_flat {
            true => {
                left_out[usize::from(!is_crowd)] += 1;
                samples[*sample].aside.push((marked, is_crowd));
            }
            false => samples[*sample].boxes.push(marked),
        }
    }
    Ok(())
}
