//! Runs whose samples have any number of labels, or a number.

use std::fs;
use std::path::Path;

use data::{Dataset, Provenance};
use domain::rank::Report;
use serde_json::{Value, json};
use tch::Device;
use train::Error;
use train::run::Ending;
use train::run::exported::{self, Evaluation, Request};

use crate::scene::{Bench, bench, turn};
use crate::texts::reading;

/// Images with a bright band at the top, on the left, both or neither, and a list of what each has.
fn bands(folder: &Path, label: impl Fn(u32, bool, bool) -> String) {
    fs::create_dir_all(folder).unwrap();
    let mut list = String::from("file_name,label\n");
    for number in 0..160_u32 {
        let (top, left) = (number % 2 == 0, number % 3 == 0);
        let pixel = |x: u32, y: u32| {
            let is_bright = (top && y < 3) || (left && x < 3);
            image::Rgb([if is_bright { 220 } else { 30 + ((number * 7 + x * 3 + y) % 40) as u8 }; 3])
        };
        image::RgbImage::from_fn(12, 12, pixel).save(folder.join(format!("{number:03}.png"))).unwrap();
        list += &format!("{number:03}.png,{}\n", label(number, top, left));
    }
    fs::write(folder.join("metadata.csv"), list).unwrap();
}

fn of_bands(labels: &str, label: impl Fn(u32, bool, bool) -> String) -> Bench {
    let mut bench = bench(json!({
        "model": "cnn", "data": {"path": "", "labels": labels}, "batch": 16, "epochs": 6,
        "optimizer": {"adamw": {"lr": 2e-3}},
    }));
    bench.data = bench.path("bands");
    bands(&bench.data, label);
    bench
}

/// Both bands, in one of two orders; of one image nothing is said, which is that it has neither.
fn several(number: u32, top: bool, left: bool) -> String {
    match (top, left) {
        (true, true) if number.is_multiple_of(4) => "left|top".to_owned(),
        (true, true) => "top | left".to_owned(),
        (true, false) => "top".to_owned(),
        (false, true) => "left".to_owned(),
        (false, false) if number == 1 => String::new(),
        (false, false) => "|".to_owned(),
    }
}

fn request(bench: &Bench, data: Option<&Path>) -> Request {
    let text = |path: &Path| path.display().to_string();
    let spec = json!({
        "schema": domain::rank::SPEC_SCHEMA, "run": "test", "attempt": "test-a1", "fence": 1, "rank": 0, "world_size": 1,
        "job_hash": "job", "train": bench.train, "data": text(&bench.data), "threads": 1,
        "checkpoints": text(&bench.path("checkpoints")), "export": text(&bench.path("export")), "socket": "",
    });
    Request {
        spec: serde_json::from_value(spec).unwrap(),
        data: data.map(text),
        resize: false,
        predictions: Some(bench.path("predictions.csv")),
    }
}

fn evaluate(request: Request) -> Result<Evaluation, Error> {
    let _turn = turn();
    exported::evaluate(request, Device::Cpu)
}

fn card(bench: &Bench) -> Value {
    serde_json::from_str(&fs::read_to_string(bench.path("export/model.json")).unwrap()).unwrap()
}

#[test]
fn several_labels_are_learned_resumed_and_evaluated() {
    let mut whole = of_bands("multi_label", several);
    let outcome = whole.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let Some(Report::Ready(ready)) = outcome.reports.iter().find(|report| matches!(report, Report::Ready(_))) else {
        panic!("{:?}", outcome.reports)
    };
    assert_eq!(ready.classes, ["left", "top"]);
    let exported = outcome.exported();
    assert!(exported.test_accuracy > 0.95 && exported.figures.map == Some(exported.test_accuracy), "{exported:?}");
    assert!(exported.figures.f1.is_some_and(|f1| f1 > 0.8), "{exported:?}");
    assert_eq!((&card(&whole)["labels"], &card(&whole)["classes"]), (&json!("multi_label"), &json!(["left", "top"])));

    let mut stopped = of_bands("multi_label", several);
    stopped.stop_after(9);
    let resumed = stopped.finish();
    assert_eq!(resumed.exported().model_sha256, exported.model_sha256);

    // Its own test split again, and other data that has one of the labels, named by a list.
    let own = evaluate(request(&whole, None)).unwrap();
    assert_eq!((own.accuracy, own.loss), (exported.test_accuracy, card(&whole)["test_loss"].as_f64().unwrap()));
    assert_eq!(own.labels.len(), 2);
    let other = whole.path("other");
    bands(&other, |_, top, _| if top { "top".to_owned() } else { "|".to_owned() });
    let found = evaluate(request(&whole, Some(&other))).unwrap();
    assert_eq!((found.samples, found.labels[0].samples, found.labels[1].samples), (160, 0, 80));
    assert_eq!(found.labels[0].average_precision, None);
    let rows = fs::read_to_string(whole.path("predictions.csv")).unwrap();
    let mut rows = rows.lines();
    assert_eq!(rows.next(), Some("sample,labels,predicted,left,top"));
    let right = rows.filter(|row| row.split(',').nth(1) == row.split(',').nth(2)).count();
    assert!(right > 80, "{right} of the rows without `left` are right");
    bands(&other, |_, _, _| "bottom".to_owned());
    fs::write(other.join("000.png"), fs::read(other.join("001.png")).unwrap()).unwrap();
    let list = fs::read_to_string(other.join("metadata.csv")).unwrap().replacen("bottom", "top", 1);
    fs::write(other.join("metadata.csv"), list).unwrap();
    let refused = evaluate(request(&whole, Some(&other))).unwrap_err().finding();
    assert!(refused.message.contains("does not know: `bottom`"), "{refused:?}");
}

#[test]
fn labels_that_changed_are_refused_and_accepted_ones_keep_the_split() {
    let mut bench = of_bands("multi_label", several);
    bench.stop_after(9);
    bands(&bench.data, |number, top, left| if number == 4 { "left".to_owned() } else { several(number, top, left) });
    let finding = bench.finish().ending.unwrap_err();
    assert!(finding.message.contains("another class") || finding.message.contains("004"), "{finding:?}");
    bench.accept_data_change = true;
    assert_eq!(bench.finish().ending, Ok(Ending::Trained));
}

#[test]
fn numbers_are_learned_and_the_smallest_loss_is_the_best() {
    let depth = |number: u32, top: bool, left: bool| {
        format!("{}", f64::from(u8::from(top)) * 1.5 - f64::from(u8::from(left)) + f64::from(number % 5) * 1e-3)
    };
    let mut bench = of_bands("number", depth);
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let exported = outcome.exported();
    assert!(exported.test_accuracy > 0.9, "R² {exported:?}");
    assert!(exported.figures.rmse.is_some_and(|rmse| rmse < 0.3) && exported.figures.mae.is_some(), "{exported:?}");
    let best = outcome.reports.iter().filter_map(|report| match report {
        Report::Evaluated(evaluated) if evaluated.best => Some(evaluated.loss),
        _ => None,
    });
    assert!(best.collect::<Vec<_>>().is_sorted_by(|one, next| one >= next));
    assert_eq!(card(&bench)["labels"], json!("number"));
    let own = evaluate(request(&bench, None)).unwrap();
    assert_eq!(own.accuracy, exported.test_accuracy);
    let rows = fs::read_to_string(bench.path("predictions.csv")).unwrap();
    let mut rows = rows.lines();
    assert_eq!(rows.next(), Some("sample,value,predicted"));
    let mut squares = Vec::new();
    for row in rows {
        let [value, predicted] = [1, 2].map(|at| row.split(',').nth(at).unwrap().parse::<f64>().unwrap());
        squares.push((value - predicted).powi(2));
    }
    let mean = squares.iter().sum::<f64>() / squares.len() as f64;
    assert!((mean.sqrt() - own.figures.rmse.unwrap()).abs() < 1e-5, "{mean} {:?}", own.figures);
}

/// The square of a number of the validation split overflows.
#[test]
fn a_validation_loss_that_is_not_finite_is_no_score() {
    let mut bench = bench(json!({
        "model": "cnn", "data": {"path": "", "labels": "number", "split": "folders"}, "batch": 16, "epochs": 2,
    }));
    bench.data = bench.path("bands");
    bands(&bench.data, |_, _, _| "0".to_owned());
    let line = |number: u32| match number {
        159 => "159.png,1e30,val\n".to_owned(),
        _ => format!("{number:03}.png,{},{}\n", number % 2, ["train", "train", "test", "val"][number as usize % 4]),
    };
    let list = (0..160).map(line).collect::<String>();
    fs::write(bench.data.join("metadata.csv"), format!("file_name,label,split\n{list}")).unwrap();
    let outcome = bench.finish();
    let finding = outcome.finding(domain::finding::Cause::NotFinite);
    assert!(finding.message.starts_with("no validation loss of the run is finite"), "{finding:?}");
    assert_eq!(outcome.steps().last(), Some(&10), "the run is not ended by its first validation");
    let is_note =
        |report: &&Report| matches!(report, Report::Note { text } if text.contains("the validation loss after"));
    assert_eq!(outcome.reports.iter().filter(is_note).count(), 2);
}

#[test]
fn texts_have_numbers_and_several_labels_too() {
    for (labels, expected) in [("number", 1), ("multi_label", 3)] {
        let text = json!({"label": "class", "length": 16, "vocabulary": 300});
        let data = json!({"path": "", "text": text, "labels": labels});
        // A number takes more steps, from weights that know nothing.
        let epochs = if labels == "number" { 8 } else { 2 };
        let mut bench = reading("texts.csv", text.clone(), json!({"data": data, "epochs": epochs}));
        let lines = fs::read_to_string(&bench.data).unwrap();
        let lines = match labels {
            "number" => lines.replace("sport,", "0.5,").replace("trade,", "-1,").replace("tech,", "2.25,"),
            _ => lines.replace("sport,", "sport|news,").replace("trade,", "news,").replace("tech,", "tech|news,"),
        };
        fs::write(&bench.data, &lines).unwrap();
        let outcome = bench.finish();
        assert_eq!(outcome.ending, Ok(Ending::Trained), "{labels}");
        assert!(outcome.exported().test_accuracy > 0.8, "{labels}: {:?}", outcome.exported());
        let config: Value =
            serde_json::from_str(&fs::read_to_string(bench.path("export/config.json")).unwrap()).unwrap();
        assert_eq!(config["id2label"].as_object().unwrap().len(), expected);
        let own = evaluate(request(&bench, None)).unwrap();
        assert_eq!(own.accuracy, outcome.exported().test_accuracy, "{labels}");
        let rows = fs::read_to_string(bench.path("predictions.csv")).unwrap();
        assert_eq!(rows.lines().count() as u64, 1 + own.samples);
        // The number of a sample is that of its record in the data.
        for row in rows.lines().skip(1).filter(|_| labels == "number") {
            let fields: Vec<&str> = row.split(',').collect();
            let record = lines.lines().nth(fields[0].parse().unwrap()).unwrap();
            assert_eq!(record.split(',').next(), Some(fields[1]), "{row}");
        }
    }
}

#[test]
fn annotated_objects_and_lists_are_labels() {
    formats::install();
    let folder = tempfile::tempdir().unwrap();
    bands(folder.path(), several);
    let images: Vec<Value> =
        (0..160).map(|id| json!({"id": id, "file_name": format!("{id:03}.png"), "width": 12, "height": 12})).collect();
    let mut annotations = Vec::new();
    for id in 0..160_i64 {
        let (top, left) = (id % 2 == 0, id % 3 == 0);
        for (has, category) in [(top, 7), (left, 3), (left, 3)] {
            if has {
                annotations.push(json!({"image_id": id, "category_id": category, "bbox": [0, 0, 4, 4]}));
            }
        }
    }
    let categories = json!([{"id": 3, "name": "left"}, {"id": 7, "name": "top"}]);
    let coco = json!({"images": images, "annotations": annotations, "categories": categories});
    let lists = tempfile::tempdir().unwrap();
    let json = lists.path().join("boxes.json");
    fs::create_dir(lists.path().join("images")).unwrap();
    let mut lines = String::new();
    for id in 0..160 {
        let name = format!("{id:03}.png");
        fs::copy(folder.path().join(&name), lists.path().join("images").join(&name)).unwrap();
        let each: Vec<&str> = [(id % 3 == 0, "left"), (id % 2 == 0, "top")]
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, name)| name)
            .collect();
        lines += &format!("{}\n", json!({"file_name": name, "labels": each}));
    }
    fs::write(&json, coco.to_string()).unwrap();
    fs::write(lists.path().join("images/metadata.jsonl"), lines).unwrap();
    let spec: domain::train::Data = serde_json::from_value(json!({"path": "", "labels": "multi_label"})).unwrap();
    let flags = |path: &Path| {
        let dataset = Dataset::open_known(&spec, path, 1, &mut Provenance::unknown()).unwrap();
        assert_eq!(dataset.outputs(), ["left", "top"], "{path:?}");
        let data::Targets::Flags { rows, .. } = dataset.targets().unwrap().clone() else { panic!("flags") };
        let labels = dataset.class_counts(data::Part::Train);
        rows.chunks(2).zip(labels).fold([0, 0], |sums, (row, count)| {
            [sums[0] + u64::from(row[0]) * count, sums[1] + u64::from(row[1]) * count]
        })
    };
    let [by_csv, by_json, by_lines] = [folder.path(), &json, &lists.path().join("images")].map(flags);
    assert_eq!(by_csv, by_json);
    assert_eq!(by_csv, by_lines);
}
