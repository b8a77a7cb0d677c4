//! Nodes whose SSH connections break, behind a stand-in for `ssh`.

use std::fs;

use super::workdir::Workdir;

/// What `gradus nodes add` says of a machine whose `ssh` is this script, in which `$over` is `shared` or `own`, and over which
/// connections it was tried.
fn added(script: &str) -> (String, String) {
    let workdir = Workdir::new();
    let over = "over=own; for word do case $word in ControlMaster=auto) over=shared;; esac; done; echo $over >> calls";
    let said = workdir.gradus_with_ssh(&format!("{over}\n{script}"), &["nodes", "add", "east", "--address", "a@b"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    let calls = fs::read_to_string(workdir.0.path().join("programs/calls")).unwrap();
    (said.err, calls.replace('\n', " "))
}

#[test]
fn a_node_that_cannot_be_reached_has_a_reason_and_what_to_type() {
    let check = |script: &str, parts: &[&str], expected: &str| {
        let (said, calls) = added(script);
        assert!(said.contains("cannot connect to `east` by SSH: "), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)) && calls == expected, "{calls}: {said}");
    };
    // A shared connection that is dying gives no reason: another one does, or says how to find it.
    check("exit 255", &["`ssh -v a@b true` shows where it stops", "hint: try `ssh a@b`"], "shared own ");
    let refused = "ssh: connect to host b port 22: Connection refused";
    let script = format!("[ $over = own ] && echo '{refused}' >&2; exit 255");
    check(&script, &[refused], "shared own ");
    check(&format!("echo '{refused}' >&2; exit 255"), &[refused], "shared ");
}

#[test]
fn a_node_whose_connection_breaks_is_to_be_added_again() {
    let (said, calls) = added("echo gradus-ready; read -r go; exit 255");
    assert!(said.contains("on `east`: cannot run a command: the SSH connection broke"), "{said}");
    assert!(said.contains("hint: type the same command again") && calls == "shared ", "{calls}: {said}");
}
