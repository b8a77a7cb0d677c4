//! The executable works on the checkout that it is called in, not on the one that it was compiled in.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Calls a command that only looks below `target/`; returns what it prints to stderr.
fn lab_stop(folder: &Path, manifest: Option<&Path>) -> String {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["lab", "stop"]).current_dir(folder).env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_TARGET_DIR");
    xtask.envs(manifest.map(|manifest| ("CARGO_MANIFEST_DIR", manifest)));
    String::from_utf8(xtask.output().unwrap().stderr).unwrap()
}

#[test]
fn no_checkout_is_compiled_in() {
    let folder = tempfile::tempdir().unwrap();
    assert!(lab_stop(folder.path(), None).contains("is not inside a checkout of gradus"));

    let copy = folder.path().join("copy");
    fs::create_dir_all(copy.join("xtask")).unwrap();
    fs::write(copy.join("xtask/Cargo.toml"), "").unwrap();
    assert_eq!(lab_stop(&copy, None), "nothing runs\n");
    // As `cargo run` calls it, from anywhere.
    assert_eq!(lab_stop(folder.path(), Some(&copy.join("xtask"))), "nothing runs\n");
}
