//! The same images are the same data set in any format.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use domain::train::{Corrupt, Data, Folders, Labels, Split};

use super::forms::{all, open};
use super::written::{ALL, Row, Written, example, field, record, tfrecord, webdataset};
use super::{Files, complains, refused, scratch, spec};
use crate::{Dataset, Outline, PackOptions, Part, TextOptions, TokenizerSource, pack};

const PARTS: [Part; 3] = [Part::Train, Part::Validation, Part::Test];

#[test]
fn every_form_gives_the_samples_of_the_folder() {
    let root = scratch();
    let files = Files::of(&[""], &["one", "two", "zero"], 11);
    let expected = open(&spec(), &files.folder(root.path()));
    for form in ALL {
        for (count, root) in [(1, root.path().join("one")), (4, root.path().join("four"))] {
            fs::create_dir_all(&root).unwrap();
            let found = open(&spec(), &files.written(form, &root, count));
            assert_eq!((found.mean(), found.std()), (expected.mean(), expected.std()), "{form:?}");
            for part in PARTS {
                assert_eq!(all(&found, part), all(&expected, part), "{form:?} {part:?}");
            }
            let classes: &[&str] = match form {
                Written::Tar => &["one", "two", "zero"],
                Written::WebDataset | Written::TarGz | Written::TarZst | Written::Zip => &["0", "1", "2"],
                Written::TfRecord => &["1", "2", "3"],
                Written::Parquet
                | Written::ArrowStream
                | Written::ArrowFile
                | Written::FeatherLz4
                | Written::FeatherZstd => &["zero", "one", "two"],
            };
            assert_eq!(found.classes(), classes, "{form:?}");
        }
    }
}

#[test]
fn samples_that_stay_on_disk_are_read_by_position() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 20);
    let expected = open(&spec(), &files.folder(root.path()));
    for form in ALL {
        let path = files.written(form, root.path(), 3);
        let found = std::sync::Arc::new(Dataset::open_keeping(&spec(), &path, 5, 0).unwrap());
        assert!(!found.in_memory());
        for part in PARTS {
            assert_eq!(all(&found, part), all(&expected, part), "{form:?} {part:?}");
        }
    }
}

#[test]
fn braces_expand_and_file_names_imply_the_parts() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 12);
    let (rows, whole) = (files.rows(), open(&spec(), &files.folder(root.path())));
    let folder = root.path().join("shards");
    fs::create_dir(&folder).unwrap();
    // Every part has both classes: each third sample goes to the same file.
    for (number, name) in ["train-000", "train-001", "test-000"].iter().enumerate() {
        let some: Vec<_> = rows.iter().skip(number).step_by(3).cloned().collect();
        webdataset(&folder.join(format!("{name}.tar")), &some, number * 8);
    }
    let folders = Data { split: Split::Folders(Folders::Folders), ..spec() };
    let dataset = open(&folders, &folder);
    assert_eq!(dataset.counts(), [14, 2, 8]);
    assert_eq!(dataset.classes(), ["0", "1"]);
    let pattern = folder.join("train-{000..001}.tar");
    let some = open(&Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec() }, &pattern);
    assert_eq!(some.counts(), [16, 0, 0]);
    assert_eq!(whole.counts(), [17, 5, 2]);
    refused(&spec(), &folder.join("train-{000..005}.tar"), "there is no data at", "relative to the job file");
    refused(&spec(), &folder.join("train-{5..1}.tar"), "counts from 5 to 1", "{000..146}");
}

#[test]
fn forms_side_by_side_are_a_question() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 3);
    files.written(Written::Parquet, root.path(), 1);
    files.written(Written::ArrowFile, root.path(), 1);
    refused(&spec(), root.path(), "it holds both Arrow files and Parquet files", "give the folder of one of them");
}

#[test]
fn a_damaged_record_is_named_or_counted() {
    let root = scratch();
    let rows = Files::of(&[""], &["a", "b"], 20).rows();
    let sound = tfrecord(&rows);
    let first = record(&example(&rows[0].2, 1)).len();
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    let path = root.path().join("data.tfrecord");
    let check = |bytes: &[u8], expected: &str, counts: [u64; 3], left: usize| {
        fs::write(&path, bytes).unwrap();
        refused(&spec(), &path, expected, "");
        let dataset = Dataset::open(&skip, &path, 0).unwrap();
        assert_eq!((dataset.counts(), dataset.skipped().len()), (counts, left), "{expected}");
        assert!(dataset.skipped()[0].name.starts_with("data.tfrecord"));
    };
    let with = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        bytes
    };
    check(&with(first - 30), "`data.tfrecord, record 1` cannot be read: its checksum is wrong", [27, 8, 4], 1);
    let last = sound.len() - record(&example(&rows[39].2, 2)).len();
    check(&with(last), "the checksum of the length of record 40 is wrong", [27, 8, 4], 1);
    check(&sound[..sound.len() - 1], "it ends inside record 40", [27, 8, 4], 1);
    check(&sound[..last + 5], "it ends inside a record", [27, 8, 4], 1);
    let other = [sound.clone(), record(&field(1, &field(1, b"no map entry")))].concat();
    check(&other, "record 41` cannot be read: it is no `tf.train.Example`", [28, 8, 4], 1);
    let other = [sound.clone(), record(&[])].concat();
    check(&other, "it has no feature `image/encoded`", [28, 8, 4], 1);
    // A record inside a sound frame that claims a longer image than itself.
    let mut inner = example(&rows[0].2, 1);
    inner[1] = 0xFF;
    check(&[sound.clone(), record(&inner)].concat(), "record 41` cannot be read", [28, 8, 4], 1);
    let none = root.path().join("none.tfrecord");
    fs::write(&none, []).unwrap();
    refused(&spec(), &none, "hold no image with a class", "");
}

#[test]
fn a_damaged_tar_keeps_all_but_the_damage_if_requested() {
    let root = scratch();
    let path = Files::of(&[""], &["a", "b"], 15).tar(root.path());
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1024 - 500]).unwrap();
    refused(&spec(), &path, "the tar is damaged: it ends inside", "get the file again");
    let dataset = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0).unwrap();
    assert_eq!((dataset.counts().iter().sum::<u64>(), dataset.skipped().len()), (29, 1));
    let why = &dataset.skipped()[0].why;
    assert!(why.contains("29 images of it are read, and how many are missing behind them is not known"), "{why}");
    // A plan, which decodes no more than one image, has it too.
    let outline = Outline::of(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0).unwrap();
    assert_eq!((outline.counts.iter().sum::<u64>(), &outline.skipped[..]), (29, dataset.skipped()));
    // A header in the middle: only its own member is lost, and the others are read.
    let mut broken = bytes.clone();
    let header = broken.windows(9).position(|name| name == b"a/006.png").unwrap();
    broken[header + 3] = b'x';
    fs::write(&path, &broken).unwrap();
    refused(&spec(), &path, "the tar is damaged: there is no header at byte", "get the file again");
    let dataset = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0).unwrap();
    assert_eq!((dataset.counts().iter().sum::<u64>(), dataset.skipped().len()), (29, 1));
    assert!(dataset.skipped()[0].why.contains("bytes up to the next file in it are passed over"));
    let error = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &root.path().join("x.tar"), 0).unwrap_err();
    complains(&error, "there is no data at", "");
}

#[test]
fn coco_lists_its_images() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10);
    let rows = files.rows();
    let expected = open(&spec(), &files.folder(root.path()));
    fs::create_dir_all(root.path().join("coco/annotations")).unwrap();
    fs::create_dir_all(root.path().join("coco/train2017")).unwrap();
    let (mut images, mut marks) = (Vec::new(), Vec::new());
    for (id, (_, label, bytes)) in rows.iter().enumerate() {
        let name = format!("{id:012}.png");
        fs::write(root.path().join("coco/train2017").join(&name), bytes).unwrap();
        images.push(serde_json::json!({"id": id, "file_name": name, "width": 6, "height": 6}));
        // Two small marks of one class together cover less than one of the other.
        for (class, area) in [(1 - label, 3.0), (*label, 10.0), (1 - label, 4.0)] {
            marks.push(serde_json::json!({
                "id": marks.len(), "image_id": id, "category_id": 10 + 7 * class, "area": area, "bbox": [0, 1.5, 2, 5],
                "segmentation": [[1, 2]], "iscrowd": 0
            }));
        }
    }
    let categories =
        serde_json::json!([{"id": 17, "name": "dog"}, {"id": 10, "name": "cat"}, {"id": 90, "name": "none"}]);
    let list = root.path().join("coco/annotations/instances_train2017.json");
    let write = |images: &Vec<serde_json::Value>, marks: &Vec<serde_json::Value>| {
        let text = serde_json::json!({"images": images, "annotations": marks, "categories": categories}).to_string();
        fs::write(&list, text).unwrap();
    };
    write(&images, &marks);
    let found = open(&spec(), &list);
    assert_eq!(found.classes(), ["cat", "dog", "none"]);
    assert_eq!(all(&found, Part::Train), all(&expected, Part::Train));
    // Packed, the annotations stay with the images, also when they are packed again, and as tars.
    let out = |name: &str| root.path().join(name);
    let pack = |source: &std::path::Path, name: &str, format| {
        let options = crate::PackOptions { seed: 7, format, ..Default::default() };
        crate::pack(source, &out(name), &options, &mut |_| {}).unwrap();
    };
    pack(&list, "once", crate::PackFormat::Shards);
    pack(&out("once"), "tars", crate::PackFormat::Webdataset);
    pack(&out("tars"), "twice", crate::PackFormat::Shards);
    let mark = |class, area| crate::Annotation { class, bbox: [0.0, 1.5, 2.0, 5.0], area, crowd: false };
    for path in [list.clone(), out("once"), out("tars"), out("twice")] {
        for limit in [0, usize::MAX] {
            let found = Arc::new(Dataset::open_keeping(&spec(), &path, 5, limit).unwrap());
            assert_eq!(found.classes(), ["cat", "dog", "none"], "{path:?}");
            assert_eq!(all(&found, Part::Train), all(&expected, Part::Train), "{path:?}");
            for (sample, (_, label, _)) in rows.iter().enumerate() {
                let label = *label as u32;
                let expected = [mark(1 - label, 3.0), mark(label, 10.0), mark(1 - label, 4.0)];
                assert_eq!(found.marks(sample as u32).unwrap(), expected, "{path:?}");
            }
        }
    }
    let mut hostile = marks.clone();
    for (key, value) in [
        ("category_id", serde_json::json!(11)),
        ("bbox", serde_json::json!([0, 0, -1, 5])),
        ("area", serde_json::json!(1e300)),
    ] {
        hostile[4] = marks[4].clone();
        hostile[4][key] = value;
        write(&images, &hostile);
        refused(&spec(), &list, "in image 1 makes no sense", "correct it");
    }
    let extra = |name: &str| {
        let mut images = images.clone();
        images.push(serde_json::json!({"id": 99, "file_name": name}));
        write(&images, &marks);
    };
    extra("unmarked.png");
    refused(&spec(), &list, "the list gives it no class", "corrupt: skip");
    for name in ["../../outside.png", "/etc/passwd", ""] {
        extra(name);
        refused(&spec(), &list, "leads out of its folder", "relative paths");
    }
    write(&Vec::new(), &marks);
    refused(&spec(), &list, "it lists no image", "images");
    fs::write(&list, "{\"images\": 5}").unwrap();
    refused(&spec(), &list, "it is not a COCO JSON", "annotations");
}

#[test]
fn lists_give_images_their_classes() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10);
    let expected = open(&spec(), &files.folder(root.path()));
    let rows = files.rows();
    for form in ["csv", "jsonl", "objects"] {
        let folder = root.path().join(form);
        fs::create_dir(&folder).unwrap();
        let mut list = if form == "csv" { "file_name,label,text\n".to_owned() } else { String::new() };
        for (number, (_, label, bytes)) in rows.iter().enumerate() {
            let name = format!("{number:03}.png");
            fs::write(folder.join(&name), bytes).unwrap();
            list += &match form {
                "csv" => format!("{name},{label},\"a, caption\"\n"),
                "jsonl" => format!("{{\"file_name\": \"{name}\", \"label\": {label}}}\n\n"),
                _ => format!(
                    "{{\"file_name\": \"{name}\", \"objects\": {{\"bbox\": [[0, 0, 2, 2], [1, 1, 3, 3]], \"categories\": [{}, {label}]}}}}\n",
                    1 - label
                ),
            };
        }
        let ending = if form == "csv" { "csv" } else { "jsonl" };
        let path = folder.join(format!("metadata.{ending}"));
        fs::write(&path, &list).unwrap();
        let found = open(&spec(), &folder);
        assert_eq!(all(&found, Part::Train), all(&expected, Part::Train), "{form}");
        let marks: Vec<u32> = found.marks(0).unwrap().iter().map(|mark| mark.class).collect();
        assert_eq!(marks, if form == "objects" { vec![1, 0] } else { vec![] });
        let hostile = if form == "csv" { "../x.png,0,\n" } else { "{\"file_name\": \"../x.png\", \"label\": 0}\n" };
        fs::write(&path, list.clone() + hostile).unwrap();
        refused(&spec(), &folder, "`../x.png` leads out of its folder", "relative paths");
        fs::write(&path, list.clone() + "broken,").unwrap();
        refused(&spec(), &folder, "line", "file_name");
        if form == "objects" {
            let many =
                "{\"file_name\": \"x.png\", \"objects\": {\"bbox\": [[0, 0, 2, 2]], \"categories\": [4000000000]}}\n";
            fs::write(&path, list + many).unwrap();
            refused(&spec(), &folder, "the `objects` in line 21 make no sense", "bbox");
        }
    }
}

/// Forty images in a folder, each with this label in its list.
fn labelled(root: &Path, label: impl Fn(usize) -> String) {
    let mut list = String::new();
    for (number, (_, _, bytes)) in Files::of(&[""], &["a", "b"], 20).rows().iter().enumerate() {
        fs::write(root.join(format!("{number:03}.png")), bytes).unwrap();
        list += &format!("{{\"file_name\": \"{number:03}.png\", \"label\": {}}}\n", label(number));
    }
    fs::write(root.join("metadata.jsonl"), list).unwrap();
}

#[test]
fn several_labels_in_json_are_names_or_whole_numbers() {
    let root = scratch();
    let several = Data { labels: Labels::MultiLabel, ..spec() };
    let usual = ["[3.0, 7.0]", "7.0", "3", "null"];
    labelled(root.path(), |number| usual[number % 4].to_owned());
    assert_eq!(open(&several, root.path()).outputs(), ["3", "7"]);
    for unread in ["[3.5]", "true", "[[3]]", "{\"cat\": 1}", "[\"cat|dog\"]"] {
        labelled(root.path(), |number| {
            let label = if number == 2 { unread } else { usual[number % 4] };
            label.to_owned()
        });
        refused(&several, root.path(), "in line 3 is neither names nor whole numbers", "`|`");
    }
}

#[test]
fn of_several_labels_in_a_table_nothing_is_none() {
    let root = scratch();
    let rows = Files::of(&[""], &["one", "two"], 20).rows();
    let labels = [None, Some(""), Some("cat"), Some("cat|dog")];
    let column: arrow_array::StringArray = (0..rows.len()).map(|row| labels[row % 4]).collect();
    let column: arrow_array::ArrayRef = Arc::new(column);
    let several = Data { labels: Labels::MultiLabel, split: Split::Shares([1.0, 0.0, 0.0]), ..spec() };
    for ending in ["parquet", "arrow"] {
        let path = root.path().join(format!("nothing.{ending}"));
        with_classes(&rows, Arc::clone(&column), &path);
        let dataset = open(&several, &path);
        assert_eq!(dataset.counts()[0], 40, "{ending}");
        assert_eq!(dataset.outputs(), ["cat", "dog"]);
        refused(&Data { split: several.split, ..spec() }, &path, "it has no class", "");
    }
}

#[test]
fn texts_of_images_are_packed() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 4);
    let source = files.written(Written::WebDataset, root.path(), 2);
    let out = root.path().join("out");
    crate::pack(&source, &out, &crate::PackOptions::default(), &mut |_| {}).unwrap();
    let reading = crate::formats::Reading {
        by_folders: crate::formats::ByFolders::No,
        skip: false,
        labels: domain::train::Labels::Class,
    };
    let crate::formats::Content::Encoded(encoded) = crate::formats::list(&out, &reading).unwrap().content else {
        panic!("shards are encoded")
    };
    let note = |sample| -> serde_json::Value { serde_json::from_slice(&encoded.note(sample).unwrap()).unwrap() };
    assert_eq!(note(0), serde_json::json!({"text": "a caption"}));
    assert_eq!(note(1), serde_json::json!({"label": 0, "caption": "x", "text": "a caption"}));
}

/// A table of images with these classes.
fn with_classes(rows: &[Row], classes: arrow_array::ArrayRef, path: &Path) {
    let batch = super::written::batch(rows);
    let image = batch.schema().field_with_name("image").unwrap().clone();
    table((image, batch.column_by_name("image").unwrap().clone()), classes, path);
}

/// A table of texts, a string and the number of the row, with these classes.
fn with_texts(labels: &[i64], classes: arrow_array::ArrayRef, path: &Path) {
    use arrow_array::StringArray;
    use arrow_schema::{DataType, Field};

    let texts = StringArray::from_iter_values((0..labels.len()).map(|row| format!("word {row}")));
    table((Field::new("text", DataType::Utf8, false), Arc::new(texts)), classes, path);
}

/// Two columns, the second of which is `label`.
fn table((field, content): (arrow_schema::Field, arrow_array::ArrayRef), classes: arrow_array::ArrayRef, path: &Path) {
    use arrow_array::RecordBatch;
    use arrow_schema::{Field, Schema};

    let schema = Arc::new(Schema::new(vec![field, Field::new("label", classes.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![content, classes]).unwrap();
    let file = fs::File::create(path).unwrap();
    if path.extension().is_some_and(|ending| ending == "arrow") {
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &schema).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = ::parquet::arrow::ArrowWriter::try_new(file, schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

#[test]
fn classes_of_a_table_may_be_a_dictionary_and_not_fractions() {
    use arrow_array::types::{Int8Type, Int64Type};
    use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray};

    let root = scratch();
    let rows = Files::of(&[""], &["one", "two"], 20).rows();
    let words: DictionaryArray<Int8Type> = rows.iter().map(|(_, label, _)| ["cat", "dog"][*label as usize]).collect();
    let labels: Vec<i64> = rows.iter().map(|(_, label, _)| *label).collect();
    let keys = labels.iter().map(|label| *label as i8).collect::<arrow_array::Int8Array>();
    let numbers = DictionaryArray::new(keys, Arc::new(Int64Array::from(vec![70, 80])));
    let words: ArrayRef = Arc::new(words);
    let dictionaries: [(ArrayRef, [&str; 2]); 2] =
        [(Arc::clone(&words), ["cat", "dog"]), (Arc::new(numbers), ["70", "80"])];
    for (column, classes) in dictionaries {
        let path = root.path().join("classes.parquet");
        with_classes(&rows, column, &path);
        let dataset = open(&Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec() }, &path);
        assert_eq!(dataset.classes(), classes);
        assert_eq!(all(&dataset, Part::Train).1, labels);
    }
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(labels.iter().map(|label| Some([Some(*label)])));
    let fractions = Float64Array::from_iter_values(labels.iter().map(|label| *label as f64));
    let unfit: [(ArrayRef, &str); 2] = [(Arc::new(fractions), "numbers with fractions"), (Arc::new(lists), "lists")];
    for ending in ["parquet", "arrow"] {
        for (column, holds) in &unfit {
            let path = root.path().join(format!("unfit.{ending}"));
            with_classes(&rows, Arc::clone(column), &path);
            let why = format!("its column `label` holds {holds}, but a class is an integer or a string");
            refused(&spec(), &path, &why, "`.astype(int)`");
        }
    }
    for ending in ["parquet", "arrow"] {
        let path = root.path().join(format!("texts.{ending}"));
        let fractions = Float64Array::from_iter_values(labels.iter().map(|label| *label as f64));
        with_texts(&labels, Arc::new(fractions), &path);
        let (vocabulary, columns) = (TokenizerSource::WordPiece(300), vec!["text".into()]);
        let text = Some(TextOptions { vocabulary, columns, label: Some("label".into()) });
        let options = PackOptions { text, ..PackOptions::default() };
        let error = pack(&path, &root.path().join("out"), &options, &mut |_| {}).expect_err("it was packed");
        complains(&error, "its column `label` holds numbers with fractions", "`.astype(int)`");
    }
    let path = root.path().join("classes.arrow");
    with_classes(&rows, words, &path);
    refused(&spec(), &path, "its column of classes is encoded as a dictionary", "save it as Parquet");
}

#[test]
fn parquet_is_read_however_it_is_encoded() {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::{Compression, Encoding};
    use ::parquet::file::properties::{WriterProperties, WriterVersion};

    let root = scratch();
    let files = Files::of(&[""], &["zero", "one"], 20);
    let rows = files.rows();
    let expected = open(&spec(), &files.written(Written::ArrowFile, root.path(), 1));
    let encodings =
        [None, Some(Encoding::PLAIN), Some(Encoding::DELTA_LENGTH_BYTE_ARRAY), Some(Encoding::DELTA_BYTE_ARRAY)];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    for (number, encoding) in encodings.into_iter().enumerate() {
        for (version, compression) in versions.into_iter().zip([Compression::UNCOMPRESSED, Compression::LZ4_RAW]) {
            let mut properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(compression)
                .set_max_row_group_row_count(Some(11))
                .set_data_page_row_count_limit(4)
                .set_write_batch_size(2)
                .set_dictionary_enabled(encoding.is_none());
            if let Some(encoding) = encoding {
                properties = properties.set_column_encoding("image.bytes".into(), encoding);
            }
            let path = root.path().join(format!("{number}-{version:?}.parquet"));
            let batch = super::written::batch(&rows);
            let file = fs::File::create(&path).unwrap();
            let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            let found = open(&spec(), &path);
            assert_eq!(found.classes(), expected.classes());
            assert_eq!(all(&found, Part::Train), all(&expected, Part::Train), "{encoding:?} {version:?}");
        }
    }
}
