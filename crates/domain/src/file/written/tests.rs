//! Files of other systems in, job files and notes out.

use super::*;
use crate::job::{Job, Work};

/// The job file without its comments, then the notes, a line each: `LINE KEY: MESSAGE`.
fn said(text: &str, file: &str) -> String {
    match import(text, file) {
        Ok(imported) => {
            assert!(Job::parse(&imported.text, "out.yaml").is_ok(), "{}", imported.text);
            let job: Vec<&str> = imported.text.lines().filter(|line| !line.starts_with('#')).collect();
            let note = |note: &Problem| {
                let line = note.line.map_or("-".to_owned(), |line| line.to_string());
                format!("{line} {}: {}", note.key, note.message)
            };
            let notes: Vec<String> = imported.notes.iter().map(note).collect();
            format!("{}\n--\n{}", job.join("\n"), notes.join("\n")).trim_end().to_owned()
        }
        Err(problems) => problems.to_string(),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(said(text, "file"), expected.trim(), "\n{text}\n");
}

#[test]
fn texts_come_back_as_they_were() {
    for text in [
        "",
        "a",
        "yes",
        "010",
        "1:30",
        "null",
        "~",
        "a: b",
        "a #b",
        "- a",
        "'",
        "\"q\"",
        " lead",
        "trail ",
        "a\nb",
        "a\nb\n",
        "a\n\n",
        "\na",
        "  a\nb",
        "tab\tin",
        "tab\tin\nline",
        "ctrl\u{1}",
        "crlf\r\nend",
        "ä → ü",
        "{a}",
        "[a]",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a`",
        "key:",
        "2026-01-01",
        "1e3",
        "0x1F",
        "\n",
        "\n\n",
        "a:b",
        "x\u{2028}y",
        "=",
        "<<",
        "|",
        ">",
    ] {
        let mut job = JobText::default();
        job.text("run", "echo");
        job.text("setup", text);
        job.text("envs.NAME", text);
        let file = job.render();
        let (tree, problems) = tree::read(&file).unwrap_or_else(|problems| panic!("{problems:?}\n{file}"));
        assert!(problems.is_empty());
        for read in [tree.get("setup"), tree.get("envs").and_then(|(_, envs)| envs.get("NAME"))] {
            let Some((_, Node { value: Value::Scalar(raw), .. })) = read else { panic!("{text:?}\n{file}") };
            assert_eq!(raw.text, text, "\n{file}");
            let parsed = Job::parse(&file, "f").unwrap().job;
            assert_eq!(parsed.envs["NAME"], text, "\n{file}");
        }
    }
}

#[test]
fn keys_are_set_in_place_and_stand_in_order() {
    let mut job = JobText::default();
    job.text("run", "echo");
    job.text("resources.infra", "aws");
    job.plain("resources.job_recovery.max_restarts_on_errors", "3");
    job.text("resources.infra", "ssh");
    job.set("setup", YamlValue::Null);
    job.text("name", "a");
    job.comments.push("one\ntwo".into());
    assert!(job.has("resources.infra") && !job.has("resources.cpus") && !job.has("name.a"));
    let expected =
        "# one\n# two\nname: a\nresources:\n  infra: ssh\n  job_recovery:\n    max_restarts_on_errors: 3\nrun: echo\n";
    assert_eq!(job.render(), expected);
}

#[test]
fn skypilot_files_keep_what_is_served() {
    check(
        r#"
name: finetune
num_nodes: 2
workdir: {url: "https://example.org/r.git", ref: v1}
resources:
  infra: k8s/ctx
  accelerators: {A100: 8}
  cpus: 4+
  disk_tier: best
  ports: [8080]
  spot_recovery: FAILOVER
  job_recovery: {strategy: EAGER_NEXT_REGION, max_restarts_on_errors: 3}
  any_of: [{use_spot: true}, {use_spot: false}]
  labels: {}
envs: {N: 010, EMPTY: null}
secrets: {HF_TOKEN: null}
file_mounts:
  /data: s3://bucket/data
  /code: ./code
  /ckpt: {name: b, mode: MOUNT}
  ~/c d: {name: c}
  logs: {name: d, mode: MOUNT_CACHED}
  /models: {source: s3://bucket/models, mode: MOUNT_CACHED}
setup: pip install -r requirements.txt
run: |
  torchrun train.py
service: {replicas: 2}
frobnicate: 1
"#,
        r#"
name: finetune
num_nodes: 2
resources:
  accelerators:
    A100: 8
  cpus: 4+
  disk_tier: best
  job_recovery:
    max_restarts_on_errors: 3
  spot: auto
envs:
  N: 010
  EMPTY: null
secrets:
  HF_TOKEN: null
file_mounts:
  /data: s3://bucket/data
  /code: ./code
  /models: s3://bucket/models
setup: |-
  git clone https://example.org/r.git . && git checkout v1 || exit 1
  pip install -r requirements.txt
run: |
  gradus_keep() {
    mkdir -p "$1" && exec {gradus_kept}<"$1" && flock -s "$gradus_kept" || return
    local other; other="$(readlink "$2")"
    if [ "$other" = "$1" ]; then return; fi
    if [ -e "$2" ] || [ -L "$2" ]; then
      case "$other" in
        */checkpoints/outputs/*) ;;
        *) echo "$2 is there already, and not a link of an earlier run" >&2; return 1 ;;
      esac
      if [ -d "$other" ] && ! flock -n "$other" true; then
        echo "$2 is a link to what another run writes" >&2; return 1
      fi
    fi
    { mkdir -p "$(dirname "$2")" && ln -sfnT "$1" "$2"; } ||
      sudo -n sh -c 'mkdir -p "$(dirname "$2")" && ln -sfnT "$1" "$2"' sh "$1" "$2"
  }
  gradus_keep "$GRADUS_CHECKPOINTS"/outputs/ckpt /ckpt || exit 1
  gradus_keep "$GRADUS_CHECKPOINTS"/outputs/'c d' "$HOME"/'c d' || exit 1
  gradus_keep "$GRADUS_CHECKPOINTS"/outputs/logs logs || exit 1
  torchrun train.py
--
3 num_nodes: `gradus plan` reads it, `gradus run` refuses it: a run on several machines needs nodes that are reached over SSH, or machines of AWS
4 workdir: the repository is cloned by `setup` at the beginning of each attempt
6 resources.infra: left out: gradus does not run jobs on a Kubernetes cluster
7 resources.accelerators: `gradus plan` reads it, `gradus run` refuses it: GPUs can be requested only on a cloud or on nodes, and the job names none that can be used
9 resources.disk_tier: only AWS provisions the speed of a disk: on other machines this changes nothing
10 resources.ports: left out: no port is opened to the network
11 resources.spot_recovery: left out: there is one way to recover, which is the default: from the newest checkpoint
12 resources.job_recovery.strategy: left out: there is one way to recover, which is the default: from the newest checkpoint
20 file_mounts./ckpt: no bucket is made: what node rank 0 writes there is kept with the run
21 file_mounts.~/c d: no bucket is made: what node rank 0 writes there is kept with the run
22 file_mounts.logs: no bucket is made: what node rank 0 writes there is kept with the run
23 file_mounts./models: `s3://bucket/models` is copied before `setup`, and not mounted: what is written there is not kept
27 service: left out: services are not supported; a job runs to its end
28 frobnicate: left out: unknown key
"#,
    );
}

#[test]
fn every_key_of_skypilot_is_served_or_refused_with_what_to_do() {
    for key in crate::file::SKY_KEYS.iter().filter(|key| !["resources", "run"].contains(&key.path)) {
        let mut job = JobText::default();
        job.text("run", "echo");
        job.plain(key.path, "3");
        let imported = import(&job.render(), "f").unwrap();
        let is_kept =
            imported.text.lines().any(|line| line.trim_start().starts_with(key.path.rsplit('.').next().unwrap()));
        let is_renamed = key.path == "resources.ephemeral_storage";
        assert!(is_kept || is_renamed || !imported.notes.is_empty(), "{}: {}", key.path, imported.text);
    }
}

#[test]
fn dstack_tasks_become_jobs() {
    check(
        r#"
type: task
name: Train_LLM
nodes: 2
python: "3.12"
env: [HF_TOKEN, MODEL=a=b, "W=${{ secrets.W }}"]
files: [.]
commands:
  - pip install -r requirements.txt
  - torchrun --nnodes=$DSTACK_NODES_NUM --node-rank=$DSTACK_NODE_RANK train.py
working_dir: src
resources: {cpu: "x86:16..", memory: 200GB.., gpu: "nvidia:A100,A10G:40GB..80GB:4..8", disk: 100GB.., shm_size: 8GB}
backends: [aws]
spot_policy: on-demand
max_price: 2.5
max_duration: 6h
retry: {on_events: [no-capacity, error]}
priority: 5
image: nvcr.io/nvidia/pytorch:25.01-py3
stop_duration: 5m
"#,
        r#"
name: train-llm
num_nodes: 2
resources:
  cpus: 16+
  memory: 200GB
  accelerators:
    - A100:4
    - A10G:4
  disk_size: 100GB
  infra: aws
  spot: never
  max_price: 2.5/h
  job_recovery:
    max_restarts_on_errors: 3
  image_id: docker:nvcr.io/nvidia/pytorch:25.01-py3
envs:
  MODEL: a=b
secrets:
  HF_TOKEN: null
  W: null
workdir: .
run: |
  set -e
  export DSTACK_NODE_RANK=$NODE_RANK
  export DSTACK_NODES_NUM=$SKYPILOT_NUM_NODES
  cd src
  pip install -r requirements.txt
  torchrun --nnodes=$DSTACK_NODES_NUM --node-rank=$DSTACK_NODE_RANK train.py
deadline: 6h
stop_grace: 5m
--
5 python: left out: the machine's own Python and CUDA are used
6 env.HF_TOKEN: its value comes from your environment
6 env.W: its value comes from your environment
12 resources.gpu: `40GB` is left out beside the name of a GPU
12 resources.shm_size: left out: it has no counterpart
16 max_duration: it is the `deadline` here, which counts from submission
17 retry: lost machines are always replaced; errors of the program are retried 3 times if they were retried before
18 priority: left out: runs start in order of submission
"#,
    );
    let gpu = |text: &str| {
        let file = format!("type: task\ncommands: [a]\nresources: {{gpu: {text}}}\n");
        let said = said(&file, "f");
        said.lines().find_map(|line| line.trim().strip_prefix("accelerators: ")).unwrap_or("none").to_owned()
    };
    for (text, expected) in [
        ("H100:8", "H100:8"),
        ("\"24GB\"", "24GB+:1"),
        ("\"24GB..:2\"", "24GB+:2"),
        ("2", "1GB+:2"),
        ("0", "none"),
        ("{name: A100, count: 2}", "A100:2"),
        ("{name: [H100], count: 1..8}", "H100:1"),
        ("{memory: 40GB}", "40GB+:1"),
    ] {
        assert_eq!(gpu(text), expected, "{text}");
    }
    for (stop, expected) in [
        ("off", "3 stop_duration: left out: a job has 60 s to save when it is stopped"),
        ("1h", "3 stop_grace: left out: it is at least 1 s and at most 30 min"),
    ] {
        let file = format!("type: task\ncommands: [a]\nstop_duration: {stop}\n");
        assert!(said(&file, "f").ends_with(expected), "{}", said(&file, "f"));
    }
}

#[test]
fn batch_scripts_become_jobs() {
    check(
        "#!/bin/bash -l
#SBATCH --job-name=My_Job   # a comment
#SBATCH -N 2 -n8
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=8 --mem=64G
#SBATCH -t 1-02:30:00 -p gpu
#SBATCH --output \"slurm %j.out\"
#SBATCH --exclusive
#SBATCH --frob=1

module load cuda
export N=$SLURM_NNODES
python train.py --nodes $N --cores ${SLURM_CPUS_PER_TASK}
#SBATCH --not-a-header
",
        "
name: my-job
num_nodes: 2
resources:
  memory: 64GiB
  cpus: 32+
  accelerators: A100:4
workdir: .
run: |
  export SLURM_NNODES=$SKYPILOT_NUM_NODES
  export SLURM_CPUS_PER_TASK=8
  module load cuda
  export N=$SLURM_NNODES
  python train.py --nodes $N --cores ${SLURM_CPUS_PER_TASK}
deadline: 26h30m
--
- workdir: each attempt runs in a copy of the job file's folder, and not in the folder itself
- num_nodes: `gradus plan` reads it, `gradus run` refuses it: a run on several machines needs nodes that are reached over SSH, or machines of AWS
- resources.accelerators: `gradus plan` reads it, `gradus run` refuses it: GPUs can be requested only on a cloud or on nodes, and the job names none that can be used
6 --time: it is the `deadline` here, which counts from submission
6 --partition: left out: there are no partitions, accounts or shares
7 --output: left out: output is kept with the run
8 --exclusive: left out: a machine runs the jobs of one home folder
9 --frob: left out: it has no counterpart
11 module: `module load` needs the cluster's modules
",
    );
}

#[test]
fn options_of_slurm_mean_what_they_mean_there() {
    let check = |option: &str, key: &str, expected: &str| {
        let said = said(&format!("#!/bin/bash\n#SBATCH {option}\necho\n"), "dir/train.sbatch");
        let found = said.lines().find_map(|line| line.trim().strip_prefix(&format!("{key}: ")));
        assert_eq!(found.unwrap_or("none"), expected, "{option}\n{said}");
    };
    check("", "name", "train");
    for (time, expected) in [
        ("90", "1h30m"),
        ("90:30", "1h30m30s"),
        ("12:00:00", "12h"),
        ("2-0", "48h"),
        ("0-08:00", "8h"),
        ("0-12", "12h"),
        ("1-12:30", "36h30m"),
        ("UNLIMITED", "none"),
        ("soon", "none"),
    ] {
        check(&format!("--time={time}"), "deadline", expected);
    }
    for (memory, expected) in [("4000", "4000MiB"), ("32G", "32GiB"), ("1T", "1TiB"), ("0", "none")] {
        check(&format!("--mem {memory}"), "memory", expected);
    }
    for (space, expected) in [("200G", "200GiB"), ("0", "none")] {
        check(&format!("--tmp={space}"), "disk_size", expected);
    }
    check("-c 4 --ntasks-per-node=2 --mem-per-cpu=2G", "memory", "16GiB");
    check("-c 4 --ntasks-per-node=2", "cpus", "8+");
    for (gpus, expected) in [
        ("--gpus-per-node=h100:8", "H100:8"),
        ("-G 8 -N 2", "1GB+:4"),
        ("--gres=gpu:2", "1GB+:2"),
        ("--gres=gpu", "1GB+:1"),
        ("--gpus-per-task=1 --ntasks=4", "1GB+:4"),
        ("--ntasks=4 --gpus-per-task=1", "1GB+:4"),
        ("--gres=nvme:1", "none"),
    ] {
        check(gpus, "accelerators", expected);
    }
    check("--time=24:00:00 --time-min=01:00:00", "deadline", "24h");
    check("-D /scratch/me", "workdir", "/scratch/me");
    check("--nodes=2-4", "num_nodes", "2");
    check("--no-requeue", "job_recovery", "none");
}

#[test]
fn an_array_is_a_sweep_over_the_number_of_the_task() {
    let said =
        said("#SBATCH --array=1-10%3 -t 60\npython train.py $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MAX\n", "a.sh");
    let expected = "sweep:
  method: grid
  parameters:
    envs.SLURM_ARRAY_TASK_ID:
      min: 1
      max: 10
  max_failed: 10
  parallel: 3
";
    assert!(said.contains(expected) && said.contains("export SLURM_ARRAY_TASK_MAX=10\n"), "{said}");
    assert!(said.contains("1 --time: left out: ") && !said.contains("deadline: "), "{said}");
    assert!(!said.contains("is not set"), "{said}");

    let imported = import("#SBATCH -a 2,4\necho $SLURM_ARRAY_TASK_ID\n", "a.sh").unwrap();
    let sweep = Job::parse(&imported.text, "a").unwrap().job.sweep.unwrap();
    assert_eq!((sweep.grid_size(), sweep.parallel, sweep.metric), (2, 1, None));
    assert!(imported.notes.iter().any(|note| note.key == "--array"), "{:?}", imported.notes);
}

#[test]
fn srun_is_a_function_that_starts_the_processes_of_a_node() {
    let imported = import("#SBATCH --ntasks-per-node=3\nsrun --mpi=none python train.py\n", "a.sh").unwrap();
    let Work::Command(command) = Job::parse(&imported.text, "a").unwrap().job.work else { panic!("a program") };
    assert!(!command.run.contains("OMP_NUM_THREADS") && command.run.contains("--cpus-per-task|"), "{}", command.run);
    assert!(command.run.contains("srun() {") && command.run.contains("processes=3"), "{}", command.run);
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    check(
        "apiVersion: v1\nkind: Job\n",
        "file: files of Kubernetes are not imported\n  hint: SkyPilot task files, dstack tasks and scripts with `#SBATCH` lines are; or write a job file: `gradus init`",
    );
    check(
        "#!/bin/bash\necho\n",
        "file: this script has no `#SBATCH` lines\n  hint: write a job file with `run: bash SCRIPT`, or start a Python script with `gradus launch SCRIPT`",
    );
    check(
        "#SBATCH -N 1\n# nothing\n",
        "file: the script has no commands\n  hint: write the commands below the `#SBATCH` lines",
    );
    check(
        "type: service\ncommands: [a]\n",
        "file:1: `type`: `service` is not a task: it does not run to an end\n  hint: import files with `type: task`; a `service` or `dev-environment` has no counterpart",
    );
    check(
        "name: p\n---\nrun: a\n",
        "file:2: several documents in one file are a pipeline, and a single job is expected here\n  hint: put each document in a file of its own, and import them one by one",
    );
    check(
        "- a\n",
        "file: this is neither a mapping of keys nor a batch script\n  hint: import a SkyPilot task file, a dstack task, or a script with `#SBATCH` lines",
    );
    check(
        "name: a\nsetup: b\n",
        "file: there is nothing to do: neither `train` nor `run` is given\n  hint: write a `train:` section, or a `run:` program of your own",
    );
}

#[test]
fn what_is_no_task_file_says_what_to_do() {
    let found = |text: &str, file: &str| import(text, file).unwrap_err().to_string();
    let ours = found("train:\n  model: cnn\n", "digits.yaml");
    assert!(ours.starts_with("digits.yaml:1: this is a job file of gradus already: `train`"), "{ours}");
    assert!(ours.contains("`gradus plan digits.yaml`"), "{ours}");
    for (text, file) in [("import torch\nx: int = 3\n", "run.py"), ("#!/usr/bin/env python3\n", "run")] {
        assert!(found(text, file).contains(&format!("`gradus launch {file}`")), "{file}");
    }
}
