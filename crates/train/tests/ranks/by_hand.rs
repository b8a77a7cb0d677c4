//! Ranks that no agent has started: one on each of several nodes, by a job file and the address of the first.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use domain::rank::{Rendezvous, Report};
use train::torch::group::TcpStore;

/// Starts `nodes` nodes, which share neither folder nor job file and rendezvous at `port`, and waits until they end.
fn launch(folder: &Path, job: &str, nodes: u32, port: u16, variables: &[(&str, &str)]) -> Vec<Output> {
    let started: Vec<_> = (0..nodes)
        .map(|node| {
            let home = folder.join(format!("node-{node}"));
            fs::create_dir_all(&home).unwrap();
            let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz");
            fs::copy(data, home.join("digits.csv.gz")).unwrap();
            fs::write(home.join("job.yaml"), job).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_gradus-rank"));
            command.arg("--job").arg(home.join("job.yaml")).arg("--out").arg(home.join("out"));
            command.env("RANK", node.to_string()).env("WORLD_SIZE", nodes.to_string()).env("LOCAL_RANK", "0");
            command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", port.to_string());
            command.envs(variables.iter().copied());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    started.into_iter().map(|process| process.wait_with_output().unwrap()).collect()
}

const JOB: &str = "train:\n  model: mlp\n  data: {path: digits.csv.gz}\n  epochs: 2\n  batch: 100\n  processes: 2\n";

fn last(output: &Output) -> Report {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(line).unwrap()
}

#[test]
fn several_nodes_find_each_other_by_address() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = launch(folder.path(), JOB, 2, crate::scene::port(), &[]);
    assert_eq!(outputs.iter().map(last).collect::<Vec<_>>(), [Report::Trained, Report::Trained]);
    assert!(folder.path().join("node-0/out/export/model.safetensors").exists());
    assert!(!folder.path().join("node-1/out").exists(), "only rank 0 writes");
}

/// Ranks that do not see the first one's folder could not write their parts there, nor read them.
#[test]
fn nodes_without_a_common_folder_leave_whole_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let job = format!("{JOB}  parallel: {{shard: parameters}}\n  optimizer: {{adamw: {{lr: 0.001}}}}\n");
    let model = folder.path().join("node-0/out/export/model.safetensors");
    let mut models = Vec::new();
    // The second time each rank gets its part of the tensors that the first one reads.
    for _ in 0..2 {
        let outputs = launch(folder.path(), &job, 2, crate::scene::port(), &[]);
        assert_eq!(outputs.iter().map(last).collect::<Vec<_>>(), [Report::Trained, Report::Trained]);
        models.push(fs::read(&model).unwrap());
        fs::remove_file(&model).unwrap();
    }
    assert_eq!(models[0], models[1]);
    let saved = fs::read_dir(folder.path().join("node-0/out/checkpoints")).unwrap();
    let names: Vec<String> = saved.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let manifest = names.iter().find(|name| name.starts_with("manifest-")).unwrap();
    let text = fs::read_to_string(folder.path().join("node-0/out/checkpoints").join(manifest)).unwrap();
    assert!(text.contains("\"schema\": 1,") && !text.contains("-of-"), "{text}");
    assert!(!folder.path().join("node-1/out").exists(), "only rank 0 writes");
}

/// As with `torchrun --max-restarts`: the launcher keeps the store, which still contains the addresses of earlier
/// ranks.
#[test]
fn ranks_that_are_restarted_do_not_meet_their_old_selves() {
    let meeting = || Rendezvous {
        host: "localhost".into(),
        port: crate::scene::port(),
        local_rank: 0,
        is_kept: false,
        patience_s: 60,
        prefix: String::new(),
    };
    // A process that another test starts just now holds the listener that has tried the port until it runs its program.
    let kept = (0..20).map(|_| meeting()).find_map(|meeting| Some((TcpStore::open(&meeting, true).ok()?, meeting)));
    let (_store, meeting) = kept.expect("a port of 20 is free");
    for restarts in ["0", "1", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let variables = [("TORCHELASTIC_USE_AGENT_STORE", "True"), ("TORCHELASTIC_RESTART_COUNT", restarts)];
        let outputs = launch(folder.path(), JOB, 2, meeting.port, &variables);
        assert_eq!(outputs.iter().map(last).collect::<Vec<_>>(), [Report::Trained, Report::Trained], "{restarts}");
    }
}

#[test]
fn what_cannot_be_launched_is_said() {
    let check = |arguments: &[&str], variables: &[(&str, &str)], expected: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus-rank"));
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"] {
            command.env_remove(name);
        }
        let output = command.args(arguments).envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    };
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.yaml");
    fs::write(&job, "train: {model: mlp, data: {path: digits.csv.gz}, epochs: 1, batch: 8}\n").unwrap();
    let [job, missing, out] = [job, folder.path().join("missing.yaml"), folder.path().join("out")];
    let [job, missing, out] = [&job, &missing, &out].map(|path| path.to_str().unwrap());
    check(&[], &[], "usage: gradus-rank");
    check(&["--job", job], &[], "`--out FOLDER`");
    check(&["--job", missing, "--out", out], &[], &format!("cannot read `{missing}`"));
    let all = ["--job", job, "--out", out];
    check(&all, &[("WORLD_SIZE", "2")], "`WORLD_SIZE` is set and `RANK` is not");
    check(&all, &[("WORLD_SIZE", "two"), ("RANK", "0")], "`WORLD_SIZE` is `two`");
    check(&all, &[("WORLD_SIZE", "2"), ("RANK", "0")], "`MASTER_ADDR` is not");
}
