//! What goes wrong with a training, and what the user is told: each case with its message and its exit code.
//!
//! These need `gradus-rank` beside `gradus`: `cargo xtask test` builds both.

use std::fs;
use std::path::{Path, PathBuf};

use crate::home::{Home, Said, text};

/// The digits that the repository carries.
fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz").canonicalize().unwrap()
}

/// A small training of the digits, with more keys for `train` and for `data`.
fn job(home: &Home, train: &str, data: &str) -> PathBuf {
    job_of(home, 3, 10, train, data)
}

/// The same over so many epochs, with a checkpoint every so many steps.
fn job_of(home: &Home, epochs: u32, every: u32, train: &str, data: &str) -> PathBuf {
    let text = format!(
        "name: small\ntrain:\n  model: mlp\n  data:\n    path: {}\n{data}  epochs: {epochs}\n  batch: 96\n  threads: 1\n  checkpoint: {{every: {every} steps}}\n{train}",
        digits().display()
    );
    home.job("small.yaml", &text)
}

/// Runs a job that must fail, and returns what was said.
#[track_caller]
fn fails(home: &Home, job: &Path, words: &[&str]) -> Said {
    let said = home.gradus(&["run", text(job)]);
    assert!(matches!(said.code, Some(100 | 2)), "{:?}: {}{}", said.code, said.err, home.gradus(&["logs", "last"]).out);
    for word in words {
        assert!(said.err.contains(word), "`{word}` is missing: {}", said.err);
    }
    assert!(said.err.contains("hint:"), "{}", said.err);
    said
}

#[test]
fn a_small_training_ends_with_a_model_and_a_bill() {
    let home = Home::new();
    let said = home.gradus(&["run", text(&job(&home, "", "")), "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let done = said.last();
    for key in ["outcome", "test_accuracy", "steps", "seconds", "bill_usd", "model", "model_sha256", "attempts"] {
        assert!(!done[key].is_null(), "{key}");
    }
    let run = done["run"].as_str().unwrap();
    let folder = PathBuf::from(done["folder"].as_str().unwrap());
    assert!(folder.join("report.html").exists() && folder.join("tensorboard").exists(), "{}", folder.display());
    let shown = home.gradus(&["models", "show", run]);
    assert!(shown.out.contains(done["model_sha256"].as_str().unwrap()), "{}", shown.out);
    let to = home.path().join("copy");
    let exported = home.gradus(&["models", "export", run, "--to", text(&to), "--json"]);
    assert_eq!(exported.code, Some(0), "{}", exported.err);
    assert_eq!((exported.out.lines().count(), &exported.last()["model_sha256"]), (1, &done["model_sha256"]));
    let reported = home.gradus(&["report", run, "--json"]);
    assert_eq!((reported.out.lines().count(), &reported.last()["run"]), (1, &done["run"]));
    assert!(PathBuf::from(reported.last()["report"].as_str().unwrap()).exists());
    let stopped = home.gradus(&["stop", run, "--json"]);
    assert_eq!((stopped.out.lines().count(), &stopped.last()["outcome"]), (1, &done["outcome"]));
    assert_eq!(fs::read(to.join("model.safetensors")).unwrap(), fs::read(done["model"].as_str().unwrap()).unwrap());
    fs::write(done["model"].as_str().unwrap(), b"changed").unwrap();
    let refused = home.gradus(&["models", "export", run, "--to", text(&to)]);
    assert_eq!(refused.code, Some(3));
    assert!(refused.err.contains("SHA-256"), "{}", refused.err);
}

#[test]
fn a_flipped_byte_of_the_newest_checkpoint_costs_an_interval_and_nothing_else() {
    let (epochs, disturbed) = stopped_midway();
    let quiet = Home::new();
    let truth = quiet.gradus(&["run", text(&job_of(&quiet, epochs, 100, "", "")), "--json"]);
    let sha = truth.last()["model_sha256"].clone();
    let run = fs::read_dir(disturbed.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    flip_newest(&run.join("checkpoints"));
    let resumed = disturbed.gradus(&["resume", "last", "--json"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert_eq!(resumed.last()["model_sha256"], sha);
    assert!(resumed.out.contains("\"passed_over\":[\""), "the damage is told");
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_is_not_paid_again_unasked() {
    let (_, home) = stopped_midway();
    let run = fs::read_dir(home.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    for entry in fs::read_dir(run.join("checkpoints")).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("manifest-") {
            fs::write(entry.path(), "damaged").unwrap();
        }
    }
    let refused = home.gradus(&["resume", "last"]);
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    for words in ["checkpoints of run `small-", "are damaged, for which $", "--new`"] {
        assert!(refused.err.contains(words), "`{words}` is not in {}", refused.err);
    }
}

/// A home whose only run was stopped before its end and after its first checkpoint, and the epochs of that run: as many
/// as it takes for the order to arrive in time, however fast a step is here.
fn stopped_midway() -> (u32, Home) {
    for epochs in [200, 2000, 20_000] {
        let home = Home::new();
        let mut running = home.start(&["run", text(&job_of(&home, epochs, 100, "", ""))]);
        home.until("a checkpoint", || checkpoints(&home) > 0 || home.state() == "trained");
        home.gradus(&["stop", "last"]);
        running.wait().unwrap();
        if home.state() != "trained" {
            return (epochs, home);
        }
    }
    panic!("every run was over before it could be stopped");
}

/// Checkpoints of the only run of a home that are whole.
fn checkpoints(home: &Home) -> usize {
    let Some(Ok(run)) = fs::read_dir(home.path().join("runs")).ok().and_then(|mut runs| runs.next()) else { return 0 };
    let Ok(files) = fs::read_dir(run.path().join("checkpoints")) else { return 0 };
    files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with("manifest-")).count()
}

/// Flips a bit in the middle of a file of the newest checkpoint.
fn flip_newest(checkpoints: &Path) {
    let mut folders: Vec<PathBuf> = fs::read_dir(checkpoints).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let newest = folders.last().expect("a checkpoint");
    let file = fs::read_dir(newest).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
}

#[test]
fn data_that_is_not_there_is_named() {
    let home = Home::new();
    let job = home.job("gone.yaml", "name: gone\ntrain: {model: cnn, data: {path: nowhere}, epochs: 1, batch: 8}\n");
    fails(&home, &job, &["nowhere"]);
}

#[test]
fn another_number_of_classes_is_told_before_the_first_step() {
    let home = Home::new();
    fails(&home, &job(&home, "", "    classes: 7\n"), &["10", "7"]);
}

#[test]
fn a_corrupt_picture_is_named_and_can_be_left_out() {
    let home = Home::new();
    let folder = home.path().join("pictures");
    for (class, shade) in [("dark", 10u8), ("light", 240)] {
        fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..20u8 {
            let picture = image::RgbImage::from_pixel(8, 8, image::Rgb([shade, shade.wrapping_add(number % 5), shade]));
            picture.save(folder.join(class).join(format!("{number}.png"))).unwrap();
        }
    }
    fs::write(folder.join("dark/broken.png"), b"no picture").unwrap();
    let text_ = |corrupt: &str| {
        format!(
            "name: p\ntrain: {{model: mlp, data: {{path: {}, corrupt: {corrupt}}}, epochs: 1, batch: 8, threads: 1}}\n",
            folder.display()
        )
    };
    fails(&home, &home.job("fail.yaml", &text_("fail")), &["broken.png"]);
    let said = home.gradus(&["run", text(&home.job("skip.yaml", &text_("skip"))), "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("broken.png"), "what was left out is told");
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_with_its_step() {
    let home = Home::new();
    fails(&home, &job(&home, "  optimizer: {sgd: {lr: 1e30}}\n", ""), &["step 2", "learning rate"]);
}

#[test]
fn a_missing_or_foreign_tensor_library_is_told_with_the_way_out() {
    let home = Home::new();
    let job = job(&home, "", "");
    let foreign = home.path().join("foreign");
    fs::create_dir_all(foreign.join("lib")).unwrap();
    fs::write(foreign.join("build-version"), "2.10.0+cpu\n").unwrap();
    for library in domain::torch::LIBRARIES {
        fs::write(foreign.join("lib").join(library), "").unwrap();
    }
    for (folder, word) in [(home.path().join("nowhere"), "nowhere"), (foreign, "2.10.0")] {
        let output = home.command(&["run", text(&job), "--new"]).env("GRADUS_LIBTORCH", &folder).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(100), "{err}");
        assert!(err.contains(word) && err.contains("xtask setup") && err.contains("GRADUS_LIBTORCH"), "{err}");
    }
}

#[test]
fn a_state_that_is_none_is_told_with_how_to_begin_anew() {
    let home = Home::new();
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("state.db"), "this is no database, and long enough to be looked at").unwrap();
    let said = home.gradus(&["status"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(
        said.err.contains("hint: it is damaged, or no state of gradus") && said.err.contains("`gradus home rebuild`"),
        "{}",
        said.err
    );
}

#[test]
fn a_home_that_cannot_be_written_is_told() {
    let home = Home::new();
    fs::write(home.path(), "a file stands where the folder should be").unwrap();
    let said = home.gradus(&["status"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("cannot make the folder") && said.err.contains("--home FOLDER"), "{}", said.err);
}
