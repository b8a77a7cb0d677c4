//! Disks that are really full, read-only or unreadable: a file size limit, which any user may set, and small file
//! systems in a separate mount namespace, if the machine allows that.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use checkpoint::{CheckpointWriter, Dtype, Error, Snapshot, Tensor, WriterIdentity, newest_verified};
use domain::finding::Cause;
use domain::id::{Fence, RunId};
use domain::train::Codec;

const JOB: &str = "job";

fn snapshot(step: u64, bytes: usize) -> Snapshot {
    let tensor =
        Tensor { name: "weight".into(), dtype: Dtype::U8, shape: vec![bytes as u64], bytes: vec![step as u8; bytes] };
    let began = Instant::now();
    Snapshot {
        step,
        began,
        model: vec![tensor.clone()],
        training: vec![tensor],
        state: serde_json::json!(step),
        best: None,
        part: None,
    }
}

fn open(folder: &Path) -> Result<CheckpointWriter, Error> {
    let run = RunId::new("digits-1");
    let identity = WriterIdentity { attempt: run.attempt(Fence(1)), run, fence: Fence(1), job_hash: JOB.into() };
    CheckpointWriter::open(folder, identity, 3, Codec::Full, None)
}

fn save(writer: &mut CheckpointWriter, step: u64, bytes: usize) -> Result<(), Error> {
    writer.save(snapshot(step, bytes)).and_then(|_| writer.wait()).map(drop)
}

/// Checks that the checkpoint of `step` is used, none was skipped, and no partial files remain.
fn check(folder: &Path, step: u64) {
    let (loaded, passed_over) = newest_verified(folder, JOB).unwrap();
    assert_eq!(loaded.map(|loaded| (loaded.manifest.step, loaded.model[0].bytes[0])), Some((step, step as u8)));
    assert_eq!(passed_over, [""; 0]);
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".tmp"), "`{name}` remains");
    }
}

/// Run by the other tests in a process with a limited disk; prints its progress on stdout.
#[test]
#[ignore = "is run by other tests"]
#[expect(clippy::disallowed_methods, reason = "the test harness takes no arguments of ours")]
fn rank() {
    let folder = std::env::var("FOLDER").unwrap();
    let folder = Path::new(&folder);
    match std::env::var("PHASE").unwrap().as_str() {
        "full" => {
            let mut writer = open(folder).unwrap();
            save(&mut writer, 10, 10_000).unwrap();
            let refused = save(&mut writer, 20, 3_000_000).unwrap_err().finding();
            assert_eq!(refused.cause, Cause::DiskFull, "{}", refused.message);
            assert!(refused.message.starts_with("no space left to write `"), "{}", refused.message);
            println!("message: {}; hint: {}", refused.message, refused.hint.unwrap());
            check(folder, 10);
            // The failed save has removed its files, so there is space for a small one.
            save(&mut writer, 30, 20_000).unwrap();
            check(folder, 30);
        }
        "again" => {
            let mut writer = open(folder).unwrap();
            save(&mut writer, 10, 10_000).unwrap();
            assert!(!writer.can_save_again() && !writer.save_again().unwrap());
            save(&mut writer, 20, 3_000_000).unwrap_err();
            // Still on a full disk, it stays for another time.
            assert!(writer.save_again().unwrap());
            assert!(matches!(writer.wait(), Err(Error::DiskFull { .. })) && writer.can_save_again());
            check(folder, 10);
            let all = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            let raised = rustix::process::Rlimit { current: all.maximum, maximum: all.maximum };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, raised).unwrap();
            assert!(writer.save_again().unwrap());
            assert_eq!(writer.wait().unwrap().map(|done| done.step), Some(20));
            assert!(!writer.can_save_again() && !writer.save_again().unwrap());
            check(folder, 20);
        }
        "write" => save(&mut open(folder).unwrap(), 10, 10_000).unwrap(),
        "read-only" => {
            let refused = open(folder).unwrap_err().finding();
            assert_eq!(refused.cause, Cause::ReadOnly, "{}", refused.message);
            println!("message: {}; hint: {}", refused.message, refused.hint.unwrap());
            check(folder, 10);
        }
        "unreadable" => {
            let refused = newest_verified(folder, JOB).unwrap_err().finding();
            assert_eq!(refused.cause, Cause::Unreadable, "{}", refused.message);
            println!("message: {}", refused.message.replace(folder.to_str().unwrap(), "FOLDER"));
        }
        phase => panic!("no phase `{phase}`"),
    }
    println!("phase done");
}

/// Runs a shell script in which `rank PHASE` runs the test above; returns its messages.
fn shell(program: &[&str], script: &str, folder: &Path) -> String {
    let me = std::env::current_exe().unwrap();
    let rank = r#"rank() { PHASE="$1" "$RANK" --exact rank --ignored --nocapture; }"#;
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["-c", &format!("set -e\n{rank}\n{script}")]);
    let output = command.env("RANK", me).env("FOLDER", folder).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("phase done"), "{stdout}");
    stdout.lines().filter(|line| line.starts_with("message: ")).collect()
}

#[test]
fn a_file_larger_than_allowed_is_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    // `ulimit -f` counts blocks of 512 bytes or of 1 KiB, depending on the shell. Its signal is ignored.
    println!("{}", shell(&["sh"], "trap '' XFSZ; ulimit -f 1000; rank full", &folder.path().join("checkpoints")));
    check(&folder.path().join("checkpoints"), 30);
}

#[test]
fn what_ran_out_of_disk_space_is_saved_again_once_there_is_some() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    shell(&["sh"], "trap '' XFSZ; ulimit -S -f 1000; rank again", &checkpoints);
    check(&checkpoints, 20);
}

const NAMESPACE: [&str; 5] = ["unshare", "--user", "--map-root-user", "--mount", "sh"];

/// Whether this machine lets an ordinary user mount a private file system.
fn can_mount(folder: &Path) -> bool {
    let script = r#"mount -t tmpfs tmpfs "$0""#;
    let tried = Command::new(NAMESPACE[0]).args(&NAMESPACE[1..]).args(["-c", script]).arg(folder).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        println!("skipped: this machine does not let users mount private file systems");
    }
    can
}

/// The error in a process without root's privileges that may not read `name`.
fn unreadable(folder: &Path, name: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("checkpoints").join(name);
    let before = fs::metadata(&path).unwrap().permissions();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, so a copy of this program runs as another user; the id of `nobody`.
    let script = r#"cp "$RANK" "$FOLDER/../me"; chmod 755 "$FOLDER/../me"; RANK="$FOLDER/../me"
        rank() { PHASE="$1" setpriv --reuid=65534 --clear-groups "$RANK" --exact rank --ignored --nocapture; }
        rank unreadable"#;
    let script = if rustix::process::geteuid().is_root() { script } else { "rank unreadable" };
    let messages = shell(&["sh"], script, &folder.join("checkpoints"));
    fs::set_permissions(&path, before).unwrap();
    messages
}

#[test]
fn a_checkpoint_that_cannot_be_read_now_ends_the_attempt_and_is_not_passed_over() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let checkpoints = folder.path().join("checkpoints");
    let mut writer = open(&checkpoints).unwrap();
    save(&mut writer, 10, 100).unwrap();
    save(&mut writer, 20, 100).unwrap();
    for name in ["manifest-00000020.json", "step-00000020-a1/model.safetensors", "step-00000020-a1"] {
        let file = if name == "step-00000020-a1" { "step-00000020-a1/model.safetensors" } else { name };
        let expected = format!("message: cannot read `FOLDER/{file}`: Permission denied (os error 13)");
        assert_eq!(unreadable(folder.path(), name), expected);
        check(&checkpoints, 20);
    }
    let expected = "message: cannot read `FOLDER`: Permission denied (os error 13)";
    assert_eq!(unreadable(folder.path(), "."), expected);
    check(&checkpoints, 20);
}

#[test]
fn a_full_file_system_keeps_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    if can_mount(folder.path()) {
        println!("{}", shell(&NAMESPACE, r#"mount -t tmpfs -o size=1m tmpfs "$FOLDER"; rank full"#, folder.path()));
    }
}

#[test]
fn a_read_only_file_system_is_reported_before_training() {
    let folder = tempfile::tempdir().unwrap();
    if can_mount(folder.path()) {
        let script = r#"mount -t tmpfs tmpfs "$FOLDER"; rank write; mount -o remount,ro "$FOLDER"; rank read-only"#;
        println!("{}", shell(&NAMESPACE, script, folder.path()));
    }
}
