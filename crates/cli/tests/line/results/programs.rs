//! A user's own program: what outlives its attempts, what is said of a kill, and where its report says that it comes from.

use std::path::Path;
use std::process::Command;

use crate::home::{Home, text};

#[test]
fn outputs_are_carried_from_attempt_to_attempt() {
    let home = Home::new();
    let job = home.job(
        "carried.yaml",
        "name: carried\noutputs: [out, deep/er]\nresources: {job_recovery: {max_restarts_on_errors: 2}}\n\
         run: |\n  echo attempt >> out/n\n  echo x > deep/er/x\n  test $(wc -l < out/n) -eq 3\n",
    );
    let ran = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.last()["attempts"], 3, "each attempt found what the ones before it wrote");
    let kept = Path::new(ran.last()["folder"].as_str().unwrap()).join("checkpoints/outputs");
    assert!(kept.join("deep/er/x").is_file() && kept.join("out/n").is_file());
    let refused = |outputs: &str, words: &str| {
        let job = home.job("wrong.yaml", &format!("name: wrong\noutputs: {outputs}\nrun: 'true'\n"));
        let said = home.gradus(&["plan", text(&job)]);
        assert!(said.code == Some(2) && said.err.contains(words), "{outputs}: {}", said.err);
    };
    refused("[/tmp/a]", "`/tmp/a` is not a folder below the working folder");
    refused("[../a]", "hint: write a relative path");
    refused("[a, a/b]", "one within the other");
}

#[test]
fn mounts_are_copied_and_what_is_missing_is_said_before_anything_starts() {
    let home = Home::new();
    let around = home.path().parent().unwrap().to_owned();
    std::fs::create_dir_all(around.join("data")).unwrap();
    std::fs::write(around.join("data/a.txt"), "here").unwrap();
    let job = |name: &str, mounts: &str| {
        home.job(name, &format!("file_mounts:\n{mounts}run: cat lib/a.txt {}/place/data/a.txt\n", around.display()))
    };
    let place = around.join("place/data").display().to_string();
    let right = job("right.yaml", &format!("  lib: data\n  {place}: ./data\n"));
    let ran = home.gradus(&["run", text(&right), "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(home.gradus(&["logs", "last"]).out.trim(), "herehere");
    assert!(!around.join("place").exists());
    let runs = || std::fs::read_dir(home.path().join("runs")).unwrap().count();
    assert_eq!(runs(), 1);
    std::os::unix::fs::symlink("/etc/hostname", around.join("data/out")).unwrap();
    let refused = |mounts: &str, words: &[&str]| {
        let said = home.gradus(&["run", text(&job("wrong.yaml", mounts)), "--yes"]);
        assert!(said.code == Some(2) && words.iter().all(|word| said.err.contains(word)), "{mounts}: {}", said.err);
    };
    refused("  lib: nothing\n", &["wrong.yaml:2: `file_mounts.lib`", "nothing` is not there", "hint:"]);
    refused("  a: right.yaml\n  lib: data\n", &["wrong.yaml:3:", "data/out` is a link that leads out of the folder"]);
    assert_eq!(runs(), 1, "no run was made");
}

/// A machine is not rented for files that are gone.
#[test]
fn a_run_whose_mounts_are_gone_is_not_resumed() {
    let home = Home::new();
    let data = home.path().with_file_name("data");
    std::fs::write(&data, "here").unwrap();
    let job = home.job("gone.yaml", "file_mounts: {lib: data}\nrun: cat lib; test -e $GRADUS_CHECKPOINTS/on\n");
    let ran = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(ran.code, Some(100), "{}", ran.err);
    std::fs::remove_file(&data).unwrap();
    let said = home.gradus(&["resume", "last"]);
    assert!(said.code == Some(2) && said.err.contains("data` is not there"), "{:?} {}", said.code, said.err);
    assert_eq!(home.gradus(&["logs", "last"]).out.matches("here").count(), 1, "no attempt was made");
    std::fs::write(&data, "here again").unwrap();
    std::fs::write(Path::new(ran.last()["folder"].as_str().unwrap()).join("checkpoints/on"), "").unwrap();
    let said = home.gradus(&["resume", "last"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(home.gradus(&["logs", "last"]).out.contains("here again"));
}

#[test]
fn what_is_written_into_the_working_folder_is_said_with_the_way_to_keep_it() {
    let home = Home::new();
    let job = home.job("writes.yaml", "name: writes\nrun: |\n  mkdir out\n  head -c 2000 /dev/zero > out/model.bin\n");
    let ran = home.gradus(&["run", text(&job)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("wrote 1 file (2.00 kB)") && ran.err.contains("`outputs: [out]`"), "{}", ran.err);
    let quiet = home.job("kept.yaml", "name: kept\noutputs: [out]\nrun: touch out/a\n");
    let ran = home.gradus(&["run", text(&quiet)]);
    assert!(ran.code == Some(0) && !ran.err.contains("working folder"), "{}", ran.err);
}

#[test]
fn a_program_that_is_killed_again_and_again_is_given_up_with_a_word_of_memory() {
    let home = Home::new();
    let job = home.job("killed.yaml", "name: killed\nrun: kill -9 $$\n");
    let ran = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(ran.code, Some(100), "{}", ran.err);
    assert_eq!(ran.last()["attempts"], 3);
    let said = home.gradus(&["status", "last"]);
    assert!(said.out.contains("3 times in ") && said.out.contains("SIGKILL"), "{}", said.out);
    assert!(ran.err.contains("memory ran out"), "{}", ran.err);
}

#[test]
fn a_report_names_commit_and_versions() {
    let home = Home::new();
    let folder = home.path().parent().unwrap().join("project");
    std::fs::create_dir_all(&folder).unwrap();
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let output = Command::new("git").arg("-C").arg(&folder).args(identity).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let job = folder.join("job.yaml");
    std::fs::write(&job, "name: project\nworkdir: .\nrun: 'true'\n").unwrap();
    git(&["init", "--quiet"]);
    git(&["add", "job.yaml"]);
    git(&["commit", "--quiet", "--message", "one"]);
    let commit = git(&["rev-parse", "HEAD"]);
    let report = |expected: &str| {
        let ran = home.gradus(&["run", text(&job), "--new", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let page = Path::new(ran.last()["folder"].as_str().unwrap()).join("report.html");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(expected), "`{expected}` is not in the report");
        assert!(page.contains(&format!("<td>{}</td>", env!("CARGO_PKG_VERSION"))));
    };
    report(&format!("<td>{commit}</td>"));
    std::fs::write(&job, "name: project\nworkdir: .\nrun: 'true' # changed\n").unwrap();
    report(&format!("<td>{commit}, with uncommitted changes</td>"));
}
