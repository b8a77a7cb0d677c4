//! Jobs that cannot be planned or run: what is said, and that the way out works.

use crate::jobs::{llama, resnet};
use crate::said::{check, check_around};
use crate::workdir::Workdir;

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
        "error: job.yaml:10: `resources.accelerators`: no GPU `A1000` is known
         hint: known are `A4000`, `A10`, `A10G`, `A16`, `A100-SXM4-40GB`, `A100-SXM4-80GB` and more: `gradus catalog gpus` lists all",
    );
    // No money for it.
    check_around(
        &resnet("budget: {max: $1}\n"),
        "the budget of $# is too small: the cheapest, # × ",
        "hint: write `budget: {max: $#}` or more, which # of # runs stay within, or train for fewer steps",
    );
    // No time for it.
    check_around(
        &resnet("deadline: 5m\n"),
        "the deadline of #m is too tight: the fastest, # × ",
        "hint: write `deadline: #m` or more, which # of # runs stay within, or train for fewer steps",
    );
    // A region that nobody has.
    check(
        &resnet("resources: {cloud: aws, region: mars-1}\n"),
        "error: job.yaml:10: `resources`: no region `mars-1` is known
         hint: known are `us-east-1`, `us-west-2`, `ap-northeast-1`, `eu-central-1`, `ap-northeast-2`, `us-east-2` and more: `gradus catalog regions` lists all",
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
         hint: known keys here: `model`, `batch`, `epochs`, `steps`, `tokens`, `sequence`, `packed`, `mean_length`, `image`, `optimizer`, `optimizer_in_backward`, `precision`, `memory_format`, `flash_attention`, `compiled`, `recompute`, `parallel`, `adapters`, `offload`, `loss`, `evaluated`, `checkpoint`",
    );
    // Nothing to learn from.
    check(
        &resnet("").replace("samples: 1281167", "samples: 0"),
        "error: job.yaml:3: `data.samples`: `0` is out of range: it must be at least 1
         hint: write the number of samples",
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
fn a_hint_names_what_is_missing_and_no_cloud_that_the_job_leaves_out() {
    let check = |resources: &str, message: &str, hint: &str| {
        let workdir = Workdir::new();
        workdir.file("job.yaml", resnet(&format!("resources: {{cloud: aws, {resources}}}\n")));
        let said = workdir.gradus(&["plan", "job.yaml"]);
        assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
        assert!(said.err.contains(message) && said.err.contains(hint), "{resources}: {}", said.err);
        let catalog = cloud::Catalog::embedded().unwrap();
        for listing in catalog.listings.iter().filter(|listing| listing.cloud.name() != "aws") {
            let named = format!(" {} ", listing.cloud);
            assert!(!said.err.contains(&named), "{resources} is answered with {named}: {}", said.err);
        }
        assert!(!said.err.contains("`cloud: "), "{}", said.err);
    };
    check("region: europe-west4", "nothing is offered with `resources.region` as it is", "hint: write `region: ");
    check(
        "region: europe-west4, instance_type: a2-highgpu-8g",
        "nothing of aws is all that the rest of `resources` asks for; clouds that the job leaves out have ",
        "hint: ask for less: `gradus offers --cloud aws` lists what there is; or leave `cloud` out",
    );
    check("accelerators: MI300X:8", "nothing is offered with `resources.accelerators` as it is", "hint: ");
    check("max_price: $0.01/h", "nothing is offered with `resources.max_price` as it is", "hint: write `max_price: $");
}

/// Of these machines the disks inside a p5 alone hold 28 TB, and its price with the disk that is rented is above the limit.
#[test]
fn a_price_that_excludes_the_machines_with_enough_disk_is_named() {
    let catalog = cloud::Catalog::embedded().unwrap();
    let is_p5 =
        |listing: &&domain::listing::Listing| listing.instance_type == "p5.48xlarge" && listing.region == "us-east-1";
    let price = catalog.listings.iter().find(is_p5).and_then(|listing| listing.on_demand.as_ref()).unwrap();
    let most = domain::Rate::from_micros_per_hour(price.rate.micros_per_hour() + 1);
    let gpus = "accelerators: ['A10G:8', 'H100:8']";
    let resources = format!("cloud: aws, region: us-east-1, {gpus}, spot: never, max_price: {most}");
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet(&format!("resources: {{{resources}}}\n")).replace("147 GB", "28 TB"));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(said.err.contains("nothing is offered with `resources.max_price` as it is"), "{}", said.err);
    assert!(said.err.contains("hint: write `max_price: $"), "{}", said.err);
}

#[test]
fn what_the_market_lacks_is_told_with_how_to_add_it() {
    check(
        &resnet("resources: {cloud: tencent}\n"),
        "error: no offer can run this job
         no price is known of # machines of tencent, and the job asks for nothing else
         hint: `gradus catalog refresh tencent` reads them; `gradus catalog import FILE.csv` takes yours",
    );
    let spec = "X100: {memory: 96GB, bandwidth: 3.35TB/s, bf16: 989TFLOPS, power: 700W}";
    check(
        &resnet(&format!("resources: {{accelerators: X100:8, gpu_specs: {{{spec}}}}}\n")),
        "error: no offer can run this job
         no machine in the catalog has a `X100`
         hint: import machines that have it, with their price: `gradus catalog import FILE.csv`, a table with the columns `cloud,region,instance_type,gpu,gpu_count,on_demand`; or ask for another GPU",
    );
    check(
        &resnet("resources: {accelerators: K80:1}\n"),
        "error: no offer can run this job
         the catalog has no figures of the GPU that the job names, so nothing can be estimated on it
         hint: describe it under `resources`, such as `gpu_specs: {X100: {memory: 96GB, bandwidth: 3.35TB/s, bf16: 989TFLOPS, power: 700W}}`; `gradus catalog info` says of some GPUs why there are none",
    );
    // A price without machines: what there is instead is named too.
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet("resources: {instance_type: a3-highgpu-8g, region: europe-west2}\n"));
    let said = workdir.refused(&["plan", "job.yaml"], 2);
    assert!(said.contains("sources say that the regions have no such machines"), "{said}");
    assert!(said.contains("nothing is offered with `resources.region` as it is"), "{said}");
    // A machine of one's own whose price was left out.
    let workdir = Workdir::new();
    workdir.file("mine.csv", "cloud,region,instance_type,gpu,gpu_count,vcpus,price\nown,cellar,box,A100,8,96,12\n");
    let imported = workdir.gradus(&["catalog", "import", "mine.csv"]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    assert!(imported.err.contains("not read: `price`, `vcpus` (did you mean `vcpu`?)"), "{}", imported.err);
    assert!(imported.err.contains("without a price, not used in plans: 1 offer"), "{}", imported.err);
    workdir.file("job.yaml", resnet("resources: {cloud: own}\n"));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(said.err.contains("no price is known of 1 machine of own"), "{}", said.err);
    assert!(said.err.contains("into the column `on_demand`, 0 if nothing, and import the table again"), "{}", said.err);
}

#[test]
fn a_gpu_that_is_too_small_is_answered_with_one_within_the_limits() {
    let small = "hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336";
    let large = "hidden_size: 8192, num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, intermediate_size: 28672";
    let job = |wants: &str| {
        let job = llama(&format!("resources: {{{wants}max_price: $4/h}}\n"));
        assert!(job.contains(large), "{job}");
        job.replace(large, small)
    };
    let workdir = Workdir::new();
    workdir.file("job.yaml", job(""));
    // Machines with eight large GPUs are dearer than allowed.
    let refused = workdir.refused(&["plan", "job.yaml", "--preset", "entry"], 2);
    let (_, hint) = refused.split_once("hint: write `accelerators: ").expect(&refused);
    let gpu = hint.split('`').next().unwrap_or_default();
    assert!(refused.contains("`--preset entry` asks for `accelerators: [T4:1]` and `nodes: [1]`"), "{refused}");
    workdir.file("job.yaml", job(&format!("nodes: 1, accelerators: {gpu}, ")));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(0), "{gpu}: {}", said.err);
}

#[test]
fn words_that_nobody_knows_are_said_first() {
    let workdir = Workdir::new();
    let train = "train: {model: cnn, data: {path: x}, epochs: 1, batch: 8}\n";
    for (wants, words) in [("accelerators: 'A1000:8'", "no GPU `A1000`"), ("infra: nowhere", "no cloud `nowhere`")] {
        workdir.file("job.yaml", format!("{train}resources: {{{wants}}}\n"));
        let said = workdir.gradus(&["plan", "job.yaml"]);
        assert!(said.code == Some(2) && said.err.contains(words), "{wants}: {}", said.err);
    }
}

#[test]
fn a_job_that_is_planned_elsewhere_is_not_run_here() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet("num_nodes: 2\nresources: {accelerators: A100:8, spot: only}\n"));
    let said = workdir.gradus(&["run", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    for key in ["num_nodes", "resources.accelerators", "resources.spot"] {
        assert!(said.err.contains(&format!("`{key}`")), "{key}: {}", said.err);
    }
    assert_eq!(workdir.gradus(&["plan", "job.yaml"]).code, Some(0));
}

#[test]
fn what_a_hint_says_to_write_works() {
    let workdir = Workdir::new();
    for limit in [
        "budget: {max: $1}",
        "deadline: 5m",
        "budget: {max: $2}\ndeadline: 10m",
        "budget: {max: $2}\ndeadline: 10m\nresources: {max_carbon: 4}",
    ] {
        workdir.file("job.yaml", resnet(&format!("{limit}\n")));
        let said = workdir.gradus(&["plan", "job.yaml"]);
        assert_eq!(said.code, Some(2), "{limit}: {}{}", said.out, said.err);
        // Each hint alone, as it is written: in place of the limit that it names.
        for hint in said.err.lines().filter_map(|line| line.trim().strip_prefix("hint: write ")) {
            let written: Vec<&str> = hint.split('`').skip(1).step_by(2).collect();
            let named = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
            let kept = limit.lines().filter(|line| !written.iter().any(|other| named(other) == named(line)));
            let lines: Vec<&str> = kept.chain(written.iter().copied()).collect();
            workdir.file("job.yaml", resnet(&format!("{}\n", lines.join("\n"))));
            let again = workdir.gradus(&["plan", "job.yaml"]);
            assert_eq!(again.code, Some(0), "{limit} → {lines:?}: {}", again.err);
        }
    }
}

#[test]
fn a_program_for_this_machine_is_planned_for_this_machine() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet("resources: {infra: local}\n"));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("machine  this-machine"), "{}", said.out);
    assert!(said.out.contains("`gradus run` starts `python train.py` on this machine"), "{}", said.out);
    assert!(said.out.contains("`gradus plan JOB --catalog`"), "{}", said.out);
    let catalog = workdir.gradus(&["plan", "job.yaml", "--catalog"]);
    assert!(catalog.out.contains("recommended"), "{}{}", catalog.out, catalog.err);
    // The same is said before a run begins.
    workdir.file("job.yaml", resnet("").replace("python train.py", "echo trained"));
    let said = workdir.gradus(&["run", "job.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let (note, begun) = (said.err.find("starts `echo trained` on this machine"), said.err.find("submitted"));
    assert!(note.is_some() && note < begun, "{}", said.err);
}

#[test]
fn a_job_for_nodes_is_planned_where_they_have_its_gpus() {
    let workdir = Workdir::new();
    let node = |name: &str, devices: &str| {
        format!(
            r#"{{"name":"{name}","address":"{name}","pool":"lab","rate":0,"node":{{"cpu":"","cores":8,"memory":68719476736,"disk_free":68719476736}},"facts":{{"gpu":{{"devices":[{devices}]}}}}}}"#
        )
    };
    let l4 = r#"{"name":"NVIDIA L4","memory":24152899584}"#;
    std::fs::create_dir_all(workdir.0.path().join("home")).unwrap();
    workdir.file("home/nodes.json", format!(r#"{{"hosts":[{},{}]}}"#, node("west", l4), node("east", "")));
    let plan = |place: &str, gpus: &str| {
        workdir.file("job.yaml", format!("run: echo\nresources: {{infra: {place}, accelerators: \"{gpus}\"}}\n"));
        workdir.gradus(&["plan", "job.yaml"])
    };
    let planned = plan("ssh/west", "L4:1");
    assert_eq!(planned.code, Some(0), "{}", planned.err);
    for (place, gpus, expected) in [
        ("ssh/west", "A100:8", "asks for `A100:8` and may run on `west`, which has 1 × NVIDIA L4"),
        ("ssh/west", "L4:2", "asks for `L4:2` and may run on `west`, which has 1 × NVIDIA L4"),
        ("ssh/lab", "L4:1", "asks for `L4:1` and may run on `east`, of which no GPU is known"),
        ("ssh", "L4:1", "may run on `east`, of which no GPU is known"),
    ] {
        let said = plan(place, gpus);
        assert_eq!(said.code, Some(2), "{place} {gpus}: {}", said.err);
        assert!(said.err.contains(expected) && said.err.contains("hint: name a node"), "{}", said.err);
    }
}

#[test]
fn data_that_is_not_there_is_told_with_what_the_job_file_says_of_it() {
    let workdir = Workdir::new();
    let train = "train: {model: cnn, data: {path: digits.csv}, epochs: 1, batch: 8}\n";
    workdir.file("job.yaml", format!("# yaml-language-server: $schema=x\n# Get it:\n#   fetch digits.csv\n{train}"));
    for verb in ["plan", "run"] {
        let said = workdir.gradus(&[verb, "job.yaml"]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        let told = "\n  `job.yaml` says:\n    Get it:\n      fetch digits.csv\n";
        assert!(said.err.contains("there is no data at") && said.err.contains(told), "{}", said.err);
    }
    workdir.file("job.yaml", train);
    assert!(!workdir.gradus(&["plan", "job.yaml"]).err.contains("says:"));
}
