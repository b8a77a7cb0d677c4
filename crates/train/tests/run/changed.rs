//! Runs whose data changes while they are stopped.

use std::fs;
use std::path::Path;

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use train::run::Ending;
use train::state::OmittedState;

use crate::scene::{Bench, Outcome, bench};
use crate::texts::reading;

/// Fifty images of two classes, all but a fifth for training and none for validation.
fn images(changes: Value) -> Bench {
    let mut job = json!({
        "model": "mlp", "data": {"path": "", "split": [0.8, 0.0, 0.2], "size": 16}, "batch": 8, "epochs": 4,
        "checkpoint": {"every": "3 steps", "keep": 100},
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    bench.data = bench.path("images");
    write(&bench.path("source"), &bench.data, 50);
    bench
}

fn write(source: &Path, to: &Path, count: usize) {
    data::shapes::write(source, count, 32, 3).unwrap();
    for number in 0..count {
        let class = to.join(["a", "b"][number % 2]);
        fs::create_dir_all(&class).unwrap();
        let name = format!("{number:05}.png");
        fs::rename(source.join("images").join(&name), class.join(&name)).unwrap();
    }
}

fn counts(outcome: &Outcome) -> [u64; 3] {
    let ready = |report: &Report| if let Report::Ready(ready) = report { Some(ready.samples) } else { None };
    outcome.reports.iter().find_map(ready).unwrap()
}

fn notes(outcome: &Outcome) -> String {
    let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
    outcome.reports.iter().filter_map(note).collect::<Vec<_>>().join("\n")
}

#[test]
fn changed_images_are_refused_and_accepted_where_the_user_says_so() {
    let other = |data: &Path| fs::read(data.join("b/00007.png")).unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(&str, Change<'_>, [u64; 2]); 3] = [
        ("1 sample removed (`a/00004.png`)", &|data| fs::remove_file(data.join("a/00004.png")).unwrap(), [39, 10]),
        ("1 sample added (`a/new.png`)", &|data| fs::write(data.join("a/new.png"), other(data)).unwrap(), [41, 10]),
        (
            "1 sample edited (`a/00004.png`)",
            &|data| fs::write(data.join("a/00004.png"), other(data)).unwrap(),
            [40, 10],
        ),
    ];
    for (said, change, [trained, tested]) in changes {
        let mut bench = images(json!({}));
        bench.stop_after(12);
        bench.lose_after(12);
        change(&bench.data);
        let refused = bench.finish();
        let finding = refused.finding(Cause::Data);
        assert!(finding.message.ends_with(said), "{finding:?}");
        assert!(finding.hint.as_ref().unwrap().contains("`gradus resume test --accept-data-change`"), "{finding:?}");
        bench.accept_data_change = true;
        let resumed = bench.finish();
        assert_eq!(resumed.ending, Ok(Ending::Trained));
        assert_eq!(resumed.resumed_from(), 12);
        assert!(notes(&resumed).contains(said), "{}", notes(&resumed));
        let found = counts(&resumed);
        assert!(found[0] + found[2] == trained + tested && found[1] == 0, "{found:?}");
        assert!(found[0].abs_diff(trained) <= 1 && found[2].abs_diff(tested) <= 1, "{found:?}");
    }
}

/// Without the comparison the run continues with the changed data, which the test above would notice.
#[test]
fn data_that_is_not_compared_is_trained_on_whatever_it_is() {
    let mut bench = images(json!({}));
    bench.stop_after(12);
    bench.lose_after(12);
    fs::write(bench.data.join("a/00004.png"), fs::read(bench.data.join("b/00007.png")).unwrap()).unwrap();
    let resumed = bench.attempt(OmittedState { data: true, ..OmittedState::default() }, |_| None);
    assert_eq!((resumed.resumed_from(), resumed.ending), (12, Ok(Ending::Trained)));
}

/// Whether an image was in the test split shows in a run's predictions for images that it was trained on.
#[test]
fn a_training_image_does_not_become_a_test_image() {
    let removed = |accepts: bool| {
        let mut bench = images(json!({"epochs": 40, "optimizer": {"adamw": {"lr": 3e-3}}, "model": "cnn"}));
        bench.train.data.size = Some(32);
        // Indistinguishable classes, so that only memorized samples are predicted.
        bench.stop_after(40 * 5 - 1);
        fs::remove_file(bench.data.join("a/00004.png")).unwrap();
        bench.accept_data_change = accepts;
        bench.finish()
    };
    assert_eq!(removed(false).finding(Cause::Data).cause, Cause::Data);
    let known = removed(true).exported().test_accuracy;
    // Ten images by chance; those of the training split are all known by then.
    assert!(known < 0.9, "{known}");
}

#[test]
fn an_epoch_of_other_length_goes_on_from_where_it_was() {
    for (stop, remove) in [(12, 10), (10, 10), (12, 38)] {
        let mut bench = images(json!({"epochs": 4, "schedule": {"decay": {"step": {"at": [1, 2]}}}}));
        bench.stop_after(stop);
        bench.lose_after(stop);
        for number in (0..50).step_by(2).chain((1..50).step_by(2)).filter(|number| number % 25 != 0).take(remove) {
            fs::remove_file(bench.data.join(["a", "b"][number % 2]).join(format!("{number:05}.png"))).unwrap();
        }
        bench.accept_data_change = true;
        let resumed = bench.finish();
        if remove == 38 && resumed.ending.is_err() {
            // All test images are removed.
            resumed.finding(Cause::Job);
            continue;
        }
        assert_eq!(resumed.ending, Ok(Ending::Trained), "{stop} {remove}");
        let from = resumed.resumed_from();
        let steps = resumed.steps();
        let per_epoch = counts(&resumed)[0].div_ceil(8);
        let epochs: Vec<u32> = resumed.reports.iter().filter_map(epoch).collect();
        assert_eq!(steps.first(), Some(&(from + 1)));
        assert!(epochs.is_sorted() && epochs.last() == Some(&3), "{epochs:?}");
        let last = epochs.iter().filter(|epoch| **epoch == 3).count() as u64;
        assert_eq!(last, per_epoch, "{epochs:?}");
        // A second resume has the same steps: the count is saved.
        bench.accept_data_change = false;
        assert_eq!(bench.finish().steps().len(), 0);
    }
}

fn epoch(report: &Report) -> Option<u32> {
    if let Report::Step(step) = report { Some(step.epoch) } else { None }
}

#[test]
fn a_run_that_goes_on_with_changed_data_is_resumed_with_the_same_bytes() {
    let changed = || {
        let mut bench = images(json!({}));
        bench.stop_after(7);
        bench.lose_after(6);
        for name in ["a/00004.png", "a/00008.png", "b/00011.png"] {
            fs::remove_file(bench.data.join(name)).unwrap();
        }
        bench.accept_data_change = true;
        bench
    };
    let whole = changed().finish();
    let mut bench = changed();
    bench.stop_after(11);
    bench.lose_after(9);
    bench.accept_data_change = false;
    let resumed = bench.finish();
    assert_eq!(resumed.resumed_from(), 9);
    assert_eq!(resumed.losses(), whole.losses()[3..]);
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

#[test]
fn renamed_classes_are_refused() {
    let mut bench = images(json!({}));
    bench.stop_after(12);
    fs::rename(bench.data.join("a"), bench.data.join("c")).unwrap();
    for accepts in [false, true] {
        bench.accept_data_change = accepts;
        let refused = bench.finish();
        let finding = refused.finding(Cause::Data);
        assert!(finding.message.contains("1 class removed (`a`); 1 class added (`c`)"), "{finding:?}");
    }
}

#[test]
fn a_replaced_text_is_refused_and_the_vocabulary_stays() {
    let job = || reading("texts.csv", json!({"label": "class", "length": 16, "vocabulary": 300}), json!({}));
    let mut bench = job();
    bench.stop_after(7);
    bench.lose_after(5);
    let text = fs::read_to_string(&bench.data).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[20] = "tech,zebra zebra zebra quagga quagga quagga";
    fs::write(&bench.data, lines.join("\n")).unwrap();
    let refused = bench.finish();
    let finding = refused.finding(Cause::Data);
    let said = |text: &str| finding.message.contains(text);
    assert!(said("1 sample removed (") && said("1 sample added (sample 20)"), "{finding:?}");
    bench.accept_data_change = true;
    let resumed = bench.finish();
    assert!(resumed.exported().test_accuracy > 0.9, "{:?}", resumed.exported());
    let tokenizer = |bench: &Bench| fs::read_to_string(bench.path("export/tokenizer.json")).unwrap();
    let mut whole = job();
    whole.finish();
    assert_eq!(tokenizer(&bench), tokenizer(&whole));
}

/// Lets `change` modify the trainer's state in every manifest.
fn rewrite(bench: &Bench, change: impl Fn(&mut Value)) {
    for entry in fs::read_dir(bench.path("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("manifest-") {
            continue;
        }
        let mut manifest: checkpoint::CheckpointManifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut manifest.state);
        let mut text = serde_json::to_string_pretty(&manifest).unwrap();
        text.truncate(text.len() - 2);
        text.push_str(",\n");
        let hash: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(&path, format!("{text}  \"sha256\": \"{hash}\"\n}}\n")).unwrap();
    }
}

#[test]
fn a_checkpoint_of_a_version_that_did_not_record_its_data_is_resumed_with_a_note() {
    let whole = images(json!({})).finish();
    let mut bench = images(json!({}));
    bench.stop_after(7);
    bench.lose_after(6);
    rewrite(&bench, |state| drop(state.as_object_mut().unwrap().remove("data").unwrap()));
    let resumed = bench.finish();
    assert_eq!(resumed.resumed_from(), 6);
    assert!(notes(&resumed).contains("did not record its data"), "{}", notes(&resumed));
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

#[test]
fn where_the_list_of_samples_is_lost_other_data_is_still_noticed() {
    let mut bench = images(json!({}));
    bench.stop_after(7);
    let lists = || {
        let entries = fs::read_dir(bench.path("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("data-")).collect::<Vec<_>>()
    };
    let list = lists();
    assert_eq!(list.len(), 1);
    fs::write(&list[0], "no list").unwrap();
    let removed = bench.data.join("a/00004.png");
    let image = fs::read(&removed).unwrap();
    fs::remove_file(&removed).unwrap();
    for accepts in [false, true] {
        bench.accept_data_change = accepts;
        let refused = bench.finish();
        assert!(refused.finding(Cause::Data).message.contains("the list of the earlier samples is missing"));
    }
    fs::write(&removed, image).unwrap();
    assert_eq!(bench.finish().ending, Ok(Ending::Trained));
}
