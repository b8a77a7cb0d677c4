//! The `train:` section, but for its data.

use std::path::Path;

use super::{Job, check, run_with, train_with};
use crate::job::Work;
use crate::train::{Model, ModelSource};

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
    check("optimizer: {adamw: {lr: 0x1}}", "ok");
    check("optimizer: {sgd: {lr: 30}}", "ok");
    check(
        "optimizer: {adamw: {lr: 1e9}}",
        "6 train.optimizer.adamw.lr: a learning rate of 1000000000 most likely diverges in the first steps (`lr: 0.001` is usual for `adamw`)
         ok",
    );
    check("label_smoothing: 1", "6 train.label_smoothing: `1` is out of range: it must be below 1");
    check("label_smoothing: 0.1", "ok");
    check("class_weights: balanced", "ok");
    check("class_weights: [1, 2.5, 0]", "ok");
    check(
        "class_weights: balance",
        "6 train.class_weights: expected `balanced` or a list, found the text `balance` (did you mean `balanced`?)",
    );
    check(
        "class_weights: [1, -1]",
        "6 train.class_weights: `-1` is no weight of a class (write numbers of at least 0)",
    );
    check(
        "class_weights: [0, 0]",
        "6 train.class_weights: no class counts, so nothing would be trained (write a weight above 0)",
    );
    check("validate_every: 500 steps", "ok");
    check("export_every: 1 epochs", "ok");
    check(
        "validate_every: 0 steps",
        "6 train.validate_every: no step lies between two (write for example `500 steps`)",
    );
    check(
        "validate_every: 500",
        "6 train.validate_every: `500` is no stretch of training (write for example `5 epochs` or `200 steps`)",
    );
    check(
        "export_every: 9 epochs",
        "6 train.export_every: 9 epochs are longer than the run, which has 3 (only the last step counts)
         ok",
    );
    check("stop: {patience: 5}", "ok");
    check("stop: {}", "6 train.stop: when to stop is not said (write `accuracy: 98%`, `patience: 5` or `epochs: 3`)");
    check("parameters: {groups: [{names: [fc.], lr_factor: 10, decay_factor: 0}]}", "ok");
    check(
        "parameters: {groups: [{names: []}]}",
        "6 train.parameters.groups[0].names: the group has no parameters (write for example `names: [fc.]`)",
    );
    check("clip_norm: 0", "6 train.clip_norm: `0` is out of range: it must be above 0");
    check("clip_norm: null", "ok");
    check(
        "checkpoint: {every: 0 steps}",
        "6 train.checkpoint.every: `0 steps` is no interval (write for example `auto`, `500 steps` or `10m`)",
    );
    check("checkpoint: {every: 10m, keep: 1, mtbf: 2 days}", "ok");
    check("checkpoint: {keep: 1, keep_every: 10}", "ok");
    check("checkpoint: {keep_every: 0}", "6 train.checkpoint.keep_every: `0` is out of range: it must be at least 1");
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
    check("precision: 16", "6 train.precision: `16` is not known here (did you mean `fp16`?)");
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
    check(
        "schedule: cosine",
        "6 train.schedule: expected a mapping, found the text `cosine` (write `schedule: {decay: cosine}`)",
    );
    check("stop: 98%", "6 train.stop: expected a mapping, found the text `98%`");
    check(
        "colour: 1",
        "6 train.colour: unknown key (known keys here: `model`, `loss`, `weights`, `data`, `epochs`, `batch`, `accumulate`, `processes`, `parallel`, `precision`, `optimizer`, `parameters`, `schedule`, `average`, `offload`, `recompute`, `chunked_loss`, `cuda_graphs`, `dropout`, `label_smoothing`, `class_weights`, `clip_norm`, `memory_format`, `seed`, `threads`, `deterministic`, `validate_every`, `export_every`, `stop`, `checkpoint`, `profile`)",
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
        "7 train.parallel.shard: with `tensor`, the optimizer state cannot be sharded by itself (write `shard: gradients`, which includes it)
         7 train.parallel.tensor: `adafactor` looks at whole tensors, of which each rank has a part (choose `adamw` or `sgd`)",
    );
    check("vit_s_16", "dropout: 0.1", "6 train.dropout: `vit_s_16` leaves nothing out (leave the key out)");
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
    check("cuda_graphs: true", "ok");
    check(
        "cuda_graphs: true\n  processes: 2",
        "6 train.cuda_graphs: ranks exchange gradients in the backward pass, so a step cannot be captured as a CUDA graph (leave the key out)",
    );
    check("recompute: some", "6 train.recompute: `some` is not known here (write one of `none`, `blocks`, `every`)");
    let blocks = |line: &str, expected: &str| super::check(&train_with(line).replace("cnn", "resnet20"), expected);
    blocks("recompute: blocks", "ok");
    blocks("recompute: {every: 2}", "ok");
    blocks("recompute: {every: 1}", "6 train.recompute.every: `1` is out of range: it must be at least 2");
    blocks(
        "chunked_loss: true",
        "6 train.chunked_loss: `resnet20` has no logits for every token, so there is nothing to compute in chunks (leave the key out)",
    );
}

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
        "1 train.loss: what `nets/m.pt` learns is not said (write `loss: cross_entropy` for classes, `bce` for several per sample, `mse` for numbers, `next_word` or `masked_words` for text without them)",
    );
    check(
        &module_with(&format!("{data}\n  loss: next_word")),
        "5 train.data.text: the model is trained on tokens, but nothing says where the data has its texts (write for example `text: {columns: [text]}`)",
    );
    check(
        &module_with("  data: {path: d.txt, text: {}}\n  loss: cross_entropy"),
        "5 train.data.text.label: the model classifies texts, but nothing says which column is the class (name their column, such as `label: label`)",
    );
    check(
        &module_with(&format!("{data}\n  loss: hinge\n  recompute: blocks")),
        "6 train.loss: `hinge` is not known here (write one of `cross_entropy`, `bce`, `mse`, `next_word`, `masked_words`)
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
    // In its current serialization, and in that from before modules existed.
    let text = serde_json::to_value(&train.model).unwrap();
    assert_eq!(text, serde_json::json!({"torchscript": "/home/me/nets/m.pt"}));
    assert_eq!(serde_json::from_value::<ModelSource>(text).unwrap(), train.model);
    let named: ModelSource = serde_json::from_str("\"vit_s_16\"").unwrap();
    assert_eq!(named.named(), Some(Model::VitS16));
}

#[test]
fn words_of_other_tools_are_answered_with_what_to_write_here() {
    check(
        &train_with("optimizer: adam"),
        "6 train.optimizer: expected `sgd: …`, `adamw: …`, `lamb: …`, `lars: …` or `adafactor: …`, found the text `adam` \
         (did you mean `adamw: {lr: …}`?)",
    );
    check(
        &train_with("learning_rate: 0.1\n  batch_size: 8"),
        "6 train.learning_rate: unknown key (the learning rate belongs to the optimizer: write `optimizer: {adamw: {lr: 0.001}}`)
         7 train.batch_size: unknown key (write `batch`: the samples of a step on all ranks)",
    );
    check(
        &(train_with("seed: 1") + "budget: $5\n"),
        "7 budget: expected a mapping, found the text `$5` (write `budget: {max: $5}`)",
    );
}

#[test]
fn a_variable_without_a_value_is_left_to_the_command_line() {
    let parsed = Job::parse(&(run_with("envs: {TOKEN: null, A: 1}")), "job.yaml").unwrap();
    assert_eq!(parsed.job.envs.keys().collect::<Vec<_>>(), ["A"]);
    let [unset] = &parsed.unset[..] else { panic!("{:?}", parsed.unset) };
    assert_eq!((unset.key.as_str(), unset.line), ("envs.TOKEN", Some(2)));
    assert_eq!(unset.hint.as_deref(), Some("pass `--env TOKEN=VALUE`, or write a value; `\"\"` is the empty text"));
}

#[test]
fn words_of_other_tools_are_translated() {
    let check = |line: &str, expected: &str| check(&train_with(line), expected);
    check("precision: float32", "6 train.precision: `float32` is not known here (did you mean `fp32`?)");
    check("precision: torch.bfloat16", "6 train.precision: `torch.bfloat16` is not known here (did you mean `bf16`?)");
    check(
        "max_steps: 100",
        "6 train.max_steps: unknown key (the length is in epochs: write `epochs`, which are passes over the training split)",
    );
    check(
        "optimizer: {type: AdamW, lr: 0.1}",
        "6 train.optimizer: expected one key, found 2 (write `optimizer: {adamw: {…}}`)",
    );
    let model = |model: &str, expected: &str| {
        super::check(&train_with("seed: 1").replace("model: cnn", &format!("model: {model}")), expected);
    };
    model(
        "torchvision.models.resnet50",
        "2 train.model: `torchvision.models.resnet50` is not known here (did you mean `resnet50`?)",
    );
    model(
        "./model.py",
        "2 train.model: `./model.py` is not known here (a Python file is a program of its own: write `run: python FILE.py` in place of `train:`)",
    );
    model("{name: resnet18}", "2 train.model.name: unknown kind (write `model: resnet18`)");
}

#[test]
fn models_that_are_not_here_have_one_that_does_the_same() {
    let hint = |model: &str| {
        let text = format!("train: {{model: {model}, data: {{path: d}}, epochs: 1, batch: 8}}");
        Job::parse(&text, "job.yaml").unwrap_err().problems[0].hint.clone().unwrap()
    };
    for (model, near) in [
        ("llama", "gpt2"),
        ("meta-llama/Llama-3-8B", "gpt2"),
        ("distilbert-base-uncased", "bert_base"),
        ("vgg16", "resnet50"),
        ("swin_t", "vit_s_16"),
        ("fasterrcnn", "yolo_s"),
    ] {
        assert!(hint(model).starts_with(&format!("the nearest here is `{near}`; any other model trains")), "{model}");
    }
    assert!(hint("completely_else").starts_with("write one of `mlp`"));
}

#[test]
fn a_deadline_without_a_unit_is_seconds_and_says_so() {
    check(
        &run_with("deadline: 5"),
        "2 deadline: a bare number is in seconds: the run ends 5 s after its submission (write the unit: `5m`, `5h`, or `5s` if seconds are meant)
         ok",
    );
    check(&run_with("deadline: 5s"), "ok");
}

#[test]
fn variables_that_gradus_sets_are_not_the_job_s() {
    let unused =
        "gradus sets this variable for each process, so this value is not used (leave it out, or use another name)";
    check(
        &run_with("envs: {RANK: 1, MINE: 2,\n  GRADUS_CHECKPOINTS: /x}"),
        &format!("2 envs.RANK: {unused}\n3 envs.GRADUS_CHECKPOINTS: {unused}\nok"),
    );
}

#[test]
fn labels_are_classes_several_or_a_number() {
    let of = |model: &str, data: &str, keys: &str| {
        format!("train:\n  model: {model}\n  epochs: 3\n  batch: 64\n  data: {{path: d.csv{data}}}\n{keys}\n")
    };
    check(&of("cnn", ", labels: class", ""), "ok");
    check(&of("resnet18", ", labels: multi_label", ""), "ok");
    check(&of("bert_mini", ", labels: number, text: {label: score}", ""), "ok");
    check(&of("{torchscript: m.pt}", ", labels: multi_label", "  loss: bce"), "ok");
    check(&of("{torchscript: m.pt}", ", labels: number", "  loss: mse"), "ok");
    check(
        &of("cnn", ", labels: many", ""),
        "5 train.data.labels: `many` is not known here (write one of `class`, `multi_label`, `number`)",
    );
    check(
        &of("{torchscript: m.pt}", ", labels: number", "  loss: bce"),
        "6 train.loss: the labels of this loss are `multi_label`, and `data.labels` says otherwise (write `data: {labels: multi_label}`, or another loss)",
    );
    check(
        &of("gpt_tiny", ", labels: number, text: {}", ""),
        "5 train.data.labels: `gpt_tiny` is not trained on numbers (leave the key out, or choose a classifier; of texts, name the column with `data.text.label`)",
    );
    check(
        &of("cnn", ", labels: multi_label, classes: 9, sampling: balanced, augment: [flip, mixup: 0.4]", "  class_weights: balanced\n  label_smoothing: 0.1"),
        "5 train.data.sampling: this is for one class per sample, and `data.labels` is `multi_label` (leave the key out)
         5 train.data.classes: this is for one class per sample, and `data.labels` is `multi_label` (leave the key out)
         5 train.data.augment[1]: classes are mixed, and `data.labels` is `multi_label` (leave it out)
         6 train.class_weights: this is for one class per sample, and `data.labels` is `multi_label` (leave the key out)
         7 train.label_smoothing: this is for one class per sample, and `data.labels` is `multi_label` (leave the key out)",
    );
}
