//! GPUs that a job describes, and parts of GPUs.

use crate::jobs::resnet;
use crate::workdir::Workdir;

const PRICES: &str =
    "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand\nown,cellar,big-box,X100,8,96,512,9\n";

#[test]
fn a_described_gpu_is_planned_with_and_said_to_be_unmeasured() {
    let workdir = Workdir::new();
    workdir.file("mine.csv", PRICES);
    let imported = workdir.gradus(&["catalog", "import", "mine.csv"]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    let spec = "X100: {memory: 96GB, bandwidth: 3.35TB/s, bf16: 989TFLOPS, power: 700W, link: switch 900GB/s}";
    let job = resnet(&format!("resources: {{cloud: own, accelerators: X100:8, gpu_specs: {{{spec}}}}}\n"));
    let plan = workdir.plan(&job, &[]);
    assert_eq!(plan["picks"][0]["gpu"], "X100", "{plan}");
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert!(said.out.contains("a X100 is known from the job only, and was never measured"), "{}", said.out);
    // The same from an imported table, for offers too.
    workdir.file("gpus.csv", "gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,link\nX100,96,3350,700,989,switch 900\n");
    let imported = workdir.gradus(&["catalog", "import", "gpus.csv"]);
    assert!(imported.out.contains("1 GPU imported as `gpus`: `X100`"), "{}{}", imported.out, imported.err);
    // Prices that come after it know it, and a second description would contradict it.
    let again = workdir.gradus(&["catalog", "import", "mine.csv"]);
    assert!(again.code == Some(0) && !again.err.contains("unknown GPUs"), "{}", again.err);
    workdir.file("others.csv", "gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops\nX100,80,3350,700,989\n");
    let other = workdir.refused(&["catalog", "import", "others.csv"], 2);
    assert!(other.contains("the catalog knows a GPU `X100`"), "{other}");
    assert_eq!(workdir.gradus(&["catalog", "import", "gpus.csv"]).code, Some(0), "an import replaces itself");
    let offers = workdir.gradus(&["offers", "X100:8"]);
    assert!(offers.out.contains("8 × X100"), "{}{}", offers.out, offers.err);
    let twice = workdir.refused(&["plan", "job.yaml"], 2);
    assert!(twice.contains("the catalog knows a GPU `X100`") && twice.contains("`my-X100`"), "{twice}");
}

#[test]
fn a_slice_is_planned_with_and_a_wrong_one_names_the_layouts() {
    let workdir = Workdir::new();
    let job = |gpu: &str| resnet(&format!("resources: {{accelerators: '{gpu}', nodes: 1}}\n"));
    let plan = workdir.plan(&job("A100-80GB:1g.10gb"), &[]);
    let gpu = plan["picks"][0]["gpu"].as_str().unwrap();
    assert!(gpu.starts_with("A100-") && gpu.ends_with(":1g.10gb"), "{gpu}");
    workdir.file("job.yaml", job("A100-80GB:1g.11gb"));
    let refused = workdir.refused(&["plan", "job.yaml"], 2);
    assert!(refused.contains("`1g.11gb`") && refused.contains("`1g.10gb` (0.125 of the memory"), "{refused}");
    let offers = workdir.gradus(&["offers", "L4:0.125"]);
    assert!(offers.out.contains("1 × L4:1/8"), "{}{}", offers.out, offers.err);
}

#[test]
fn free_machines_of_ones_own_are_said_to_be() {
    let workdir = Workdir::new();
    workdir.file("mine.csv", "cloud,region,instance_type,gpu,gpu_count,on_demand\nown,cellar,box,A100,8,0\n");
    assert_eq!(workdir.gradus(&["catalog", "import", "mine.csv"]).code, Some(0));
    workdir.file("job.yaml", resnet("resources: {cloud: own}\n"));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert!(said.out.contains("cost     nothing: the machines are free"), "{}{}", said.out, said.err);
}

#[test]
fn a_job_for_nodes_is_planned_with_their_gpus() {
    let workdir = Workdir::new();
    let row = |row: u32| (0..64).map(|column| ((row * 31 + column * 17) % 16).to_string()).collect::<Vec<_>>();
    let rows = (0..400).map(|number| format!("{},{}\n", row(number).join(","), number % 4));
    workdir.file("table.csv", rows.collect::<String>());
    std::fs::create_dir_all(workdir.0.path().join("home")).unwrap();
    let train = "train: {model: mlp, data: {path: table.csv}, epochs: 3, batch: 8, threads: 1}\n";
    workdir.file("job.yaml", format!("{train}resources: {{infra: ssh/west}}\n"));
    let plan = |cuda: &str| {
        let facts = format!(
            r#"{{"gpu":{{"devices":[{{"name":"NVIDIA L4","memory":24152899584}}]}},"software":{{"libtorch":{{"folder":"/t","version":"2.11.0","cuda":{cuda}}}}}}}"#
        );
        let node = r#"{"cpu":"","cores":8,"memory":68719476736,"disk_free":68719476736}"#;
        let host = format!(r#"{{"name":"west","address":"west","rate":0,"node":{node},"facts":{facts}}}"#);
        workdir.file("home/nodes.json", format!(r#"{{"hosts":[{host}]}}"#));
        let said = workdir.gradus(&["plan", "job.yaml"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    };
    let (on_gpu, on_cpu) = (plan(r#""13.0""#), plan("null"));
    assert!(on_gpu.contains("computed on 1 × L4") && !on_gpu.contains("GFLOP/s"), "{on_gpu}");
    assert!(!on_cpu.contains("computed on") && on_cpu.contains("GFLOP/s"), "{on_cpu}");
}
