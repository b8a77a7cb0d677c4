//! Steps that were measured correct a plan, or are told when they cannot.

use serde_json::Value;

use crate::jobs::resnet;
use crate::workdir::Workdir;

#[test]
fn measured_steps_correct_the_estimates() {
    let workdir = Workdir::new();
    let yaml = resnet("resources: {instance_type: p4d.24xlarge, cloud: aws, spot: never, nodes: 1}\n");
    let step = |plan: &Value| plan["front"][0]["step_seconds"].clone();
    let free = workdir.plan(&yaml, &[]);
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
    workdir.file("steps.csv", table(gpu.as_str().unwrap(), &slow.to_string()));
    let taught = workdir.plan(&yaml, &["--calibrate", "steps.csv"]);
    let ratio = middle(&taught) / middle(&free);
    assert!((1.3..1.7).contains(&ratio), "{ratio}");
    assert!(spread(&taught) < spread(&free), "{} {}", spread(&taught), spread(&free));
    assert_eq!(taught["measured_steps"][0]["gpu"], *gpu);
    assert_eq!(taught["front"][0]["calibration"]["runs"], 1);
    // Measured elsewhere it is believed half.
    workdir.file("steps.csv", table("V100", "1500"));
    let elsewhere = workdir.plan(&yaml, &["--calibrate", "steps.csv"]);
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
            "every row differs from its estimate by more than 10 ×; line 2: a step on A100-SXM4-40GB took",
        ),
        ("source_id,model,gpu,throughput\n", "it has no rows"),
        (
            "source_id,model,gpu,throughput,batch_per_gpu,parallelism\nmine,x,A100,99,128,ring4\n",
            "line 2: `ring4` in the column `parallelism` is not known",
        ),
    ] {
        workdir.file("steps.csv", text);
        let said = workdir.gradus(&["plan", "job.yaml", "--calibrate", "steps.csv"]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(why) && said.err.contains("hint: "), "{}", said.err);
    }
}

#[test]
fn steps_that_are_too_far_off_are_told_and_not_learnt_from() {
    let workdir = Workdir::new();
    let head = "source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit\n";
    let row = |throughput: &str| format!("mine,pictures,A100,1,128,{throughput},img/s\n");
    let taught = |rows: &[&str]| {
        let text: String = rows.iter().map(|throughput| row(throughput)).collect();
        workdir.file("steps.csv", format!("{head}{text}"));
        workdir.plan(&resnet(""), &["--calibrate", "steps.csv"])
    };
    let (one, both) = (taught(&["2000"]), taught(&["2000", "40"]));
    assert_eq!(one["front"], both["front"]);
    assert_eq!(both["measured_steps"].as_array().unwrap().len(), 1);
    let said = workdir.gradus(&["plan", "job.yaml", "--calibrate", "steps.csv"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.err.contains("warning: ignored outlier in `steps.csv`: line 3: a step on A100-SXM4-40GB took 3,200 ms"),
        "{}",
        said.err
    );
    assert!(said.err.contains("× slower than the estimate of"), "{}", said.err);
}

#[test]
fn what_cannot_be_measured_here_is_said_with_the_way_out() {
    let workdir = Workdir::new();
    let check = |words: &[&str], code: i32, why: &str, hint: &str| {
        let said = workdir.gradus(&[&["plan"], words].concat());
        assert_eq!((said.code, &*said.out), (Some(code), ""), "{}", said.err);
        assert!(said.err.contains(why) && said.err.contains(hint), "{}", said.err);
    };
    // A program of the user's own.
    workdir.file("program.yaml", resnet(""));
    check(&[], 2, "no job file", "`gradus plan JOB`");
    check(&["--calibrate"], 2, "no job file", "`gradus plan JOB --calibrate`");
    check(&["--calibrate", "program.yaml"], 2, "took `program.yaml` as its table", "plan program.yaml --calibrate`");
    check(&["program.yaml", "--calibrate", "gone.csv"], 2, "cannot calibrate with `gone.csv`", "`source_id,model,gpu");
    check(&["program.yaml", "--calibrate"], 2, "runs a program", "`--calibrate FILE.csv`");
    // Networks of ours, planned over GPUs that a processor says nothing about: no GPU's driver is found.
    let yaml = resnet("").replace("run: python train.py\n", "");
    let (head, _) = yaml.split_once("workload:").unwrap();
    let train = "train: {model: resnet18, data: {path: pictures, size: 32, classes: 10}, epochs: 1, batch: 64}\n";
    workdir.file("ours.yaml", format!("{head}{train}"));
    let said = workdir.gradus_without_path(&["plan", "ours.yaml", "--catalog", "--calibrate"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("this machine has no GPU") && said.err.contains("hint: "), "{}", said.err);
}
