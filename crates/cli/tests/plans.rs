//! Plans over everything that is offered: what is told of jobs that can be planned, and what of jobs that cannot.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a home and job files.
struct Desk(TempDir);

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Desk {
        Desk(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn gradus(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.current_dir(self.0.path()).args(["--home", "home"]).args(words);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, where no program of another is found.
    fn gradus_without_path(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.current_dir(self.0.path()).env("PATH", self.0.path()).args(["--home", "home"]).args(words);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn plan(&self, yaml: &str, words: &[&str]) -> Value {
        self.file("job.yaml", yaml);
        let said = self.gradus(&[&["plan", "job.yaml", "--json"], words].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        serde_json::from_str(&said.out).unwrap()
    }
}

/// ResNet-50 on ImageNet, with more lines.
fn resnet(lines: &str) -> String {
    format!(
        "name: pictures
run: python train.py
data: {{samples: 1281167, bytes: 147 GB}}
workload:
  model: {{config: {{model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}}}}
  picture: 224
  batch: 1024
  epochs: 90
  optimizer: sgd_momentum
{lines}"
    )
}

/// A Llama of 70 billion weights, with more lines.
fn llama(lines: &str) -> String {
    format!(
        "name: text
run: python train.py
data: {{bytes: 1 GB}}
workload:
  model: {{config: {{model_type: llama, hidden_size: 8192, num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, intermediate_size: 28672, vocab_size: 128256}}}}
  sequence: 4096
  batch: 64
  tokens: 10M
{lines}"
    )
}

/// What is said about a job that cannot be planned. Figures of money and time stand as `#`: they follow the catalog and
/// the fit, and are tested elsewhere.
#[track_caller]
fn check(yaml: &str, expected: &str) {
    let desk = Desk::new();
    desk.file("job.yaml", yaml);
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!((said.code, &*said.out), (Some(2), ""), "{}", said.err);
    let strip = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned();
    assert_eq!(masked(&strip(&said.err)), strip(expected), "\n{yaml}\n{}", said.err);
}

/// Runs of digits that belong to amounts, times and machines chosen by price become `#`.
fn masked(text: &str) -> String {
    text.lines()
        .map(|line| {
            let is_figure = [
                "the cheapest, ",
                "the fastest, ",
                "the cleanest, ",
                "on each GPU",
                "are left without it",
                "write `budget",
                "write `deadline",
                "write `max_carbon",
                "write `accelerators: ",
            ];
            if !is_figure.iter().any(|part| line.contains(part)) {
                return line.to_owned();
            }
            // What lies between two commas after the machine is its place, which follows prices.
            let mut out = String::new();
            let mut in_digits = false;
            for letter in line.chars() {
                let is_digit = letter.is_ascii_digit() || (in_digits && matches!(letter, '.' | ','));
                if is_digit && !in_digits {
                    out.push('#');
                } else if !is_digit {
                    out.push(letter);
                }
                in_digits = is_digit;
            }
            out
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The message with what depends on prices cut out of the middle: it begins and ends as told.
#[track_caller]
fn check_around(yaml: &str, begins: &str, hint: &str) {
    let desk = Desk::new();
    desk.file("job.yaml", yaml);
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!((said.code, &*said.out), (Some(2), ""), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().map(str::trim).collect();
    assert_eq!(lines[0], "error: no offer can run this job", "{}", said.err);
    assert!(masked(lines[1]).starts_with(begins), "{}\n{begins}", masked(lines[1]));
    assert_eq!(masked(lines[2]), hint, "{}", said.err);
}

#[test]
fn jobs_that_cannot_be_planned_say_what_to_change() {
    // Nothing fits.
    check(
        &llama("resources: {accelerators: T4:1, nodes: 1}\n"),
        "error: no offer can run this job
         training needs #GiB on each GPU at least, however the work is divided; the largest GPU that is too small has #GiB
         hint: write `accelerators: #GB+:#`: #m for $#"
            .replace("#GiB", "# GiB")
            .as_str(),
    );
    // A GPU that nobody knows.
    check(
        &resnet("resources: {accelerators: A1000:8}\n"),
        "error: no GPU `A1000` is known
         hint: known are `A4000`, `A10`, `A10G`, `A16`, `A100-SXM4-40GB`, `A100-SXM4-80GB` and more: `gradus catalog gpus` lists all",
    );
    // No money for it.
    check_around(
        &resnet("budget: {max: $1}\n"),
        "the budget of $# is too small: the cheapest, # × ",
        "hint: write `budget: {max: $#}` or more, which nine runs in ten keep to, or train for fewer steps",
    );
    // No time for it.
    check_around(
        &resnet("deadline: 5m\n"),
        "the deadline of #m is too tight: the fastest, # × ",
        "hint: write `deadline: #m` or more, which nine runs in ten keep to, or train for fewer steps",
    );
    // A region that nobody has, and one that another cloud has.
    check(
        &resnet("resources: {cloud: aws, region: mars-1}\n"),
        "error: no region `mars-1` is known
         hint: known are `us-east-1` and more: `gradus catalog regions` lists all",
    );
    check_around(
        &resnet("resources: {cloud: aws, region: europe-west4}\n"),
        "nothing is offered with `resources.cloud` as it is; # offers are left without it, such as ",
        "hint: write `cloud: gcp`, or leave it out",
    );
    // Keys that contradict each other.
    check(
        &resnet("resources: {use_spot: true, spot: never}\n"),
        "error: job.yaml:10: `resources.use_spot`: `use_spot` and `spot` contradict each other
         hint: keep `spot`",
    );
    // A file that is not there, one that is no model.
    check(
        "run: a\nworkload: {model: model.onnx, batch: 8, steps: 5, extra: 1}\n",
        "error: job.yaml:2: `workload.extra`: unknown key
         hint: known keys here: `model`, `batch`, `epochs`, `steps`, `tokens`, `sequence`, `picture`, `optimizer`, `precision`, `memory_format`, `flash_attention`, `compiled`, `recompute`, `evaluated`, `checkpoint`",
    );
    // Nothing to learn from.
    check(
        &resnet("").replace("samples: 1281167", "samples: 0"),
        "error: job.yaml:3: `data.samples`: nothing is learned from no samples
         hint: write how many there are",
    );
    // A batch that no GPUs can share.
    check(
        &resnet("resources: {accelerators: A100:8, nodes: 1}\n").replace("batch: 1024", "batch: 7"),
        "error: no offer can run this job
         a batch of 7 does not divide into whole samples for the GPUs that remain
         hint: write a `batch` that is a multiple of their number: of the machines times the GPUs of each",
    );
    // A number format that the GPU lacks.
    check(
        &resnet("  precision: bf16\nresources: {accelerators: V100:8, nodes: 1}\n"),
        "error: no offer can run this job
         the GPUs that remain have no `bf16`
         hint: write `precision: auto`, or ask for other GPUs",
    );
    // Epochs of nobody knows how many samples.
    check(
        &resnet("").replace("samples: 1281167, ", ""),
        "error: job.yaml:8: `workload.epochs`: epochs are counted in samples, and their number is not said
         hint: write `data: {samples: …}`, or `steps: …` instead of `epochs`",
    );
    // A price that no machine has.
    check_around(
        &resnet("resources: {accelerators: H100:8, max_price: $1/h}\n"),
        "nothing is offered with `resources.accelerators` as it is; # offers are left without it, such as ",
        "hint: change `accelerators`, or leave it out",
    );
}

#[test]
fn a_model_file_that_cannot_be_read_is_told() {
    let desk = Desk::new();
    desk.file("job.yaml", "run: a\nworkload: {model: model.onnx, batch: 8, steps: 5}\n");
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("job.yaml:2: `workload.model`: cannot read the model"), "{}", said.err);
    assert!(said.err.contains("model.onnx") && said.err.contains("hint: name a `config.json`"), "{}", said.err);
    // The name of a network that `train:` knows is no file.
    desk.file("job.yaml", "run: a\nworkload:\n  model: resnet50\n  batch: 8\n  steps: 5\n");
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("job.yaml:3: `workload.model`"), "{}", said.err);
    assert!(
        said.err.contains("`resnet50` is a network that `train: {model: resnet50, …}` trains here"),
        "{}",
        said.err
    );
    desk.file("job.yaml", "run: a\nworkload: {model: model.onnx, batch: 8, steps: 5}\n");
    desk.file("model.onnx", "this is no model");
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("workload.model"), "{}", said.err);
}

#[test]
fn one_file_that_is_no_network_hides_nothing_of_the_others() {
    let desk = Desk::new();
    desk.file("good.json", r#"{"model_type": "gpt2"}"#);
    desk.file("bad.json", r#"{"model_type": "gpt2", "n_embed": 64}"#);
    let said = desk.gradus(&["plan", "model", "bad.json", "good.json", "none.json", "/dev/zero"]);
    assert_eq!(said.code, Some(2));
    assert!(said.out.contains("124,439,808"), "{}", said.out);
    for wrong in
        ["`n_embed`: networks of this type have no such key, and `n_embd` is missing", "none.json", "no plain file"]
    {
        assert!(said.err.contains(wrong), "{wrong}: {}", said.err);
    }
    let said = desk.gradus(&["plan", "model", "bad.json", "good.json", "--json"]);
    let read: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(read[0]["error"].as_str().is_some_and(|error| error.contains("n_embd")), "{read}");
    assert_eq!(read[1]["parameters"], 124_439_808);
    // As PyTorch counts them of a sample of 128 tokens, with `saved_tensors_hooks`.
    let said = desk.gradus(&["plan", "model", "good.json", "--sequence", "128", "--json"]);
    let read: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    for (key, counted) in [("kept_bytes", 161_197_568.0), ("kept_bytes_written_out", 182_357_504.0)] {
        let told = read[0][key].as_f64().expect("a number");
        assert!((told / counted - 1.0).abs() < 0.02, "{key}: {told} against {counted}");
    }
}

#[test]
fn lengths_and_sizes_that_a_network_does_not_have_are_refused() {
    let desk = Desk::new();
    desk.file("sees.json", r#"{"model_type": "resnet", "num_labels": 10}"#);
    desk.file("reads.json", r#"{"model_type": "gpt2"}"#);
    let plan = |model: &str, more: &str| {
        desk.file("job.yaml", format!("run: a\nworkload: {{model: {model}, batch: 64, {more}}}\n"));
        desk.gradus(&["plan", "job.yaml"])
    };
    let said = plan("sees.json", "steps: 100, sequence: 128");
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`workload.sequence`: this network reads pictures"), "{}", said.err);
    let said = plan("reads.json", "steps: 100, picture: 224");
    assert!(said.err.contains("`workload.picture`: this network sees no pictures"), "{}", said.err);
    let said = plan("reads.json", "steps: 100, sequence: 2048");
    assert!(said.err.contains("`workload.sequence`: 2048 tokens are more than the 1024 positions"), "{}", said.err);
    // The length of the network's own sequences.
    let said = plan("reads.json", "tokens: 1B");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let all = format!("{}{}", said.out, said.err);
    assert!(all.contains("sequences are 512 tokens; say `sequence` for others"), "{all}");
}

#[test]
fn a_job_that_is_planned_elsewhere_is_not_run_here() {
    let desk = Desk::new();
    desk.file("job.yaml", resnet("num_nodes: 2\nresources: {accelerators: A100:8, spot: only}\n"));
    let said = desk.gradus(&["run", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    for key in ["num_nodes", "resources.accelerators", "resources.spot"] {
        assert!(said.err.contains(&format!("`{key}`")), "{key}: {}", said.err);
    }
    assert_eq!(desk.gradus(&["plan", "job.yaml"]).code, Some(0));
}

#[test]
fn an_answer_depends_on_what_stands_in_a_file_and_not_on_its_name() {
    let desk = Desk::new();
    let config = r#"{"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522}"#;
    desk.file("bert.json", config);
    desk.file("gpt4.bin", config);
    let with = |file: &str| {
        let yaml = format!(
            "name: same\nrun: a\ndata: {{bytes: 1 GB}}\nworkload: {{model: {file}, sequence: 128, batch: 256, steps: 1000}}\n"
        );
        let mut plan = desk.plan(&yaml, &[]);
        plan["job"] = Value::Null;
        plan
    };
    assert_eq!(with("bert.json"), with("gpt4.bin"));
}

#[test]
fn what_is_told_adds_up() {
    let desk = Desk::new();
    let plan = desk.plan(&resnet(""), &[]);
    let front = plan["front"].as_array().unwrap();
    assert!(front.len() >= 3);
    // The front rises in time and falls in cost.
    let figure = |one: &Value, key: &str| one["course_seconds"][key].as_f64().unwrap();
    let cost = |one: &Value, key: &str| one["cost_micro_usd"][key].as_i64().unwrap();
    for pair in front.windows(2) {
        assert!(figure(&pair[0], "wall") < figure(&pair[1], "wall"));
        assert!(cost(&pair[0], "total") > cost(&pair[1], "total"));
    }
    for one in front.iter().chain(plan["picks"].as_array().unwrap()) {
        let total: i64 = ["compute", "storage", "checkpoints", "egress"].iter().map(|part| cost(one, part)).sum();
        assert_eq!(total, cost(one, "total"));
        assert!(cost(one, "low") <= total && total <= cost(one, "high"));
        // Machines on demand cost their price for their time, to the cent.
        if one["terms"] == "on_demand" {
            let rate = one["price"]["micro_usd_per_hour"].as_i64().unwrap() as f64;
            let by_hand = rate * figure(one, "rented") / 3600.0 * one["nodes"].as_f64().unwrap();
            assert!((cost(one, "compute") as f64 - by_hand).abs() < 5_000.0, "{one}");
        }
        assert!(
            !one["price"]["dated"].as_str().unwrap().is_empty() && !one["price"]["source"].as_str().unwrap().is_empty()
        );
    }
    let out: i64 = plan["ruled_out"].as_array().unwrap().iter().map(|one| one["offers"].as_i64().unwrap()).sum();
    assert!(out < plan["counts"]["offers"].as_i64().unwrap());
}

#[test]
fn limits_narrow_what_is_chosen() {
    let desk = Desk::new();
    let chosen = |plan: &Value, role: &str| {
        plan["picks"].as_array().unwrap().iter().find(|pick| pick["role"] == role).unwrap().clone()
    };
    let free = desk.plan(&resnet(""), &[]);
    let cheapest = chosen(&free, "cheapest")["cost_usd"].as_f64().unwrap();
    let within = desk.plan(&resnet(&format!("budget: {{max: ${}}}\n", (cheapest * 2.0).ceil())), &[]);
    assert!(chosen(&within, "fastest")["cost_usd"].as_f64().unwrap() <= (cheapest * 2.0).ceil());
    let soon = desk.plan(&resnet("deadline: 3h\n"), &[]);
    assert!(chosen(&soon, "recommended")["time"]["high"].as_str().is_some());
    assert!(chosen(&soon, "cheapest")["hours"].as_f64().unwrap() <= 3.0);
    let never = desk.plan(&resnet("resources: {spot: never}\n"), &[]);
    assert!(never["front"].as_array().unwrap().iter().all(|one| one["terms"] == "on_demand"));
    let clean = desk.plan(&resnet("resources: {compliance: [gdpr], max_carbon: 20}\n"), &[]);
    assert!(clean["front"].as_array().unwrap().iter().all(|one| one["kilograms_co2"].as_f64().unwrap() <= 20.0));
    let tier = desk.plan(&resnet(""), &["--preset", "entry"]);
    assert!(tier["front"].as_array().unwrap().iter().all(|one| one["gpu"] == "T4" && one["gpus"] == 1));
    let fixed = desk.plan(&resnet("num_nodes: 2\n"), &[]);
    assert!(fixed["front"].as_array().unwrap().iter().all(|one| one["nodes"] == 2));
}

#[test]
fn data_that_leaves_a_cloud_is_paid_for() {
    let desk = Desk::new();
    let only = "resources: {instance_type: p4d.24xlarge, cloud: aws, spot: never, nodes: 1}\n";
    let egress = |at: &str| {
        let yaml = resnet(only).replace("147 GB}", &format!("147 GB{at}}}"));
        desk.plan(&yaml, &[])["front"][0]["cost_micro_usd"]["egress"].as_i64().unwrap()
    };
    let (here, region, elsewhere) =
        (egress(", at: aws/us-east-1"), egress(", at: aws/us-west-2"), egress(", at: gcp/us-central1"));
    assert!(here < region && region < elsewhere, "{here} {region} {elsewhere}");
}

#[test]
fn a_trace_replaces_the_band() {
    let desk = Desk::new();
    let rough: Vec<String> = (0..2000).map(|tick| if tick % 8 == 0 { "1" } else { "0" }.to_owned()).collect();
    desk.file("rough.json", format!(r#"{{"metadata": {{"gap_seconds": 600}}, "data": [{}]}}"#, rough.join(", ")));
    let yaml = resnet("resources: {accelerators: V100:8, spot: only, nodes: 1}\n");
    let hours = |plan: &Value| plan["front"][0]["hours"].as_f64().unwrap();
    let (usual, worse) = (desk.plan(&yaml, &[]), desk.plan(&yaml, &["--spot-trace", "rough.json"]));
    assert!(hours(&worse) > 1.2 * hours(&usual), "{} {}", hours(&worse), hours(&usual));
}

#[test]
fn the_page_and_the_picture_stand_alone() {
    let desk = Desk::new();
    desk.plan(
        &resnet("name: a<b\n").replacen("name: pictures\n", "", 1).replace("a<b", "ab"),
        &["--html", "plan.html", "--svg", "plan.svg"],
    );
    let read = |name: &str| fs::read_to_string(desk.0.path().join(name)).unwrap();
    let (page, picture) = (read("plan.html"), read("plan.svg"));
    for part in ["recommended", "cheapest", "fastest", "most robust", "<svg", "The front", "Ruled out"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(picture.starts_with("<svg xmlns") && picture.contains("<title>"));
    for text in [page, picture] {
        assert!(
            !text.contains("http://")
                || text.matches("http://").count() == text.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!text.contains("<script") && !text.contains("src="));
    }
}

#[test]
fn shipped_examples_are_planned() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let desk = Desk::new();
    for name in ["imagenet-resnet50", "bert-large", "llama-8b-finetune", "yolo-coco"] {
        let file = examples.join(format!("{name}.yaml"));
        let said = desk.gradus(&["plan", file.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{name}: {}", said.err);
        assert!(said.out.contains("recommended") && said.out.contains("prices of"), "{}", said.out);
    }
}

#[test]
fn a_reservation_is_compared_over_a_horizon() {
    let desk = Desk::new();
    let yaml = resnet("resources: {cloud: gcp, accelerators: A100-40GB:8, nodes: 1}\n");
    let plan = desk.plan(&yaml, &["--horizon", "365 days", "--runs", "300"]);
    let compared = plan["reservations"].as_array().unwrap();
    assert_eq!(compared.len(), 2, "one year and three");
    for one in compared {
        assert!((0.2..0.8).contains(&one["breaks_even_at"].as_f64().unwrap()), "{one}");
    }
}

#[test]
fn measured_steps_correct_the_estimates() {
    let desk = Desk::new();
    let yaml = resnet("resources: {instance_type: p4d.24xlarge, cloud: aws, spot: never, nodes: 1}\n");
    let step = |plan: &Value| plan["front"][0]["step_seconds"].clone();
    let free = desk.plan(&yaml, &[]);
    let spread = |plan: &Value| {
        let step = step(plan);
        step["high"].as_f64().unwrap() / step["low"].as_f64().unwrap()
    };
    let middle = |plan: &Value| step(plan)["middle"].as_f64().unwrap();
    // One step of 128 pictures on each of eight A100 took half as long again as is estimated.
    let gpu = &free["front"][0]["gpu"];
    let slow = 1024.0 / (1.5 * middle(&free));
    let table = |gpu: &str, throughput: &str| {
        format!(
            "source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit\nmine,pictures,{gpu},8,128,{throughput},img/s\n"
        )
    };
    desk.file("steps.csv", table(gpu.as_str().unwrap(), &slow.to_string()));
    let taught = desk.plan(&yaml, &["--calibrate", "steps.csv"]);
    let ratio = middle(&taught) / middle(&free);
    assert!((1.3..1.7).contains(&ratio), "{ratio}");
    assert!(spread(&taught) < spread(&free), "{} {}", spread(&taught), spread(&free));
    assert_eq!(taught["measured_steps"][0]["gpu"], *gpu);
    assert_eq!(taught["front"][0]["calibration"]["runs"], 1);
    // Measured elsewhere it is believed half.
    desk.file("steps.csv", table("V100", "1500"));
    let elsewhere = desk.plan(&yaml, &["--calibrate", "steps.csv"]);
    assert!(elsewhere["front"][0]["calibration"]["factor"].as_f64().unwrap() > 2.0);
    for (text, why) in [
        ("a,b\n1,2\n", "names no column `source_id`"),
        ("source_id,model,gpu,throughput\nmine,x,A1000,5\n", "line 2: no GPU `A1000` is known"),
        ("source_id,model,gpu,throughput\nmine,x,A100,5\n", "line 2: it states no `batch_per_gpu`"),
        (
            "source_id,model,gpu,throughput,n_gpus\nmine,x,A100,5,eight\n",
            "line 2, column 5: `n_gpus` is `eight`, and not a whole number above 0",
        ),
        (
            "source_id,model,gpu,throughput,batch_per_gpu\nmine,x,A100,99999999,128\n",
            "no row is within 10 times of its estimate; line 2: a step on A100-SXM4-40GB took",
        ),
        ("source_id,model,gpu,throughput\n", "it holds no row"),
    ] {
        desk.file("steps.csv", text);
        let said = desk.gradus(&["plan", "job.yaml", "--calibrate", "steps.csv"]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(why) && said.err.contains("hint: "), "{}", said.err);
    }
}

#[test]
fn steps_that_are_too_far_off_are_told_and_not_learnt_from() {
    let desk = Desk::new();
    let head = "source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit\n";
    let row = |throughput: &str| format!("mine,pictures,A100,1,128,{throughput},img/s\n");
    let taught = |rows: &[&str]| {
        let text: String = rows.iter().map(|throughput| row(throughput)).collect();
        desk.file("steps.csv", format!("{head}{text}"));
        desk.plan(&resnet(""), &["--calibrate", "steps.csv"])
    };
    let (one, both) = (taught(&["2000"]), taught(&["2000", "40"]));
    assert_eq!(one["front"], both["front"]);
    assert_eq!(both["measured_steps"].as_array().unwrap().len(), 1);
    let said = desk.gradus(&["plan", "job.yaml", "--calibrate", "steps.csv"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.err.contains("warning: not learnt from: `steps.csv`: line 3: a step on A100-SXM4-40GB took 3,200 ms"),
        "{}",
        said.err
    );
    assert!(said.err.contains("times slower than the estimate of"), "{}", said.err);
}

#[test]
fn what_a_hint_says_to_write_works() {
    let desk = Desk::new();
    for limit in ["budget: {max: $1}", "deadline: 5m", "budget: {max: $2}\ndeadline: 10m"] {
        desk.file("job.yaml", resnet(&format!("{limit}\n")));
        let said = desk.gradus(&["plan", "job.yaml"]);
        assert_eq!(said.code, Some(2), "{limit}: {}{}", said.out, said.err);
        // Each hint alone, as it is written: in place of the limit that it names.
        for hint in said.err.lines().filter_map(|line| line.trim().strip_prefix("hint: write ")) {
            let written: Vec<&str> = hint.split('`').skip(1).step_by(2).collect();
            let named = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
            let kept = limit.lines().filter(|line| !written.iter().any(|other| named(other) == named(line)));
            let lines: Vec<&str> = kept.chain(written.iter().copied()).collect();
            desk.file("job.yaml", resnet(&format!("{}\n", lines.join("\n"))));
            let again = desk.gradus(&["plan", "job.yaml"]);
            assert_eq!(again.code, Some(0), "{limit} → {lines:?}: {}", again.err);
        }
    }
}

#[test]
fn a_program_for_this_machine_is_planned_for_this_machine() {
    let desk = Desk::new();
    desk.file("job.yaml", resnet("resources: {infra: local}\n"));
    let said = desk.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("machine  this-machine"), "{}", said.out);
    assert!(said.out.contains("`gradus run` starts `python train.py` on this machine"), "{}", said.out);
    assert!(said.out.contains("`gradus plan JOB --catalog`"), "{}", said.out);
    let catalog = desk.gradus(&["plan", "job.yaml", "--catalog"]);
    assert!(catalog.out.contains("recommended"), "{}{}", catalog.out, catalog.err);
    // The same is said before a run begins.
    desk.file("job.yaml", resnet("").replace("python train.py", "echo trained"));
    let said = desk.gradus(&["run", "job.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let (note, begun) = (said.err.find("starts `echo trained` on this machine"), said.err.find("submitted"));
    assert!(note.is_some() && note < begun, "{}", said.err);
}

#[test]
fn data_that_is_not_there_is_told_with_what_the_job_file_says_of_it() {
    let desk = Desk::new();
    let train = "train: {model: cnn, data: {path: digits.csv}, epochs: 1, batch: 8}\n";
    desk.file("job.yaml", format!("# yaml-language-server: $schema=x\n# Get it:\n#   fetch digits.csv\n{train}"));
    for verb in ["plan", "run"] {
        let said = desk.gradus(&[verb, "job.yaml"]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        let told = "\n  `job.yaml` begins with:\n    Get it:\n      fetch digits.csv\n";
        assert!(said.err.contains("there is no data at") && said.err.contains(told), "{}", said.err);
    }
    desk.file("job.yaml", train);
    assert!(!desk.gradus(&["plan", "job.yaml"]).err.contains("begins with"));
}

#[test]
fn a_horizon_of_nothing_and_a_trace_with_a_head_are_understood() {
    let desk = Desk::new();
    desk.file("job.yaml", resnet(""));
    let said = desk.gradus(&["plan", "job.yaml", "--horizon", "0d"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("hint: write for example `--horizon '365 days'`"), "{}", said.err);
    desk.file("trace.csv", "time,count\n0,1\n3600,0\n7200,1\n86400,1\n");
    let said = desk.gradus(&["plan", "job.yaml", "--spot-trace", "trace.csv"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn what_cannot_be_measured_here_is_said_with_the_way_out() {
    let desk = Desk::new();
    let check = |words: &[&str], code: i32, why: &str, hint: &str| {
        let said = desk.gradus(&[&["plan"], words].concat());
        assert_eq!((said.code, &*said.out), (Some(code), ""), "{}", said.err);
        assert!(said.err.contains(why) && said.err.contains(hint), "{}", said.err);
    };
    // A program of the user's own.
    desk.file("program.yaml", resnet(""));
    check(&[], 2, "no job file is named", "`gradus plan JOB`");
    check(&["--calibrate"], 2, "no job file is named", "`gradus plan JOB --calibrate`");
    check(&["--calibrate", "program.yaml"], 2, "took `program.yaml` for its table", "plan program.yaml --calibrate`");
    check(&["program.yaml", "--calibrate", "gone.csv"], 2, "cannot calibrate by `gone.csv`", "`source_id,model,gpu");
    check(&["program.yaml", "--calibrate"], 2, "runs a program", "`--calibrate FILE.csv`");
    // Networks of ours, planned over GPUs that a processor says nothing about: no GPU's driver is found.
    let yaml = resnet("").replace("run: python train.py\n", "");
    let (head, _) = yaml.split_once("workload:").unwrap();
    let train = "train: {model: resnet18, data: {path: pictures, size: 32, classes: 10}, epochs: 1, batch: 64}\n";
    desk.file("ours.yaml", format!("{head}{train}"));
    let said = desk.gradus_without_path(&["plan", "ours.yaml", "--catalog", "--calibrate"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("no GPU is found here") && said.err.contains("hint: "), "{}", said.err);
}

#[test]
fn networks_of_ours_are_planned_over_the_catalog_and_told_whether_they_fit() {
    let desk = Desk::new();
    let train = |model: &str, data: &str| {
        format!(
            "name: ours\ndata: {{samples: 100000}}\ntrain:\n  model: {model}\n  data: {{{data}}}\n  epochs: 2\n  batch: 64\n"
        )
    };
    let text = "path: texts.csv, text: {columns: [text], label: class, length: 128}, classes: 4";
    for (yaml, parameters) in [
        (train("mobilenet_v2", "path: pictures, size: 224, classes: 1000"), 3_504_872.0),
        (train("bert_base", text), 92_188_420.0),
    ] {
        let plan = desk.plan(&yaml, &["--catalog"]);
        assert_eq!(plan["parameters"], parameters);
        let way = &plan["picks"][0]["way"];
        assert_eq!(way["verdict"], "fits", "{way}");
        let bytes = |key: &str| way[key].as_f64().unwrap();
        assert!(bytes("needed_low") < bytes("needed") && bytes("needed") < bytes("needed_high"), "{way}");
    }
}
