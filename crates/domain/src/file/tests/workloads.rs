//! The `workload:` section of a program of the user's own.

use super::{check, run_with, train_with};

/// A `workload:` section that is right but for `line`.
fn workload_with(line: &str) -> String {
    format!("run: echo\ndata: {{samples: 1000}}\nworkload:\n  model: config.json\n  batch: 64\n  {line}\n")
}

#[test]
fn values_of_a_workload_make_sense() {
    let check = |line: &str, expected: &str| check(&workload_with(line), expected);
    check("epochs: 3", "ok");
    check("steps: 1.5k", "ok");
    check("tokens: 300B", "ok");
    check("epochs: 0.5\n  optimizer: sgd_momentum\n  precision: amp_bf16\n  evaluated: 50k", "ok");
    check("", "3 workload: how long it trains is not said (write `epochs: …`, `steps: …` or `tokens: …`)");
    check(
        "epochs: 3\n  steps: 5",
        "6 workload.epochs: `epochs`, `steps` and `tokens` exclude each other (keep one of them)",
    );
    check("epochs: 3\n  image: 224", "ok");
    check("epochs: 3\n  picture: 224", "ok");
    check("epochs: 3\n  picture: 4", "7 workload.image: `4` is out of range: it must be at least 8");
    check(
        "epochs: 3\n  picture: 224\n  image: 224",
        "8 workload.image: this key is also given by a former name (keep only `image`)",
    );
    check("steps: many", "6 workload.steps: `many` is no number (write for example `1281167`, `1.28M` or `300B`)");
    check("steps: 0", "6 workload.steps: `0` is out of range: it must be at least 1 (write the number of steps)");
    check("epochs: 0", "6 workload.epochs: `0` is out of range: it must be above 0");
    check("epochs: 1\n  optimizer: adamm", "7 workload.optimizer: `adamm` is not known here (did you mean `adam`?)");
    let described = |model: &str| format!("run: echo\nworkload: {{model: {model}, batch: 64, steps: 5}}\n");
    super::check(&described("{config: {model_type: bert, layers: [1, 2.5, yes, ~], tie: true}}"), "ok");
    super::check(&described("{totals: {parameters: 25.6M, multiply_adds: 4.1G, activations: 11M}}"), "ok");
    super::check(
        &described("{totals: {parameters: 25.6M, multiply_adds: 4.1G}}"),
        "2 workload.model.totals.activations: this key is missing (add `activations: …`: values that convolutions and linear layers write in one forward pass of one sample)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\n",
        "2 workload.epochs: epochs are counted in samples, and their number is not said (write `data: {samples: …}`, or `steps: …` instead of `epochs`)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 0}\n",
        "3 data.samples: `0` is out of range: it must be at least 1 (write the number of samples)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 10}\n",
        "2 workload.batch: a batch of 64 is more than the 10 training samples (write `batch: 10` or less)",
    );
    super::check(
        &(train_with("seed: 1") + "workload: {model: a.onnx, batch: 64, steps: 5}\n"),
        "7 workload: `train:` says itself what is trained (leave `workload` out, or write `run:` instead of `train:`)",
    );
}

#[test]
fn how_large_models_are_trained_can_be_said() {
    let check = |line: &str, expected: &str| check(&workload_with(&format!("steps: 5\n  {line}")), expected);
    check("parallel: {data: 4, fsdp: 8, tensor: 8, sequence: true, pipeline: 4, context: 2, expert: 8, zero: 3}", "ok");
    check("parallel: {pipeline: 4, schedule: interleaved, virtual_stages: 2}", "ok");
    check("parallel: {pipeline: 4, schedule: 1f1b}", "ok");
    check("adapters: {kind: qlora, rank: 16, targets: all_linear}\n  offload: activations", "ok");
    check("adapters: {kind: lora}\n  loss: chunked\n  packed: true\n  precision: fp8", "ok");
    check("optimizer: adam8bit\n  optimizer_in_backward: true\n  recompute: full", "ok");
    for recompute in ["true", "false", "none", "selective", "full"] {
        check(&format!("recompute: {recompute}"), "ok");
    }
    check(
        "recompute: partly",
        "7 workload.recompute: expected `true` or `false`, `none`, `selective` or `full`, found the text `partly`",
    );
    check("parallel: {zero: 4}", "7 workload.parallel.zero: `4` is out of range: it must be at most 3");
    check("parallel: {tensors: 4}", "7 workload.parallel.tensors: unknown key (did you mean `tensor`?)");
    check(
        "parallel: {ring: 4}",
        "7 workload.parallel.ring: unknown key (known keys here: `data`, `fsdp`, `tensor`, `sequence`, `pipeline`, `schedule`, `virtual_stages`, `context`, `expert`, `zero`)",
    );
    check("adapters: {kind: dora}", "7 workload.adapters.kind: `dora` is not known here (did you mean `lora`?)");
    check(
        "adapters: {kind: lora, targets: [q_proj, v_proj]}",
        "7 workload.adapters.targets: expected `all_linear`, found a list (write `targets: all_linear`)",
    );
    check(
        "offload: weights",
        "7 workload.offload: `weights` is not known here (write one of `none`, `activations`, `optimizer`, `both`)",
    );
    let format = "estimates have one FP8 for all recipes of scaling, and no FP4";
    for precision in ["fp4", "mxfp8", "fp8_rowwise"] {
        check(
            &format!("precision: {precision}"),
            &format!("7 workload.precision: `{precision}` is not known here (write `fp8`: {format})"),
        );
    }
}

#[test]
fn ways_that_contradict_each_other_are_refused() {
    let check = |line: &str, expected: &str| check(&workload_with(&format!("steps: 5\n  {line}")), expected);
    check(
        "parallel: {data: 5}",
        "7 workload.parallel.data: a batch of 64 does not divide among 5 data-parallel ranks (write `batch: 65`, or degrees whose product divides 64)",
    );
    check(
        "parallel: {data: 4, fsdp: 3}",
        "7 workload.parallel.fsdp: a batch of 64 does not divide among 12 data-parallel ranks (write `batch: 72`, or degrees whose product divides 64)",
    );
    check(
        "parallel: {data: 4, tensor: 1, expert: 8}",
        "7 workload.parallel.expert: `expert: 8` does not divide the 4 ranks of each stage, which share its experts (write a divisor of 4, or more ranks)",
    );
    check("parallel: {data: 4, expert: 8}", "ok");
    check("parallel: {data: 4, tensor: 2, pipeline: 2, expert: 8}", "ok");
    check(
        "parallel: {fsdp: 8, zero: 1}",
        "7 workload.parallel.zero: `fsdp` shards gradients and optimizer state at least, and `zero: 1` does not (write `zero: 2` or `3`, or `data` in place of `fsdp`)",
    );
    check(
        "parallel: {sequence: true}",
        "7 workload.parallel.sequence: it divides the sequence among the ranks of `tensor`, of which there are not several (add `tensor: 2` or more, or write `context: …`)",
    );
    check(
        "parallel: {virtual_stages: 2}",
        "7 workload.parallel.virtual_stages: an interleaved schedule is that of a pipeline, which has at least 2 stages (add `pipeline: 2` or more)",
    );
    check(
        "parallel: {pipeline: 4, schedule: 1f1b, virtual_stages: 2}",
        "7 workload.parallel.virtual_stages: only an interleaved pipeline has virtual stages (write `schedule: interleaved`, or leave it out)",
    );
    check(
        "optimizer_in_backward: true\n  parallel: {pipeline: 2}",
        "7 workload.optimizer_in_backward: a pipeline accumulates gradients over micro-batches, and weights change after the last one (leave it out, or write `pipeline: 1`)",
    );
    check(
        "offload: activations\n  recompute: none",
        "7 workload.offload: activations are offloaded as inputs of recomputed blocks (write `recompute: full`, or `offload: optimizer` or `none`)",
    );
    check(
        "offload: optimizer\n  parallel: {data: 8, zero: 0}",
        "8 workload.parallel.zero: each host would update the whole network: optimizer state is offloaded where it is sharded (write `zero: 1`, `2` or `3`, or `fsdp: …`)",
    );
    check(
        "offload: both\n  adapters: {kind: lora}",
        "7 workload.offload: the optimizer state of adapters is small, and estimates do not know its offload (write `offload: none` or `activations`)",
    );
    check(
        "mean_length: 512",
        "7 workload.mean_length: it says how long texts are, and not whether several share a sequence (add `packed: true` or `packed: false`)",
    );
    check(
        "sequence: 2048\n  packed: false\n  mean_length: 4096",
        "9 workload.mean_length: texts of 4096 tokens on average do not fit sequences of 2048 (write `sequence: 4096` or more, or `packed: true`)",
    );
    super::check(
        &workload_with("tokens: 1M\n  packed: false"),
        "7 workload.packed: `tokens` are those of texts, and how many of them a padded sequence holds is not said (add `mean_length: …`: the mean tokens of a text)",
    );
}

/// A job of before these keys is read as it was, and is written without them.
#[test]
fn what_a_workload_does_not_say_is_not_written() {
    let text = workload_with("steps: 5\n  recompute: false");
    let job = crate::Job::parse(&text, "job.yaml").expect("a job").job;
    let written = serde_json::to_value(&job.workload).expect("written");
    let new = ["parallel", "adapters", "offload", "loss", "packed", "mean_length", "optimizer_in_backward"];
    assert!(new.iter().all(|key| written.get(key).is_none()), "{written}");
    assert_eq!(written["recompute"], false);
    let read: Option<crate::workload::Workload> = serde_json::from_value(written).expect("read");
    assert_eq!(read, job.workload);
}

#[test]
fn a_file_is_named_without_a_kind() {
    let file = "a Hugging Face `config.json`, an ONNX or a safetensors file, relative to the job file";
    let described = |model: &str| format!("run: echo\nworkload: {{model: {model}, batch: 64, steps: 5}}\n");
    check(
        &described("{onnx: a.onnx}"),
        &format!("2 workload.model.onnx: unknown kind (write one of `config`, `totals`, or without any: {file})"),
    );
    check(
        &described("{config: config.json}"),
        &format!(
            "2 workload.model.config: expected a mapping, found the text `config.json` (without `config:`, `config.json` may be {file})"
        ),
    );
}

#[test]
fn what_is_described_needs_a_program() {
    check(
        "workload: {model: a.onnx, batch: 64, steps: 5}\n",
        "- -: there is nothing to do: neither `train` nor `run` is given (`workload:` describes what a program trains: add `run: python train.py`, or how else yours is started)",
    );
}

#[test]
fn keys_are_found_again_by_their_lines() {
    let text = "run: echo\nworkload:\n  model: a.onnx\n  batch: 64\n";
    let found = ["workload.model", "workload.steps", "data.samples", "run"].map(|key| crate::file::line_of(text, key));
    assert_eq!(found, [Some(3), Some(2), None, Some(1)]);
}

#[test]
fn a_job_for_this_machine_says_so() {
    let here = |more: &str| {
        let text = format!("run: echo\n{more}");
        crate::Job::parse(&text, "job.yaml").map(|parsed| parsed.job.wants.here)
    };
    assert_eq!(
        [here("resources: {infra: local}\n"), here(""), here("resources: {cpus: 2}\n")],
        [Ok(true), Ok(false), Ok(false)]
    );
}

#[test]
fn schedules_name_due_times_of_a_zone() {
    check(
        &run_with("schedule: {cron: 0 3 * * MON-FRI, timezone: Europe/Berlin, catch_up: none, overlap: queue}"),
        "ok",
    );
    check(
        &run_with("schedule: {cron: 0 3 * *}"),
        "2 schedule.cron: five fields are needed, and these are 4 (write minute, hour, day of month, month and day of week, such as `0 3 * * *`)",
    );
    check(
        &run_with("schedule: {cron: 0 3 * * *, timezone: Berlin}"),
        "2 schedule.timezone: there is no time zone `Berlin` (write a name of the IANA database, such as `Europe/Berlin`)",
    );
    check(
        &run_with("schedule: {cron: 0 3 * * *, new_data: true}"),
        "2 schedule.new_data: it is for a `train` job that continues from the model of the run before (add `warm_start: true`, or leave the key out)",
    );
    check(
        &train_with("").replace("train:", "schedule: {cron: 0 3 * * *, warm_start: true, new_data: true}\ntrain:"),
        "ok",
    );
    let sweep = "sweep: {method: grid, parameters: {batch: [32, 64]}}\n";
    let swept = |schedule: &str| train_with("").replace("train:", &format!("schedule: {schedule}\n{sweep}train:"));
    check(&swept("{cron: 0 3 * * *, overlap: replace}"), "ok");
    check(
        &swept("{cron: 0 3 * * *, warm_start: true, new_data: true}"),
        "1 schedule.warm_start: trials of a sweep differ from each other, so there is no one model that the next sweep starts with (leave `warm_start` and `new_data` out; `${schedule.previous_date}` in `train.data.path` names new data)",
    );
    check(
        &run_with("schedule: {cron: 0 3 * * *, warm_start: true}"),
        "2 schedule.warm_start: a run starts with the `outputs` of the one before, and this job has none (add `outputs: [FOLDER]`, or leave the key out)",
    );
}

#[test]
fn checkpoints_are_kept_in_an_object_store_and_nowhere_else() {
    let check = |store: &str, expected: &str| check(&run_with(&format!("checkpoint_store: {store}")), expected);
    let hint = "(write a bucket and a prefix, such as `checkpoint_store: s3://BUCKET/checkpoints`)";
    for store in
        ["s3://bucket/runs/mine", "S3://bucket", "gs://bucket/", "az://container/x", "oss://b/x", "cos://b-1/x"]
    {
        check(store, "ok");
    }
    for (store, why) in [
        ("checkpoints", "`checkpoints` is no address of an object store"),
        ("/mnt/nfs", "`/mnt/nfs` is no address of an object store"),
        ("https://host/x", "`https://host/x` is no address of an object store"),
        ("s3:///x", "it names no bucket"),
        ("'s3://a b/x'", "`a b` is no name of a bucket"),
        ("s3://bucket/a/../b", "its path holds `.`, `..` or an empty part"),
        ("s3://bucket//b", "its path holds `.`, `..` or an empty part"),
        ("s3://bucket/$USER", "variables in an address are not filled in"),
        ("s3://key:hush@bucket/x", "an address must not hold a password or a signature"),
        ("'s3://bucket/x?sig=hush'", "an address must not hold a password or a signature"),
    ] {
        check(store, &format!("2 checkpoint_store: {why} {hint}"));
    }
    check(
        "s3://bucket/x\noutputs: [out]",
        "3 outputs: `outputs` come back to the machine of the run's loop, and with `checkpoint_store` they do not (leave one of the keys out, or have the program write to the bucket itself)",
    );
    let job = crate::Job::parse(&run_with("checkpoint_store: s3://bucket/x"), "job.yaml").unwrap().job;
    assert_eq!(job.checkpoint_store.as_deref(), Some("s3://bucket/x"));
}
