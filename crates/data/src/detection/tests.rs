//! Labels in, frames and batches out.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use image::RgbImage;
use serde_json::{Value, json};

use super::shapes;
use super::*;
use crate::{Cursor, RankShare};

fn spec(changes: Value) -> Data {
    let mut spec = json!({"path": "", "split": [0.5, 0.25, 0.25], "size": 64});
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn image(path: &Path, width: u32, height: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // The content decides what a file is, not its name.
    let image = RgbImage::from_fn(width, height, |x, _| [if x < width / 2 { 255 } else { 0 }, 0, 0].into());
    image.save_with_format(path, image::ImageFormat::Png).unwrap();
}

/// Four wide images and one box in each but the last.
fn coco(folder: &Path, change: impl FnOnce(&mut Value)) {
    let names = ["a.png", "b.png", "c.png", "d.png"];
    for name in names {
        image(&folder.join("images").join(name), 128, 64);
    }
    let images: Vec<Value> = names
        .iter()
        .zip(10..)
        .map(|(name, id)| json!({"id": id, "file_name": name, "width": 128, "height": 64}))
        .collect();
    let annotations: Vec<Value> = (10..13)
        .map(|id| json!({"id": id, "image_id": id, "category_id": 7, "bbox": [16, 8, 32, 16], "iscrowd": 0}))
        .collect();
    let categories = json!([{"id": 7, "name": "disc"}, {"id": 3, "name": "bar"}]);
    let mut all = json!({"images": images, "annotations": annotations, "categories": categories});
    change(&mut all);
    fs::write(folder.join("annotations.json"), all.to_string()).unwrap();
}

fn yolo(folder: &Path, line: &str) {
    for name in ["a", "b", "c", "d"] {
        image(&folder.join(format!("images/{name}.png")), 128, 64);
        fs::create_dir_all(folder.join("labels")).unwrap();
        if name != "d" {
            fs::write(folder.join(format!("labels/{name}.txt")), line).unwrap();
        }
    }
    fs::write(folder.join("classes.txt"), "bar\ndisc\n").unwrap();
}

#[test]
fn both_forms_say_the_same() {
    let (left, right) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    coco(left.path(), |_| {});
    yolo(right.path(), "1 0.25 0.25 0.25 0.25\n");
    for path in [left.path().to_owned(), left.path().join("annotations.json"), right.path().to_owned()] {
        let samples = DetectionDataset::open(&spec(json!({})), &path, 1).unwrap();
        assert_eq!(
            (samples.classes(), samples.counts(), samples.size()),
            (&["bar".into(), "disc".into()][..], [2, 1, 1], 64)
        );
        let outline = DetectionOutline::of(&spec(json!({})), &path, 1).unwrap();
        assert_eq!((outline.classes, outline.counts, outline.size), (samples.classes.clone(), [2, 1, 1], 64));
        let frame = samples.frame(0).unwrap();
        // Half as large, and 16 pixels of grey above and below.
        assert_eq!(frame.objects, [GroundTruthBox { class: 1, edges: [8.0, 20.0, 24.0, 28.0] }]);
        assert_eq!(frame.pixels[..3], [114; 3]);
        assert_eq!((frame.pixels[20 * 64 + 3], frame.pixels[20 * 64 + 60]), (255, 0));
        assert!(samples.frame(3).unwrap().objects.is_empty());
        let mirrored = frame.mirrored();
        assert_eq!(mirrored.objects[0].edges, [40.0, 20.0, 56.0, 28.0]);
        let twice = Frame { original: None, ..(*frame).clone() };
        assert_eq!((mirrored.pixels[20 * 64 + 3], mirrored.mirrored()), (0, twice));
        // The image as its file has it, for evaluation.
        let original = frame.original.as_deref().unwrap();
        let annotated = AnnotatedBox { class: 1, bbox: [16.0, 8.0, 32.0, 16.0], is_crowd: false };
        assert_eq!(original.annotations, [annotated]);
        assert_eq!((original.extent, original.stretch), ([128.0, 64.0], [0.5; 2]));
        assert_eq!(original.offset, [0.0, 16.0]);
    }
}

/// Annotations that are not trained on are still evaluated: crowds, boxes without area, and boxes too thin to be
/// visible.
#[test]
fn evaluation_sees_every_annotation() {
    let folder = tempfile::tempdir().unwrap();
    coco(folder.path(), |all| {
        let add =
            |bbox: Value, crowd| json!({"id": 0, "image_id": 10, "category_id": 3, "bbox": bbox, "iscrowd": crowd});
        let more = [add(json!([0, 0, 64, 64]), 1), add(json!([5, 5, 0, 9]), 0), add(json!([9, 9, 1, 20]), 0)];
        all["annotations"].as_array_mut().unwrap().extend(more);
    });
    let samples = DetectionDataset::open(&spec(json!({})), folder.path(), 1).unwrap();
    let frame = samples.frame(0).unwrap();
    assert_eq!(frame.objects.len(), 1);
    let annotations = &frame.original.as_deref().unwrap().annotations;
    let found: Vec<_> = annotations.iter().map(|one| (one.class, one.bbox, one.is_crowd)).collect();
    let expected = [
        (1, [16.0, 8.0, 32.0, 16.0], false),
        (0, [9.0, 9.0, 1.0, 20.0], false),
        (0, [0.0, 0.0, 64.0, 64.0], true),
        (0, [5.0, 5.0, 0.0, 9.0], false),
    ];
    assert_eq!(found, expected);
    let notes = samples.notes().join("\n");
    assert!(notes.contains("1 regions marked `iscrowd`") && notes.contains("1 boxes without"), "{notes}");
}

#[test]
fn wrong_labels_are_named() {
    let check = |expected: &str, change: &dyn Fn(&mut Value)| {
        let folder = tempfile::tempdir().unwrap();
        coco(folder.path(), change);
        let error = DetectionDataset::open(&spec(json!({})), folder.path(), 1).unwrap_err();
        let finding = error.finding();
        assert!(finding.message.contains(expected), "{} has no `{expected}`", finding.message);
        assert!(finding.hint.is_some());
    };
    check("`category_id` 9", &|all| all["annotations"][1]["category_id"] = json!(9));
    check("`image_id` 99", &|all| all["annotations"][1]["image_id"] = json!(99));
    check("leaves its image", &|all| all["annotations"][1]["bbox"] = json!([100, 8, 32, 16]));
    check("four are needed", &|all| all["annotations"][1]["bbox"] = json!([1, 2, 3]));
    check("is no box", &|all| all["annotations"][1]["bbox"] = json!([1, 2, -3, 4]));
    check("`e.png`", &|all| all["images"][0]["file_name"] = json!("e.png"));
    check("not a COCO JSON", &|all| *all = json!({"images": 3}));
    check("leads out of its folder", &|all| all["images"][0]["file_name"] = json!("../images/a.png"));
    check("leads out of its folder", &|all| all["images"][0]["file_name"] = json!("/etc/passwd"));
    check("no `categories`", &|all| all["categories"] = json!([]));
    check("no image has a box", &|all| all["annotations"] = json!([]));
    let check = |expected: &str, line: &str| {
        let folder = tempfile::tempdir().unwrap();
        yolo(folder.path(), line);
        let message = DetectionDataset::open(&spec(json!({})), folder.path(), 1).unwrap_err().finding().message;
        assert!(message.contains(expected), "{message} has no `{expected}`");
    };
    check("class 2 is not known", "0 .5 .5 .1 .1\n2 .5 .5 .1 .1\n");
    check("`disc` is not a class number", "disc .5 .5 .1 .1\n");
    check("four are needed", "1 .5 .5 .1\n");
    check("does not lie in its image", "1 .9 .5 .4 .1\n");
    check("class 4294967295 is beyond the last", "4294967295 .5 .5 .1 .1\n");
    let folder = tempfile::tempdir().unwrap();
    coco(folder.path(), |_| {});
    let message = DetectionDataset::open(&spec(json!({"classes": 5})), folder.path(), 1).unwrap_err().finding().message;
    assert!(message.contains("2 classes, the job specifies 5"), "{message}");
    fs::write(folder.path().join("images/b.png"), "no image").unwrap();
    assert!(DetectionDataset::open(&spec(json!({})), folder.path(), 1).is_err());
    let samples =
        DetectionDataset::open(&spec(json!({"corrupt": "skip", "split": [0.4, 0.3, 0.3]})), folder.path(), 1).unwrap();
    assert_eq!((samples.counts(), samples.skipped().len()), ([1, 1, 1], 1));
}

#[test]
fn boxes_are_those_of_the_image_as_it_is_decoded() {
    let open = |[width, height]: [u32; 2], bbox: Option<[f64; 4]>| {
        let folder = tempfile::tempdir().unwrap();
        coco(folder.path(), |all| {
            for annotation in all["annotations"].as_array_mut().unwrap() {
                annotation["bbox"] = bbox.map_or_else(|| annotation["bbox"].clone(), |bbox| json!(bbox));
            }
            for image in all["images"].as_array_mut().unwrap() {
                (image["width"], image["height"]) = (json!(width), json!(height));
            }
        });
        let samples =
            DetectionDataset::open(&spec(json!({})), folder.path(), 1).map_err(|error| error.finding().message);
        samples.map(|samples| samples.frame(0).unwrap())
    };
    let expected = [GroundTruthBox { class: 1, edges: [8.0, 20.0, 24.0, 28.0] }];
    assert_eq!(open([128, 64], None).unwrap().objects, expected);
    // Of images that were reduced to a half since.
    let half = open([256, 128], None).unwrap();
    assert_eq!(half.objects, [GroundTruthBox { class: 1, edges: [4.0, 18.0, 12.0, 22.0] }]);
    assert_eq!(half.original.as_deref().unwrap().annotations[0].bbox, [8.0, 4.0, 16.0, 8.0]);
    let turned = open([64, 128], Some([10.0, 70.0, 20.0, 50.0])).unwrap_err();
    assert!(turned.contains("annotated as 64×128, and decoded as 128×64: rotated by EXIF?"), "{turned}");
    let other = open([128, 100], Some([10.0, 70.0, 20.0, 25.0])).unwrap_err();
    assert_eq!(open([64, 128], None).unwrap().objects, expected, "its boxes are right");
    assert!(other.contains("a.png") && other.contains("annotated as 128×100, and decoded as 128×64"), "{other}");
}

#[test]
fn a_panic_of_the_loader_is_not_the_end_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    coco(folder.path(), |_| {});
    let mut samples = DetectionDataset::open(&spec(json!({"workers": 1})), folder.path(), 1).unwrap();
    // A number that no sample has.
    samples.parts[Part::Train as usize][0] = 99;
    let mut loader = DetectionLoader::evaluate(Arc::new(samples), Part::Train, 2, RankShare::ALL);
    assert!(matches!(loader.next(), Some(Err(Error::Internal(_)))));
    assert!(loader.next().is_none());
}

#[test]
fn links_are_followed_but_not_in_circles() {
    let folder = tempfile::tempdir().unwrap();
    yolo(folder.path(), "1 0.25 0.25 0.25 0.25\n");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    for name in ["one", "two", "three"] {
        link(".", &format!("images/{name}"));
    }
    let samples = DetectionDataset::open(&spec(json!({})), folder.path(), 1).unwrap();
    assert_eq!(samples.counts(), [2, 1, 1]);
    // The same images under two names are two parts.
    for part in ["images", "labels"] {
        fs::create_dir(folder.path().join(part).join("train")).unwrap();
        for name in ["a", "b", "c", "d"] {
            let ending = if part == "images" { "png" } else { "txt" };
            let _ = fs::rename(
                folder.path().join(format!("{part}/{name}.{ending}")),
                folder.path().join(format!("{part}/train/{name}.{ending}")),
            );
        }
        link("train", &format!("{part}/val"));
        link("train", &format!("{part}/test"));
    }
    let samples = DetectionDataset::open(&spec(json!({"split": "folders"})), folder.path(), 1).unwrap();
    assert_eq!(samples.counts(), [4, 4, 4]);
}

#[test]
fn batches_depend_on_their_position_alone() {
    let folder = tempfile::tempdir().unwrap();
    shapes::write(folder.path(), 24, 64, 5).unwrap();
    let spec = spec(json!({"augment": ["flip", "mosaic"], "size": null}));
    let samples = Arc::new(DetectionDataset::open(&spec, folder.path(), 1).unwrap());
    assert_eq!((samples.size(), samples.counts(), samples.classes().len()), (64, [12, 6, 6], 3));
    let from = |cursor| {
        let mut loader = DetectionLoader::train(Arc::clone(&samples), 5, 9, &spec.augment, cursor, 2, RankShare::ALL);
        let mut all = Vec::new();
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap();
            assert_eq!(batch.images.len(), batch.objects.len() * 3 * 64 * 64);
            for object in batch.objects.iter().flatten() {
                let [left, top, right, bottom] = object.edges;
                assert!(left < right && top < bottom && left >= 0.0 && bottom <= 64.0 && object.class < 3);
            }
            all.push((batch.images, batch.objects, batch.cursor_after));
        }
        all
    };
    let undisturbed = from(Cursor::START);
    let sizes: Vec<usize> = undisturbed.iter().map(|(_, objects, _)| objects.len()).collect();
    assert_eq!(sizes, [5, 5, 2, 5, 5, 2]);
    for skipped in 1..6 {
        assert!(from(undisturbed[skipped - 1].2) == undisturbed[skipped..], "resumed after {skipped} batches");
    }
    // However many threads make them.
    for workers in [2, 3, 16] {
        let several = Data { workers, ..spec.clone() };
        let samples = Arc::new(DetectionDataset::open(&several, folder.path(), 1).unwrap());
        let mut loader = DetectionLoader::train(samples, 5, 9, &spec.augment, Cursor::START, 2, RankShare::ALL);
        let batches = std::iter::from_fn(|| loader.next()).map(Result::unwrap);
        assert!(
            batches.map(|batch| (batch.images, batch.objects, batch.cursor_after)).eq(undisturbed.clone()),
            "{workers}"
        );
    }
    // Two ranks see what one sees, each its half of every batch.
    let of_rank = |rank| {
        let share = RankShare::new(rank, 2).unwrap();
        let mut loader = DetectionLoader::train(Arc::clone(&samples), 5, 9, &spec.augment, Cursor::START, 2, share);
        std::iter::from_fn(move || loader.next()).map(Result::unwrap).collect::<Vec<_>>()
    };
    for ((one, two), (images, objects, after)) in of_rank(0).into_iter().zip(of_rank(1)).zip(&undisturbed) {
        assert_eq!((one.counted + two.counted, one.whole, one.cursor_after), (objects.len(), objects.len(), *after));
        assert!([one.objects, two.objects].concat() == *objects && [one.images, two.images].concat() == *images);
    }
    let mut loader = DetectionLoader::evaluate(Arc::clone(&samples), Part::Test, 4, RankShare::ALL);
    let count = std::iter::from_fn(|| loader.next()).map(|batch| batch.unwrap().objects.len()).sum::<usize>();
    assert_eq!(count, 6);
    let mut rest = DetectionLoader::evaluate_from(Arc::clone(&samples), Part::Test, 4, RankShare::ALL, 4);
    let rest: Vec<_> = std::iter::from_fn(|| rest.next()).map(|batch| batch.unwrap()).collect();
    assert_eq!(rest.iter().map(|batch| (batch.first, batch.objects.len())).collect::<Vec<_>>(), [(4, 2)]);
    let late = DetectionLoader::train(samples, 5, 9, &[], Cursor { epoch: 0, pos: 12 }, 2, RankShare::ALL).next();
    assert!(matches!(late, Some(Err(Error::Position { .. }))));
}
