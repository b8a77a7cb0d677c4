//! Keys of PyTorch, Lightning, Hugging Face and Keras that `train:` names differently, with hints.

/// A key of `train` as other tools spell it, and the hint.
const KEYS: [(&[&str], &str); 12] = [
    (
        &["learning_rate", "lr", "base_lr", "max_lr"],
        "the learning rate belongs to the optimizer: write `optimizer: {adamw: {lr: 0.001}}`",
    ),
    (
        &["weight_decay", "momentum", "betas", "nesterov"],
        "this belongs to the optimizer: write for example `optimizer: {sgd: {lr: 0.1, momentum: 0.9, weight_decay: 5e-4}}`",
    ),
    (
        &["batch_size", "per_device_train_batch_size", "train_batch_size"],
        "write `batch`: the samples of a step on all ranks",
    ),
    (
        &["steps", "max_steps", "num_steps", "total_steps", "iterations", "max_iters"],
        "the length is in epochs: write `epochs`, which are passes over the training split",
    ),
    (&["max_epochs", "num_epochs", "num_train_epochs", "nb_epochs"], "write `epochs`"),
    (&["gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum"], "write `accumulate`"),
    (&["lr_scheduler", "scheduler", "lr_schedule"], "write `schedule`"),
    (&["gpus", "devices", "num_processes", "nproc_per_node"], "write `processes`: the ranks that share each batch"),
    (&["fp16", "bf16", "amp", "dtype", "mixed_precision"], "write `precision`, such as `precision: bf16`"),
    (&["gradient_clip_val", "max_grad_norm", "clip_grad_norm", "grad_clip"], "write `clip_norm`"),
    (&["num_workers", "workers"], "this belongs to the data: write `data: {path: …, workers: 4}`"),
    (&["dataset", "data_dir", "train_data"], "write `data: {path: …}`"),
];

/// Keys of other sections, by their whole path.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (
        &["model", "epochs", "batch", "batch_size", "optimizer", "checkpoint", "precision", "loss", "seed"],
        "this belongs to the trainer: write it below `train:`",
    ),
    (
        &["schedule.decay", "schedule.warmup", "schedule.floor"],
        "this is of the learning rate: write `schedule` below `train:`; here it says when the job is run",
    ),
    (&["resources.gpu", "resources.gpus"], "write `accelerators`, such as `accelerators: A100:1`"),
    (&["gpu", "gpus", "accelerators", "cpus", "memory", "region", "cloud"], "this belongs to `resources:`"),
    (
        &["train.data.samples", "train.data.bytes"],
        "this describes files that are not here yet: write `data: {samples: 50000, bytes: 5 GB}` beside `train:`",
    ),
    (
        &["recovery", "job_recovery", "max_restarts", "resources.max_restarts"],
        "write `resources: {job_recovery: {max_restarts: 3}}`",
    ),
    (&["train.device", "train.accelerator"], "leave it out: the trainer uses a GPU where there is one"),
];

/// The hint for an unknown key at this path; `None` if no other tool is known to have it.
pub(super) fn instead(path: &str) -> Option<&'static str> {
    let found = ELSEWHERE.iter().find(|(paths, _)| paths.contains(&path)).map(|(_, hint)| *hint);
    if found.is_some() {
        return found;
    }
    let name = path.strip_prefix("train.")?;
    if name.starts_with("optimizer.") && matches!(name.rsplit('.').next(), Some("learning_rate" | "base_lr")) {
        return Some("write `lr`");
    }
    KEYS.iter().find(|(keys, _)| keys.contains(&name)).map(|(_, hint)| *hint)
}

/// What to write where the value at this path is of another kind than it can be.
pub(super) fn in_form(path: &str) -> Option<String> {
    let form = match path {
        "train" => "train: {model: cnn, data: {path: FOLDER}, epochs: 10, batch: 64}",
        "train.schedule" => "schedule: {decay: cosine}",
        "train.checkpoint" => "checkpoint: {every: 10m}",
        "train.data.split" => {
            "split: [0.8, 0.1, 0.1]`, the shares of training, validation and test, or `split: folders"
        }
        "workload.parallel" => "parallel: {fsdp: 8, tensor: 2}",
        "workload.adapters" => "adapters: {kind: lora, rank: 16}",
        "workload.adapters.targets" => "targets: all_linear",
        "envs" => "envs: {NAME: value}",
        "hang_after" => "hang_after: {step: 10m}",
        "setup" => "setup: |`, and a command on each line below: `  pip install numpy",
        _ => return None,
    };
    Some(format!("write `{form}`"))
}

/// The hint for an amount at this path, in place of its parser's general one.
pub(super) fn of_amount(path: &str) -> Option<&'static str> {
    match path {
        "deadline" => Some("write the time from submission, such as `90m`, `12h` or `2d`"),
        "budget.max" => Some("amounts are in US dollars: write for example `$120` or `0.35`"),
        _ => None,
    }
}

/// The known word that another tool writes with a module before it or as a type of PyTorch: `torchvision.models.resnet50`
/// or `float32`.
pub(super) fn in_our_words<'word>(text: &str, known: &[&'word str]) -> Option<&'word str> {
    let last = text.rsplit('.').next().unwrap_or(text).to_lowercase();
    let short = match last.as_str() {
        "float32" | "float" | "32" | "full" => "fp32",
        "float16" | "half" | "16" => "fp16",
        "bfloat16" => "bf16",
        other => other,
    };
    known.iter().copied().find(|word| *word == short)
}

/// The hint for a number format of 4 or 8 bits that no estimate knows; none for another text, or where no format is asked for.
pub(super) fn narrow_format(text: &str, known: &[&str]) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let is_narrow = ["fp4", "fp8", "float8", "float4", "e4m3", "e5m2", "e2m1"].iter().any(|name| lower.contains(name));
    let hint = "write `fp8`: estimates have one FP8 for all recipes of scaling, and no FP4";
    (is_narrow && known.contains(&"fp8")).then_some(hint)
}

/// Families of models that are not here, and the model here that does the same work.
const FAMILIES: [(&[&str], &str); 6] = [
    (
        &[
            "llama", "mistral", "mixtral", "qwen", "gemma", "falcon", "opt-", "phi-", "gpt", "pythia", "deepseek",
            "bloom",
        ],
        "gpt2",
    ),
    (&["bert", "electra", "xlm", "modernbert"], "bert_base"),
    (&["vgg", "alexnet", "densenet", "resnext", "regnet", "inception", "googlenet", "resnet"], "resnet50"),
    (&["deit", "swin", "beit", "maxvit", "vit"], "vit_s_16"),
    (&["mobilenet", "squeezenet", "shufflenet", "mnasnet"], "mobilenet_v3_small"),
    (&["yolo", "ssd", "rcnn", "retinanet", "detr"], "yolo_s"),
];

/// The hint for a model that is not among `choices`: the one there that does the same work, and how to train another.
pub(super) fn similar_model(text: &str, choices: &[&str]) -> Option<String> {
    let lower = text.to_lowercase();
    let is_of = |family: &&(&[&str], &'static str)| family.0.iter().any(|name| lower.contains(name));
    let (_, near) = FAMILIES.iter().find(is_of).filter(|(_, near)| choices.contains(near))?;
    Some(format!(
        "the nearest here is `{near}`; any other model trains as a program of your own under `run:`, or as \
         `{{torchscript: FILE.pt}}`"
    ))
}
