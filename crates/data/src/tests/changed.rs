//! Data that has changed since a run was trained on it.

use std::fs;
use std::path::{Path, PathBuf};

use domain::train::{Data, Split, Text};
use serde_json::json;

use super::written::{ALL, Written};
use super::{Files, scratch, spec};
use crate::detection::shapes;
use crate::identity::hash;
use crate::texts::TextObjective;
use crate::{
    DataIdentity, Dataset, DetectionDataset, Error, PackOptions, Part, Provenance, SampleCodec, TextDataset,
    TextOptions,
};
use crate::{TokenizerSource, pack};

/// Four fifths for training, none for validation.
fn halves() -> Data {
    Data { split: Split::Shares([0.8, 0.0, 0.2]), ..spec() }
}

/// Opens data as a run does that was trained on `earlier`.
fn opened(path: &Path, earlier: Option<&DataIdentity>, accepts: bool) -> Result<DataIdentity, Error> {
    let mut provenance = Provenance::of_run(earlier.cloned(), accepts, true);
    Dataset::open_known(&halves(), path, 5, &mut provenance)?;
    Ok(provenance.found().unwrap().clone())
}

/// The message about changed data.
#[track_caller]
fn refused<T: std::fmt::Debug>(found: Result<T, Error>) -> String {
    let error = found.expect_err("the change was not noticed");
    assert!(matches!(error, Error::Changed(_)) && error.hint().is_some(), "{error}");
    error.to_string()
}

/// Samples that are in both are in the same split.
#[track_caller]
fn keeps_the_split(before: &DataIdentity, after: &DataIdentity) {
    let (before, after) = (before.splits(), after.splits());
    let mut stayed = 0;
    for (content, part) in &after {
        if let Some(old) = before.get(content) {
            assert_eq!(old, part);
            stayed += 1;
        }
    }
    assert!(stayed + 2 >= before.len().min(after.len()), "{stayed} of {}", before.len());
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Folder,
    Shards,
    Of(Written),
}

fn write(files: &Files, form: Form, root: &Path) -> PathBuf {
    fs::create_dir_all(root).unwrap();
    match form {
        Form::Folder => files.folder(root),
        Form::Of(form) => files.written(form, root, 2),
        Form::Shards => {
            let out = root.join("shards");
            let options = PackOptions { shard_bytes: 2000, ..PackOptions::default() };
            pack(&files.folder(&root.join("source")), &out, &options, &mut |_| {}).unwrap();
            out
        }
    }
}

#[test]
fn a_sample_that_is_removed_added_or_edited_is_noticed_in_every_form() {
    let root = scratch();
    let files = Files::of(&[""], &["one", "two", "zero"], 11);
    let mut removed = files.clone();
    let (name, _) = removed.0.remove(4);
    let mut edited = files.clone();
    // Of another pixel and the same length: a PNG's checksum is not looked at.
    let bytes = edited.0[4].1.len();
    edited.0[4].1[bytes - 5] ^= 1;
    let new = super::encoded(&super::image(77, 6), image::ImageFormat::Png);
    let added = files.clone().with("one/new.png", new);
    let forms = ALL.iter().copied().map(Form::Of).chain([Form::Folder, Form::Shards]);
    for (number, form) in forms.enumerate() {
        let root = root.path().join(number.to_string());
        let before = opened(&write(&files, form, &root.join("whole")), None, false).unwrap();
        let text = before.to_text();
        assert_eq!(DataIdentity::from_text(&text).as_ref(), Some(&before));
        let same = opened(&write(&files, form, &root.join("same")), Some(&before), false).unwrap();
        assert_eq!(same.digest(), before.digest(), "{form:?}");
        for (how, changed) in [("removed", &removed), ("edited", &edited), ("added", &added)] {
            let path = write(changed, form, &root.join(how));
            let message = refused(opened(&path, Some(&before), false));
            if matches!(form, Form::Folder | Form::Of(Written::Tar) | Form::Shards) {
                let name = if how == "added" { "one/new.png" } else { &name };
                assert!(message.ends_with(&format!("1 sample {how} (`{name}`)")), "{form:?}: {message}");
            }
            let accepted = opened(&path, Some(&before), true).unwrap();
            // Those number their samples by themselves.
            let numbers = [Written::WebDataset, Written::TarGz, Written::TarZst, Written::Zip];
            if !numbers.iter().any(|numbered| matches!(form, Form::Of(form) if form == *numbered)) {
                keeps_the_split(&before, &accepted);
            }
            assert_ne!(accepted.digest(), before.digest());
            // Accepted data is the reference from then on.
            assert_eq!(opened(&path, Some(&accepted), false).unwrap().splits(), accepted.splits());
        }
    }
}

#[test]
fn digits_in_a_csv_are_known_by_their_pixels() {
    let root = scratch();
    let row = |number: usize| {
        let pixels: Vec<String> = (0..64).map(|place| (number * (place + 3) % 17).to_string()).collect();
        format!("{},{}\n", pixels.join(","), number % 5)
    };
    let path = root.path().join("digits.csv");
    let write = |skip: usize| {
        let rows: String = (0..60).filter(|number| *number != skip).map(row).collect();
        fs::write(&path, rows).unwrap();
    };
    write(99);
    let before = opened(&path, None, false).unwrap();
    write(20);
    assert!(refused(opened(&path, Some(&before), false)).contains("1 sample removed"));
    keeps_the_split(&before, &opened(&path, Some(&before), true).unwrap());
    write(99);
    assert_eq!(opened(&path, Some(&before), false).unwrap(), before);
}

#[test]
fn a_renamed_class_is_refused_even_where_changes_are_accepted() {
    let root = scratch();
    let folder = Files::of(&[""], &["cat", "dog"], 10).folder(root.path());
    let before = opened(&folder, None, false).unwrap();
    fs::rename(folder.join("cat"), folder.join("kitty")).unwrap();
    for accepts in [false, true] {
        let message = refused(opened(&folder, Some(&before), accepts));
        assert!(message.contains("1 class removed (`cat`); 1 class added (`kitty`)"), "{message}");
    }
}

#[test]
fn an_image_in_another_class_is_noticed() {
    let root = scratch();
    let folder = Files::of(&[""], &["cat", "dog"], 10).folder(root.path());
    let before = opened(&folder, None, false).unwrap();
    fs::rename(folder.join("cat/000.png"), folder.join("dog/000.png")).unwrap();
    let message = refused(opened(&folder, Some(&before), false));
    assert!(message.contains("1 sample removed (`cat/000.png`); 1 sample added (`dog/000.png`)"), "{message}");
}

#[test]
fn many_small_additions_reach_every_split() {
    let root = scratch();
    let mut files = Files::of(&[""], &["a", "b"], 20);
    let mut identity = opened(&files.folder(&root.path().join("0")), None, false).unwrap();
    for number in 1..=40 {
        let name = format!("a/new-{number:02}.png");
        files = files.with(&name, super::encoded(&super::image(50 + number, 6), image::ImageFormat::Png));
        let folder = files.folder(&root.path().join(number.to_string()));
        identity = opened(&folder, Some(&identity), true).unwrap();
    }
    let tested = identity.splits().values().filter(|part| **part == Part::Test).count();
    // 8 of the first 40; of 40 that are added one by one, 8 are expected with a deviation of 2.5.
    assert!((10..=24).contains(&tested), "{tested}");
}

fn texts(lines: &[String], header: &str) -> String {
    header.to_owned() + &lines.concat()
}

/// Opens text as a run does; the vocabulary comes with it.
fn read(
    path: &Path,
    goal: TextObjective,
    earlier: Option<&DataIdentity>,
    accepts: bool,
) -> Result<(TextDataset, DataIdentity), Error> {
    let keys: Text = match goal {
        TextObjective::Class => {
            serde_json::from_value(json!({"label": "class", "length": 16, "vocabulary": 200})).unwrap()
        }
        TextObjective::Masked | TextObjective::Next => {
            serde_json::from_value(json!({"length": 8, "vocabulary": 300})).unwrap()
        }
    };
    let mut provenance = Provenance::of_run(earlier.cloned(), accepts, true);
    let texts = TextDataset::open_known(&halves(), &keys, goal, path, 5, None, &mut provenance)?;
    Ok((texts, provenance.found().unwrap().clone()))
}

#[test]
fn a_row_of_text_that_is_replaced_is_noticed_and_the_vocabulary_stays() {
    let root = scratch();
    let path = root.path().join("texts.csv");
    let text = |number: usize| format!("the {} goes over road {number}", ["fox", "dog", "cat"][number % 3]);
    let line = |number: usize| format!("{},{}\n", number % 2, text(number));
    let mut lines: Vec<String> = (0..80).map(line).collect();
    fs::write(&path, texts(&lines, "class,text\n")).unwrap();
    let (whole, before) = read(&path, TextObjective::Class, None, false).unwrap();
    let (again, same) = read(&path, TextObjective::Class, Some(&before), false).unwrap();
    assert_eq!((again.tokenizer(), same.digest()), (whole.tokenizer(), before.digest()));
    // The vocabulary is of the training texts alone.
    let splits = before.splits();
    let trained = (0..80).find(|number| splits[&hash(text(*number).as_bytes())] == Part::Train).unwrap();
    lines[trained] = "0,zebra zebra zebra zebra quagga quagga quagga\n".into();
    fs::write(&path, texts(&lines, "class,text\n")).unwrap();
    let message = refused(read(&path, TextObjective::Class, Some(&before), false));
    let expected = format!("1 sample removed (sample {0}); 1 sample added (sample {0})", trained + 1);
    assert!(message.ends_with(&expected), "{message}");
    let (changed, after) = read(&path, TextObjective::Class, Some(&before), true).unwrap();
    assert_eq!(changed.tokenizer(), whole.tokenizer());
    keeps_the_split(&before, &after);
    let (fresh, _) = read(&path, TextObjective::Class, None, false).unwrap();
    assert_ne!(fresh.tokenizer(), whole.tokenizer());
}

#[test]
fn lines_of_a_story_stay_on_their_side() {
    let root = scratch();
    let path = root.path().join("story.txt");
    let mut lines: Vec<String> = (0..100).map(|number| format!("chapter {number} of a long story\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    let (_, before) = read(&path, TextObjective::Next, None, false).unwrap();
    lines.insert(95, "a line that is new\n".into());
    fs::write(&path, lines.concat()).unwrap();
    assert!(refused(read(&path, TextObjective::Next, Some(&before), false)).contains("1 sample added (sample 96)"));
    let (_, after) = read(&path, TextObjective::Next, Some(&before), true).unwrap();
    keeps_the_split(&before, &after);
    assert_eq!(after.splits().values().filter(|part| **part == Part::Test).count(), 21);
}

#[test]
fn packed_text_is_compared_by_the_hashes_of_its_shards() {
    let root = scratch();
    let path = root.path().join("texts.jsonl");
    let packed = |name: &str, skip: usize, size: u32| {
        let line =
            |number: usize| json!({"text": format!("road {number} goes to town {}", number * 7)}).to_string() + "\n";
        fs::write(&path, (0..60).filter(|number| *number != skip).map(line).collect::<String>()).unwrap();
        let text = TextOptions { vocabulary: TokenizerSource::Bpe(size), columns: vec!["text".into()], label: None };
        let out = root.path().join(name);
        pack(&path, &out, &PackOptions { text: Some(text), ..PackOptions::default() }, &mut |_| {}).unwrap();
        out
    };
    let (_, before) = read(&packed("whole", 99, 400), TextObjective::Next, None, false).unwrap();
    let (_, same) = read(&packed("again", 99, 400), TextObjective::Next, Some(&before), false).unwrap();
    assert_eq!(same.digest(), before.digest());
    assert!(refused(read(&packed("less", 13, 400), TextObjective::Next, Some(&before), false)).contains("removed"));
    // Other tokens mean other rows of the network's weights.
    refused(read(&packed("other", 99, 300), TextObjective::Next, Some(&before), true));
}

/// The class `00` was `0` to them.
#[test]
fn classes_are_those_that_an_earlier_version_recorded() {
    let root = scratch();
    let mut list = "file_name,label\n".to_owned();
    for (number, (_, label, bytes)) in Files::of(&[""], &["a", "b"], 15).rows().iter().enumerate() {
        fs::write(root.path().join(format!("{number:03}.png")), bytes).unwrap();
        list += &format!("{number:03}.png,{label:02}\n");
    }
    fs::write(root.path().join("metadata.csv"), list).unwrap();
    let found = opened(root.path(), None, false).unwrap();
    let text = found.to_text().replace("[\"00\",\"01\"]", "[\"0\",\"1\"]");
    assert_ne!(text, found.to_text());
    let old = DataIdentity::from_text(&text).unwrap();
    assert_eq!(opened(root.path(), Some(&old), false).unwrap().digest(), old.digest());
}

#[test]
fn packed_texts_of_several_labels_may_get_others() {
    let root = scratch();
    let path = root.path().join("texts.jsonl");
    let packed = |name: &str, count: usize, vocabulary: TokenizerSource| {
        // The last one of 61 has a combination that no other has.
        let class = |number: usize| if number == 60 { "town|road" } else { ["road", "town", "road|town"][number % 3] };
        let line = |number: usize| {
            let text = format!("road {number} goes to town {}", number * 7);
            json!({"text": text, "class": class(number)}).to_string() + "\n"
        };
        fs::write(&path, (0..count).map(line).collect::<String>()).unwrap();
        let text = TextOptions { vocabulary, columns: vec!["text".into()], label: Some("class".into()) };
        let out = root.path().join(name);
        pack(&path, &out, &PackOptions { text: Some(text), ..PackOptions::default() }, &mut |_| {}).unwrap();
        out
    };
    let one = packed("one", 60, TokenizerSource::WordPiece(400));
    let two = packed("two", 61, TokenizerSource::File(one.join("tokenizer.json")));
    let keys: Text = serde_json::from_value(json!({"label": "class", "length": 16, "vocabulary": 400})).unwrap();
    let several = Data { labels: domain::train::Labels::MultiLabel, ..halves() };
    let open = |path: &Path, earlier: Option<&DataIdentity>, accepts| {
        let mut provenance = Provenance::of_run(earlier.cloned(), accepts, true);
        TextDataset::open_known(&several, &keys, TextObjective::Class, path, 5, None, &mut provenance)?;
        Ok::<_, Error>(provenance.found().unwrap().clone())
    };
    let before = open(&one, None, false).unwrap();
    assert_eq!(open(&one, Some(&before), false).unwrap(), before);
    assert!(refused(open(&two, Some(&before), false)).contains("1 sample added"));
    keeps_the_split(&before, &open(&two, Some(&before), true).unwrap());
    // As earlier versions recorded it.
    let (_, old) = read(&one, TextObjective::Class, None, false).unwrap();
    assert_ne!(old, before);
    assert_eq!(open(&one, Some(&old), false).unwrap(), old);
}

#[test]
fn shards_that_are_packed_again_are_compared_by_their_samples() {
    let root = scratch();
    let folder = Files::of(&[""], &["a", "b"], 15).folder(root.path());
    let packed = |name: &str, options: PackOptions| {
        let out = root.path().join(name);
        pack(&folder, &out, &options, &mut |_| {}).unwrap();
        out
    };
    let before = opened(&packed("one", PackOptions::default()), None, false).unwrap();
    // Other shards of the same samples are the same data.
    let other = PackOptions { shard_bytes: 2000, seed: 9, ..PackOptions::default() };
    assert_eq!(opened(&packed("two", other), Some(&before), false).unwrap().digest(), before.digest());
    let pixels = packed("three", PackOptions { codec: SampleCodec::Pixels, ..PackOptions::default() });
    assert!(refused(opened(&pixels, Some(&before), false)).contains("30 samples edited"));
}

#[test]
fn boxes_that_change_are_noticed() {
    let root = scratch();
    let folder = root.path().join("shapes");
    shapes::write(&folder, 30, 64, 3).unwrap();
    let open = |earlier: Option<&DataIdentity>| {
        let mut provenance = Provenance::of_run(earlier.cloned(), false, true);
        DetectionDataset::open_known(&halves(), &folder, 5, &mut provenance)?;
        Ok::<_, Error>(provenance.found().unwrap().clone())
    };
    let before = open(None).unwrap();
    assert_eq!(open(Some(&before)).unwrap(), before);
    let labels = folder.join("annotations.json");
    let text = fs::read_to_string(&labels).unwrap();
    let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
    all["annotations"][3]["bbox"][2] = json!(11);
    fs::write(&labels, all.to_string()).unwrap();
    assert!(refused(open(Some(&before))).contains("1 sample relabelled"));
    fs::write(&labels, text).unwrap();
    let image = fs::read_dir(folder.join("images")).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let other = fs::read(folder.join("images/00007.png")).unwrap();
    fs::write(&image, other).unwrap();
    assert!(refused(open(Some(&before))).contains("1 sample edited"));
}

#[test]
fn a_run_that_goes_on_from_another_is_trained_on_what_is_new() {
    let root = scratch();
    let path = root.path().join("digits.csv");
    let row = |number: usize| {
        let pixels: Vec<String> = (0..64).map(|place| (number * (place + 3) % 17).to_string()).collect();
        format!("{},{}\n", pixels.join(","), number % 5)
    };
    let write = |rows: usize| fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
    let opened = |earlier: Option<&DataIdentity>, trained_on: &DataIdentity| {
        let provenance = Provenance::of_run(earlier.cloned(), false, true);
        let mut provenance = provenance.leaving_out(Some(trained_on.clone()));
        Dataset::open_known(&halves(), &path, 5, &mut provenance)?;
        Ok::<_, Error>(provenance.found().unwrap().clone())
    };
    write(40);
    let first = self::opened(&path, None, false).unwrap();
    assert!(opened(None, &first).unwrap_err().to_string().contains("no training sample is new"));
    write(60);
    let second = opened(None, &first).unwrap();
    for (place, (before, after)) in first.letters().chars().zip(second.letters().chars()).enumerate() {
        assert_eq!(after, if before == 't' { 'k' } else { before }, "sample {place}");
    }
    assert!(second.letters()[40..].chars().all(|letter| letter != 'k') && second.letters()[40..].contains('t'));
    // It resumes with the same split, and the next one leaves out what both have seen.
    assert_eq!(opened(Some(&second), &first).unwrap().digest(), second.digest());
    write(70);
    let third = opened(None, &second).unwrap();
    assert!(third.letters()[..60].chars().all(|letter| letter != 't') && third.letters()[60..].contains('t'));
}
