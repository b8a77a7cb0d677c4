//! A data set that is drawn: discs, squares and triangles on a rough ground, with their boxes, to try detection with.
//!
//! Every image depends on the seed and its number alone. `cargo run --release -p gradus-data --example shapes` writes
//! it from a shell.

use std::fs;
use std::path::Path;

use image::RgbImage;
use serde_json::{Value, json};

use crate::Error;
use crate::sampling::random::{Draws, Purpose, key};

/// Names of the classes, in label order.
pub const CLASSES: [&str; 3] = ["disc", "square", "triangle"];

/// Shapes in an image, at most.
const MOST: u64 = 4;
/// The intersection of two boxes is at most the area of the smaller one divided by this.
const OVERLAP: i64 = 5;

/// Edges of a box in pixels: left, top, and its side.
type Placed = [i64; 3];

/// Writes `count` images of `size` × `size` into `folder/images`, and `folder/annotations.json` in the form of COCO.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, count: usize, size: u32, seed: u64) -> Result<(), Error> {
    let failed = |path: &Path, source| Error::Write { name: path.display().to_string(), source };
    let image_folder = folder.join("images");
    fs::create_dir_all(&image_folder).map_err(|source| failed(&image_folder, source))?;
    let (mut images, mut annotations): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (image, shapes) = draw(size, Draws::new(key(Purpose::Shapes, seed, &[number as u64])));
        let name = format!("{number:05}.png");
        let path = image_folder.join(&name);
        image.save(&path).map_err(|error| failed(&path, std::io::Error::other(error)))?;
        images.push(json!({"id": number, "file_name": name, "width": size, "height": size}));
        for (class, [left, top, side]) in shapes {
            let id = annotations.len() + 1;
            let area = side * side;
            annotations.push(json!({
                "id": id, "image_id": number, "category_id": class, "bbox": [left, top, side, side], "area": area,
                "iscrowd": 0,
            }));
        }
    }
    let named = CLASSES.iter().enumerate();
    let categories: Vec<Value> = named.map(|(id, name)| json!({"id": id, "name": name})).collect();
    let all = json!({"images": images, "annotations": annotations, "categories": categories});
    let path = folder.join("annotations.json");
    fs::write(&path, format!("{all:#}\n")).map_err(|source| failed(&path, source))
}

/// One image, and the class and box of each shape in it.
fn draw(size: u32, mut draws: Draws) -> (RgbImage, Vec<(usize, Placed)>) {
    let ground: [u64; 3] = [0; 3].map(|_: u64| draws.below(160));
    let mut image = RgbImage::from_fn(size, size, |_, _| ground.map(|value| (value + draws.below(48)) as u8).into());
    let mut shapes: Vec<(usize, Placed)> = Vec::new();
    for _ in 0..1 + draws.below(MOST) {
        // Where the image is full already, fewer are drawn.
        let free = (0..20).find_map(|_| {
            let side = (size / 6) as i64 + draws.below(u64::from(size / 4)) as i64;
            let room = (i64::from(size) - side + 1).unsigned_abs();
            let placed = [draws.below(room) as i64, draws.below(room) as i64, side];
            shapes.iter().all(|(_, other)| is_apart(placed, *other)).then_some(placed)
        });
        let Some(placed) = free else { break };
        let class = draws.below(CLASSES.len() as u64) as usize;
        let colour: [u8; 3] = [0; 3].map(|_: u8| 40 + draws.below(216) as u8);
        fill(&mut image, class, placed, colour);
        shapes.push((class, placed));
    }
    (image, shapes)
}

fn is_apart(one: Placed, other: Placed) -> bool {
    let shared = |axis: usize| {
        let end = (one[axis] + one[2]).min(other[axis] + other[2]);
        (end - one[axis].max(other[axis])).max(0)
    };
    shared(0) * shared(1) * OVERLAP <= (one[2].min(other[2])).pow(2)
}

fn fill(image: &mut RgbImage, class: usize, [left, top, side]: Placed, colour: [u8; 3]) {
    for y in 0..side {
        for x in 0..side {
            // Twice the distance from the middle, to stay in integers.
            let (across, down) = (2 * x + 1 - side, 2 * y + 1 - side);
            let is_inside = match class {
                0 => across * across + down * down <= side * side,
                1 => true,
                _ => across.abs() <= y + 1,
            };
            if is_inside {
                image.put_pixel((left + x) as u32, (top + y) as u32, colour.into());
            }
        }
    }
}
