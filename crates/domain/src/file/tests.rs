//! Text in, text out: job files, and what is said about them.

mod searches;
mod workloads;

use std::fmt::Write;

use proptest::prelude::*;

use super::*;

/// What reading `yaml` says: the problems with their lines, or `ok` with the warnings.
fn said(yaml: &str) -> String {
    let mut said = String::new();
    let mut tell = |problem: &Problem| {
        let line = problem.line.map_or("-".to_owned(), |line| line.to_string());
        let key = if problem.key.is_empty() { "-" } else { &problem.key };
        write!(said, "{line} {key}: {}", problem.message).unwrap();
        problem.hint.iter().for_each(|hint| write!(said, " ({hint})").unwrap());
        said.push('\n');
    };
    match Job::parse(yaml, "job.yaml") {
        Ok(parsed) => {
            parsed.warnings.iter().chain(&parsed.unrentable).for_each(&mut tell);
            said.push_str("ok");
        }
        Err(problems) => problems.problems.iter().for_each(&mut tell),
    }
    said.trim_end().to_owned()
}

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let strip = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    assert_eq!(said(yaml), strip(expected), "\n{yaml}\n");
}

/// A `train:` section that is right but for `line`.
fn train_with(line: &str) -> String {
    format!("train:\n  model: cnn\n  data: {{path: d.csv}}\n  epochs: 3\n  batch: 64\n  {line}\n")
}

/// A `data:` section that is right but for `line`.
fn data_with(line: &str) -> String {
    format!("train:\n  model: cnn\n  epochs: 3\n  batch: 64\n  data:\n    path: d.csv\n    {line}\n")
}

/// A `run:` job that is right but for `line`.
fn run_with(line: &str) -> String {
    format!("run: echo\n{line}\n")
}

#[test]
fn shipped_examples_are_right() {
    check(include_str!("../../../../examples/digits.yaml"), "ok");
    check(include_str!("../../../../examples/digits-sweep.yaml"), "ok");
    check(include_str!("../../../../examples/hello.yaml"), "ok");
    check(include_str!("../../../../examples/cifar10.yaml"), "ok");
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    check(
        r#"name: My Job
train:
  modle: resnet20
  data: {path: d.csv, split: [0.5, 0.2, 0.1]}
  epochs: 0
  batch: 1e3
  optimizer: {adam: {lr: 0.1}}
  schedule: {warmup: 5 parsecs, decay: cosinus}
  stop: {accuracy: 180%}
  checkpoint:
    every: soon
    keep: -1
    mtbf: {a: 1}
budget: {max: lots}
deadlin: 3h
resources:
  accelerators: A100:8
  cpus: x
num_nodes: 4
"#,
        "1 name: `My Job` is no name: it takes letters a–z, digits and `-`, at most 63 (write `my-job`)
         2 train.model: this key is missing (add `model: …`: the architecture to train)
         3 train.modle: unknown key (did you mean `model`?)
         5 train.epochs: `0` is out of range: it must be at least 1
         6 train.batch: expected a whole number, found the number `1e3` (write `1000`)
         7 train.optimizer.adam: unknown kind (did you mean `adamw`?)
         8 train.schedule.warmup: `5 parsecs` is no stretch of training (write for example `5 epochs` or `200 steps`)
         8 train.schedule.decay: `cosinus` is not known here (did you mean `cosine`?)
         9 train.stop.accuracy: `180%` is not between 0 and 1
         11 train.checkpoint.every: `soon` is no interval (write for example `auto`, `500 steps` or `10m`)
         12 train.checkpoint.keep: `-1` is out of range: it must be at least 1
         13 train.checkpoint.mtbf: expected a duration such as `1h30m`, found a mapping
         14 budget.max: `lots` is no amount of money (write for example `$120` or `0.35`)
         15 deadlin: unknown key (did you mean `deadline`?)
         18 resources.cpus: `x` is no number of cores (write for example `4` or `4+`)",
    );
}

#[test]
fn yaml_itself_is_checked() {
    let empty = "- -: the file is empty (write a `train:` section, or a `run:` program of your own)";
    check("", empty);
    check("# only a comment\n", empty);
    check("---\n", empty);
    check("hello", "1 -: a job file is a mapping of keys to values (start with `train:` or `run:`)");
    check("- run: a", "1 -: a job file is a mapping of keys to values (start with `train:` or `run:`)");
    check("run: a\nrun: b\n", "2 run: the key stands here twice (keep one of the two)");
    check(
        "name: a\n---\nrun: b\n",
        "2 -: several documents in one file (a pipeline) are not served yet (keep one document, and start each job on its own)",
    );
    check("run: *nothing\n", "1 -: this is not YAML: while parsing node, found unknown anchor");
    check("envs: &me {a: *me}\nrun: a\n", "1 -: an alias stands inside the value that it names");
    check(
        "run: !exec a\n",
        "1 -: the tag `!exec` has no meaning in a job file (put text that starts with `!` in quotes)",
    );
    check(
        "? [a]\n: b\nrun: a\n",
        "1 -: a key is a list or a mapping (write a word as the key; text with `{` or `[` in it needs quotes)",
    );
    check(
        "train:\n\tmodel: cnn\n",
        "2 -: this is not YAML: tabs disallowed within this context (block indentation) (indent with spaces, not with tabs)",
    );
    check("run: a\nenvs: [b\n", "3 -: this is not YAML: while parsing a flow sequence, expected ',' or ']'");
    check("\u{feff}run: a\n", "ok");
    check("run: a\r\nname: b\r\n", "ok");
    check("run: !!str 5\n", "ok");
}

#[test]
fn merged_keys_give_way_to_given_ones() {
    let yaml = "envs: {<<: &base {A: one, B: two}, B: three}\nrun: a\n";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    assert_eq!(job.envs.into_iter().collect::<Vec<_>>(), [("A".into(), "one".into()), ("B".into(), "three".into())]);
    check("envs: {<<: 5}\nrun: a\n", "1 -: `<<` takes a mapping, or a list of mappings");
}

#[test]
fn train_and_run_exclude_each_other() {
    let neither = "- -: there is nothing to do: neither `train` nor `run` is given (write a `train:` section, or a `run:` program of your own)";
    check("name: a\n", neither);
    check("run:\n", neither);
    check(
        &(train_with("seed: 1") + "run: echo\n"),
        "7 run: `run` and `train` exclude each other (keep `train` for our own trainer, or `run` for a program of your own)",
    );
    check(
        &(train_with("seed: 1") + "setup: echo\nworkdir: .\n"),
        "7 setup: `setup` prepares a `run:` program; `train:` needs none (leave the key out)
         8 workdir: `workdir` prepares a `run:` program; `train:` needs none (leave the key out)",
    );
    check(&(train_with("seed: 1") + "envs: {A: 1}\nbudget: {max: $1}\ndeadline: 1h\n"), "ok");
    check("train: {}\n", "
        1 train.model: this key is missing (add `model: …`: the architecture to train)
        1 train.data: this key is missing (add `data: …`: where the samples are and how they are split)
        1 train.epochs: this key is missing (add `epochs: …`: how often every training sample is seen)
        1 train.batch: this key is missing (add `batch: …`: samples per optimiser step, over all devices and accumulation steps)
    ");
    check("train: fast\n", "1 train: expected a mapping, found the text `fast`");
}

#[test]
fn values_of_a_train_section_make_sense() {
    let check = |line: &str, expected: &str| check(&train_with(line), expected);
    check("accumulate: 64", "ok");
    check("accumulate: 65", "6 train.accumulate: 65 micro-batches cannot be made of 64 samples (write at most 64)");
    check("accumulate: 0", "6 train.accumulate: `0` is out of range: it must be at least 1");
    check("processes: 64", "ok");
    check("processes: 65", "6 train.processes: 65 ranks cannot share 64 samples (write at most 64)");
    check(
        "processes: 40\n  accumulate: 2",
        "6 train.processes: 40 ranks with 2 micro-batches each cannot share 64 samples (write at most 32)",
    );
    check("processes: 2\n  parallel: {shard: optimizer, exchange: bf16, sync_batch_norm: true}", "ok");
    check("processes: 2\n  parallel: {shard: optimizer}\n  precision: fp16\n  parameters: {freeze: [stem]}", "ok");
    check("processes: 2\n  parallel: {shard: parameters}", "ok");
    check(
        "processes: 2\n  parallel: {shard: gradients}\n  optimizer: {lamb: {lr: 0.1}}",
        "7 train.parallel.shard: `lamb` looks at whole tensors, and of `gradients` each rank has a part (write `shard: optimizer`, or choose `adamw` or `sgd`)",
    );
    check("dropout: 0", "ok");
    check("dropout: 1", "6 train.dropout: `1` is out of range: it must be below 1");
    check(
        "processes: 2\n  parallel: {tensor: 2}",
        "7 train.parallel.tensor: `cnn` has no attention heads, and nothing else is divided (leave `tensor` out; `shard: parameters` divides any model)",
    );
    check(
        "parallel: {shard: optimizer}",
        "6 train.parallel: there is nothing to share with a single rank (write `processes: 2`, or leave `parallel` out)",
    );
    check("optimizer: {sgd: {lr: 0.1}}", "ok");
    check("optimizer: sgd", "6 train.optimizer: `sgd` needs a value (write `sgd: {lr: …}`)");
    check("optimizer: {sgd: {}}", "6 train.optimizer.sgd.lr: this key is missing (add `lr: …`: learning rate)");
    check(
        "optimizer: {}",
        "6 train.optimizer: expected one key, found 0 (write one of `sgd`, `adamw`, `lamb`, `lars`, `adafactor`)",
    );
    check(
        "optimizer: {sgd: {lr: 1}, adamw: {lr: 1}}",
        "6 train.optimizer: expected one key, found 2 (write one of `sgd`, `adamw`, `lamb`, `lars`, `adafactor`)",
    );
    check("optimizer: {sgd: {lr: 0}}", "6 train.optimizer.sgd.lr: `0` is out of range: it must be above 0");
    check(
        "optimizer: {sgd: {lr: .inf}}",
        "6 train.optimizer.sgd.lr: `.inf` is out of range: it must be a finite number",
    );
    check(
        "optimizer: {sgd: {lr: .nan}}",
        "6 train.optimizer.sgd.lr: `.nan` is out of range: it must be a finite number",
    );
    check(
        "optimizer: {sgd: {lr: 0.1, momentum: 1}}",
        "6 train.optimizer.sgd.momentum: `1` is out of range: it must be below 1",
    );
    check(
        "optimizer: {sgd: {lr: 0.1, weight_decay: -1}}",
        "6 train.optimizer.sgd.weight_decay: `-1` is out of range: it must be at least 0",
    );
    check(
        "optimizer: {sgd: {lr: 0.1, momentum: 0, nesterov: true}}",
        "6 train.optimizer.sgd.nesterov: Nesterov's form needs a momentum above 0 (write `momentum: 0.9`, or leave `nesterov` out)",
    );
    check(
        "optimizer: {adamw: {lr: 1e-3, betas: [0.9]}}",
        "6 train.optimizer.adamw.betas: expected a list of 2 values, found 1",
    );
    check(
        "optimizer: {adamw: {lr: 1e-3, betas: [0.9, 1]}}",
        "6 train.optimizer.adamw.betas[1]: `1` is out of range: it must be at least 0 and below 1 (the usual betas are `[0.9, 0.999]`)",
    );
    check("optimizer: {adamw: {lr: 0x10}}", "ok");
    check("label_smoothing: 1", "6 train.label_smoothing: `1` is out of range: it must be below 1");
    check("label_smoothing: 0.1", "ok");
    check("clip_norm: 0", "6 train.clip_norm: `0` is out of range: it must be above 0");
    check("clip_norm: null", "ok");
    check(
        "checkpoint: {every: 0 steps}",
        "6 train.checkpoint.every: `0 steps` is no interval (write for example `auto`, `500 steps` or `10m`)",
    );
    check("checkpoint: {every: 10m, keep: 1, mtbf: 2 days}", "ok");
    check("checkpoint: {keep: 0}", "6 train.checkpoint.keep: `0` is out of range: it must be at least 1");
    check(
        "checkpoint: {mtbf: 0s}",
        "6 train.checkpoint.mtbf: nothing runs that fails all the time (write a duration such as `24h`)",
    );
    check("schedule: {warmup: 3 epochs, decay: cosine}", "ok");
    check(
        "schedule: {warmup: 4 epochs}",
        "6 train.schedule.warmup: a warm-up of 4 epochs does not end within the run's 3 (make it shorter than `train.epochs`)",
    );
    check("schedule: {decay: {step: {at: [1, 2]}}}", "ok");
    check(
        "schedule: {decay: {cosine: {}}}",
        "6 train.schedule.decay.cosine: unknown kind (write the word `cosine` alone, without a value)",
    );
    check("schedule: {decay: step}", "6 train.schedule.decay: `step` needs a value (write `step: {at: …}`)");
    check(
        "schedule: {decay: {step: {at: [2, 1]}}}",
        "6 train.schedule.decay.step.at: the epochs do not rise (write them in order, each once)",
    );
    check(
        "schedule: {decay: {step: {at: []}}}",
        "6 train.schedule.decay.step.at: the list is empty, so the rate never drops (write for example `at: [30, 60]`, or `decay: constant`)",
    );
    check(
        "schedule: {decay: {step: {at: [2, 3]}}}",
        "6 train.schedule.decay.step.at: epoch 3 is never reached; the run has 3 epochs, counted from 0 (leave it out, or train longer)
         ok",
    );
    check("precision: fp16", "ok");
    check("precision: tf32", "ok");
    check(
        "precision: int8",
        "6 train.precision: `int8` is not known here (write one of `auto`, `fp32`, `tf32`, `bf16`, `fp16`)",
    );
    check(
        "precision: 16",
        "6 train.precision: expected `auto`, `fp32`, `tf32`, `bf16` or `fp16`, found the number `16` (put it in quotes: `\"16\"`)",
    );
    check("memory_format: channels_last", "ok");
    check(
        "deterministic: yes",
        "6 train.deterministic: expected `true` or `false`, found the text `yes` (write `true`)",
    );
    check("seed: 18446744073709551615", "ok");
    check(
        "seed: 18446744073709551616",
        "6 train.seed: `18446744073709551616` is out of range: it must be at most 18446744073709551615",
    );
    check("seed: 1.5", "6 train.seed: expected a whole number, found the number `1.5`");
    check("threads: 0", "6 train.threads: `0` is out of range: it must be at least 1");
    check("stop: {accuracy: 98%}", "ok");
    check("stop: 98%", "6 train.stop: expected a mapping, found the text `98%`");
    check(
        "learning_rate: 1",
        "6 train.learning_rate: unknown key (known keys here: `model`, `loss`, `weights`, `data`, `epochs`, `batch`, `accumulate`, `processes`, `parallel`, `precision`, `optimizer`, `parameters`, `schedule`, `average`, `offload`, `recompute`, `dropout`, `label_smoothing`, `clip_norm`, `memory_format`, `seed`, `threads`, `deterministic`, `stop`, `checkpoint`, `profile`)",
    );
}

#[test]
fn ranks_lie_on_a_mesh() {
    let check = |model: &str, lines: &str, expected: &str| {
        let data = if model == "vit_s_16" { "{path: d.csv}" } else { "{path: d.csv, text: {}}" };
        check(&format!("train:\n  model: {model}\n  data: {data}\n  epochs: 3\n  batch: 4\n  {lines}\n"), expected);
    };
    check("gpt_tiny", "processes: 2\n  parallel: {tensor: 2}", "ok");
    check("bert_mini", "processes: 8\n  parallel: {tensor: 2, shard: parameters}", "ok");
    check(
        "vit_s_16",
        "processes: 10\n  parallel: {tensor: 2}",
        "6 train.processes: 10 ranks cannot share 4 samples (write at most 8)",
    );
    check(
        "gpt_tiny",
        "processes: 3\n  parallel: {tensor: 2}",
        "7 train.parallel.tensor: `processes: 3` cannot be divided into groups of 2 (write `processes: 4`, or a `tensor` that divides 3)",
    );
    check(
        "vit_s_16",
        "processes: 4\n  parallel: {tensor: 4}",
        "7 train.parallel.tensor: the 6 attention heads of `vit_s_16` cannot be divided by 4 (write a divisor of 6, such as 3)",
    );
    check(
        "gpt_tiny",
        "processes: 4\n  parallel: {tensor: 2, shard: optimizer}\n  optimizer: {adafactor: {lr: 0.1}}",
        "7 train.parallel.shard: with `tensor`, the optimiser's state is not sharded by itself (write `shard: gradients`, which includes it)
         7 train.parallel.tensor: `adafactor` looks at whole tensors, of which each rank has a part (choose `adamw` or `sgd`)",
    );
    check("vit_s_16", "dropout: 0.1", "6 train.dropout: `vit_s_16` leaves nothing out (leave the key out)");
}

#[test]
fn texts_are_for_models_that_read() {
    let check = |model: &str, data: &str, expected: &str| {
        check(&format!("train:\n  model: {model}\n  data: {{path: d.csv{data}}}\n  epochs: 3\n  batch: 4\n"), expected);
    };
    check("bert_mini", ", text: {columns: [title, body], label: class}", "ok");
    check("gpt_tiny", ", text: {length: 256, tokenizer: words.json}", "ok");
    check(
        "bert_mini",
        "",
        "3 train.data.text: `bert_mini` reads text, and where it stands in the data is not said (write for example `text: {columns: [text], label: label}`)",
    );
    check(
        "cnn",
        ", text: {}",
        "3 train.data.text: `cnn` sees pictures, and no text (leave the key out, or choose a model that reads text)",
    );
    check(
        "gpt_tiny",
        ", text: {length: 257}, size: 32, split: folders",
        "3 train.data.text.length: rows of 257 words are longer than the 256 positions of `gpt_tiny` (write at most 256)
         3 train.data.size: texts are no pictures (leave the key out)
         3 train.data.split: a text file has no folders (write for example `split: [0.7, 0.2, 0.1]`)",
    );
    check("yolo_n", ", size: 128, augment: [flip, mosaic]", "ok");
    check(
        "yolo_n",
        ", size: 128, preload: 1 GiB",
        "3 train.data.preload: pictures for `yolo_n` are read when they are needed (leave the key out)",
    );
    check(
        "yolo_n",
        ", size: 100, augment: [pad_crop: 4]",
        "3 train.data.augment[0]: boxes are not cut out with their pictures (`flip` and `mosaic` can be used for detection)
         3 train.data.size: `yolo_n` looks through a grid of 32 pixels, which does not go up with 100 (write a multiple of 32, such as 96)",
    );
    check(
        "cnn",
        ", augment: [mosaic]",
        "3 train.data.augment[0]: `cnn` finds no objects, so pictures cannot be put together (leave it out, or choose a detector such as `yolo_n`)",
    );
}

#[test]
fn values_of_a_data_section_make_sense() {
    let check = |line: &str, expected: &str| check(&data_with(line), expected);
    let usual = "(the usual split is `[0.7, 0.2, 0.1]`)";
    check("split: folders", "ok");
    check(
        "split: folder",
        "7 train.data.split: expected a list or `folders`, found the text `folder` (did you mean `folders`?)",
    );
    check("split: [0.8, 0.1, 0.1]", "ok");
    check("split: [0.3333333, 0.3333333, 0.3333334]", "ok");
    check("split: [0.8, 0.2]", "7 train.data.split: expected a list of 3 values, found 2");
    check("split: [0.8, 0.1, x]", "7 train.data.split[2]: expected a number, found the text `x`");
    check("split: [0.5, 0.2, 0.1]", &format!("7 train.data.split: the shares add up to 0.8, not to 1 {usual}"));
    check("split: [1.5, -0.5, 0]", &format!("7 train.data.split: a share is not between 0 and 1 {usual}"));
    check("split: [0, 0.5, 0.5]", &format!("7 train.data.split: no samples are left to train on {usual}"));
    check(
        "split: [0.8, 0.2, 0]",
        &format!("7 train.data.split: without test samples no test accuracy is reported {usual}\nok"),
    );
    check(
        "split: [0.8, 0, 0.2]",
        &format!("7 train.data.split: without validation samples the last model counts as the best {usual}\nok"),
    );
    check("augment: [flip, pad_crop: 4]", "ok");
    check(
        "augment: [{pad_crop: 0}]",
        "7 train.data.augment[0].pad_crop: `0` is out of range: it must be at least 1 and at most 256 (4 is usual for pictures of 32×32)",
    );
    check("augment: [flip, flip]", "7 train.data.augment[1]: the same change stands here twice (keep one of the two)");
    check("augment: [pad_crop]", "7 train.data.augment[0]: `pad_crop` needs a value (write `pad_crop: …`)");
    check(
        "augment: [rotate]",
        "7 train.data.augment[0]: `rotate` is not known here (write one of `random_resized_crop`, `flip`, `mosaic`, `resize_crop`, `pad_crop`, `rand_augment`, `mixup`, `cutmix`)",
    );
    check(
        "augment: [crop: 4]",
        "7 train.data.augment[0].crop: unknown kind (write one of `random_resized_crop`, `flip`, `mosaic`, `resize_crop`, `pad_crop`, `rand_augment`, `mixup`, `cutmix`)",
    );
    let unsized_part = "the size of the part is not known (set `size`, such as `size: 224`)";
    check("augment: [random_resized_crop]", &format!("7 train.data.augment[0]: {unsized_part}"));
    check(
        "augment: [flip, resize_crop: 256]",
        &format!(
            "7 train.data.augment[1]: a part of the picture is chosen before other changes (move it to the front, once)\n7 train.data.augment[1]: {unsized_part}"
        ),
    );
    check("augment: flip", "7 train.data.augment: expected a list, found the text `flip`");
    check("augment: [flip, rand_augment: {num_ops: 2, magnitude: 9}, mixup: 0.2, cutmix: 1]", "ok");
    check("augment: [rand_augment: {}]", "ok");
    check(
        "augment: [rand_augment: {magnitude: 31}]",
        "7 train.data.augment[0].rand_augment.magnitude: `31` is out of range: it must be at most 30",
    );
    check(
        "augment: [mixup: 0]",
        "7 train.data.augment[0].mixup: `0` is out of range: it must be at least 0.01 and at most 100 (0.2 is usual for mixup, and 1 for cutmix)",
    );
    check(
        "augment: [mixup: 0.2, flip]",
        "7 train.data.augment[0]: pictures are mixed once all is done to each (move it to the end of the list)",
    );
    check(
        "cache: {budget: 10 GiB}",
        "7 train.data.cache: the data lies on this machine already (leave the key out, or give an address such as `s3://BUCKET/PREFIX`)",
    );
    check("preload: 64 GiB", "ok");
    check(
        "preload: 1 KiB",
        "7 train.data.preload: `1 KiB` is too little for any pictures (write at least `1 MiB`, such as `64 GiB`)",
    );
    check("normalize: {mean: [0.5], std: [0.25]}", "ok");
    check(
        "normalize: {mean: [0.5], std: [0.2, 0.2]}",
        "7 train.data.normalize: 1 means and 2 standard deviations do not fit together (write one of each a channel)",
    );
    check(
        "normalize: {mean: [1, 1], std: [1, 1]}",
        "7 train.data.normalize: 2 channels are given; a picture has 1 or 3 (write one mean and one deviation a channel)",
    );
    check(
        "normalize: {mean: [0], std: [0]}",
        "7 train.data.normalize.std: a standard deviation is above 0 (leave `normalize` out to have it measured)",
    );
    check("size: 4", "7 train.data.size: `4` is out of range: it must be at least 8");
    check("size: 2048", "7 train.data.size: `2048` is out of range: it must be at most 1024");
    check("classes: 1", "7 train.data.classes: `1` is out of range: it must be at least 2");
    check("corrupt: ignore", "7 train.data.corrupt: `ignore` is not known here (write one of `fail`, `skip`)");
    check("workers: many", "7 train.data.workers: expected a whole number, found the text `many`");
    check("path: e.csv", "7 path: the key stands here twice (keep one of the two)");
}

#[test]
fn data_may_lie_elsewhere_and_folders_are_local() {
    check("train: {model: mlp, epochs: 1, batch: 1, data: {path: 's3://bucket/set'}}", "ok");
    let remote = "train: {model: mlp, epochs: 1, batch: 1, data: {path: 'ftp://host/set'}}";
    check(
        remote,
        "1 train.data.path: `ftp://` is not known (write a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://` or `https://`)",
    );
    let empty = "train: {model: mlp, epochs: 1, batch: 1, data: {path: ''}}";
    check(empty, "1 train.data.path: the path is empty (write a path, relative to the job file)");
    check(&run_with("workdir: ."), "ok");
    check(&run_with("workdir: $HOME/code"), "2 workdir: variables in a path are not filled in (write the path out)");
    check(
        &run_with("workdir: {url: 'https://example.com/a.git', ref: main}"),
        "2 workdir.url: a git repository as `workdir` is not served yet (clone it and name its folder)
         2 workdir.ref: a git repository as `workdir` is not served yet (clone it and name its folder)",
    );
    check(&run_with("workdir: [a]"), "2 workdir: expected text, found a list");
}

#[test]
fn skypilot_keys_are_served_or_refused_by_name() {
    let check = |line: &str, expected: &str| check(&run_with(line), expected);
    check("resources: {cpus: 4+, memory: 32+, disk_size: 256, infra: local}", "ok");
    check("resources: {cpus: '4', memory: 32GiB, use_spot: no, accelerators: }", "ok");
    check("resources: {cpus: 0}", "2 resources.cpus: `0` is no number of cores (write for example `4` or `4+`)");
    check("resources: {memory: 2x}", "2 resources.memory: `2x` is no size in GB (write for example `32` or `32+`)");
    check(
        "resources: {infra: aws/us-east-1}",
        "2 resources.infra: only this machine can be rented yet (write `infra: local` or leave it out)
         ok",
    );
    check(
        "resources: {use_spot: true}",
        "2 resources.use_spot: spot machines cannot be rented yet (write `spot: never` or leave it out)
         ok",
    );
    check("resources: {acelerators: V100}", "2 resources.acelerators: unknown key (did you mean `accelerators`?)");
    check("resources: {job_recovery: none}", "ok");
    check("resources: {job_recovery: {max_restarts_on_errors: 3, recover_on_exit_codes: [33, 34]}}", "ok");
    check("resources: {job_recovery: {recover_on_exit_codes: 33}}", "ok");
    check(
        "resources: {job_recovery: FAILOVER}",
        "2 resources.job_recovery: expected `none` or a mapping, found the text `FAILOVER`",
    );
    check(
        "resources: {job_recovery: {strategy: FAILOVER}}",
        "2 resources.job_recovery.strategy: only this machine can be rented yet (leave it out; a lost attempt is tried again on this machine)",
    );
    check(
        "resources: {job_recovery: {recover_on_exit_codes: [256]}}",
        "2 resources.job_recovery.recover_on_exit_codes[0]: `256` is out of range: it must be at most 255",
    );
    check("num_nodes: 1", "ok");
    check(
        "num_nodes: 2",
        "2 num_nodes: a run on several machines is not served yet (write `num_nodes: 1` or leave it out)
         ok",
    );
    check("num_nodes: 0", "2 num_nodes: `0` is out of range: it must be at least 1");
    check(
        "secrets: {TOKEN: abc}",
        "2 secrets: secrets cannot be kept safely yet (let the program read them from a file that only you can read)",
    );
    check("secrets: {}", "ok");
    check(
        "file_mounts: {/data: s3://a}",
        "2 file_mounts: object stores and mounts are not served yet (put the files under `workdir`, which is copied to the machine)",
    );
    check(
        "volumes: {/data: a}",
        "2 volumes: object stores and mounts are not served yet (put the files under `workdir`, which is copied to the machine)",
    );
    check(
        "service: {replicas: 2}",
        "2 service: services are not served; a job runs to its end (write the program under `run:`)",
    );
    check(
        "mounts: {}",
        "2 mounts: unknown key (known keys here: `name`, `train`, `sweep`, `workload`, `data`, `budget`, `deadline`, `envs`, `resources`, `workdir`, `num_nodes`, `setup`, `run`)",
    );
}

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
    check("steps: many", "6 workload.steps: `many` is no number (write for example `1281167`, `1.28M` or `300B`)");
    check("steps: 0", "6 workload.steps: nothing is learned from no steps (write how many there are)");
    check("epochs: 0", "6 workload.epochs: `0` is out of range: it must be above 0");
    check("epochs: 1\n  optimizer: adamm", "7 workload.optimizer: `adamm` is not known here (did you mean `adam`?)");
    let described = |model: &str| format!("run: echo\nworkload: {{model: {model}, batch: 64, steps: 5}}\n");
    super::tests::check(&described("{config: {model_type: bert, layers: [1, 2.5, yes, ~], tie: true}}"), "ok");
    super::tests::check(&described("{totals: {parameters: 25.6M, multiply_adds: 4.1G, activations: 11M}}"), "ok");
    super::tests::check(
        &described("{totals: {parameters: 25.6M, multiply_adds: 4.1G}}"),
        "2 workload.model.totals.activations: this key is missing (add `activations: …`: values that convolutions and linear layers write in one forward pass of one sample)",
    );
    super::tests::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\n",
        "2 workload.epochs: epochs are counted in samples, and their number is not said (write `data: {samples: …}`, or `steps: …` instead of `epochs`)",
    );
    super::tests::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 0}\n",
        "3 data.samples: nothing is learned from no samples (write how many there are)",
    );
    super::tests::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 10}\n",
        "2 workload.batch: a batch of 64 is more than the 10 training samples (write `batch: 10` or less)",
    );
    super::tests::check(
        &(train_with("seed: 1") + "workload: {model: a.onnx, batch: 64, steps: 5}\n"),
        "7 workload: `train:` says itself what is trained (leave `workload` out, or write `run:` instead of `train:`)",
    );
}

#[test]
fn ways_of_learning_make_sense() {
    let check = |line: &str, expected: &str| check(&train_with(line), expected);
    check("optimizer: {lamb: {lr: 0.01}}", "ok");
    check("optimizer: {adafactor: {lr: 0.01, clip: 2, eps: 0.01, beta2_decay: -0.7, weight_decay: 0.1}}", "ok");
    check(
        "optimizer: {lamb: {lr: 0.01, betas: [1, 0.9]}}",
        "6 train.optimizer.lamb.betas[0]: `1` is out of range: it must be at least 0 and below 1 (the usual betas are `[0.9, 0.999]`)",
    );
    check(
        "optimizer: {adafactor: {lr: 0.01, beta2_decay: 0.8}}",
        "6 train.optimizer.adafactor.beta2_decay: `0.8` is out of range: it must be below 0",
    );
    check("parameters: {decay: matrices, layer_rate: 0.9, freeze: [fc1.]}", "ok");
    check(
        "parameters: {decay: some}",
        "6 train.parameters.decay: `some` is not known here (write one of `all`, `matrices`)",
    );
    check(
        "parameters: {layer_rate: 1.5}",
        "6 train.parameters.layer_rate: `1.5` is out of range: it must be at most 1",
    );
    check(
        "parameters: {freeze: ['']}",
        "6 train.parameters.freeze[0]: every name begins with nothing, so nothing would be trained (write for example `layer1.`)",
    );
    check(
        "parameters: {freeze: [fc1., fc1.]}",
        "6 train.parameters.freeze[1]: `fc1.` stands here twice (keep one of the two)",
    );
    check("schedule: {decay: linear, floor: 0.1, warmup: 3 steps}", "ok");
    check("schedule: {decay: {poly: {power: 2}}}", "ok");
    check(
        "schedule: {decay: {poly: {power: 0}}}",
        "6 train.schedule.decay.poly.power: `0` is out of range: it must be above 0",
    );
    check("schedule: {decay: {one_cycle: {}}}", "ok");
    check(
        "schedule: {decay: {one_cycle: {rise: 100%}}}",
        "6 train.schedule.decay.one_cycle.rise: a cycle rises and falls, so neither takes all of it (`30%` is usual)",
    );
    check(
        "schedule: {decay: {one_cycle: {}}, warmup: 5 steps}",
        "6 train.schedule.warmup: one cycle rises by itself (leave the key out, or set `one_cycle.rise`)",
    );
    check(
        "schedule: {floor: 0.1}",
        "6 train.schedule.floor: this way down does not go to zero, so it has no floor (leave the key out, or write `decay: cosine`)",
    );
    check("average: {ema: {}}", "ok");
    check("average: {ema: {decay: 1}}", "6 train.average.ema.decay: `1` is out of range: it must be below 1");
    check("average: {swa: {from: 0, batches: 3}}", "ok");
    check(
        "average: {swa: {from: 99}}",
        "6 train.average.swa.from: epoch 99 is never reached; the run has 3, counted from 0 (three quarters of the epochs are usual)",
    );
    check("recompute: none", "ok");
    check(
        "recompute: blocks",
        "6 train.recompute: `cnn` has no blocks that could be computed again (leave the key out)",
    );
    check("recompute: some", "6 train.recompute: `some` is not known here (write one of `none`, `blocks`, `every`)");
    let blocks =
        |line: &str, expected: &str| super::tests::check(&train_with(line).replace("cnn", "resnet20"), expected);
    blocks("recompute: blocks", "ok");
    blocks("recompute: {every: 2}", "ok");
    blocks("recompute: {every: 1}", "6 train.recompute.every: `1` is out of range: it must be at least 2");
}

#[test]
fn machines_of_clouds_can_be_planned_and_not_yet_rented() {
    let check = |line: &str, expected: &str| check(&run_with(&format!("resources: {{{line}}}")), expected);
    let gpu = "2 resources.accelerators: accelerators cannot be rented yet (leave it out to work on this machine's processor cores)\nok";
    check("accelerators: A100:8", gpu);
    check("accelerators: [A100:8, 40GB+:4]", gpu);
    check("accelerators: {A100: 8, H100: 8}", gpu);
    check("spot: never, dedicated: false, nodes: 1, use_spot: false", "ok");
    check(
        "accelerators: A100:0",
        "2 resources.accelerators: `A100:0` is no request for accelerators: it asks for none (write for example `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8` or `24GB`)",
    );
    check(
        "compliance: [gdpr, pci]",
        "2 resources.compliance: `pci` is none of `gdpr`, `hipaa`, `iso27001` and `soc2` (write for example `compliance: [gdpr, iso27001]`)",
    );
    check(
        "use_spot: true, spot: never",
        "2 resources.use_spot: `use_spot` and `spot` contradict each other (keep `spot`)",
    );
    check(
        "infra: local, cloud: aws",
        "2 resources.infra: `infra: local` is this machine, and other keys ask for one of a cloud (leave `infra` out to plan over everything that is offered)",
    );
    check(
        "infra: gcp/us-central1, region: us-east1",
        "2 resources.infra: `infra` names a place, and so do `cloud` or `region` (keep one of the two)",
    );
    check(
        "max_price: 0",
        "2 resources.max_price: no machine is rented for nothing (write a price such as `$30/h`, or leave it out)",
    );
    check(
        "nodes: [0, 1]",
        "2 resources.nodes: a run has from 1 to 4096 machines (write for example `nodes: [1, 2, 4]`)",
    );
    check(
        "dedicated: true, spot: only",
        "2 resources.dedicated: no cloud rents dedicated machines as spot machines (leave one of the two out)",
    );
    super::tests::check(
        "run: a\nnum_nodes: 2\nresources: {nodes: [4]}\n",
        "2 num_nodes: `num_nodes` and `resources.nodes` contradict each other (keep one of the two)",
    );
}

#[test]
fn every_refused_key_says_why() {
    for key in SKY_KEYS {
        let (why, hint) = match key.served {
            Served::Yes | Served::Planned { .. } => continue,
            Served::No { why, hint } => (why, hint),
        };
        let mut yaml = String::from("run: echo");
        for (depth, part) in key.path.split('.').enumerate() {
            write!(yaml, "\n{}{part}:", " ".repeat(depth)).unwrap();
        }
        yaml.push_str(" something\n");
        let line = yaml.lines().count();
        check(&yaml, &format!("{line} {}: {why} ({hint})", key.path));
    }
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
    let is_served = |key: &&SkyKey| !matches!(key.served, Served::No { .. });
    let mut served: Vec<&str> = SKY_KEYS.iter().filter(is_served).map(|key| key.path).collect();
    fields.retain(|field| !served::OUR_PLANNED.iter().any(|key| key.path == field));
    fields.sort();
    served.sort();
    assert_eq!(fields, served);
}

#[test]
fn scalars_follow_the_section_they_stand_in() {
    // SkyPilot's keys are read as PyYAML reads them, ours by YAML 1.2.
    let yaml =
        "envs: {A: yes, B: 010, C: 1:30, D: 1e3, E: 0o10, F: 1_000, G: 1.0, H: '010', I: 2024-01-31, J: ''}\nrun: a\n";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    let expected = ["True", "8", "90", "1e3", "0o10", "1000", "1.0", "010", "2024-01-31", ""];
    assert_eq!(job.envs.values().collect::<Vec<_>>(), expected);
    check(
        "run: a\nname: on\n",
        "2 name: expected text, found `on`, which YAML reads as `true` (put it in quotes: `\"on\"`)",
    );
    check(
        "run: a\nname: 010\n",
        "2 name: expected text, found `010`, which YAML reads as the number `8` (put it in quotes: `\"010\"`)",
    );
    check("run: a\nresources: {cpus: 010}\n", "ok");
    check(&train_with("seed: 010"), "ok");
    check(&train_with("seed: 0o10"), "ok");
    check(&train_with("seed: 1_000"), "6 train.seed: expected a whole number, found the text `1_000`");
    let seed = |text: &str| match Job::parse(&train_with(&format!("seed: {text}")), "job.yaml").unwrap().job.work {
        Work::Train(train) => train.seed,
        Work::Command(_) => unreachable!(),
    };
    assert_eq!((seed("010"), seed("0o10")), (10, 8));
    check(
        "run: a\nenvs: {A: }\n",
        "2 envs.A: expected text, found nothing (write a value in quotes; `\"\"` is the empty text)",
    );
    check("run: a\nenvs: {A: [b]}\n", "2 envs.A: expected text, found a list");
    check(
        "run: a\nenvs: {A: 2024-01-31T12:00:00Z}\n",
        "2 envs.A: expected text, found the date `2024-01-31T12:00:00Z` (write a value in quotes; `\"\"` is the empty text)",
    );
    check(
        "run: a\nenvs: {1A: b}\n",
        "2 envs.1A: `1A` is no name of a variable (use letters, digits and `_`, and no digit first)",
    );
    check("run: a\nenvs: [A=b]\n", "2 envs: expected a mapping, found a list");
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
        "2 budget.max: this key is missing (add `max: …`: at this amount the run saves its state and stops)",
    );
    check(
        "budget: {max: $1, alert: 0}",
        "2 budget.alert: the alert at nothing would come at once (write a share such as `80%`)",
    );
    check("budget: {max: 1.0000001}", "2 budget.max: `1.0000001` is finer than a micro-dollar");
    check("budget: $5", "2 budget: expected a mapping, found the text `$5`");
    check("deadline: 1h30m", "ok");
    check("deadline: 90", "ok");
    check("deadline: 0s", "2 deadline: no job ends in no time (write a duration such as `2h`, or leave it out)");
    check("deadline: true", "2 deadline: expected a duration such as `1h30m`, found `true`");
    check("deadline: tomorrow", "2 deadline: `tomorrow` is no duration (write for example `90s`, `10m` or `1h30m`)");
}

#[test]
fn defaults_and_names_are_filled_in() {
    let name = |file: &str| Job::parse("run: a", file).unwrap().job.name;
    assert_eq!(name("examples/digits.yaml"), "digits");
    assert_eq!(name("My Job_2.yml"), "my-job-2");
    assert_eq!(name("數.yaml"), "job");
    assert_eq!(name(&"a".repeat(100)).len(), 63);

    let mut job = Job::parse(include_str!("../../../../examples/digits.yaml"), "digits.yaml").unwrap().job;
    job.resolve(Path::new("/home/me/examples"));
    let Work::Train(train) = &job.work else { panic!("digits trains") };
    assert_eq!(train.data.path, "/home/me/examples/digits.csv.gz");
    assert_eq!((train.accumulate, train.deterministic, train.checkpoint.keep), (1, true, 3));
    let again: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
    assert_eq!(again, job);

    let yaml = "run: a\nresources: {cpus: 2.5, memory: 0.5, disk_size: 10GiB, job_recovery: {max_restarts_on_errors: 2, recover_on_exit_codes: 7}}";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    assert_eq!(job.needs.cores, Some(3));
    assert_eq!(job.needs.memory.map(|size| size.0), Some(500_000_000));
    assert_eq!(job.needs.disk.map(|size| size.0), Some(10 << 30));
    assert_eq!(
        (job.recovery.restarts, job.recovery.restarts_on_errors, &job.recovery.exit_codes[..]),
        (20, 2, &[7][..])
    );
    assert_eq!(Job::parse("run: a\nresources: {job_recovery: none}", "a").unwrap().job.recovery.restarts, 0);
}

/// What does not fit the budget is refused after a bounded amount of work: each of these is read in milliseconds,
/// and would take minutes or all memory without the budget.
#[test]
fn bombs_are_refused() {
    let mut billion = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(billion, "a{level}: &a{level} [{below}]").unwrap();
    }
    let many = (0..60_000).map(|index| format!("k{index}: 1\n")).collect::<String>();
    let half = MAX_BYTES / 2;
    let cases = [
        (billion, "unfolds to more than 50000 keys and values"),
        (many, "unfolds to more than 50000 keys and values"),
        ("[".repeat(half), "nested more than 32 deep"),
        ("{a: ".repeat(half / 4), "nested more than 32 deep"),
        ("- ".repeat(half), "nested more than 32 deep"),
        ("? ".repeat(half), "nested more than 32 deep"),
        ("a: &a [&b [&c [*a]]]".to_owned(), "an alias stands inside the value that it names"),
        ("x".repeat(MAX_BYTES + 1), "a job file has at most 1048576"),
        (format!("run: {}", "x".repeat(half)), "at most 131071 can be handed to a program"),
        ("\"".repeat(half), "not YAML"),
        ("&a ".repeat(half / 3), "not YAML"),
        ("%".repeat(half), "not YAML"),
    ];
    for (yaml, expected) in cases {
        let said = said(&yaml);
        assert!(said.contains(expected), "{expected}\n{}", said.chars().take(300).collect::<String>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        said(&String::from_utf8_lossy(&bytes));
    }

    /// Pieces that mean something to YAML or to us, in any order.
    #[test]
    fn no_pieces_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        said(&pieces.iter().map(|piece| PIECES[*piece]).collect::<String>());
    }

    /// A right file with one byte changed is right or has a problem with a message.
    #[test]
    fn no_change_of_a_right_file_panics(at in 0usize..500, byte in any::<u8>()) {
        let mut bytes = include_bytes!("../../../../examples/cifar10.yaml").to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        prop_assert!(!said(&String::from_utf8_lossy(&bytes)).is_empty());
    }
}

const PIECES: [&str; 48] = [
    "train",
    "run",
    "data",
    "model",
    "optimizer",
    "sgd",
    "lr",
    "envs",
    "resources",
    "cpus",
    "job_recovery",
    "budget",
    "max",
    "split",
    "augment",
    "pad_crop",
    "path",
    "cnn",
    "folders",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "<<",
    "!!str ",
    "'",
    "\"",
    "|\n",
    "? ",
    "0",
    "-1",
    "1e999",
    "1:30",
    ".nan",
    "yes",
    "null",
    "é",
    "\t",
    "#",
];

/// A job over a module that is right but for `lines`.
fn module_with(lines: &str) -> String {
    format!("train:\n  model: {{torchscript: nets/m.pt}}\n  epochs: 3\n  batch: 64\n{lines}\n")
}

#[test]
fn modules_are_read_with_their_loss() {
    let data = "  data: {path: d.csv}";
    let text = "  data: {path: d.csv, text: {label: kind}}";
    check(&module_with(&format!("{data}\n  loss: cross_entropy")), "ok");
    check(&module_with(&format!("{text}\n  loss: cross_entropy")), "ok");
    check(&module_with("  data: {path: d.txt, text: {}}\n  loss: next_word"), "ok");
    check(&module_with("  data: {path: d.txt, text: {}}\n  loss: masked_words"), "ok");
    check(
        &module_with(data),
        "1 train.loss: what `nets/m.pt` learns is not said (write `loss: cross_entropy` for classes, `next_word` or `masked_words` for text without them)",
    );
    check(
        &module_with(&format!("{data}\n  loss: next_word")),
        "5 train.data.text: words are learnt, and where they stand in the data is not said (write for example `text: {columns: [text]}`)",
    );
    check(
        &module_with("  data: {path: d.txt, text: {}}\n  loss: cross_entropy"),
        "5 train.data.text.label: classes of texts are learnt, and where they stand in the data is not said (name their column, such as `label: label`)",
    );
    check(
        &module_with(&format!("{data}\n  loss: hinge\n  recompute: blocks")),
        "6 train.loss: `hinge` is not known here (write one of `cross_entropy`, `next_word`, `masked_words`)
         7 train.recompute: `nets/m.pt` has no blocks that could be computed again (leave the key out)",
    );
    check(&train_with("loss: cross_entropy"), "6 train.loss: `cnn` has a loss of its own (leave the key out)");
    let with_model = |model: &str| train_with("").replace("cnn", model);
    check(&with_model("torchscript"), "2 train.model: `torchscript` needs a value (write `torchscript: …`)");
    let empty = module_with(&format!("{data}\n  loss: cross_entropy")).replace("nets/m.pt", "\"\"");
    check(&empty, "2 train.model.torchscript: the path is empty (write a path, relative to the job file)");

    let parsed = Job::parse(&module_with(&format!("{data}\n  loss: cross_entropy")), "job.yaml").unwrap();
    let mut job = parsed.job;
    job.resolve(Path::new("/home/me"));
    let Work::Train(train) = &job.work else { panic!("it is a `train:` job") };
    assert_eq!(train.model.name(), "/home/me/nets/m.pt");
    // As it is handed on, and as it was before there were modules.
    let text = serde_json::to_value(&train.model).unwrap();
    assert_eq!(text, serde_json::json!({"torchscript": "/home/me/nets/m.pt"}));
    assert_eq!(serde_json::from_value::<ModelSource>(text).unwrap(), train.model);
    let named: ModelSource = serde_json::from_str("\"vit_s_16\"").unwrap();
    assert_eq!(named.named(), Some(crate::train::Model::VitS16));
}
