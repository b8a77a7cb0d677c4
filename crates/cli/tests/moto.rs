//! A bucket as data of a run, fetched first or read by pieces: the same weights as from the folder and the tar. And a bucket
//! as the place of its checkpoints.
//! `cargo xtask test` provides moto and the trainer.

#[path = "transfer/bucket.rs"]
mod bucket;
#[path = "../../store/tests/moto/s3.rs"]
mod s3;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use domain::random::Draws;
use serde_json::Value;

use self::s3::Moto;

struct Scene {
    folder: tempfile::TempDir,
    moto: Moto,
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn gradus(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).arg("--home").arg(self.path("home")).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.moto.port));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "hush-hush");
        command
    }

    /// Trains on this data and returns the hash of the weights.
    fn train(&self, data: &str) -> String {
        weights(data, &self.run(data))
    }

    fn run(&self, data: &str) -> Output {
        let job = self.job(&format!("path: '{data}', split: [0.5, 0.25, 0.25]"), 2, "");
        self.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"])
    }

    fn job(&self, data: &str, epochs: u32, more: &str) -> PathBuf {
        let job = self.path("job.yaml");
        let text = format!(
            "name: bucket\ntrain:\n  model: mlp\n  data: {{{data}}}\n  epochs: {epochs}\n  batch: 8\n  seed: 3\n  threads: 1\n{more}"
        );
        fs::write(&job, text).unwrap();
        job
    }

    /// The agents that look after a machine of this home: processes whose command line says so.
    fn agents(&self) -> Vec<i32> {
        let home = self.path("home").display().to_string();
        let numbers =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let is_agent = |number: &i32| {
            let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let words: Vec<String> =
                words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
            words.iter().any(|word| word == "agent") && words.iter().any(|word| word.starts_with(&home))
        };
        numbers.filter(is_agent).collect()
    }
}

/// The hash of the weights that a run has told.
fn weights(data: &str, output: &Output) -> String {
    told(data, output)["model_sha256"].as_str().unwrap().to_owned()
}

/// What a run has told at its end.
fn told(data: &str, output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{data}: {err}");
    assert!(!out.contains("hush-hush") && !err.contains("hush-hush"), "a secret was printed");
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

/// Forty small pictures of two classes.
fn pictures(folder: &Path) {
    for number in 0..40_u32 {
        let class = folder.join(format!("class-{}", number % 2));
        fs::create_dir_all(&class).unwrap();
        let pixel = |x: u32, y: u32| [(x * 9 + number * 5) as u8, (y * 11) as u8, (number % 2 * 200) as u8];
        let picture = image::RgbImage::from_fn(16, 16, |x, y| image::Rgb(pixel(x, y)));
        let ending = if number % 4 < 2 { "jpg" } else { "png" };
        picture.save(class.join(format!("{number:02}.{ending}"))).unwrap();
    }
}

#[test]
#[ignore = "needs moto and the trainer: `cargo xtask test` provides them"]
fn a_run_from_a_bucket_gives_the_weights_of_a_run_from_the_folder() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    let (folder, tar) = (scene.path("pictures"), scene.path("pictures.tar"));
    pictures(&folder);
    let made = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&folder).arg(".").status().unwrap();
    assert!(made.success());
    let push = |arguments: &[&str]| {
        let output = scene.gradus(&[&["data", "push"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (folder, tar) = (folder.to_str().unwrap(), tar.to_str().unwrap());
    push(&[folder, "s3://bucket/chunks"]);
    push(&[folder, "s3://bucket/plain", "--plain"]);
    push(&[tar, "s3://bucket/tar"]);
    push(&[tar, "s3://bucket/plain-tar", "--plain"]);
    // Packed, the pictures are the same, and so is their order.
    let pack = |name: &str, more: &[&str]| {
        let out = scene.path(name);
        let output =
            scene.gradus(&[&["data", "pack", folder, out.to_str().unwrap(), "--shard-size", "8KB"], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        out.to_str().unwrap().to_owned()
    };
    let originals = pack("originals", &["--seed", "5"]);
    let coefficients = pack("coefficients", &["--codec", "coefficients"]);
    let tars = pack("tars", &["--format", "webdataset"]);
    push(&[&originals, "s3://bucket/originals"]);
    push(&[&coefficients, "s3://bucket/coefficients"]);
    push(&[&coefficients, "s3://bucket/plain-coefficients", "--plain"]);
    let expected = scene.train(folder);
    let buckets = [
        "s3://bucket/chunks",
        "s3://bucket/plain",
        "s3://bucket/tar",
        "s3://bucket/plain-tar/pictures.tar",
        "s3://bucket/originals",
        "s3://bucket/coefficients",
        "s3://bucket/plain-coefficients",
    ];
    for data in [tar, &originals, &coefficients, &tars].into_iter().chain(buckets) {
        assert_eq!(scene.train(data), expected, "{data}");
    }
    let check = |data: &str, expected: &str| {
        let output = scene.run(data);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected) && text.contains("\"hint\":"), "{data}: {text}");
    };
    check("s3://nobucket/x", "there is no bucket `nobucket`");
    check("s3://bucket/nothing", "there is nothing at `s3://bucket/nothing`");
    check("ftp://host/x", "`ftp://` is not known");
}

/// What is found, prepared and packed by an address is what lies in the folder that was pushed.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn data_in_a_bucket_is_looked_at_as_data_in_a_folder() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    let folder = scene.path("pictures");
    pictures(&folder);
    let folder = folder.to_str().unwrap();
    let out = |arguments: &[&str]| {
        let output = scene.gradus(&[&["data"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    out(&["push", folder, "s3://bucket/chunks"]);
    out(&["push", folder, "s3://bucket/plain", "--plain"]);
    let file = |name: &str| scene.path(name).to_str().unwrap().to_owned();
    let found = out(&["inspect", folder, "--verify", "--json"]);
    out(&["dump", folder, "--index", "7", "--out", &file("here.npy")]);
    out(&["pack", folder, &file("here")]);
    let local = format!("file://{folder}");
    for data in ["s3://bucket/chunks", "s3://bucket/plain", &local] {
        assert_eq!(out(&["inspect", data, "--verify", "--json"]), found, "{data}");
        out(&["dump", data, "--index", "7", "--out", &file("there.npy")]);
        assert_eq!(fs::read(file("there.npy")).unwrap(), fs::read(file("here.npy")).unwrap(), "{data}");
        let packed = file(&format!("packed-{}", data.len()));
        out(&["pack", data, &packed]);
        let shard = |place: &str| fs::read(Path::new(place).join("data-000000.shard")).unwrap();
        assert!(shard(&packed) == shard(&file("here")), "{data}");
        assert!(out(&["pack", data, &packed, "--json"]).contains("\"nothing_to_do\":true"), "{data}");
    }
    let measured: Value =
        serde_json::from_str(&out(&["bench", "s3://bucket/plain", "--for", "0.2s", "--json"])).unwrap();
    assert!(measured["images"].as_u64() >= Some(40), "{measured}");
    fs::create_dir_all(file("texts")).unwrap();
    fs::write(file("texts/a.txt"), "some words").unwrap();
    out(&["push", &file("texts"), "s3://bucket/texts", "--plain"]);
    let texts = scene.gradus(&["data", "inspect", "s3://bucket/texts"]);
    let text = String::from_utf8_lossy(&texts.stderr);
    assert!(text.contains("`gradus data pack s3://bucket/texts OUT --tokenizer bpe:16000`"), "{text}");
    let nothing = scene.gradus(&["data", "inspect", "s3://bucket/nothing"]);
    let text = String::from_utf8_lossy(&nothing.stderr);
    assert!(nothing.status.code() == Some(2) && text.contains("there is nothing at `s3://bucket/nothing`"), "{text}");
}

/// `file_mounts` from a bucket: a prefix is a folder, also of one file, and an object is a file.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn mounts_of_a_bucket_are_there_before_the_program_starts() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    fs::create_dir_all(scene.path("texts")).unwrap();
    fs::write(scene.path("texts/a.txt"), "some words").unwrap();
    let pushed = scene.gradus(&["data", "push", scene.path("texts").to_str().unwrap(), "s3://bucket/texts", "--plain"]);
    assert!(pushed.status.success(), "{pushed:?}");
    let job = scene.path("mounts.yaml");
    let mounts = |source: &str| {
        let text =
            format!("name: mounts\nfile_mounts: {{lib: s3://bucket/texts, one: {source}}}\nrun: cat lib/a.txt one\n");
        fs::write(&job, text).unwrap();
        scene.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"])
    };
    told("mounts", &mounts("{source: s3://bucket/texts/a.txt, mode: COPY}"));
    let logs = scene.gradus(&["logs", "last"]);
    assert_eq!(String::from_utf8_lossy(&logs.stdout).trim(), "some wordssome words");
    let missing = mounts("s3://bucket/nothing");
    let said = String::from_utf8_lossy(&missing.stdout);
    assert!(!missing.status.success() && said.contains("there is nothing at `s3://bucket/nothing`"), "{missing:?}");
}

/// A machine that has nothing left of the attempt before resumes from the bucket, with every byte of a large file.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_run_resumes_from_what_is_in_the_bucket() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    let job = scene.path("kept.yaml");
    let text = |store: &str| {
        format!(
            "name: kept\ncheckpoint_store: {store}\nrun: |\n  cd $GRADUS_CHECKPOINTS\n  echo x >> tries\n  \
             [ -f large ] || head -c 20000000 /dev/urandom > large\n  sha256sum large >> sums\n  \
             [ $(wc -l < tries) -ge 2 ] && [ $(sort -u sums | wc -l) = 1 ]\n"
        )
    };
    let run = |store: &str| {
        fs::write(&job, text(store)).unwrap();
        scene.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"])
    };
    let failed = run("s3://bucket/kept");
    assert!(!failed.status.success(), "{failed:?}");
    let folder = fs::read_dir(scene.path("home/runs")).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir_all(folder.join("checkpoints")).unwrap();
    told("resumed", &scene.gradus(&["resume", "last", "--json"]));
    assert_eq!(fs::read_to_string(folder.join("checkpoints/tries")).unwrap(), "x\nx\n");
    let missing = run("s3://nobucket/kept");
    let said = String::from_utf8_lossy(&missing.stdout);
    let expected = "cannot use the `checkpoint_store` of the job: there is no bucket `nobucket`";
    assert!(!missing.status.success() && said.contains(expected), "{missing:?}");
}

/// What the trainer keeps is in the bucket, and the commands read and delete it there.
#[test]
#[ignore = "needs moto and the trainer: `cargo xtask test` provides them"]
fn checkpoints_in_a_bucket_are_listed_copied_and_deleted() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    let folder = scene.path("pictures");
    pictures(&folder);
    let data = format!("path: '{}', split: [0.5, 0.25, 0.25]", folder.display());
    let store = "  checkpoint: {every: 2 steps, keep: 2}\ncheckpoint_store: s3://bucket/kept/\n";
    let job = scene.job(&data, 4, store);
    told("kept", &scene.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"]));
    // What is listed is what the bucket has, not this machine.
    let run = fs::read_dir(scene.path("home/runs")).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let steps = || {
        let output = scene.gradus(&["checkpoints", "list", "last", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let step = |line: &str| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap();
        lines.lines().map(step).collect::<Vec<u64>>()
    };
    let listed = steps();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let out = scene.path("out");
    let pulled = scene.gradus(&["checkpoints", "pull", "last", "--output", out.to_str().unwrap()]);
    assert!(pulled.status.success(), "{pulled:?}");
    assert!(out.join(format!("manifest-{:08}.json", listed[1])).exists());
    let removed = scene.gradus(&["checkpoints", "rm", "last", "--keep", "1", "--yes"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(steps(), listed[1..]);
}

/// With 30 % of the data here, from shards, chunks and single pictures; and once more while the process that serves the
/// cache is killed midway.
#[test]
#[ignore = "needs moto and the trainer: `cargo xtask test` provides them"]
fn a_run_whose_data_stays_in_the_bucket_gives_the_same_weights_through_a_kill() {
    let scene = Scene { folder: tempfile::tempdir().unwrap(), moto: Moto::start() };
    let folder = scene.path("noise");
    let mut draws = Draws::new(7);
    for number in 0..120 {
        let class = folder.join(format!("class-{}", number % 2));
        fs::create_dir_all(&class).unwrap();
        let mut noise = draws.bytes(3 * 100 * 100);
        // The class shows in the blue of each pixel.
        noise.iter_mut().skip(2).step_by(3).for_each(|blue| *blue = number % 2 * 90 + (*blue >> 4));
        let picture = image::RgbImage::from_raw(100, 100, noise).unwrap();
        picture.save(class.join(format!("{number:03}.png"))).unwrap();
    }
    let (folder, shards) = (folder.to_str().unwrap(), scene.path("shards"));
    let shards = shards.to_str().unwrap();
    for arguments in [
        &["pack", folder, shards, "--shard-size", "500KB"][..],
        &["push", shards, "s3://bucket/shards", "--plain"],
        &["push", shards, "s3://bucket/chunks"],
        &["push", folder, "s3://bucket/pictures", "--plain"],
    ] {
        let output = scene.gradus(&[&["data"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // 3.4 MB of pictures; parts of them are shown, so that none is kept decoded.
    let more = "size: 16, augment: [random_resized_crop, flip], split: [0.5, 0.25, 0.25], \
                normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}";
    let saves = "  checkpoint: {every: 10 steps}\n";
    let job = |data: &str, cache: &str| scene.job(&format!("path: '{data}', {more}{cache}"), 30, saves);
    let run = |job: &Path| scene.command(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"]);
    let expected = weights(folder, &run(&job(folder, "")).output().unwrap());
    let preloaded = run(&job(folder, ", preload: 1 GiB")).output().unwrap();
    assert_eq!(weights("preloaded", &preloaded), expected);
    let cached = |data: &str| job(data, ", cache: {budget: 1 MiB}");
    for data in ["s3://bucket/shards", "s3://bucket/chunks", "s3://bucket/pictures"] {
        assert_eq!(weights(data, &run(&cached(data)).output().unwrap()), expected, "{data}");
    }

    let runs = || fs::read_dir(scene.path("home/runs")).unwrap().map(|run| run.unwrap().path());
    let before: Vec<PathBuf> = runs().collect();
    let mut running = run(&cached("s3://bucket/shards"));
    let running = running.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let is_saved = || {
        let run = runs().find(|run| !before.contains(run));
        let saved = run.and_then(|run| fs::read_dir(run.join("checkpoints")).ok());
        saved.is_some_and(|mut saved| {
            saved.any(|file| file.unwrap().file_name().to_string_lossy().starts_with("manifest-"))
        })
    };
    while !is_saved() {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing was saved");
        std::thread::sleep(Duration::from_millis(2));
    }
    let agents = scene.agents();
    assert!(!agents.is_empty(), "the run has ended before its agent could be killed");
    for agent in agents {
        let _ = Command::new("kill").args(["-9", &agent.to_string()]).status();
    }
    let output = running.wait_with_output().unwrap();
    assert_eq!(weights("killed", &output), expected);
    let attempts = told("killed", &output)["attempts"].as_u64();
    assert!(attempts >= Some(2), "it was not killed: {attempts:?} attempts");
}
