//! `gradus plan check --models`: tables of networks that the program does not know by themselves.

use serde_json::Value;

use crate::workdir::Workdir;

const HEAD: &str = "source_id,model,gpu,gpu_mem_gb,n_gpus,nodes,precision,batch_per_gpu,image_or_seq,parallelism,grad_checkpoint,throughput,unit,step_time_ms,peak_memory_gib,memory_kind,memory_exact_or_bound";

/// A table of four rows of two networks that nobody published, one of which divides the work in a way that nobody knows.
fn workdir() -> Workdir {
    let workdir = Workdir::new();
    let row = |model: &str, parallelism: &str, throughput: u32, memory: f64| {
        format!("mine,{model},A100-SXM,80,8,1,bf16,4,2048,{parallelism},,{throughput},tokens/s,,{memory},torch,exact\n")
    };
    let rows = [
        row("Mine-1B", "FSDP 8", 110_000, 21.0),
        row("mine_1b-chat", "DP8 TP1 PP1 ZeRO1", 112_000, 30.0),
        row("Mine-1B", "ring8", 100_000, 21.0),
        row("Yours-2B", "FSDP 8", 60_000, 30.0),
    ];
    workdir.file("table.csv", format!("{HEAD}\n{}", rows.concat()));
    workdir.file(
        "yours.json",
        r#"{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 49152}"#,
    );
    workdir
}

fn checked(workdir: &Workdir, models: &str) -> Value {
    let said = workdir.gradus(&["plan", "check", "table.csv", "--models", models, "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    serde_json::from_str::<Value>(&said.out).unwrap()["sources"]["mine"].clone()
}

#[test]
fn networks_come_from_words_and_files() {
    let workdir = workdir();
    let without = workdir.gradus(&["plan", "check", "table.csv"]);
    assert!(without.err.contains("0 of 4 rows are eligible (0 %)"), "{}", without.err);
    assert!(without.err.contains("mine: skipped 3 rows: its network is not known"), "{}", without.err);
    let names = "mine: networks that are not known: `Mine-1B`, `Yours-2B`, `mine_1b-chat`\n";
    assert!(without.err.contains(names) && without.err.contains("hint: describe networks"), "{}", without.err);
    workdir.file(
        "models.csv",
        "model,shape,file\nMine-1B,\"layers 24, hidden 2048, heads 16, kv 8, ffn 5632, vocab 49k\",\nYours-2B,,yours.json\n",
    );
    let mine = checked(&workdir, "models.csv");
    assert_eq!((mine["rows"].as_u64(), mine["eligible"].as_u64()), (Some(4), Some(3)), "{mine}");
    assert_eq!(mine["memory"]["rows"].as_u64(), Some(3), "{mine}");
    let said = workdir.gradus(&["plan", "check", "table.csv", "--models", "models.csv"]);
    assert!(said.err.contains("3 of 4 rows are eligible (75 %)"), "{}", said.err);
    assert!(said.err.contains("skipped 1 row: `ring8` in the column `parallelism` is not known"), "{}", said.err);
    assert!(!said.err.contains("no row measures"), "{}", said.err);
    // A folder of files, called by their networks.
    std::fs::create_dir(workdir.0.path().join("nets")).unwrap();
    std::fs::copy(workdir.0.path().join("yours.json"), workdir.0.path().join("nets/Yours-2B.json")).unwrap();
    assert_eq!(checked(&workdir, "nets")["eligible"].as_u64(), Some(1));
}

#[test]
fn each_row_can_be_written_with_its_estimates() {
    let workdir = workdir();
    workdir.file(
        "models.csv",
        "model,shape,file\nMine-1B,\"layers 24, hidden 2048, heads 16, kv 8, ffn 5632, vocab 49k\",\n",
    );
    let check = ["plan", "check", "table.csv", "--models", "models.csv", "--rows"];
    let said = workdir.gradus(&[&check[..], &["rows.csv"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("wrote 4 rows to `rows.csv`"), "{}", said.err);
    let text = std::fs::read_to_string(workdir.0.path().join("rows.csv")).unwrap();
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let head = lines.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = lines.records().map(Result::unwrap).collect();
    let cell = |row: usize, name: &str| rows[row][head.iter().position(|column| column == name).unwrap()].to_owned();
    assert_eq!((rows.len(), cell(0, "reason").as_str(), cell(0, "measured_gib").as_str()), (4, "", "21.0"));
    assert!(cell(0, "estimated_gib").parse::<f64>().unwrap() > 1.0, "{text}");
    assert!(cell(2, "reason").contains("`ring8`"), "{text}");
    // The tables themselves are never overwritten.
    let said = workdir.gradus(&[&check[..], &["./table.csv"]].concat());
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("`--rows ./table.csv` is one of the tables"), "{}", said.err);
    let said = workdir.gradus(&[&check[..], &["nowhere/rows.csv"]].concat());
    assert!(said.err.contains("nowhere/rows.csv"), "{}", said.err);
}

#[test]
fn a_table_of_networks_that_is_wrong_says_where() {
    let workdir = workdir();
    let check = |models: &str, code: i32, part: &str| {
        workdir.file("models.csv", models);
        let said = workdir.gradus(&["plan", "check", "table.csv", "--models", "models.csv"]);
        assert_eq!(said.code, Some(code), "{}", said.err);
        assert!(said.err.contains(part), "{part}\n{}", said.err);
    };
    check(
        "model,shape\nMine-1B,\n",
        2,
        "cannot use the networks in `models.csv`: line 2: give a name, and a shape in words or a file",
    );
    check("name,shape\nMine-1B,layers 2\n", 2, "its first line names no column `model`");
    check("model,shape,file\nMine-1B,,gone.json\n", 2, "the file `gone.json` of `Mine-1B`: No such file");
    check(
        "model,shape\nMine-1B,layers 24 hidden big heads 16 ffn 1 vocab 9\n",
        0,
        "its network `Mine-1B`: `hidden` has no number behind it",
    );
    check(
        "model,shape\nMine-1B,layers 24 hidden 64 heads 4 vocab 9k\n",
        0,
        "its network `Mine-1B`: it does not say `ffn`",
    );
    check(
        "model,shape\nNobodys-3B,layers 2 hidden 64 heads 2 ffn 128 vocab 100\n",
        0,
        "warning: no row measures the network `Nobodys-3B` of `--models`",
    );
    let said = workdir.gradus(&["plan", "check", "table.csv", "--models", "nowhere.csv"]);
    assert!(said.code != Some(0) && said.err.contains("cannot read the networks `nowhere.csv`"), "{}", said.err);
}
