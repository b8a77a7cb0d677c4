//! SkyPilot's keys: served, renamed, or refused by name.

use std::fmt::Write;
use std::path::Path;

use super::{check, run_with, train_with};
use crate::file::{SKY_KEYS, SkyKey, SkySupport, schema, served, shape};
use crate::job::{Job, Work};

#[test]
fn skypilot_keys_are_served_or_refused_by_name() {
    let check = |line: &str, expected: &str| check(&run_with(line), expected);
    check("resources: {cpus: 4+, memory: 32+, disk_size: 256, infra: local}", "ok");
    check("resources: {cpus: '4', memory: 32GiB, use_spot: no, accelerators: }", "ok");
    check("resources: {cpus: 0}", "2 resources.cpus: `0` is no number of cores (write for example `4` or `4+`)");
    check("resources: {memory: 2x}", "2 resources.memory: `2x` is no size in GB (write for example `32` or `32+`)");
    check(
        "resources: {infra: oci/us-ashburn-1}",
        "2 resources.infra: only this machine, those of `gradus nodes` and machines of AWS, Lambda, Google, Azure, Alibaba and Tencent can be used yet (write `infra: local`, `infra: aws`, or `infra: ssh` after `gradus nodes add`, or leave it out)
         ok",
    );
    check("resources: {infra: aws/us-east-1/us-east-1a, accelerators: A100:8, use_spot: true}", "ok");
    check("resources: {cloud: AWS, region: us-east-1, instance_type: g4dn.xlarge, max_price: $2/h}", "ok");
    check("resources: {infra: azure/eastus/1, accelerators: A100-80GB:1, use_spot: true}", "ok");
    check("resources: {infra: alibaba/cn-beijing/cn-beijing-h, accelerators: T4:1, use_spot: true}", "ok");
    check("resources: {infra: tencent/ap-guangzhou, instance_type: GN7.2XLARGE32}", "ok");
    check("resources: {infra: aws}\nnum_nodes: 2", "ok");
    check(
        "resources: {infra: lambda}\nnum_nodes: 2",
        "3 num_nodes: a run on several machines needs nodes that are reached over SSH, or machines of AWS (write `infra: aws`, `infra: ssh` after `gradus nodes add`, or `num_nodes: 1`)
         ok",
    );
    check(
        "resources: {use_spot: true}",
        "2 resources.use_spot: spot machines can be asked for only from a cloud, and the job names none that can be rented (add a cloud, such as `infra: aws`, or write `spot: never`, or leave it out)
         ok",
    );
    check("resources: {acelerators: V100}", "2 resources.acelerators: unknown key (did you mean `accelerators`?)");
    check("resources: {job_recovery: none}", "ok");
    check("resources: {image_id: docker:pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime}", "ok");
    check("resources: {image_id: }", "ok");
    check("resources: {memory: 32, enforce: true}", "ok");
    check(
        "resources: {enforce: true}",
        "2 resources.enforce: there is nothing to hold the program to (write `cpus` or `memory` too, such as `memory: 32`, or leave the key out)",
    );
    let image = "(write for example `image_id: docker:pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime`)";
    check(
        "resources: {image_id: ami-0123}",
        &format!(
            "2 resources.image_id: `ami-0123` does not begin with `docker:`, and images of machines cannot be chosen {image}"
        ),
    );
    check(
        "resources: {image_id: 'docker:--privileged'}",
        &format!("2 resources.image_id: `--privileged` is not the name of a container image {image}"),
    );
    check("resources: {job_recovery: {max_restarts_on_errors: 3, recover_on_exit_codes: [33, 34]}}", "ok");
    check("resources: {job_recovery: {recover_on_exit_codes: 33}}", "ok");
    check(
        "resources: {job_recovery: [FAILOVER]}",
        "2 resources.job_recovery: expected `none` or a mapping, found a list",
    );
    let one_way = "2 resources.job_recovery.strategy: this key changes nothing: there is one way to recover: from the newest checkpoint, on the same machine or another node (leave the key out)\nok";
    check("resources: {job_recovery: FAILOVER}", one_way);
    check("resources: {job_recovery: {strategy: FAILOVER}}", one_way);
    check("resources: {spot_recovery: none}", "ok");
    check(
        "resources: {job_recovery: {recover_on_exit_codes: [256]}}",
        "2 resources.job_recovery.recover_on_exit_codes[0]: `256` is out of range: it must be at most 255",
    );
    check("num_nodes: 1", "ok");
    check(
        "num_nodes: 2",
        "2 num_nodes: a run on several machines needs nodes that are reached over SSH, or machines of AWS (write `infra: aws`, `infra: ssh` after `gradus nodes add`, or `num_nodes: 1`)
         ok",
    );
    check("resources: {infra: ssh}\nnum_nodes: 2", "ok");
    check("resources: {infra: ssh/my-pool}\nnum_nodes: 2", "ok");
    check(
        "resources: {infra: ssh, nodes: [2, 4]}",
        "2 resources.nodes: a run on several machines needs nodes that are reached over SSH, or machines of AWS (write `infra: ssh` and one number, such as `nodes: 2`, or leave it out)
         ok",
    );
    check("num_nodes: 0", "2 num_nodes: `0` is out of range: it must be at least 1");
    check("secrets: {TOKEN: abc, OTHER: null}", "ok");
    check("secrets: {}", "ok");
    check(
        "secrets: {1A: b}",
        "2 secrets.1A: `1A` is no name of a variable (use letters, digits and `_`, and no digit first)",
    );
    check(
        "volumes: {/data: a}",
        "2 volumes: volumes and stores that stay mounted are not supported yet (copy what the program reads with `file_mounts`, and keep what it writes with `outputs`)",
    );
    check(
        "service: {replicas: 2}",
        "2 service: services are not supported; a job runs to its end (write the program under `run:`)",
    );
    check(r"progress: {regex: '(?<step>\d+): (?<loss>\S+)', files: false}", "ok");
    let progress = |regex: &str, why: &str| {
        let hint = r"(write it such as `progress: {regex: 'step (?<step>\d+) loss (?<loss>\S+)'}`)";
        let expected = format!("2 progress.regex: the regular expression cannot be used: {why} {hint}");
        check(&format!("progress: {{regex: '{regex}'}}"), &expected);
    };
    progress(r"loss (?<loss>\S+)", r"it has no group `(?<step>\d+)`");
    progress(r"(?<step>\d+)", r"besides `step` it has no named group, such as `(?<loss>\S+)`");
    progress(r"(?<step>\d+", "found open group without closing ')'");
    check(
        "mounts: {}",
        "2 mounts: unknown key (known keys here: `name`, `project`, `train`, `sweep`, `schedule`, `workload`, `data`, `budget`, `deadline`, `idle_timeout`, `stop_grace`, `hang_after`, `checkpoint_store`, `envs`, `secrets`, `resources`, `workdir`, `file_mounts`, `outputs`, `num_nodes`, `spares`, `setup`, `run`, `progress`)",
    );
}

#[test]
fn a_map_of_accelerators_reads_what_a_list_does() {
    let wants = |accelerators: &str| {
        let text = run_with(&format!("resources: {{accelerators: {accelerators}}}"));
        crate::Job::parse(&text, "job.yaml").expect("a job").job.wants.accelerators
    };
    let listed = wants("['40GB+:8', 'A100-80GB:1g.10gb:2', 'H100:4']");
    assert_eq!(wants("{'40GB+': 8, 'A100-80GB:1g.10gb': 2, H100: 4}"), listed);
}

#[test]
fn mounts_come_to_places_of_their_own() {
    let check = |mounts: &str, expected: &str| check(&format!("run: a\nfile_mounts: {{{mounts}}}\n"), expected);
    check("/data: s3://a/b, ~/x: ../x, y: ./y, /k: {source: gs://k, mode: copy}", "ok");
    check("", "ok");
    check(
        "../up: a",
        "2 file_mounts.../up: `../up` leads upwards (write a path on the machine, such as `/data`, `~/data` or `data`)",
    );
    check(
        "/data: a, /data/x.csv: b",
        "2 file_mounts./data/x.csv: `/data` and `/data/x.csv` are one within the other (name the outer one only, or another place)",
    );
    check(
        "/data: ftp://a/b",
        "2 file_mounts./data: `ftp://` is not known (write a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://` or `https://`)",
    );
    check(
        "/data: ''",
        "2 file_mounts./data: the path is empty (write a path, relative to the job file, or an address)",
    );
    check("/data: $HOME/x", "2 file_mounts./data: variables in a path are not filled in (write the path out)");
    check(
        "/data: {source: s3://a, mode: MOUNT}",
        "2 file_mounts./data.mode: `MOUNT` keeps a bucket mounted, which is not supported (write `mode: COPY`, which copies it before `setup`; what the program writes is kept in `outputs`)",
    );
    check(
        "/data: {source: s3://a}",
        "2 file_mounts./data: without `mode` SkyPilot keeps the bucket mounted, which is not supported (write `mode: COPY`, which copies it before `setup`; what the program writes is kept in `outputs`)",
    );
    check(
        "/out: {name: b, mode: COPY, store: s3}",
        "2 file_mounts./out.name: no bucket is made for a job (what the program writes is kept in `outputs: [FOLDER]` or `$GRADUS_CHECKPOINTS`)
         2 file_mounts./out.store: no bucket is made for a job (leave the key out)",
    );
    super::check(
        "run: a\noutputs: [out]\nfile_mounts: {out/x: b}\n",
        "3 file_mounts.out/x: `out` and `out/x` are one within the other (name the outer one only, or another place)",
    );
    super::check(
        "train:\n  model: cnn\n  data: {path: d.csv}\n  epochs: 3\n  batch: 64\nfile_mounts: {x: y}\n",
        "6 file_mounts: `file_mounts` is for a `run:` program; `train:` needs none (leave the key out)",
    );
    let mut job = Job::parse("run: a\nfile_mounts: {/data: x, /b: s3://b, /c: /d}", "job.yaml").unwrap().job;
    job.resolve(Path::new("/home/me"));
    let Work::Command(command) = &job.work else { panic!("it runs a program") };
    assert_eq!(command.file_mounts.values().collect::<Vec<_>>(), ["s3://b", "/d", "/home/me/x"]);
}

#[test]
fn every_refused_key_says_why() {
    for key in SKY_KEYS {
        let (said, hint, end) = match key.served {
            SkySupport::Yes | SkySupport::Planned { .. } => continue,
            // Of another form; see the tests of choices and repositories.
            SkySupport::Noted { .. } if key.path.starts_with("workdir.") => continue,
            SkySupport::Noted { .. } if matches!(key.path, "resources.any_of" | "resources.ordered") => continue,
            SkySupport::Noted { why, hint } => (format!("this key changes nothing: {why}"), hint, "\nok"),
            SkySupport::No { why, hint } => (why.to_owned(), hint, ""),
        };
        let mut yaml = String::from("run: echo");
        for (depth, part) in key.path.split('.').enumerate() {
            write!(yaml, "\n{}{part}:", " ".repeat(depth)).unwrap();
        }
        yaml.push_str(" something\n");
        let line = yaml.lines().count();
        check(&yaml, &format!("{line} {}: {said} ({hint}){end}", key.path));
    }
}

#[test]
fn names_of_skypilot_become_ours() {
    let name = |text: &str| crate::Job::parse(&format!("name: {text}\nrun: a\n"), "job.yaml").expect("a job").job.name;
    for (theirs, ours) in [("minGPT-ddp", "mingpt-ddp"), ("my_job.v2", "my-job-v2"), ("a-b", "a-b")] {
        assert_eq!(name(theirs), ours);
    }
    super::check(
        "name: My_Job\nrun: a\n",
        "1 name: the name is `my-job` here: it takes letters a–z, digits and `-` (write `name: my-job`)
         ok",
    );
}

#[test]
fn repositories_are_cloned_and_buckets_are_kept() {
    let program = |text: &str| match crate::Job::parse(text, "job.yaml").expect("a job").job.work {
        Work::Command(command) => command,
        Work::Train(_) => panic!("it runs a program"),
    };
    let cloned = program("workdir: {url: https://x.org/r.git, ref: v 1}\nrun: a\nsetup: b\n");
    assert_eq!(cloned.setup.as_deref(), Some("git clone https://x.org/r.git . && git checkout 'v 1' || exit 1\nb"));
    assert_eq!((cloned.workdir, &*cloned.run), (None, "a"));
    let cloned = program("workdir: {url: https://x.org/r.git}\nrun: a\n");
    assert_eq!(cloned.setup.as_deref(), Some("git clone https://x.org/r.git . || exit 1"));
    let kept = program("run: a\nfile_mounts: {/ckpt: {name: b, store: s3, persistent: true, mode: MOUNT}, /x: ./x}\n");
    assert_eq!(kept.file_mounts.keys().collect::<Vec<_>>(), ["/x"]);
    assert!(kept.run.contains("\ngradus_keep \"$GRADUS_CHECKPOINTS\"/outputs/ckpt /ckpt || exit 1\n"), "{}", kept.run);
    assert!(kept.run.ends_with(" || exit 1\na"), "{}", kept.run);
    super::check(
        "run: a\nworkdir: {url: u}\nfile_mounts:\n  ~/c: {name: b}\n",
        "2 workdir: the repository is cloned by `setup` at the beginning of each attempt (the machine needs git and access to it)
         4 file_mounts.~/c: no bucket is made: what node rank 0 writes there is kept with the run (copy it to a bucket at the end of `run` if others need it there)
         ok",
    );
    super::check("run: a\nworkdir: {ref: v1}\n", "2 workdir: expected text, found a mapping");
    for bucket in ["{name: b, sourc: s3://b}", "{name: b, mode: MONT}", "{name: b, source: s3://b, mode: MOUNT}"] {
        let text = format!("run: a\nfile_mounts: {{/x: {bucket}}}\n");
        assert!(crate::Job::parse(&text, "job.yaml").is_err(), "{bucket}");
    }
}

#[test]
fn a_repository_that_would_not_be_what_is_meant_is_refused() {
    let check = |lines: &str, expected: &str| super::check(&format!("run: a\n{lines}\n"), expected);
    check("workdir: {url: u, ref: 1234567}", "2 workdir.ref: expected text (put it in quotes)");
    check("workdir: {url: u, reff: v1}", "2 workdir.reff: unknown key (known keys here: `url` and `ref`)");
    let variable =
        "2 workdir.url: variables are not filled in (write the value out, or clone the repository in `setup`)";
    check("workdir: {url: $REPO}", variable);
    let full = "2 workdir: a repository is cloned to an empty folder, and `outputs` or `file_mounts` are in it before (write to $GRADUS_CHECKPOINTS, mount below `~/`, or clone it here and name its folder)";
    check("workdir: {url: u}\noutputs: [out]", full);
    check("workdir: {url: u}\nfile_mounts: {lib: ../common}", full);
}

#[test]
fn a_zone_can_stand_without_its_region() {
    let wants = |infra: &str| {
        let text = run_with(&format!("resources: {{infra: {infra}}}"));
        let wants = crate::Job::parse(&text, "job.yaml").expect("a job").job.wants;
        (wants.clouds.join(","), wants.regions.join(","), wants.zone)
    };
    let place =
        |cloud: &str, region: &str, zone: Option<&str>| (cloud.to_owned(), region.to_owned(), zone.map(str::to_owned));
    assert_eq!(wants("gcp/*/us-central1-a"), place("gcp", "us-central1", Some("us-central1-a")));
    assert_eq!(wants("aws/*/us-east-1a"), place("aws", "us-east-1", Some("us-east-1a")));
    super::check(
        "run: a\nresources: {infra: gcp/*/us-central1-a, region: us-east1}\n",
        "2 resources.infra: `infra` names a place, and so do `cloud` or `region` (keep one of the two)",
    );
    assert_eq!(wants("'*/us-east-1'"), place("", "us-east-1", None));
    assert_eq!(wants("aws/us-east-1"), place("aws", "us-east-1", None));
}

/// A key of the types that SkyPilot has stands in the table as served, and the other way round.
#[test]
fn table_and_types_agree() {
    let mut fields = Vec::new();
    let mut collect = |prefix: &str, schema: &serde_json::Value| {
        let keys = schema["properties"].as_object().unwrap().keys();
        fields.extend(keys.map(|key| format!("{prefix}{key}")));
    };
    collect("", schema());
    collect("resources.", &schema()["$defs"]["Resources"]);
    collect("resources.job_recovery.", &schema()["$defs"]["RecoveryRules"]);
    fields.retain(|field| !shape::OUR_SECTIONS.contains(&field.as_str()));
    let is_served = |key: &&SkyKey| !matches!(key.served, SkySupport::No { .. } | SkySupport::Noted { .. });
    let mut served: Vec<&str> = SKY_KEYS.iter().filter(is_served).map(|key| key.path).collect();
    fields.retain(|field| !served::OUR_PLANNED.iter().any(|key| key.path == field));
    fields.sort();
    served.sort();
    // Ours beside SkyPilot's.
    let own = [
        "spares",
        "resources.disk",
        "resources.enforce",
        "resources.gpu_specs",
        "resources.on_demand",
        "resources.take_over",
        "resources.job_recovery.halve_micro_batch",
        "resources.job_recovery.max_restarts",
        "resources.job_recovery.replace_stragglers",
    ];
    fields.retain(|field| !own.contains(&field.as_str()));
    assert_eq!(fields, served);
}

#[test]
fn money_and_time_make_sense() {
    let check = |line: &str, expected: &str| check(&run_with(line), expected);
    check("budget: {max: $120, alert: 80%}", "ok");
    check("budget: {max: 0.35}", "ok");
    check(
        "budget: {max: 0}",
        "2 budget.max: nothing can be done for no money (write an amount such as `$5`, or leave `budget` out)",
    );
    check(
        "budget: {alert: 50%}",
        "2 budget.max: this key is missing (add `max: …`: the run saves its state and stops at this amount)",
    );
    check(
        "budget: {max: $1, alert: 0}",
        "2 budget.alert: the alert at nothing would come at once (write a share such as `80%`)",
    );
    check("budget: {max: 1.0000001}", "2 budget.max: `1.0000001` is finer than a micro-dollar");
    check(
        "resources: {gpu: A100}",
        "2 resources.gpu: unknown key (write `accelerators`, such as `accelerators: A100:1`)",
    );
    check("epochs: 3", "2 epochs: unknown key (this belongs to the trainer: write it below `train:`)");
    check("budget: $5", "2 budget: expected a mapping, found the text `$5` (write `budget: {max: $5}`)");
    check("deadline: 1h30m", "ok");
    check("deadline: 90s", "ok");
    check("idle_timeout: 10m", "ok");
    check(
        "idle_timeout: 10m\nresources: {infra: ssh}\nnum_nodes: 2",
        "2 idle_timeout: it is for a job on one machine: of several, one may be idle while the others work (leave the key out, and set `deadline` or `budget`)",
    );
    check("idle_timeout: 1s", "2 idle_timeout: it is at least 5 s (write `5s` or more, such as `10m`)");
    check("stop_grace: 30m", "ok");
    let grace = "(write for example `stop_grace: 5m`, or leave it out for `60s`)";
    for wrong in ["0s", "0.5s", "31m"] {
        let text = format!("2 stop_grace: it is at least 1 s and at most 30 min {grace}");
        check(&format!("stop_grace: {wrong}"), &text);
    }
    check("deadline: 0s", "2 deadline: no job ends in no time (write a duration such as `2h`, or leave it out)");
    check("deadline: true", "2 deadline: expected a duration such as `1h30m`, found `true`");
    check(
        "deadline: tomorrow",
        "2 deadline: `tomorrow` is no duration (write the time from submission, such as `90m`, `12h` or `2d`)",
    );
    check(
        "budget: 5 EUR",
        "2 budget: expected a mapping, found the text `5 EUR` (amounts are in US dollars: write `budget: {max: $5}`)",
    );
    check("recovery: {restarts: 1}", "2 recovery: unknown key (write `resources: {job_recovery: {max_restarts: 3}}`)");
}

#[test]
fn some_machines_are_on_demand_beside_spot_machines() {
    let check = |line: &str, expected: &str| {
        check(&format!("run: echo\nresources: {{infra: aws, {line}}}\nnum_nodes: 3\n"), expected);
    };
    check("use_spot: true, on_demand: 1", "ok");
    check(
        "on_demand: 1",
        "2 resources.on_demand: they are rented beside spot machines, and this job does not ask for those (add `use_spot: true`, or leave the key out)",
    );
    check(
        "use_spot: true, on_demand: 3",
        "2 resources.on_demand: of 3 machines, none would be a spot machine (ask for more with `num_nodes`, or write `use_spot: false`)",
    );
}

#[test]
fn a_job_may_keep_its_machines_to_itself() {
    let keeps = |line: &str| {
        let text = format!("run: echo\nresources: {{infra: ssh{line}}}\n");
        crate::Job::parse(&text, "job.yaml").unwrap().job.wants.own_machines
    };
    assert!(keeps(", take_over: false"));
    assert!(!keeps(", take_over: true") && !keeps(""));
}

#[test]
fn limits_on_silence_are_stated_or_switched_off() {
    let check = |line: &str, expected: &str| check(&train_with(line), expected);
    let alone = "seed: 1\nhang_after:";
    check(&format!("{alone} {{setup: 30m, step: 10m, save: 20m}}"), "ok");
    check(&format!("{alone} {{step: 600}}\n"), "ok");
    check(&format!("{alone} {{step: false}}\nbudget: {{max: $5}}"), "ok");
    let unbounded = "7 hang_after.save: nothing ends an attempt that hangs there: the job has neither a budget nor a deadline (add `budget: {max: $5}` or `deadline: 12h`, or write a long limit, such as `6h`)\nok";
    check(&format!("{alone} {{save: false}}"), unbounded);
    let short = "it is at least 30 s (write `30s` or more, such as `10m`, or `false` for no limit)";
    check(
        &format!("{alone} {{setup: 29s, save: 0}}"),
        &format!("7 hang_after.setup: {short}\n7 hang_after.save: {short}"),
    );
    check(
        &format!("{alone} {{step: soon}}"),
        "7 hang_after.step: `soon` is no limit (write a duration such as `10m`, or `false` for no limit)",
    );
    check(
        &format!("{alone} {{step: true}}"),
        "7 hang_after.step: expected a duration such as `10m`, or `false`, found `true`",
    );
    check(
        &format!("{alone} 10m"),
        "7 hang_after: expected a mapping, found the text `10m` (write `hang_after: {step: 10m}`)",
    );
    check(
        &format!("{alone} {{evaluation: 10m}}"),
        "7 hang_after.evaluation: unknown key (known keys here: `setup`, `step`, `save`)",
    );
    let among = |step: &str| format!("{alone} {{step: {step}}}\nresources: {{infra: ssh}}\nnum_nodes: 2");
    check(&among("90s"), "ok");
    check(
        &among("89s"),
        "7 hang_after.step: several machines survive a cut of the network of 45 s, after which a step may take 90 s (write `2m` or more)\nok",
    );
}

#[test]
fn of_a_program_only_the_time_between_its_calls_is_limited() {
    check(&run_with("hang_after: {step: 2h}"), "ok");
    let other =
        "it is for `train:`; of a `run:` program, `step` limits the time between two of its calls (leave the key out)";
    check(
        &run_with("hang_after: {setup: 30m, save: 20m}"),
        &format!("2 hang_after.setup: {other}\n2 hang_after.save: {other}"),
    );
}
