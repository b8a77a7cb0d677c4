//! Packing: the same data in shards, whatever happens in between.

mod repacks;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use domain::train::{Corrupt, Data, Folders, Split};
use image::ImageFormat;
use proptest::prelude::*;

use super::forms::{all, open};
use super::written::{ALL, Written};
use super::{Files, complains, encoded, image, refused, scratch, spec};
use crate::{
    Dataset, Error, InspectOptions, PackFormat, PackOptions, PackProgress, PackSummary, Part, SampleCodec,
    ShardManifest, inspect, pack,
};

const PARTS: [Part; 3] = [Part::Train, Part::Validation, Part::Test];

fn options() -> PackOptions {
    PackOptions { shard_bytes: 2000, seed: 3, threads: 2, ..PackOptions::default() }
}

fn packed(source: &Path, out: &Path, options: &PackOptions) -> PackSummary {
    pack(source, out, options, &mut |_| {}).unwrap()
}

/// Every file of a folder but the journal, which holds times of the data.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    named.filter(|(name, _)| name != "pack.journal").map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

#[test]
fn shards_are_the_data_that_was_packed() {
    let root = scratch();
    let files = Files::of(&[""], &["one", "two", "zero"], 11);
    let folder = files.folder(root.path());
    let expected = open(&spec(), &folder);
    let mut forms = vec![folder];
    forms.extend(ALL.iter().map(|form| files.written(*form, root.path(), 3)));
    for (number, source) in forms.iter().enumerate() {
        for format in [PackFormat::Shards, PackFormat::Webdataset] {
            for split in [None, Some([0.5, 0.25, 0.25])] {
                let out = root.path().join(format!("{number}-{format:?}-{}", split.is_some()));
                let manifest = packed(source, &out, &PackOptions { format, split, ..options() }).manifest;
                assert!(manifest.shards.len() > 3 && manifest.samples == 33, "{manifest:?}");
                let classes = open(&spec(), source).classes().to_owned();
                let found = open(&spec(), &out);
                assert_eq!(found.classes(), classes, "{format:?}");
                for part in PARTS {
                    assert_eq!(all(&found, part), all(&expected, part), "{source:?} {format:?} {split:?}");
                }
            }
        }
    }
}

#[test]
fn parts_are_kept_or_drawn() {
    let root = scratch();
    let folders = Data { split: Split::Folders(Folders::Folders), ..spec() };
    let files = Files::of(&["train/", "val/", "test/"], &["a", "b"], 5);
    let source = files.folder(root.path());
    let expected = open(&folders, &source);
    let out = root.path().join("kept");
    let manifest = packed(&source, &out, &options()).manifest;
    assert!(manifest.shards.iter().any(|shard| shard.file == "validation-000000.shard"));
    let found = open(&folders, &out);
    assert_eq!(found.counts(), [10, 10, 10]);
    for part in PARTS {
        assert_eq!(all(&found, part), all(&expected, part));
    }
    let out = root.path().join("drawn");
    packed(&source, &out, &PackOptions { split: Some([0.8, 0.1, 0.1]), seed: 5, ..options() });
    let drawn = open(&Data { split: Split::Shares([0.8, 0.1, 0.1]), ..spec() }, &source);
    let found = open(&folders, &out);
    for part in PARTS {
        assert_eq!(all(&found, part), all(&drawn, part));
    }
    let plain = root.path().join("plain");
    packed(&Files::of(&[""], &["a", "b"], 5).folder(&root.path().join("other")), &plain, &options());
    refused(&folders, &plain, "not every file of it is named", "leave out `split: folders`");
}

#[test]
fn an_incomplete_split_is_refused() {
    let root = scratch();
    let check = |name: &str, files: Files, message: &str| {
        let root = root.path().join(name);
        fs::create_dir(&root).unwrap();
        for source in [files.folder(&root), files.tar(&root)] {
            let error = pack(&source, &root.join("out"), &options(), &mut |_| {}).unwrap_err();
            complains(&error, message, "or give `--split`");
            let drawn = PackOptions { split: Some([0.5, 0.25, 0.25]), ..options() };
            let out = root.join(format!("drawn{}", source.is_dir()));
            assert!(packed(&source, &out, &drawn).manifest.shards.iter().all(|shard| shard.part.is_some()));
        }
    };
    check("other", Files::of(&["train/", "extra/"], &["a", "b"], 8), "is in none of the folders");
    let uneven = Files::of(&["train/"], &["a", "b"], 8).with("test/c/1.png", encoded(&image(1, 6), ImageFormat::Png));
    check("uneven", uneven, "`train` has no images of `c`");
    // Without named parts, all data is one part.
    let source = Files::of(&["x/"], &["train", "b"], 8).folder(&root.path().join("none"));
    let shards = packed(&source, &root.path().join("one"), &options()).manifest.shards;
    assert!(shards.iter().all(|shard| shard.part.is_none()));
}

#[test]
fn two_packs_at_once_are_one_too_many() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 8).folder(root.path());
    let out = root.path().join("out");
    let mut error = None;
    pack(&source, &out, &options(), &mut |_| {
        error.get_or_insert_with(|| pack(&source, &out, &options(), &mut |_| {}).unwrap_err());
    })
    .unwrap();
    complains(&error.unwrap(), "another pack is at work there", "wait");
    assert!(packed(&source, &out, &options()).nothing_to_do);
    // A folder with other contents stays unchanged.
    let error = pack(&source, &source, &options(), &mut |_| {}).unwrap_err();
    complains(&error, "the folder to pack into is not empty", "another folder");
    assert!(!source.join("pack.journal").exists());
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_threads() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 30).folder(root.path());
    let by = |name: &str, options: PackOptions| {
        let out = root.path().join(name);
        packed(&source, &out, &options);
        contents(&out)
    };
    let wanted = by("1", PackOptions { threads: 1, ..options() });
    assert_eq!(by("2", PackOptions { threads: 7, ..options() }), wanted);
    assert_ne!(by("3", PackOptions { seed: 4, ..options() }), wanted);
    // The order is shuffled: the first shards hold both classes.
    let first = ShardManifest::read(&root.path().join("1")).unwrap().unwrap();
    assert_eq!(first.shards[0].part, None);
    let labels: Vec<u32> = crate::shard::Shards::open(&root.path().join("1"), &first)
        .unwrap()
        .places()
        .iter()
        .filter(|entry| entry.shard < 5)
        .map(|entry| entry.label)
        .collect();
    assert!(labels.contains(&0) && labels.contains(&1), "{labels:?}");
}

#[test]
fn a_second_pack_has_nothing_to_do() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    for format in [PackFormat::Shards, PackFormat::Webdataset] {
        let out = root.path().join(format!("{format:?}"));
        let options = PackOptions { format, ..options() };
        let first = packed(&source, &out, &options);
        let before = contents(&out);
        let second = packed(&source, &out, &PackOptions { threads: 5, ..options.clone() });
        assert!(!first.nothing_to_do && second.nothing_to_do && first.manifest == second.manifest);
        // A shard that was lost is made again, and the others are not.
        let lost = &first.manifest.shards[2].file;
        fs::remove_file(out.join(lost)).unwrap();
        let third = packed(&source, &out, &options);
        assert_eq!((third.nothing_to_do, third.resumed), (false, 2));
        assert_eq!(contents(&out), before);
        let error = pack(&source, &out, &PackOptions { seed: 9, ..options }, &mut |_| {}).unwrap_err();
        complains(&error, "from other data, or with other options", "name another folder");
    }
    let full = root.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine.txt"), "mine").unwrap();
    complains(&pack(&source, &full, &options(), &mut |_| {}).unwrap_err(), "not empty", "name another folder");
    assert_eq!(fs::read(full.join("mine.txt")).unwrap(), b"mine");
}

#[test]
fn other_codecs_keep_or_shrink_the_pixels() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 8);
    let source = files.folder(root.path());
    let wanted = open(&spec(), &source);
    let out = root.path().join("pixels");
    packed(&source, &out, &PackOptions { codec: SampleCodec::Pixels, ..options() });
    let found = open(&spec(), &out);
    assert_eq!(all(&found, Part::Train), all(&wanted, Part::Train));
    let large = Files::of(&[""], &["a", "b"], 8).with(
        "a/wide.png",
        super::encoded(&image::RgbImage::from_pixel(60, 40, [9, 80, 200].into()), image::ImageFormat::Png),
    );
    let source = large.folder(&root.path().join("large"));
    let out = root.path().join("shrunk");
    let manifest = packed(&source, &out, &PackOptions { shrink: Some(20), ..options() }).manifest;
    assert_eq!((manifest.recipe.shrink, manifest.schema), (Some(20), 1));
    let index = crate::formats::list(
        &out,
        &crate::formats::Reading {
            by_folders: crate::formats::ByFolders::No,
            skip: false,
            labels: domain::train::Labels::Class,
        },
    )
    .unwrap();
    let crate::formats::Content::Encoded(encoded) = index.content else { panic!("shards are encoded") };
    let index = (0..encoded.len()).find(|index| encoded.name(*index) == "a/wide.png").unwrap();
    let mut bytes = Vec::new();
    encoded.read(index, &mut bytes).unwrap();
    let image = crate::decode::rgb::decode_once(&bytes).unwrap();
    assert_eq!((image.height, image.width), (20, 30));
    assert!(image.pixels.chunks(3).all(|p| p[0].abs_diff(9) < 4 && p[1].abs_diff(80) < 4 && p[2].abs_diff(200) < 4));
}

#[test]
fn coefficients_give_the_pixels_of_the_files() {
    let root = scratch();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/images");
    let mut wanted = BTreeMap::new();
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "jpg") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let class = if name.len() % 2 == 0 { "a" } else { "b" };
            wanted.insert(format!("{class}/{name}"), fs::read(path).unwrap());
        }
    }
    // Of 12 bits, which nobody here decodes.
    let mut twelve = wanted["b/420-16x16.jpg"].clone();
    let frame = twelve.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    (twelve[frame + 1], twelve[frame + 4]) = (0xC1, 12);
    wanted.insert("b/some.png".to_owned(), encoded(&image(2, 6), ImageFormat::Png));
    let source = root.path().join("source");
    for (name, bytes) in &wanted {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), bytes).unwrap();
    }
    let out = root.path().join("out");
    let coefficients = PackOptions { codec: SampleCodec::Coefficients, ..options() };
    fs::write(source.join("a/twelve.jpg"), twelve).unwrap();
    let error = pack(&source, &root.path().join("twelve"), &coefficients, &mut |_| {}).unwrap_err();
    complains(&error, "a/twelve.jpg", "replace the file");
    fs::remove_file(source.join("a/twelve.jpg")).unwrap();
    let manifest = packed(&source, &out, &coefficients).manifest;
    // An earlier version refuses the schema, instead of reading the coefficients as damaged images.
    assert_eq!(manifest.schema, 2);
    let total: u64 = wanted.values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(manifest.shards.iter().map(|shard| shard.source_bytes.unwrap()).sum::<u64>(), total);
    // Packed again, they stay the same.
    let again = root.path().join("again");
    assert_eq!(packed(&out, &again, &PackOptions { seed: 8, ..coefficients }).manifest.schema, 2);
    for out in [out, again] {
        let shards = crate::shard::Shards::open(&out, &ShardManifest::read(&out).unwrap().unwrap()).unwrap();
        let (mut originals, mut taken) = (Vec::new(), 0);
        for index in 0..wanted.len() {
            let (name, mut bytes) = (shards.name(index), Vec::new());
            shards.read(index, &mut bytes, crate::files::remote::AccessTime::ONCE).unwrap();
            taken += bytes.len() as u64;
            if shards.places()[index].codec == SampleCodec::Original {
                assert_eq!(bytes, wanted[&name], "{name}");
                originals.push(name);
                continue;
            }
            assert!(bytes.len() < wanted[&name].len(), "{name} takes {} bytes", bytes.len());
            let [found, wanted] = [&bytes, &wanted[&name]].map(|bytes| crate::decode::rgb::decode_once(bytes).unwrap());
            assert_eq!((found.width, found.height), (wanted.width, wanted.height), "{name}");
            assert!(found.pixels == wanted.pixels, "{name}");
        }
        assert!(taken * 100 <= total * 75, "{taken} bytes of {total}");
        for name in ["a/cmyk.jpg", "b/some.png"] {
            assert!(originals.iter().any(|original| original == name), "{name} was packed again");
        }
        let found = inspect(&out, &InspectOptions { verify: true, sheet: None, threads: 1 }).unwrap();
        assert!(found.kinds["coefficients"] > 15 && found.damaged.len() <= 1, "{found:?}");
    }
    let tars = PackOptions { format: PackFormat::Webdataset, ..options() };
    let error = pack(&root.path().join("out"), &root.path().join("tars"), &tars, &mut |_| {}).unwrap_err();
    complains(&error, "its shards hold coefficients", "the images that these shards were made of");
}

#[test]
fn damaged_samples_are_named_or_counted() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10).with("b/0.png", "no image").with("b/zzz.png", "");
    let source = files.folder(root.path());
    let pixels = PackOptions { codec: SampleCodec::Pixels, ..options() };
    let error = pack(&source, &root.path().join("fails"), &pixels, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Image { .. }), "{error}");
    let out = root.path().join("skips");
    let skip = PackOptions { skip: true, ..pixels };
    let manifest = packed(&source, &out, &skip).manifest;
    let mut left: Vec<&str> = manifest.skipped.iter().map(|left| left.name.as_str()).collect();
    left.sort_unstable();
    assert_eq!((left, manifest.samples), (vec!["b/0.png", "b/zzz.png"], 20));
    let wanted = open(&Data { corrupt: Corrupt::Skip, ..spec() }, &source);
    assert_eq!(all(&open(&spec(), &out), Part::Train), all(&wanted, Part::Train));
    assert!(packed(&source, &out, &skip).nothing_to_do);
}

/// A pack that stops at a sample, as one that was killed there.
struct Stopped;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However often and wherever a pack is killed, the result equals that of an undisturbed one, byte for byte.
    #[test]
    fn killed_packs_end_as_undisturbed_ones(kills in prop::collection::vec((1_u64..60, 1_usize..5, 0_u8..4), 0..5), tars: bool) {
        let root = scratch();
        let source = Files::of(&["train/", "test/"], &["a", "b"], 14).with("test/b/bad.png", "x").folder(root.path());
        let format = if tars { PackFormat::Webdataset } else { PackFormat::Shards };
        let base = PackOptions { format, skip: true, codec: if tars { SampleCodec::Original } else { SampleCodec::Pixels }, ..options() };
        let wanted = root.path().join("wanted");
        packed(&source, &wanted, &base);
        let out = root.path().join("out");
        for (samples, threads, damage) in kills {
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut seen = 0;
                pack(&source, &out, &PackOptions { threads, ..base.clone() }, &mut |_: PackProgress| {
                    seen += 1;
                    if seen == samples {
                        std::panic::resume_unwind(Box::new(Stopped));
                    }
                })
            }));
            prop_assert!(run.is_err() || run.unwrap().is_ok());
            // The state after a kill at another instant: a partial line, a partial temporary file, a shard without its
            // line.
            let journal = out.join("pack.journal");
            let text = fs::read(&journal).unwrap_or_default();
            match damage {
                1 if text.len() > 200 => fs::write(&journal, &text[..text.len() - 7]).unwrap(),
                2 => fs::write(out.join("train-000099.shard.tmp"), "torn").unwrap(),
                3 if text.len() > 200 => {
                    let end = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
                    fs::write(&journal, &text[..end + 1]).unwrap();
                }
                _ => {}
            }
        }
        packed(&source, &out, &base);
        prop_assert_eq!(contents(&out), contents(&wanted));
    }
}

#[test]
fn digits_and_single_classes_are_reported() {
    let root = scratch();
    let error = pack(&root.path().join("nothing"), &root.path().join("out"), &options(), &mut |_| {}).unwrap_err();
    complains(&error, "there is no data at", "");
    assert!(!root.path().join("out").exists(), "a folder was created");
    let table = root.path().join("digits.csv");
    fs::write(&table, format!("{}1\n{}0\n", "3,".repeat(64), "4,".repeat(64))).unwrap();
    let error = pack(&table, &root.path().join("out"), &options(), &mut |_| {}).unwrap_err();
    complains(&error, "images of one channel are not packed", "give the data itself");
}

#[test]
fn a_packed_parquet_holds_the_same_samples() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 25);
    let source = files.written(Written::Parquet, root.path(), 2);
    let out = root.path().join("out");
    packed(&source, &out, &options());
    let (found, wanted) = (open(&spec(), &out), open(&spec(), &source));
    assert_eq!(found.counts(), [35, 10, 5]);
    for part in PARTS {
        assert_eq!(all(&found, part), all(&wanted, part));
    }
}

#[test]
fn inspection_describes_the_data() {
    let root = scratch();
    let files = Files::of(&["train/", "test/"], &["a", "b", "c"], 20).with("train/a/bad.png", "no image");
    let source = files.folder(root.path());
    let sheet = root.path().join("sheet.png");
    let look = |path: &Path, verify, sheet| inspect(path, &InspectOptions { verify, sheet, threads: 2 }).unwrap();
    let found = look(&source, true, Some(&sheet));
    assert_eq!((found.samples, found.parts, found.verified), (121, Some([61, 0, 60]), 121));
    assert_eq!(found.classes[0], ("a".to_owned(), 41));
    assert_eq!(found.damaged.iter().map(|damaged| damaged.name.as_str()).collect::<Vec<_>>(), ["train/a/bad.png"]);
    assert_eq!((found.kinds["jpeg"], found.kinds["png"]), (40, 80));
    assert_eq!(found.sizes.unwrap().width, [6, 6, 6]);
    let image = image::open(&sheet).unwrap().into_rgb8();
    assert_eq!(image.dimensions(), (1004, 304));
    assert_eq!(found.sheet, ["a", "b", "c"]);
    assert_ne!(image.get_pixel(50, 50), image.get_pixel(1, 1));

    let sorted = Files::of(&[""], &["a", "b", "c", "d", "e", "f", "g", "h"], 100);
    let source = sorted.folder(&root.path().join("sorted"));
    let before = look(&source, false, None).shuffle;
    let out = root.path().join("out");
    let manifest = packed(&source, &out, &options()).manifest;
    let after = look(&out, true, None);
    assert!(before.distinct < 4.0 && after.shuffle.distinct > 7.9 && after.shuffle.ideal > 7.9, "{before:?} {after:?}");
    assert_eq!((after.verified, after.damaged.len()), (800, 0));
    // One byte of one image: its sample is named, and no other.
    let shard = out.join(&manifest.shards[4].file);
    let mut bytes = fs::read(&shard).unwrap();
    bytes[40] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let found = look(&out, true, None);
    let named: Vec<&str> = found.damaged.iter().map(|damaged| damaged.name.as_str()).collect();
    assert_eq!(named, ["data-000004.shard, sample 1"]);
}

/// A bit that flips on disk after packing is noticed when the sample is read, whatever it would decode to.
#[test]
fn a_flipped_bit_is_an_error_and_never_another_pixel() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let out = root.path().join("out");
    let pixels = PackOptions { codec: SampleCodec::Pixels, ..options() };
    let manifest = packed(&source, &out, &pixels).manifest;
    let shard = out.join(&manifest.shards[1].file);
    let shards = crate::shard::Shards::open(&out, &manifest).unwrap();
    let read = || {
        let read = |sample| shards.read(sample, &mut Vec::new(), crate::files::remote::AccessTime::SOME_TIME);
        (0..shards.places().len()).filter_map(|sample| read(sample).err()).collect::<Vec<Error>>()
    };
    assert!(read().is_empty() && read().is_empty());
    let mut bytes = fs::read(&shard).unwrap();
    // Behind the head of the file and that of the image: any value is a pixel.
    bytes[32 + 60] ^= 4;
    fs::write(&shard, bytes).unwrap();
    // In every epoch, though the sample was whole in those before.
    for errors in [read(), read()] {
        assert_eq!(errors.len(), 1, "{errors:?}");
        complains(&errors[0], "sample 1 of `data-000001.shard` does not match its checksum", "replace the file");
    }
    let error = Dataset::open(&spec(), &out, 0).unwrap_err();
    complains(&error, "sample 1 of `data-000001.shard` does not match its checksum", "replace the file");
    let left = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &out, 0).unwrap();
    assert_eq!((left.counts().iter().sum::<u64>(), left.skipped().len()), (19, 1));
    assert!(left.skipped()[0].why.contains("does not match its checksum"), "{:?}", left.skipped());
}

/// Every supported kind of image is packed, and unsupported files are named, in a folder as in a tar.
#[test]
fn no_image_vanishes_in_silence() {
    let root = scratch();
    let mut files = Files::of(&[""], &["a", "b"], 4);
    for (ending, format) in
        [("webp", ImageFormat::WebP), ("bmp", ImageFormat::Bmp), ("gif", ImageFormat::Gif), ("tif", ImageFormat::Tiff)]
    {
        files = files.with(&format!("a/other.{ending}"), encoded(&image(5, 6), format));
    }
    let files = files.with("b/photo.HEIC", "of a telephone");
    for (number, source) in [files.folder(root.path()), files.tar(root.path())].into_iter().enumerate() {
        let found = inspect(&source, &InspectOptions { verify: true, sheet: None, threads: 1 }).unwrap();
        assert_eq!((found.samples, found.damaged.len(), &found.unread[..]), (12, 0, &["b/photo.HEIC".to_owned()][..]));
        let report = "1 image file is left out: its format is not read (1 HEIC); the first is `b/photo.HEIC`";
        assert_eq!(open(&spec(), &source).left_out(), Some(report));
        assert_eq!(crate::Outline::of(&spec(), &source, 5).unwrap().left_out.as_deref(), Some(report));
        for kind in ["webp", "bmp", "gif", "tiff"] {
            assert_eq!(found.kinds.get(kind), Some(&1), "{:?}", found.kinds);
        }
        for format in [PackFormat::Shards, PackFormat::Webdataset] {
            let out = root.path().join(format!("{number}-{format:?}"));
            let packed = packed(&source, &out, &PackOptions { format, ..options() });
            assert_eq!((packed.manifest.samples, packed.unread), (12, vec!["b/photo.HEIC".to_owned()]));
            for part in PARTS {
                assert_eq!(all(&open(&spec(), &out), part), all(&open(&spec(), &source), part));
            }
        }
    }
}

/// Coefficients are those of JPEG files; other files are stored unchanged, if they can be read.
#[test]
fn coefficients_leave_out_what_cannot_be_read() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 8).with("a/zz.png", "no image").folder(root.path());
    let options = PackOptions { codec: SampleCodec::Coefficients, ..options() };
    let error = pack(&source, &root.path().join("all"), &options, &mut |_| {}).unwrap_err();
    complains(&error, "a/zz.png", "replace the file");
    let out = root.path().join("skipped");
    let manifest = packed(&source, &out, &PackOptions { skip: true, ..options }).manifest;
    assert_eq!((manifest.samples, manifest.skipped.len()), (16, 1));
    assert_eq!(manifest.skipped[0].name, "a/zz.png");
    assert_eq!(all(&open(&spec(), &out), Part::Train).1.len(), 11);
}
