//! What a home takes on the disk, and what is damaged in it.

use std::fs;

use crate::home::Home;

const QUICK: &str = "name: quick\nrun: echo some > $GRADUS_CHECKPOINTS/some\n";

fn after_a_run() -> (Home, String) {
    let home = Home::new();
    let job = home.job("quick.yaml", QUICK);
    let ran = home.gradus(&["run", job.to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let run = ran.last()["run"].as_str().unwrap().to_owned();
    (home, run)
}

#[test]
fn rm_deletes_the_files_of_a_run_and_keeps_its_bill() {
    let (home, run) = after_a_run();
    let folder = home.path().join("runs").join(&run);
    let asked = home.gradus(&["rm", &run]);
    assert_eq!(asked.code, Some(2), "without a terminal nobody confirms");
    assert!(asked.err.contains("--yes") && folder.join("checkpoints/some").exists(), "{}", asked.err);
    let removed = home.gradus(&["rm", &run, "--yes"]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    assert!(!folder.join("checkpoints").exists() && !folder.join("logs").exists());
    assert_eq!(home.gradus(&["cost", &run]).code, Some(0), "the bill stays");
    let resumed = home.gradus(&["resume", &run]);
    assert_eq!(resumed.code, Some(2));
    assert!(resumed.err.contains("were deleted"), "{}", resumed.err);
    let job = home.job("quick.yaml", QUICK);
    let again = home.gradus(&["run", job.to_str().unwrap(), "--json"]);
    assert_ne!(again.last()["run"].as_str(), Some(&*run), "the same job starts a new run");
}

#[test]
fn gc_shows_sizes_before_it_deletes() {
    let (home, run) = after_a_run();
    let attempts = home.path().join("runs").join(&run).join("attempts");
    let cached = home.path().join("cache/data/address");
    fs::create_dir_all(&cached).unwrap();
    fs::write(cached.join("part"), vec![1; 1 << 20]).unwrap();
    let shown = home.gradus(&["gc", "--dry-run"]);
    assert!(shown.out.contains("1.05 MB") && shown.out.contains("downloaded data"), "{}", shown.out);
    assert!(shown.out.contains("working folders"), "{}", shown.out);
    assert!(cached.exists() && attempts.exists(), "a dry run deletes nothing");
    // The agent of a run that nothing attends, which may train from what is cached.
    let instance = home.path().join("instances/other-i1");
    fs::create_dir_all(&instance).unwrap();
    let lock = fs::File::create(instance.join("agent.lock")).unwrap();
    lock.lock().unwrap();
    let shown = home.gradus(&["gc", "--dry-run"]);
    assert!(!shown.out.contains("downloaded data") && shown.out.contains("working folders"), "{}", shown.out);
    assert!(shown.err.contains("downloaded data is kept"), "{}", shown.err);
    lock.unlock().unwrap();
    // Uploaded files: one of which nothing has come for long, one that is still arriving.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3600);
    let [unused, arriving] = ["a", "b"].map(|digit| home.path().join("blobs").join(digit.repeat(64)));
    for blob in [&unused, &arriving] {
        fs::create_dir_all(blob).unwrap();
        fs::write(blob.join(".partial"), "part").unwrap();
        fs::File::open(blob).unwrap().set_modified(old).unwrap();
    }
    fs::File::options().append(true).open(unused.join(".partial")).unwrap().set_modified(old).unwrap();
    assert_eq!(home.gradus(&["gc", "--yes"]).code, Some(0));
    assert!(!cached.exists() && !attempts.exists());
    assert!(!unused.exists() && arriving.exists());
    assert!(home.path().join("runs").join(&run).join("checkpoints/some").exists(), "a program's files stay");
}

#[test]
fn gc_keeps_an_uploaded_file_for_as_long_as_a_schedule_names_it() {
    let home = Home::new();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3600);
    let [named, other] = ["c", "d"].map(|digit| home.path().join("blobs").join(digit.repeat(64)));
    for blob in [&named, &other] {
        fs::create_dir_all(blob).unwrap();
        fs::write(blob.join("a.txt"), "contents").unwrap();
        fs::File::options().append(true).open(blob.join("a.txt")).unwrap().set_modified(old).unwrap();
        fs::File::open(blob).unwrap().set_modified(old).unwrap();
    }
    let reads = format!("name: nightly\nrun: cat {}/a.txt\nschedule: {{cron: 0 3 * * *}}\n", named.display());
    let file = home.job("nightly.yaml", &reads);
    let added = home.gradus(&["schedules", "add", file.to_str().unwrap()]);
    assert_eq!(added.code, Some(0), "{}", added.err);
    assert_eq!(home.gradus(&["gc", "--yes"]).code, Some(0));
    assert!(named.exists() && !other.exists(), "the next run of the schedule reads it");
    assert_eq!(home.gradus(&["schedules", "rm", "nightly"]).code, Some(0));
    assert_eq!(home.gradus(&["gc", "--yes"]).code, Some(0));
    assert!(!named.exists());
}

#[test]
fn damaged_measurements_hide_no_state_and_are_replaced() {
    let (home, run) = after_a_run();
    let series = home.path().join("series.db");
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(home.path().join(format!("series.db{end}")));
    }
    fs::write(&series, "this was a database").unwrap();
    let status = home.gradus(&["status", &run]);
    assert_eq!(status.code, Some(0), "{}", status.err);
    assert!(status.out.contains("succeeded") && status.err.contains("gradus home rebuild"), "{}", status.err);
    let checked = home.gradus(&["home", "check"]);
    assert_eq!(checked.code, Some(3));
    assert!(checked.out.contains("measurements") && checked.out.contains("damaged"), "{}", checked.out);
    assert_eq!(home.gradus(&["home", "rebuild"]).code, Some(0));
    assert_eq!(home.gradus(&["home", "check"]).code, Some(0));
    assert!(home.path().join("series.db.damaged-1").exists(), "what was there is kept aside");
    assert!(home.gradus(&["status", &run]).err.is_empty());
}

#[test]
fn a_damaged_log_leaves_the_models_to_be_found() {
    let (home, run) = after_a_run();
    let export = home.path().join("runs").join(&run).join("export");
    fs::create_dir_all(&export).unwrap();
    fs::write(export.join("model.safetensors"), "weights").unwrap();
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(home.path().join(format!("state.db{end}")));
    }
    fs::write(home.path().join("state.db"), "this was a database").unwrap();
    let checked = home.gradus(&["home", "check"]);
    assert_eq!(checked.code, Some(3));
    assert!(checked.out.contains("model.safetensors"), "{}", checked.out);
    let blocked = home.gradus(&["status"]);
    assert!(blocked.err.contains("start a new one with `gradus home rebuild`"), "{}", blocked.err);
    fs::write(export.join("model.json"), "{\"architecture\": \"cnn\", \"test_accuracy\": 0.5}").unwrap();
    assert_eq!(home.gradus(&["home", "rebuild"]).code, Some(0));
    assert_eq!(home.gradus(&["status"]).code, Some(0));
    assert!(export.join("model.safetensors").exists());
    let models = home.gradus(&["models"]);
    assert!(models.out.contains("cnn") && models.out.contains("50.00 %"), "{}", models.out);
    assert!(models.out.contains("(not in log)") && models.err.contains("knows no such run"), "{}", models.out);
    assert_eq!(home.gradus(&["models", "--json"]).last()["run"], run.as_str());
}
