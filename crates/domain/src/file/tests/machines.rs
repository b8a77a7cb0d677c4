//! Machines that a job asks for, its money and its time.

use super::{check, run_with};

#[test]
fn without_a_cloud_that_can_be_rented_only_plans_are_made() {
    let check = |line: &str, expected: &str| check(&run_with(&format!("resources: {{{line}}}")), expected);
    let gpu = "2 resources.accelerators: GPUs can be requested only on a cloud or on nodes, and the job names none that can be used (add a cloud, such as `infra: aws`, or `infra: ssh` for nodes, or leave it out to use this machine as it is)\nok";
    check("accelerators: A100:8", gpu);
    check("infra: ssh, accelerators: A100:8", "ok");
    check("infra: ssh/lab, accelerators: [A100:8, 40GB+:4]", "ok");
    check("accelerators: [A100:8, 40GB+:4]", gpu);
    check("accelerators: {A100: 8, H100: 8}", gpu);
    check("spot: never, dedicated: false, nodes: 1, use_spot: false", "ok");
    check(
        "accelerators: A100:0",
        "2 resources.accelerators: `A100:0` is not a valid value of `accelerators`: it asks for none (write for example `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8` or `24GB`)",
    );
    check("spot: true", "2 resources.spot: `true` is not known here (write one of `auto`, `only`, `never`)");
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
    super::check(
        "run: a\nnum_nodes: 2\nresources: {nodes: [4]}\n",
        "2 num_nodes: `num_nodes` and `resources.nodes` contradict each other (keep one of the two)",
    );
}

#[test]
fn described_gpus_are_possible_ones() {
    let check =
        |keys: &str, expected: &str| check(&run_with(&format!("resources: {{gpu_specs: {{{keys}}}}}")), expected);
    let x100 = |keys: &str| format!("X100: {{memory: 96GB, bandwidth: 3.35TB/s, power: 700W{keys}}}");
    check(&x100(", bf16: 989TFLOPS, fp8: 2PFLOPS, link: switch 900GB/s, architecture: hopper"), "ok");
    check(
        &x100(""),
        "2 resources.gpu_specs.X100.bf16: a GPU without a peak rate computes nothing (add `bf16: …`, the dense rate of its matrix units, such as `989TFLOPS`)",
    );
    check(
        &x100(", bf16: 60TFLOPS, fp32: 67TFLOPS"),
        "2 resources.gpu_specs.X100.bf16: its rate in bf16, 60TFLOPS, is below the one in fp32, 67TFLOPS (write dense rates, not sparse ones, and leave out formats that its matrix units have not)",
    );
    check(
        "96GB: {memory: 96GB, bandwidth: 3.35TB/s, power: 700W, bf16: 989TFLOPS}",
        "2 resources.gpu_specs.96GB: `96GB` cannot stand in `accelerators` (use a name of letters, digits and `-`, such as `X100-96GB`)",
    );
    check(
        "X: {memory: 0GB, bandwidth: 1TB/s, power: 1W, bf16: 1TFLOPS}",
        "2 resources.gpu_specs.X.memory: `0GB` is no memory of one GPU (write for example `96GB`, of one GPU and above 0)",
    );
    check(
        &x100(", bf16: 1PFLOPS, links: pcie"),
        "2 resources.gpu_specs.X100.links: unknown key (did you mean `link`?)",
    );
}

#[test]
fn a_choice_between_machines_is_made() {
    let wants = |resources: &str| {
        let text = run_with(&format!("resources: {resources}"));
        crate::Job::parse(&text, "job.yaml").expect("a job").job.wants
    };
    for (written, same) in [
        ("{accelerators: {A100:8, H100:4}}", "{accelerators: [A100:8, H100:4]}"),
        ("{accelerators: {A100:8, H100: 4}}", "{accelerators: [A100:8, H100:4]}"),
        ("{any_of: [{accelerators: A100:8}, {accelerators: {H100: 4}}]}", "{accelerators: [A100:8, H100:4]}"),
        ("{any_of: [{accelerators: {A100:8, L4:1}}]}", "{accelerators: [A100:8, L4:1]}"),
        ("{any_of: [{use_spot: true}, {use_spot: false}]}", "{spot: auto}"),
        ("{any_of: [{use_spot: true}]}", "{use_spot: true}"),
        ("{any_of: [{infra: k8s}, {infra: gcp/us-east1, use_spot: true}]}", "{infra: gcp/us-east1, use_spot: true}"),
        ("{any_of: [{infra: aws, use_spot: false}, {infra: aws, use_spot: true}]}", "{infra: aws, spot: auto}"),
        (
            "{any_of: [{cloud: aws, accelerators: H100:8}, {accelerators: {L4: 1}, cloud: aws}]}",
            "{cloud: aws, accelerators: [H100:8, L4:1]}",
        ),
        ("{ordered: [{infra: azure}, {infra: aws}]}", "{infra: azure}"),
        ("{use_spot: false, any_of: [{cloud: aws, use_spot: true}, {cloud: gcp}]}", "{cloud: aws, use_spot: true}"),
        ("{use_spot: false, any_of: [{use_spot: true}, {use_spot: false}]}", "{spot: auto}"),
        ("{cloud: gcp, region: us-east1, any_of: [{infra: aws}, {infra: gcp}]}", "{infra: aws}"),
        ("{accelerators: L4, any_of: }", "{accelerators: L4}"),
        ("{accelerators: L4, ordered: []}", "{accelerators: L4}"),
    ] {
        assert_eq!(wants(written), wants(same), "{written}");
    }
    let check = |line: &str, expected: &str| check(&run_with(line), expected);
    check(
        "resources:\n  infra: aws\n  ordered:\n  - {accelerators: A100}\n  - {accelerators: H100}",
        "4 resources.ordered: any of the choices is taken, by its price (keep one of them if the order matters)
         ok",
    );
    check(
        "resources:\n  any_of:\n  - {infra: aws, cpus: 4}\n  - {infra: gcp}",
        "3 resources.any_of: choice 1 of 2 is taken: a job has one set of resources (`gradus plan JOB --catalog` compares all machines that would do)
         ok",
    );
    check(
        "resources: {any_of: [{acelerators: L4}]}",
        "2 resources.acelerators: unknown key (did you mean `accelerators`?)",
    );
    check(
        "resources: {any_of: [L4]}",
        "2 resources.any_of: each choice is a mapping (write for example `- {accelerators: A100:8}`)",
    );
    check(
        "resources: {ordered: L4}",
        "2 resources.ordered: expected a list of mappings (write for example `[{accelerators: A100:8}, {accelerators: H100:8}]`)",
    );
}

#[test]
fn the_speed_of_a_disk_is_stated_in_either_form() {
    use crate::volume::{DiskTier, VolumeSpeed};
    let needs = |resources: &str| {
        let text = run_with(&format!("resources: {{infra: aws, {resources}}}"));
        crate::Job::parse(&text, "job.yaml").expect("a job").job.needs
    };
    let tier = |tier| VolumeSpeed { tier: Some(tier), ..VolumeSpeed::default() };
    assert!(needs("disk_size: 256").speed.is_open());
    assert_eq!(needs("disk: {size: 256}"), needs("disk_size: 256"));
    assert_eq!(needs("disk_tier: high").speed, tier(DiskTier::High));
    assert_eq!(needs("disk: {tier: high}"), needs("disk_tier: high"));
    // As SkyPilot reads it.
    assert_eq!(needs("disk_tier: BEST").speed, tier(DiskTier::Best));
    for none in ["disk_tier: none", "disk_tier: ", "disk: ", "disk: {}"] {
        assert!(needs(none).speed.is_open(), "{none}");
    }
    let stated = VolumeSpeed { iops: Some(6_000), throughput: Some(500), tier: None };
    assert_eq!(needs("disk: {iops: 6000, throughput: 500}").speed, stated);
    let check = |line: &str, expected: &str| check(&run_with(&format!("resources: {{{line}}}")), expected);
    check(
        "infra: aws, disk: {size: 500, iops: 6000, throughput: 500}, disk_tier: ultra, disk_size: 500",
        "2 resources.disk.throughput: the throughput of `tier: ultra`, an io2 volume, follows from its IOPS (write `iops: …` alone, 4 for each MiB/s)",
    );
    check(
        "infra: aws, disk: {size: 500, tier: low}, disk_size: 600, disk_tier: high",
        "2 resources.disk.size: `disk.size` and `disk_size` contradict each other (keep one of the two)
         2 resources.disk.tier: `disk.tier` and `disk_tier` contradict each other (keep one of the two)",
    );
    check(
        "infra: aws, disk: {iops: 1000}",
        "2 resources.disk.iops: a gp3 volume has 3000 IOPS at least, which its size pays for (write `iops: 3000` or more, or leave it out)",
    );
    check(
        "disk_tier: fast",
        "2 resources.disk_tier: `fast` is not known here (write one of `low`, `medium`, `high`, `ultra`, `best`)",
    );
    let other = "only AWS provisions the speed of a disk: on other machines this changes nothing (add `infra: aws`, or leave it out)";
    check("infra: gcp, disk_tier: high", &format!("2 resources.disk_tier: {other}\nok"));
    check("infra: gcp, disk: {iops: 6000}", &format!("2 resources.disk: {other}\nok"));
    check("infra: gcp, disk: {size: 500}", "ok");
    check("infra: aws, disk_tier: high", "ok");
}

#[test]
fn the_size_of_a_disk_is_one_that_a_volume_has() {
    let check = |line: &str, expected: &str| check(&run_with(&format!("resources: {{{line}}}")), expected);
    let most = "a volume has 16384 GiB at most, 40 of them for the system (write 17549 (GB) or less, or divide the data among several machines)";
    check("infra: aws, disk: {size: 17549}", "ok");
    check("infra: aws, disk: {size: 17550}", &format!("2 resources.disk.size: {most}"));
    check("infra: aws/us-east-1, disk_size: 70000", &format!("2 resources.disk_size: {most}"));
    // Other clouds have larger disks.
    check("infra: gcp, disk: {size: 17550}", "ok");
    for (line, key, name) in [
        ("disk: {size: 0}", "disk.size", "size"),
        ("disk_size: 0", "disk_size", "disk_size"),
        ("disk: {size: 0}, disk_size: 0", "disk.size", "size"),
    ] {
        let hint = format!("write for example `{name}: 500` (GB), or leave it out: the plan chooses");
        check(&format!("infra: gcp, {line}"), &format!("2 resources.{key}: a disk of 0 GB holds nothing ({hint})"));
    }
}
