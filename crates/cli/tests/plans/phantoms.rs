//! No plan of a shipped example, under any preset, names a machine that its region does not have, and what no source speaks
//! of stands after what is known. Each offer is looked up in the table itself.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::workdir::Workdir;

/// Says of a row of a plan whether it is there, by reading `catalog/availability.csv`.
fn says(table: &[Vec<String>], row: &Value) -> &'static str {
    let cell = |key: &str| row[key].as_str().unwrap();
    let named = table.iter().filter(|cells| {
        cells[0] == cell("cloud")
            && cell("instance_type").starts_with(&cells[1])
            && cells[2].split(' ').any(|terms| terms == cell("terms"))
    });
    let Some(nearest) = named.max_by_key(|cells| cells[1].len()) else { return "unknown" };
    let regions: Vec<&str> = nearest[3].split(' ').collect();
    let doubtful = format!("{}?", cell("region"));
    match () {
        () if regions == ["?"] || regions.contains(&&*doubtful) => "unknown",
        () if regions.contains(&cell("region")) => "known",
        () => "denied",
    }
}

#[test]
fn no_example_is_planned_with_a_phantom() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("catalog/availability.csv")).unwrap();
    let table: Vec<Vec<String>> =
        text.lines().skip(1).map(|line| line.splitn(5, ',').map(str::to_owned).collect()).collect();
    let mut planned = 0;
    println!("{:20} {:13} {:>5} {:>6} {:>7}", "example", "preset", "rows", "denied", "unknown");
    for example in ["bert-large", "imagenet-resnet50", "llama-8b-finetune", "yolo-coco"] {
        for preset in ["", "entry", "professional", "large", "cluster"] {
            let workdir = Workdir::new();
            let file = root.join(format!("examples/{example}.yaml"));
            let mut words = vec!["plan", file.to_str().unwrap(), "--json"];
            if !preset.is_empty() {
                words.extend(["--preset", preset]);
            }
            let said = workdir.gradus(&words);
            // A T4 has no bf16.
            if said.code == Some(2) {
                continue;
            }
            let plan: Value = serde_json::from_str(&said.out).unwrap();
            let rows: Vec<&Value> = ["front", "picks"].iter().flat_map(|key| plan[key].as_array().unwrap()).collect();
            let count = |word: &str| rows.iter().filter(|row| says(&table, row) == word).count();
            println!("{example:20} {preset:13} {:>5} {:>6} {:>7}", rows.len(), count("denied"), count("unknown"));
            assert_eq!((count("denied"), count("unknown")), (0, 0), "{example} {preset}");
            for row in plan["unconfirmed"].as_array().unwrap() {
                assert_eq!((says(&table, row), row["availability"].as_str()), ("unknown", Some("unknown")), "{row}");
            }
            planned += 1;
        }
    }
    assert!(planned >= 19, "{planned}");
}

#[test]
fn offers_stand_in_the_order_of_what_is_known() {
    let workdir = Workdir::new();
    for words in [&["offers", "--json"][..], &["offers", "--json", "--spot"]] {
        let said = workdir.gradus(words);
        let terms = if words.len() == 3 { "spot" } else { "on_demand" };
        let order: Vec<String> = said
            .out
            .lines()
            .map(|line| {
                let row: Value = serde_json::from_str(line).unwrap();
                row["availability"][terms].as_str().unwrap().to_owned()
            })
            .collect();
        assert!(order.len() > 50 && order.is_sorted() && order.iter().all(|word| word != "denied"), "{words:?}");
    }
}
