//! Whole runs in this process, on the digits of the repository, with an agent played by a thread.
//!
//! Every run uses the process' random number generator, so runs take turns.

mod modules;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use domain::finding::{Cause, Finding};
use domain::id::{AttemptId, Fence, RunId};
use domain::rank::{EvaluatedSplit, Exported, Order, Report, SPEC_SCHEMA, Spec};
use domain::train::Train;
use serde_json::{Value, json};
use tch::Device;
use train::channel::Channel;
use train::run::{Ending, Setting, run};
use train::state::LeftOut;

/// A folder in which one run is tried again and again.
struct Bench {
    folder: tempfile::TempDir,
    train: Train,
    data: PathBuf,
    attempts: u64,
    threads: u32,
}

/// What came of one attempt.
struct Outcome {
    reports: Vec<Report>,
    ending: Result<Ending, Finding>,
}

fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz")
}

/// A small job: `changes` are keys of the `train:` section.
fn bench(changes: Value) -> Bench {
    let mut train = json!({
        "model": "mlp", "data": {"path": "digits.csv.gz"}, "epochs": 2, "batch": 100, "seed": 1,
        "optimizer": {"sgd": {"lr": 0.05}}, "checkpoint": {"every": "5 steps", "keep": 100},
    });
    for (key, value) in changes.as_object().unwrap() {
        train[key] = value.clone();
    }
    let train = serde_json::from_value(train).unwrap();
    Bench { folder: tempfile::tempdir().unwrap(), train, data: digits(), attempts: 0, threads: 1 }
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One attempt; `order` says what the agent orders on seeing a report.
    fn attempt(&mut self, left_out: LeftOut, mut order: impl FnMut(&Report) -> Option<Order> + Send) -> Outcome {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        self.attempts += 1;
        let socket = self.path(&format!("socket-{}", self.attempts));
        let spec = Spec {
            schema: SPEC_SCHEMA,
            run: RunId::new("test"),
            attempt: AttemptId::new(format!("test-a{}", self.attempts)),
            fence: Fence(self.attempts),
            rank: 0,
            world_size: 1,
            meeting: None,
            job_hash: "job".into(),
            train: self.train.clone(),
            data: self.data.display().to_string(),
            threads: self.threads,
            checkpoints: self.path("checkpoints").display().to_string(),
            export: self.path("export").display().to_string(),
            socket: socket.display().to_string(),
        };
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            let agent = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reports = Vec::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let report: Report = serde_json::from_str(&line.unwrap()).unwrap();
                    if let Some(order) = order(&report) {
                        let mut line = serde_json::to_string(&order).unwrap();
                        line.push('\n');
                        stream.write_all(line.as_bytes()).unwrap();
                    }
                    reports.push(report);
                }
                reports
            });
            let channel = Channel::connect(&spec.socket).unwrap();
            let ending = run(&spec, Setting { left_out, ..Setting::on(Device::Cpu) }, &channel);
            channel.finish();
            Outcome { reports: agent.join().unwrap(), ending: ending.map_err(|error| error.finding()) }
        })
    }

    fn finish(&mut self) -> Outcome {
        self.attempt(LeftOut::default(), |_| None)
    }

    /// Stops once step `step` was reported, wherever the rank is by then.
    fn stop_after(&mut self, step: u64) -> Outcome {
        self.attempt(LeftOut::default(), |report| {
            matches!(report, Report::Step(done) if done.step == step).then_some(Order::Stop)
        })
    }

    /// Takes away what was saved after step `last`, as if the rank had been killed before it was durable.
    fn lose_after(&self, last: u64) {
        for entry in fs::read_dir(self.path("checkpoints")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            let step = name.strip_prefix("manifest-").and_then(|rest| rest.strip_suffix(".json"));
            if step.is_some_and(|step| step.parse::<u64>().unwrap() > last) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Outcome {
    fn exported(&self) -> &Exported {
        for report in &self.reports {
            if let Report::Exported(exported) = report {
                return exported;
            }
        }
        panic!("{:?} {:?}", self.ending, self.reports.last())
    }

    fn steps(&self) -> Vec<u64> {
        let step = |report: &Report| if let Report::Step(step) = report { Some(step.step) } else { None };
        self.reports.iter().filter_map(step).collect()
    }

    fn losses(&self) -> Vec<f64> {
        let loss = |report: &Report| if let Report::Step(step) = report { Some(step.loss) } else { None };
        self.reports.iter().filter_map(loss).collect()
    }

    fn resumed_from(&self) -> u64 {
        let ready = |report: &Report| if let Report::Ready(ready) = report { Some(ready.step) } else { None };
        self.reports.iter().find_map(ready).unwrap()
    }

    fn finding(&self, cause: Cause) -> &Finding {
        let finding = self.ending.as_ref().expect_err("it must not go on");
        assert_eq!(finding.cause, cause, "{finding:?}");
        assert!(!finding.message.contains('\n') && finding.hint.is_some(), "{finding:?}");
        finding
    }
}

/// AdamW with dropout (random numbers), and SGD with batch normalisation in another format and memory order.
fn jobs() -> [Value; 2] {
    [
        json!({
            "model": "cnn", "optimizer": {"adamw": {"lr": 2e-3}}, "accumulate": 3, "clip_norm": 1.0,
            "schedule": {"warmup": "4 steps", "decay": "cosine"}, "label_smoothing": 0.1,
        }),
        json!({
            "model": "resnet20", "optimizer": {"sgd": {"lr": 0.1, "nesterov": true, "weight_decay": 5e-4}}, "batch": 200,
            "precision": "bf16", "memory_format": "channels_last", "data": {"path": "", "augment": [{"pad_crop": 1}]},
            "schedule": {"decay": {"step": {"at": [1]}}},
        }),
    ]
}

/// Pictures that are mixed, saved as differences.
fn mixing() -> Value {
    json!({
        "optimizer": {"adamw": {"lr": 2e-3}}, "label_smoothing": 0.1, "accumulate": 2,
        "data": {"path": "", "augment": [{"pad_crop": 1}, {"mixup": 0.2}, {"cutmix": 1.0}]},
        "checkpoint": {"every": "5 steps", "keep": 100, "codec": "delta"},
    })
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes() {
    for job in jobs().into_iter().chain([mixing()]) {
        let whole = bench(job.clone()).finish();
        assert_eq!(whole.ending, Ok(Ending::Trained));
        let last = *whole.steps().last().unwrap();
        let per_epoch = last / 2;
        // After the first step, within an epoch, at an epoch's end, and before the last step.
        for (stop, lose) in [(1, None), (per_epoch - 2, Some(5)), (per_epoch, None), (last - 1, Some(10))] {
            let mut bench = bench(job.clone());
            let stopped = bench.stop_after(stop);
            let Ok(Ending::Stopped { step }) = stopped.ending else { panic!("{:?}", stopped.ending) };
            assert!(step >= stop, "no step that was reported is given up");
            bench.lose_after(lose.unwrap_or(step));
            let resumed = bench.finish();
            assert_eq!(resumed.resumed_from(), lose.unwrap_or(step));
            let (from, losses) = (resumed.resumed_from() as usize, resumed.losses());
            assert_eq!(losses, whole.losses()[from..], "stopped at {step}, resumed from {from}");
            assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
            assert_eq!(resumed.exported().test_accuracy, whole.exported().test_accuracy);
        }
    }
}

#[test]
fn what_a_resume_leaves_out_is_seen_in_the_result() {
    let [job, _] = jobs();
    let whole = bench(job.clone()).finish();
    let none = LeftOut::default();
    for left_out in
        [LeftOut { random: true, ..none }, LeftOut { optimizer: true, ..none }, LeftOut { position: true, ..none }]
    {
        let mut bench = bench(job.clone());
        bench.stop_after(7);
        bench.lose_after(5);
        let resumed = bench.attempt(left_out, |_| None);
        assert_ne!(resumed.exported().model_sha256, whole.exported().model_sha256, "{left_out:?}");
    }
}

#[test]
fn a_run_learns_reports_and_exports() {
    let mut bench = bench(json!({"epochs": 6, "optimizer": {"adamw": {"lr": 3e-3}}}));
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let Report::Hello { environment, .. } = &outcome.reports[0] else { panic!("{:?}", outcome.reports[0]) };
    assert_eq!((environment.torch.as_str(), environment.precision.as_str()), (domain::torch::VERSION, "fp32"));
    let Report::Ready(ready) = &outcome.reports[1] else { panic!("{:?}", outcome.reports[1]) };
    assert_eq!((ready.samples.iter().sum::<u64>(), ready.classes.len()), (1797, 10));
    assert_eq!(outcome.steps(), (1..=ready.steps).collect::<Vec<_>>());

    let mut best = 0.0;
    let mut evaluations = [0, 0];
    for report in &outcome.reports {
        let Report::Evaluated(evaluated) = report else { continue };
        match evaluated.split {
            EvaluatedSplit::Validation => {
                assert_eq!(evaluated.best, evaluated.accuracy > best);
                best = evaluated.accuracy.max(best);
                evaluations[0] += 1;
            }
            EvaluatedSplit::Test => evaluations[1] += 1,
        }
    }
    assert_eq!(evaluations, [6, 1], "each epoch, and the test split once");
    let exported = outcome.exported();
    assert_eq!(exported.validation_accuracy, best);
    assert!(exported.test_accuracy > 0.9, "{exported:?}");

    let tensors = checkpoint::read_tensors(Path::new(&exported.model)).unwrap();
    assert_eq!(
        tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(),
        ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight", "fc3.bias", "fc3.weight"]
    );
    assert_eq!(tensors[1].shape, [128, 64]);
    let card: Value = serde_json::from_slice(&fs::read(bench.path("export/model.json")).unwrap()).unwrap();
    assert_eq!(card["weights_sha256"], json!(exported.model_sha256));
    assert_eq!((card["architecture"].as_str(), card["input"]["height"].as_u64()), (Some("mlp"), Some(8)));
    assert_eq!(card["classes"].as_array().unwrap().len(), 10);

    // Another attempt finds all steps done, and only exports again.
    let again = bench.finish();
    assert_eq!((again.steps().len(), again.ending.clone()), (0, Ok(Ending::Trained)));
    assert_eq!(again.exported().model_sha256, exported.model_sha256);
}

#[test]
fn an_order_saves_and_another_stops_before_the_run_is_through() {
    // Far more steps than are made before an order arrives, however slow the machine is.
    let mut bench = bench(json!({"epochs": 100_000, "checkpoint": {"every": "10000000 steps"}}));
    let outcome = bench.attempt(LeftOut::default(), |report| match report {
        Report::Step(done) if done.step == 3 => Some(Order::Checkpoint),
        Report::Checkpointed(_) => Some(Order::Stop),
        _ => None,
    });
    let saved = |report: &Report| if let Report::Checkpointed(done) = report { Some(done.step) } else { None };
    let saved: Vec<u64> = outcome.reports.iter().filter_map(saved).collect();
    // By order, whenever it arrived, and at the stop.
    assert!(saved.len() == 2 && saved[0] >= 3 && saved[1] >= saved[0], "{saved:?}");
    assert_eq!(saved.last(), outcome.steps().last());
    assert_eq!(outcome.ending, Ok(Ending::Stopped { step: saved[1] }));
}

#[test]
fn a_run_begins_with_the_weights_of_a_file() {
    let mut first = bench(json!({"epochs": 4, "optimizer": {"adamw": {"lr": 3e-3}}}));
    let outcome = first.finish();
    let (file, fresh) = (outcome.exported().model.clone(), outcome.losses()[0]);
    let begin = |file: &Path, model: &str| {
        let outcome = bench(json!({"weights": file, "model": model, "epochs": 1})).finish();
        let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
        let notes: Vec<String> = outcome.reports.iter().filter_map(note).collect();
        (outcome, notes.join("\n"))
    };
    let (outcome, notes) = begin(Path::new(&file), "mlp");
    assert!(outcome.losses()[0] < 0.2 * fresh, "{} after {fresh}", outcome.losses()[0]);
    assert!(notes.contains("6 tensors were taken from"), "{notes}");

    // Other classes: all but the head is taken.
    let mut tensors = checkpoint::read_tensors(Path::new(&file)).unwrap();
    for tensor in tensors.iter_mut().filter(|tensor| tensor.name.starts_with("fc3.")) {
        tensor.shape[0] = 7;
        tensor.bytes.truncate(tensor.bytes.len() / 10 * 7);
    }
    let changed = first.path("changed.safetensors");
    checkpoint::write_tensors(&changed, &tensors, &[]).unwrap();
    let (outcome, notes) = begin(&changed, "mlp");
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    assert!(notes.contains("learnt afresh: `fc3.bias` is [7], and [10] here"), "{notes}");

    let (outcome, _) = begin(Path::new(&file), "cnn");
    let message = outcome.finding(Cause::Job).message.clone();
    assert!(message.contains("do not fit `cnn`") && message.contains("`conv1.weight` [32, 1, 3, 3] is missing"));
    assert_eq!(outcome.steps().len(), 0);
    begin(Path::new("/nowhere/model.safetensors"), "mlp").0.finding(Cause::Job);
    begin(Path::new("/nowhere/model.pth"), "mlp").0.finding(Cause::Job);
}

/// Texts of three subjects with words of their own, and a few words that all use.
fn texts() -> String {
    let subjects = [
        ["goal", "match", "team", "coach"],
        ["bank", "share", "price", "market"],
        ["chip", "code", "phone", "network"],
    ];
    let line = |number: usize| {
        let words = subjects[number % 3];
        let word = |step: usize| words[(number / 3 * 7 + step * step + number / 11) % 4];
        format!(
            "{},the {} and the {} of a {} today\n",
            ["sport", "trade", "tech"][number % 3],
            word(0),
            word(1),
            word(2)
        )
    };
    (0..240).map(line).collect()
}

/// A small job over texts.
fn reading(file: &str, text: Value, changes: Value) -> Bench {
    let mut job = json!({
        "model": "bert_mini", "data": {"path": "", "text": text}, "batch": 16, "epochs": 2, "seed": 2,
        "optimizer": {"adamw": {"lr": 5e-4}}, "schedule": {"warmup": "4 steps", "decay": "cosine"},
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    bench.data = bench.path(file);
    fs::write(&bench.data, if file.ends_with(".csv") { format!("class,text\n{}", texts()) } else { texts() }).unwrap();
    bench
}

#[test]
fn classes_of_texts_are_learnt_and_a_resumed_run_ends_with_the_same_bytes() {
    let job = || reading("texts.csv", json!({"label": "class", "length": 16, "vocabulary": 300}), json!({}));
    let mut whole = job();
    let outcome = whole.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let Report::Ready(ready) = &outcome.reports[1] else { panic!("{:?}", outcome.reports[1]) };
    assert_eq!((ready.samples, &ready.classes[..]), ([168, 48, 24], &["sport", "tech", "trade"].map(String::from)[..]));
    assert!(outcome.exported().test_accuracy > 0.9, "{:?}", outcome.exported());
    let file = |name: &str| fs::read_to_string(whole.path("export").join(name)).unwrap();
    let config: Value = serde_json::from_str(&file("config.json")).unwrap();
    assert_eq!((&config["model_type"], &config["id2label"]["1"]), (&json!("bert"), &json!("tech")));
    assert!(file("tokenizer.json").contains("[MASK]"));

    let mut stopped = job();
    stopped.stop_after(7);
    stopped.lose_after(5);
    let resumed = stopped.finish();
    assert_eq!(resumed.losses(), outcome.losses()[resumed.resumed_from() as usize..]);
    assert_eq!(resumed.exported().model_sha256, outcome.exported().model_sha256);
}

/// Each way of learning that keeps something of its own: resumed in the middle, it ends with the same bytes.
#[test]
fn every_way_of_learning_goes_on_as_if_it_had_not_been_stopped() {
    let ways = [
        json!({"optimizer": {"adamw": {"lr": 5e-4}}, "precision": "fp16", "recompute": "blocks"}),
        json!({"optimizer": {"lamb": {"lr": 5e-3}}, "average": {"swa": {"from": 0}}}),
        json!({"optimizer": {"adafactor": {"lr": 1e-2}}, "parameters": {"decay": "matrices", "layer_rate": 0.8}}),
        json!({"average": {"ema": {}}, "parameters": {"freeze": ["bert.embeddings."]}, "accumulate": 3, "clip_norm": 1}),
    ];
    for way in ways {
        let mut changes = way.clone();
        changes["checkpoint"] = json!({"every": "2 steps", "keep": 100});
        let text = json!({"label": "class", "length": 8, "vocabulary": 300});
        let job = || reading("texts.csv", text.clone(), changes.clone());
        let whole = job().finish();
        assert_eq!(whole.ending, Ok(Ending::Trained), "{way}");
        for (stop, lose) in [(5, 4), (14, 12)] {
            let mut stopped = job();
            stopped.stop_after(stop);
            stopped.lose_after(lose);
            let resumed = stopped.finish();
            assert_eq!(resumed.resumed_from(), lose, "{way}");
            assert_eq!(resumed.losses(), whole.losses()[lose as usize..], "{way}");
            assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256, "{way}");
        }
    }
}

/// The mean of the weights, with statistics measured for it, stands in for them and does not disturb them.
#[test]
fn means_of_weights_are_what_is_judged_and_change_no_step() {
    let job = json!({
        "model": "resnet20", "optimizer": {"sgd": {"lr": 0.1}}, "batch": 200, "epochs": 4, "checkpoint": {"every": "4 steps", "keep": 100},
    });
    let plain = bench(job.clone()).finish();
    for average in [json!({"ema": {"decay": 0.8, "batches": 3}}), json!({"swa": {"from": 1, "batches": 3}})] {
        let mut changed = job.clone();
        changed["average"] = average.clone();
        let mut averaged = bench(changed);
        let outcome = averaged.finish();
        assert_eq!(outcome.losses(), plain.losses(), "{average}");
        assert_ne!(outcome.exported().model_sha256, plain.exported().model_sha256, "{average}");
        assert!(outcome.exported().validation_accuracy > 0.5, "{average}: {:?}", outcome.exported());
    }
}

#[test]
fn what_cannot_be_trained_so_is_said_before_the_first_step() {
    for (change, message) in [
        (json!({"parameters": {"freeze": ["layer9."]}}), "no parameter's name begins with `layer9.`"),
        (json!({"parameters": {"freeze": ["fc1.", "fc2.", "fc3."]}}), "every parameter is frozen"),
        (json!({"precision": "tf32"}), "`precision: tf32` is a format of NVIDIA GPUs"),
    ] {
        let outcome = bench(change).finish();
        assert!(outcome.finding(Cause::Job).message.contains(message));
        assert!(outcome.steps().is_empty());
    }
}

#[test]
fn words_are_learnt_masked_or_one_after_another() {
    let text = json!({"length": 16, "vocabulary": 300});
    for (file, model) in [("texts.txt", "gpt_tiny"), ("texts.csv", "gpt_tiny"), ("texts.csv", "bert_mini")] {
        let outcome = reading(file, text.clone(), json!({"model": model, "epochs": 3, "accumulate": 2})).finish();
        assert_eq!(outcome.ending, Ok(Ending::Trained), "{file} {model}");
        let losses = outcome.losses();
        assert!(losses[losses.len() - 1] < 0.8 * losses[0], "{file} {model}: {losses:?}");
        let figures = *outcome.exported().figures;
        assert!(figures.perplexity.is_some_and(|value| value > 1.0), "{figures:?}");
    }
}

#[test]
fn weights_of_one_task_begin_another() {
    let text = json!({"length": 16, "vocabulary": 300});
    let mut first = reading("texts.csv", text.clone(), json!({"epochs": 1}));
    let model = first.finish().exported().model.clone();
    let mut keys = text;
    keys["label"] = json!("class");
    keys["tokenizer"] = json!(first.path("export/tokenizer.json"));
    let outcome = reading("texts.csv", keys.clone(), json!({"epochs": 1, "weights": model})).finish();
    let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
    let notes = outcome.reports.iter().filter_map(note).collect::<Vec<_>>().join("\n");
    assert!(notes.contains("the head is learnt afresh: `bert.pooler.dense.bias` is missing"), "{notes}");
    assert!(notes.contains("have no use here: `cls.predictions.bias`"), "{notes}");
    // A tokeniser of another size has other words.
    keys.as_object_mut().unwrap().remove("tokenizer");
    keys["vocabulary"] = json!(60);
    let outcome = reading("texts.csv", keys, json!({"weights": model})).finish();
    assert!(outcome.finding(Cause::Job).message.contains("`bert.embeddings.word_embeddings.weight` is ["));
}

/// A small detector on drawn shapes.
fn finding(changes: Value) -> Bench {
    let mut job = json!({
        "model": "yolo_n", "epochs": 2, "batch": 8, "data": {"path": "", "split": [0.6, 0.2, 0.2], "augment": ["flip"]},
        "optimizer": {"adamw": {"lr": 2e-3}}, "clip_norm": 10.0,
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    data::shapes::write(&bench.path("shapes"), 40, 64, 3).unwrap();
    bench.data = bench.path("shapes");
    bench
}

#[test]
fn objects_are_found_and_a_resumed_run_ends_with_the_same_bytes() {
    let whole = finding(json!({})).finish();
    assert_eq!(whole.ending, Ok(Ending::Trained));
    let losses = whole.losses();
    // Six steps are no more than a beginning; that it learns is shown by `examples/shapes.yaml`.
    assert!(losses.len() == 6 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let exported = whole.exported();
    assert!(exported.figures.map50.is_some_and(|found| (0.0..=1.0).contains(&found)), "{:?}", exported.figures);
    let mut bench = finding(json!({"accumulate": 1}));
    bench.stop_after(4);
    let resumed = bench.finish();
    assert_eq!(resumed.exported().model_sha256, exported.model_sha256);
    // Other classes: everything but what is said of them is taken over.
    let mut tensors = checkpoint::read_tensors(&bench.path("export/model.safetensors")).unwrap();
    tensors.retain(|tensor| !tensor.name.starts_with("model.22.cv3."));
    let file = bench.path("other.safetensors");
    checkpoint::write_tensors(&file, &tensors, &[]).unwrap();
    let other = finding(json!({"weights": file, "epochs": 1})).finish();
    assert_eq!(other.ending, Ok(Ending::Trained));
}

#[test]
fn a_met_target_ends_the_run_early_also_after_a_resume() {
    let mut bench = bench(json!({"epochs": 50, "stop": {"accuracy": "80%"}}));
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let steps = outcome.steps().len();
    assert!(steps < 50 * 13 && outcome.exported().validation_accuracy >= 0.8);
    assert_eq!(bench.finish().steps().len(), 0);
}

#[test]
fn threads_stay_as_they_were() {
    let mut bench = bench(json!({}));
    bench.stop_after(3);
    bench.lose_after(5);
    bench.threads = 2;
    let resumed = bench.finish();
    let note = |report: &Report| matches!(report, Report::Note { text } if text.contains("1 threads"));
    assert!(resumed.reports.iter().any(note));
    let mut undisturbed = self::bench(json!({}));
    assert_eq!(undisturbed.finish().exported().model_sha256, resumed.exported().model_sha256);
}

#[test]
fn a_loss_that_is_no_number_is_told_with_its_step() {
    let outcome = bench(json!({"optimizer": {"sgd": {"lr": 1e30}}})).finish();
    let finding = outcome.finding(Cause::NotFinite);
    assert!(finding.message.contains("step 2") || finding.message.contains("step 3"), "{finding:?}");
    assert!(outcome.reports.iter().all(|report| !matches!(report, Report::Exported(_))));
}

#[test]
fn what_is_wrong_with_a_job_is_a_finding() {
    let mut missing = bench(json!({}));
    missing.data = "/nowhere/digits.csv".into();
    missing.finish().finding(Cause::Data);
    let classes = bench(json!({"data": {"path": "", "classes": 7}})).finish();
    assert!(classes.finding(Cause::Job).message.contains("10 classes"));
    let lone = bench(json!({"model": "resnet18", "batch": 1257})).finish();
    lone.finding(Cause::Job);
}

#[test]
fn a_folder_that_a_later_attempt_claimed_is_left_alone() {
    let mut bench = bench(json!({}));
    checkpoint::claim(&bench.path("checkpoints"), Fence(9)).unwrap();
    let finding = bench.finish();
    assert_eq!(finding.ending.as_ref().unwrap_err().cause, Cause::Fenced);
}
