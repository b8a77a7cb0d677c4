//! `gradus data pack` as a process: killed at random instants, and told what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Packs of each form that are killed after they have written a shard and before their last line.
const HITS: u32 = 20;
/// Starts that this may take: the others are killed before their first shard, or end by themselves.
const MOST_STARTS: u32 = 500;

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Images of two classes, half of them JPEGs.
    fn images(&self, count: u32) -> PathBuf {
        let folder = self.path("images");
        for number in 0..count {
            let class = folder.join(format!("class-{}", number % 2));
            fs::create_dir_all(&class).unwrap();
            let pixel = |x: u32, y: u32| [(x * 9 + number * 5) as u8, (y * 11) as u8, (number % 2 * 200) as u8];
            let image = image::RgbImage::from_fn(48, 40, |x, y| image::Rgb(pixel(x, y)));
            let ending = if number % 4 < 2 { "jpg" } else { "png" };
            image.save(class.join(format!("{number:03}.{ending}"))).unwrap();
        }
        folder
    }

    fn pack(&self, source: &Path, out: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(["data", "pack"]).arg(source).arg(out).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        command
    }
}

fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Every file of a folder but the journal, which holds times of the data.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    named.filter(|(name, _)| name != "pack.journal").map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Bytes of all files of a folder; one that vanishes meanwhile counts nothing.
fn written(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

/// Shards that the journal of a folder says are durable, and whether all is done: the journal says so, or a manifest.
fn journal(folder: &Path) -> (usize, bool) {
    let text = fs::read_to_string(folder.join("pack.journal")).unwrap_or_default();
    let begun = |line: &&str, what: &str| line.starts_with(&format!("{{\"{what}\":"));
    let shards = text.lines().filter(|line| begun(line, "shard")).count();
    (shards, text.lines().any(|line| begun(&line, "finished")) || folder.join("manifest.json").exists())
}

/// Starts a pack and kills it once its folder holds so many bytes; returns whether the kill came first.
fn killed_at(mut pack: Command, out: &Path, bytes: u64) -> bool {
    let mut child = pack.spawn().unwrap();
    while written(out) < bytes && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// Whatever form is packed, and wherever it is killed: it ends with the bytes of one that was left alone, and has nothing
/// to do after that.
#[test]
fn packs_that_are_killed_end_as_others() {
    let scene = Scene::new();
    let source = scene.images(400);
    let forms: [&[&str]; 3] = [
        &["--json", "--codec", "coefficients", "--shard-size", "5KB", "--threads", "2"],
        &["--json", "--shard-size", "8KB", "--threads", "2", "--split", "7:2:1"],
        &["--json", "--format", "webdataset", "--shard-size", "8KB"],
    ];
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for (number, form) in forms.iter().enumerate() {
        let (wanted, out) = (scene.path(&format!("wanted-{number}")), scene.path(&format!("out-{number}")));
        told(&scene.pack(&source, &wanted, form).output().unwrap());
        let (all, wanted) = (written(&wanted), contents(&wanted));
        let is_whole = || {
            told(&scene.pack(&source, &out, form).output().unwrap());
            assert!(contents(&out) == wanted, "the bytes are others, form {number}");
            assert_eq!(told(&scene.pack(&source, &out, form).output().unwrap())["nothing_to_do"], true);
        };
        let (mut hits, mut starts) = (0, 0);
        while hits < HITS {
            starts += 1;
            assert!(starts <= MOST_STARTS, "{hits} of {starts} kills came in the middle of the work, form {number}");
            let (before, here) = (journal(&out).0, written(&out));
            // Also behind the end, so that some are whole.
            let bytes = here + next() % (all.saturating_sub(here) + all / 8);
            let is_killed = killed_at(scene.pack(&source, &out, form), &out, bytes);
            let (after, is_finished) = journal(&out);
            hits += u32::from(is_killed && after > before && !is_finished);
            if is_finished {
                is_whole();
                fs::remove_dir_all(&out).unwrap();
            }
        }
        is_whole();
    }
}

#[test]
fn what_is_wrong_is_told() {
    let scene = Scene::new();
    let source = scene.images(8);
    let out = scene.path("out");
    let check = |source: &Path, more: &[&str], status: i32, wanted: &str| {
        let output = scene.pack(source, &out, more).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{more:?}: {text}");
        assert!(text.contains(wanted), "`{wanted}` is not in: {text}");
        assert!(!out.exists(), "a folder was made for nothing");
    };
    check(&scene.path("nothing"), &[], 2, "there is no data at");
    check(
        &source,
        &["--codec", "coefficients", "--format", "webdataset"],
        2,
        "WebDataset tars hold image files, not coefficients",
    );
    check(&source, &["--tokenizer", "bpe:5"], 2, "the vocabulary size must be from 300");
    check(&source, &["--tokenizer", "bpe:500", "--codec", "pixels"], 2, "do not apply to text");
    check(&source, &["--tokenizer", "bpe:500"], 2, "it holds no text");
    check(&source, &["--label", "x"], 2, "--tokenizer");
    let text = scene.path("texts.csv");
    fs::write(&text, "label,text\n1,some words\n").unwrap();
    check(&text, &["--tokenizer", "bpe:500", "--columns", "story"], 2, "it has no column `story`");
    let broken = scene.path("broken.json");
    fs::write(&broken, "{}").unwrap();
    check(&broken, &[], 2, "it is not a COCO JSON");
    // A list of images that are not there is no text.
    let list = scene.path("list.csv");
    fs::write(&list, "filename,class\n/nowhere/a.jpg,cat\n").unwrap();
    check(&list, &[], 2, "leads out of its folder");
    // Texts where images are looked for.
    for name in ["texts.csv", "more.jsonl", "plain.txt"] {
        let texts = scene.path(name);
        fs::write(&texts, "label,text\n1,some words\n").unwrap();
        check(&texts, &[], 2, "OUT --tokenizer bpe:16000` (with `--columns` and `--label` for tables)");
        let mut inspect = Command::new(env!("CARGO_BIN_EXE_gradus"));
        let output = inspect.args(["data", "inspect"]).arg(&texts).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("holds text, which must be packed") && text.contains("--tokenizer bpe:16000"), "{text}");
    }
}

#[test]
fn a_table_is_prepared_by_no_recipe() {
    let scene = Scene::new();
    let table = scene.path("digits.csv");
    fs::write(&table, format!("{}7\n", "3,".repeat(64))).unwrap();
    for args in [&["dump", "--index", "0", "--out", "x.npy"][..], &["bench", "--for", "0.1s"]] {
        let (first, rest) = args.split_first().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        let output = command.args(["data", first]).arg(&table).args(rest).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("is a table of pixels") && text.contains("hint: inspect it with `gradus data inspect"),
            "{text}"
        );
        assert!(!text.contains("leave `size` out"), "{text}");
    }
    fs::write(&table, "text,label\na word,one\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gradus")).args(["data", "bench"]).arg(&table).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("is a table of text, not images") && text.contains("--tokenizer bpe:16000"), "{text}");
}
