//! A trained model is judged on its own test split and on other data.

use std::fs;
use std::path::{Path, PathBuf};

use image::{Rgb, RgbImage};
use serde_json::Value;

use crate::home::{Home, text};

/// Images of two classes that a network tells apart: bright ones and dark ones, with a stripe that moves.
fn images(folder: &Path, classes: &[&str], each: u32, side: u32) {
    for (class, base) in classes.iter().zip([20_u8, 200, 110]) {
        fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..each {
            let pixel = |x: u32, y: u32| {
                let stripe = if (x + number).is_multiple_of(5) { 30 } else { 0 };
                Rgb([base + stripe, base + (number % 20) as u8, base + (y % 3) as u8 * 10])
            };
            let image = RgbImage::from_fn(side, side, pixel);
            image.save(folder.join(class).join(format!("{number:03}, {class}.png"))).unwrap();
        }
    }
}

fn job(home: &Home, data: &Path, more: &str) -> PathBuf {
    let text = format!(
        "name: judged\ntrain:\n  model: cnn\n  data: {{path: '{}'}}\n  epochs: 3\n  batch: 16\n  optimizer: {{adamw: {{lr: 0.002}}}}\n{more}",
        data.display()
    );
    home.job("judged.yaml", &text)
}

fn trained(home: &Home, data: &Path, more: &str) -> Value {
    let said = home.gradus(&["run", text(&job(home, data, more)), "--json", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    home.gradus(&["models", "show", "last", "--json"]).last()
}

/// What the run itself has found on its test split is found again, to the last bit: also where an image of the data was
/// not readable, and where the network normalises batches.
#[test]
fn a_run_is_as_good_on_its_own_test_split_as_it_was() {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz").canonicalize().unwrap();
    let home = Home::new();
    let folder = home.path().with_file_name("images");
    images(&folder, &["dark", "light"], 60, 16);
    for (data, more) in [(digits, ""), (folder, "  accumulate: 2\n  seed: 7\n")] {
        let shown = trained(&home, &data, more);
        let said = home.gradus(&["evaluate", "last", "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let found = said.last();
        let card = PathBuf::from(shown["model"]["model"].as_str().unwrap()).with_file_name("model.json");
        let card: Value = serde_json::from_slice(&fs::read(card).unwrap()).unwrap();
        assert_eq!(found["accuracy"], shown["model"]["test_accuracy"], "{data:?}");
        assert_eq!(found["loss"], card["test_loss"], "{data:?}");
        assert_eq!(found["confusion"], shown["model"]["confusion"], "{data:?}");
        let [low, high] = [0, 1].map(|end| found["accuracy_interval_95"][end].as_f64().unwrap());
        let accuracy = found["accuracy"].as_f64().unwrap();
        assert!(low < high && low <= accuracy && accuracy <= high, "{found}");
    }
    // A sample less: the split that the run held out is not known any more.
    fs::remove_file(home.path().with_file_name("images").join("dark/003, dark.png")).unwrap();
    let said = home.gradus(&["evaluate", "last"]);
    assert_eq!(said.code, Some(3), "{}", said.out);
    assert!(said.err.contains("the data has changed") && said.err.contains("hint: "), "{}", said.err);
}

#[test]
fn a_model_is_judged_on_other_data_with_its_predictions() {
    let home = Home::new();
    let beside = |name: &str| home.path().with_file_name(name);
    images(&beside("images"), &["dark", "light"], 40, 16);
    trained(&home, &beside("images"), "");
    // Of one class only, and in another order of names: the model's labels count.
    images(&beside("other"), &["light"], 12, 16);
    let file = beside("predictions.csv");
    let other = beside("other");
    let arguments = ["evaluate", "last", "--data", text(&other), "--predictions", text(&file), "--json"];
    let found = home.gradus(&arguments);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let found = found.last();
    assert_eq!(found["samples"], 12);
    let row = found["confusion"][1].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
    assert_eq!(row.clone().sum::<u64>(), 12);
    assert_eq!(found["classes"][0]["recall"], Value::Null);
    let rows = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!((lines.len(), lines[0]), (13, "sample,class,predicted,probability"));
    assert!(lines[1].starts_with("\"light/000, light.png\",light,"), "{}", lines[1]);
    let right = lines[1..].iter().filter(|line| line.contains(",light,light,")).count() as f64;
    assert_eq!(found["accuracy"].as_f64().unwrap(), right / 12.0);
    let shown = home.gradus(&["evaluate", "last", "--data", text(&beside("other"))]).out;
    assert!(
        shown.contains("95 % interval") && shown.contains("precision") && shown.contains("true \\ predicted"),
        "{shown}"
    );

    let refused = |data: &Path, why: &str, hint: &str| {
        let said = home.gradus(&["evaluate", "last", "--data", text(data)]);
        assert_eq!(said.code, Some(3), "{}", said.out);
        assert!(said.err.contains(why) && said.err.contains(hint), "{}", said.err);
    };
    images(&beside("unknown"), &["light", "dark", "grey"], 4, 16);
    refused(&beside("unknown"), "classes that the model does not know: `grey`", "name them as the model does: `dark`");
    images(&beside("large"), &["dark", "light"], 6, 24);
    refused(&beside("large"), "the images are 24×24 pixels", "--resize");
    let resized = home.gradus(&["evaluate", "last", "--data", text(&beside("large")), "--resize", "--json"]);
    assert_eq!(resized.last()["samples"], 12, "{}", resized.err);
    fs::write(beside("notes.txt"), "no images").unwrap();
    refused(&beside("notes.txt"), "its form is not known", "give a folder");
    let missing = home.gradus(&["evaluate", "last", "--data", text(&beside("nowhere"))]);
    assert!(missing.err.contains("there is no data at") || missing.err.contains("nowhere"), "{}", missing.err);

    let program = home.job("hello.yaml", "name: hello\nrun: echo hello\n");
    assert_eq!(home.gradus(&["run", text(&program)]).code, Some(0));
    let said = home.gradus(&["evaluate", "last"]);
    assert!(said.err.contains("a program of its own"), "{}", said.err);
}

/// What the run found of its own test split, and what `evaluate` finds of it: accuracy and loss.
fn own_and_again(home: &Home, shown: &Value) -> [[f64; 2]; 2] {
    let card = PathBuf::from(shown["model"]["model"].as_str().unwrap()).with_file_name("model.json");
    let card: Value = serde_json::from_slice(&fs::read(card).unwrap()).unwrap();
    let said = home.gradus(&["evaluate", "last", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let found = said.last();
    let pair = |value: &Value, keys: [&str; 2]| keys.map(|key| value[key].as_f64().unwrap());
    [pair(&card, ["test_accuracy", "test_loss"]), pair(&found, ["accuracy", "loss"])]
}

#[test]
fn a_detector_is_judged_and_its_boxes_are_written_as_coco_has_them() {
    let home = Home::new();
    let beside = |name: &str| home.path().with_file_name(name);
    data::shapes::write(&beside("shapes"), 40, 64, 3).unwrap();
    let job = format!(
        "name: boxes\ntrain:\n  model: yolo_n\n  data: {{path: '{}', split: [0.6, 0.2, 0.2]}}\n  epochs: 2\n  batch: 8\n  optimizer: {{adamw: {{lr: 0.002}}}}\n",
        beside("shapes").display()
    );
    let said = home.gradus(&["run", text(&home.job("boxes.yaml", &job)), "--json", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let shown = home.gradus(&["models", "show", "last", "--json"]).last();
    let [own, again] = own_and_again(&home, &shown);
    assert_eq!(own, again);
    data::shapes::write(&beside("others"), 6, 64, 3).unwrap();
    let (others, file) = (beside("others"), beside("boxes.json"));
    let found = home.gradus(&["evaluate", "last", "--data", text(&others), "--predictions", text(&file), "--json"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let found = found.last();
    assert_eq!((&found["samples"], &found["accuracy_interval_95"]), (&6.into(), &Value::Null));
    assert!(found["figures"]["map50"].is_number(), "{found}");
    let boxes: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for one in &boxes {
        let sides: Vec<f64> = one["bbox"].as_array().unwrap().iter().map(|side| side.as_f64().unwrap()).collect();
        assert!(sides.len() == 4 && sides.iter().all(|side| (0.0..=64.0).contains(side)), "{one}");
        assert!(one["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)) && one["image_id"].is_u64());
    }
    let shown = home.gradus(&["evaluate", "last"]).out;
    assert!(shown.contains("mAP@[.5:.95]") && !shown.contains("accuracy"), "{shown}");
}

#[test]
fn a_model_of_texts_is_judged_on_its_own_and_on_other_texts() {
    let home = Home::new();
    let beside = |name: &str| home.path().with_file_name(name);
    let line = |number: usize| {
        let (class, words) = [("sport", ["goal", "team", "coach"]), ("trade", ["bank", "price", "share"])][number % 2];
        format!("{class},the {} and the {} of a {}\n", words[number % 3], words[number / 2 % 3], words[number / 3 % 3])
    };
    let texts = |rows: usize| format!("class,text\n{}", (0..rows).map(line).collect::<String>());
    fs::write(beside("texts.csv"), texts(160)).unwrap();
    let job = format!(
        "name: texts\ntrain:\n  model: bert_mini\n  data: {{path: '{}', text: {{label: class, length: 16, vocabulary: 300}}}}\n  epochs: 2\n  batch: 16\n  optimizer: {{adamw: {{lr: 0.0005}}}}\n",
        beside("texts.csv").display()
    );
    let said = home.gradus(&["run", text(&home.job("texts.yaml", &job)), "--json", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let shown = home.gradus(&["models", "show", "last", "--json"]).last();
    let [own, again] = own_and_again(&home, &shown);
    assert_eq!(own, again);
    fs::write(beside("others.csv"), texts(21)).unwrap();
    let (others, file) = (beside("others.csv"), beside("texts-predicted.csv"));
    let found = home.gradus(&["evaluate", "last", "--data", text(&others), "--predictions", text(&file), "--json"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let found = found.last();
    assert_eq!(found["samples"], 21);
    let rows = fs::read_to_string(&file).unwrap();
    let right = rows.lines().filter(|row| row.contains(",sport,sport,") || row.contains(",trade,trade,")).count();
    assert_eq!((rows.lines().count(), found["accuracy"].as_f64().unwrap()), (22, right as f64 / 21.0));
    fs::write(beside("others.csv"), texts(21).replace("trade", "weather")).unwrap();
    let refused = home.gradus(&["evaluate", "last", "--data", text(&others)]);
    assert_eq!(refused.code, Some(3), "{}", refused.out);
    assert!(refused.err.contains("not those of the model") && refused.err.contains("hint: "), "{}", refused.err);
}
