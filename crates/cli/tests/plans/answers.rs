//! What a plan answers: it adds up, obeys limits, counts all money, and stands alone as a page.

use std::fs;

use domain::Duration;
use serde_json::Value;

use crate::jobs::resnet;
use crate::workdir::Workdir;

#[test]
fn what_is_told_adds_up() {
    let workdir = Workdir::new();
    let plan = workdir.plan(&resnet(""), &[]);
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
fn one_objective_is_stated_and_others_stand_beside_it() {
    let workdir = Workdir::new();
    let roles = |plan: &Value| -> Vec<String> {
        plan["picks"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap().to_owned()).collect()
    };
    let check = |lines: &str, rule: &str| {
        let plan = workdir.plan(&resnet(lines), &[]);
        let (roles, why) = (roles(&plan), plan["picks"][0]["why"].as_str().unwrap());
        assert!(why.contains(rule), "{lines}: {why}");
        for role in ["recommended", "cheapest", "fastest", "one_machine", "robust"] {
            assert!(roles.iter().any(|one| one == role), "{lines}: {roles:?}");
        }
        // The same on demand may cost more than the budget.
        let is_same = |role: &String| role.starts_with("same_");
        assert!(roles.iter().any(is_same) || lines.contains("budget"), "{lines}: {roles:?}");
        plan
    };
    check("", "the least of cost times time");
    let plan = check("deadline: 12h\n", "the cheapest that nine runs in ten finish before the deadline");
    assert!(plan["picks"][0]["seconds"]["high"].as_f64().is_none_or(|high| high <= 12.0 * 3600.0), "{plan}");
    let plan = check("budget: {max: $60}\n", "nine runs in ten finish within the budget");
    assert!(plan["picks"][0]["cost_micro_usd"]["high"].as_i64().unwrap() <= 60_000_000, "{plan}");
}

#[test]
fn other_families_are_compared_only_where_they_are_named() {
    let workdir = Workdir::new();
    let plan = workdir.plan(&resnet(""), &[]);
    let is_other = |row: &Value| {
        let kind = row["instance_type"].as_str().unwrap();
        kind.starts_with("g5g.") || kind.contains("MI300X") || kind.starts_with("gpu_1x_gh200")
    };
    assert!(!plan["front"].as_array().unwrap().iter().any(is_other), "{}", plan["front"]);
    let reasons = plan["ruled_out"].as_array().unwrap();
    assert!(reasons.iter().any(|one| one["reason"] == "other_family"), "{reasons:?}");
    workdir.file("arm.yaml", resnet("resources: {accelerators: T4G}\n"));
    let named = workdir.gradus(&["plan", "arm.yaml"]);
    assert!(named.code == Some(0) && named.out.contains("T4G, Arm)"), "{}{}", named.out, named.err);
}

#[test]
fn a_network_of_a_family_that_nobody_measured_has_a_wide_band_and_says_so() {
    let workdir = Workdir::new();
    let only = "resources: {instance_type: p4d.24xlarge, infra: aws/us-east-1, spot: never, nodes: 1}\n";
    let told = |yaml: String| {
        let plan = workdir.plan(&yaml, &[]);
        let time = &plan["front"][0]["time"];
        let seconds = |key: &str| time[key].as_str().unwrap().parse::<Duration>().unwrap().as_secs_f64();
        workdir.file("job.yaml", yaml);
        (seconds("high") / seconds("low"), workdir.gradus(&["plan", "job.yaml"]).out)
    };
    let (measured, said) = told(resnet(only));
    assert!(!said.contains("the ranges are wide"), "{said}");
    let other = "{model_type: mobilenet_v2}";
    let (unmeasured, said) =
        told(resnet(only).replace("{model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}", other));
    assert!(said.contains("was measured: the ranges are wide"), "{said}");
    assert!(unmeasured > 1.2 * measured, "{unmeasured} {measured}");
}

#[test]
fn figures_are_explained_and_quota_is_named() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet("resources: {infra: aws}\n"));
    let said = workdir.gradus(&["plan", "job.yaml"]);
    for words in ["P10–P90: eight runs of ten", "quota    your account must be allowed", "PyTorch's `DataLoader`"] {
        assert!(said.out.contains(words), "`{words}` is not in {}", said.out);
    }
}

#[test]
fn machines_that_a_region_does_not_have_are_not_planned_with() {
    let workdir = Workdir::new();
    // GCP prices this machine in 36 regions and has it in three.
    let job = |region: &str| resnet(&format!("resources: {{infra: gcp/{region}, instance_type: a2-megagpu-16g}}\n"));
    let there = workdir.plan(&job("us-central1"), &[]);
    assert!(!there["front"].as_array().unwrap().is_empty());
    workdir.file("job.yaml", job("europe-north1"));
    let refused = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.out, refused.err);
}

#[test]
fn limits_narrow_what_is_chosen() {
    let workdir = Workdir::new();
    let chosen = |plan: &Value, role: &str| {
        plan["picks"].as_array().unwrap().iter().find(|pick| pick["role"] == role).unwrap().clone()
    };
    let free = workdir.plan(&resnet(""), &[]);
    let cheapest = chosen(&free, "cheapest")["cost_usd"].as_f64().unwrap();
    let within = workdir.plan(&resnet(&format!("budget: {{max: ${}}}\n", (cheapest * 2.0).ceil())), &[]);
    assert!(chosen(&within, "fastest")["cost_usd"].as_f64().unwrap() <= (cheapest * 2.0).ceil());
    let soon = workdir.plan(&resnet("deadline: 1h\n"), &[]);
    let hours = |plan: &Value, role: &str| chosen(plan, role)["hours"].as_f64().unwrap();
    assert!(hours(&soon, "cheapest") <= 1.0 && hours(&free, "cheapest") > 1.0);
    // What is recommended keeps to a deadline in nine runs of ten.
    let high: Duration = chosen(&soon, "recommended")["time"]["high"].as_str().unwrap().parse().unwrap();
    assert!(high.as_secs_f64() <= 3600.0, "{high}");
    let never = workdir.plan(&resnet("resources: {spot: never}\n"), &[]);
    assert!(never["front"].as_array().unwrap().iter().all(|one| one["terms"] == "on_demand"));
    let clean = workdir.plan(&resnet("resources: {compliance: [gdpr], max_carbon: 20}\n"), &[]);
    assert!(clean["front"].as_array().unwrap().iter().all(|one| one["kilograms_co2"].as_f64().unwrap() <= 20.0));
    let tier = workdir.plan(&resnet(""), &["--preset", "entry"]);
    assert!(tier["front"].as_array().unwrap().iter().all(|one| one["gpu"] == "T4" && one["gpus"] == 1));
    let fixed = workdir.plan(&resnet("num_nodes: 2\n"), &[]);
    assert!(fixed["front"].as_array().unwrap().iter().all(|one| one["nodes"] == 2));
}

#[test]
fn data_that_leaves_a_cloud_is_paid_for() {
    let workdir = Workdir::new();
    let only = "resources: {instance_type: p4d.24xlarge, infra: aws/us-east-1, spot: never, nodes: 1}\n";
    let egress = |at: &str| {
        let yaml = resnet(only).replace("147 GB}", &format!("147 GB{at}}}"));
        workdir.plan(&yaml, &[])["front"][0]["cost_micro_usd"]["egress"].as_i64().unwrap()
    };
    let (here, region, elsewhere) =
        (egress(", at: aws/us-east-1"), egress(", at: aws/us-west-2"), egress(", at: gcp/us-central1"));
    assert!(here < region && region < elsewhere, "{here} {region} {elsewhere}");
}

#[test]
fn a_trace_replaces_the_band() {
    let workdir = Workdir::new();
    let rough: Vec<String> = (0..2000).map(|tick| if tick % 8 == 0 { "1" } else { "0" }.to_owned()).collect();
    workdir.file("rough.json", format!(r#"{{"metadata": {{"gap_seconds": 600}}, "data": [{}]}}"#, rough.join(", ")));
    let yaml = resnet("resources: {accelerators: V100:8, spot: only, nodes: 1}\n");
    let hours = |plan: &Value| plan["front"][0]["hours"].as_f64().unwrap();
    let (usual, worse) = (workdir.plan(&yaml, &[]), workdir.plan(&yaml, &["--spot-trace", "rough.json"]));
    assert!(hours(&worse) > 1.2 * hours(&usual), "{} {}", hours(&worse), hours(&usual));
}

#[test]
fn the_page_and_the_picture_stand_alone() {
    let workdir = Workdir::new();
    workdir.plan(
        &resnet("name: a<b\n").replacen("name: pictures\n", "", 1).replace("a<b", "ab"),
        &["--html", "plan.html", "--svg", "plan.svg"],
    );
    let read = |name: &str| fs::read_to_string(workdir.0.path().join(name)).unwrap();
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
fn a_reservation_is_compared_over_a_horizon() {
    let workdir = Workdir::new();
    let yaml = resnet("resources: {cloud: gcp, accelerators: A100-40GB:8, nodes: 1}\n");
    let plan = workdir.plan(&yaml, &["--horizon", "365 days", "--runs", "300"]);
    let compared = plan["reservations"].as_array().unwrap();
    assert_eq!(compared.len(), 2, "one year and three");
    for one in compared {
        assert!((0.2..0.8).contains(&one["breaks_even_at"].as_f64().unwrap()), "{one}");
    }
}

#[test]
fn a_horizon_of_nothing_and_a_trace_with_a_head_are_understood() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet(""));
    let said = workdir.gradus(&["plan", "job.yaml", "--horizon", "0d"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("hint: use for example `--horizon '365 days'`"), "{}", said.err);
    workdir.file("trace.csv", "time,count\n0,1\n3600,0\n7200,1\n86400,1\n");
    let said = workdir.gradus(&["plan", "job.yaml", "--spot-trace", "trace.csv"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
}
