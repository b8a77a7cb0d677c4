//! A bucket as data of a run: the same weights as from the folder and the tar. `cargo xtask test` provides moto and the
//! trainer.

#[path = "../../store/tests/moto/s3.rs"]
mod s3;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).arg("--home").arg(self.path("home")).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.moto.port));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "hush-hush").output().unwrap()
    }

    /// Trains on this data and returns the hash of the weights.
    fn train(&self, data: &str) -> String {
        let output = self.run(data);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{data}: {err}");
        assert!(!out.contains("hush-hush") && !err.contains("hush-hush"), "a secret was printed");
        let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        last["model_sha256"].as_str().unwrap().to_owned()
    }

    fn run(&self, data: &str) -> Output {
        let job = self.path("job.yaml");
        let text = format!(
            "name: bucket\ntrain:\n  model: mlp\n  data: {{path: '{data}', split: [0.5, 0.25, 0.25]}}\n  epochs: 2\n  batch: 8\n  seed: 3\n  threads: 1\n"
        );
        fs::write(&job, text).unwrap();
        self.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"])
    }
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
        assert!(!output.status.success() && text.contains(expected) && text.contains("hint:"), "{data}: {text}");
    };
    check("s3://nobucket/x", "there is no bucket `nobucket`");
    check("s3://bucket/nothing", "there is nothing at `s3://bucket/nothing`");
    check("ftp://host/x", "`ftp://` is not known");
}
