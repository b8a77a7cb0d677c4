use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::machine::{Machine, first_device};
use super::*;

/// A folder as a pack has it, with these scripts, and the options of a run that writes to `out` beside it.
fn pack_of(scripts: &[(&str, &str)]) -> (tempfile::TempDir, RunOptions) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("gpu")).unwrap();
    for (name, text) in scripts {
        fs::write(folder.path().join("gpu").join(name), text).unwrap();
    }
    let mut options = RunOptions::parse(&[]).unwrap();
    options.out = folder.path().join("out");
    (folder, options)
}

fn section(name: &'static str, script: &'static str, needs: Needs, limit_s: u64) -> Section {
    Section { name, what: "What is shown", script, arguments: &[], needs, limit_s }
}

const NOTHING: Machine = Machine { device: None, libtorch: None };

fn with_device() -> Machine {
    let device = Some(["NVIDIA T".to_owned(), "580.1".to_owned(), "81559 MiB".to_owned()]);
    Machine { device, libtorch: Some(PathBuf::from("/nowhere/torch")) }
}

/// The results of the sections, each line without its seconds.
fn results(options: &RunOptions) -> Vec<Line> {
    let text = fs::read_to_string(options.out.join("results.jsonl")).unwrap();
    let settled = |line: Line| match line {
        Line::Ended { section, end, note, .. } => Line::Ended { section, end, seconds: 0.0, note },
        other @ (Line::Machine { .. } | Line::Case { .. }) => other,
    };
    text.lines().map(|line| settled(Line::parse(line).unwrap())).collect()
}

fn ends(options: &RunOptions) -> Vec<(String, End)> {
    let ended = |line: Line| if let Line::Ended { section, end, .. } = line { Some((section, end)) } else { None };
    results(options).into_iter().filter_map(ended).collect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn without_a_device_its_sections_say_so_and_the_others_run() {
    let (folder, options) =
        pack_of(&[("a.py", "print('{\"case\": \"one\", \"ok\": true, \"figures\": {\"ms\": 1.5}}')")]);
    let sections = [
        section("start", "a.py", Needs::Python, 30),
        section("digits", "a.py", Needs::Libtorch, 30),
        section("device", "a.py", Needs::Device, 30),
    ];
    work_through(folder.path(), &sections, &NOTHING, &options, MINUTE, None).unwrap();
    assert_eq!(
        ends(&options),
        [("start".to_owned(), End::Done), ("digits".to_owned(), End::NoLibtorch), ("device".to_owned(), End::NoDevice)]
    );
    let summary = fs::read_to_string(options.out.join("summary.md")).unwrap();
    assert!(summary.contains("a machine without a CUDA device"), "{summary}");
    assert!(summary.contains("`device`: no device."), "{summary}");
    assert!(summary.contains("| case | passed | ms |\n|---|---|---|\n| one | yes | 1.500 |"), "{summary}");
}

#[test]
fn a_section_is_ended_at_its_limit_and_keeps_what_it_said() {
    let script = "import time, os\nprint('{\"case\": \"one\", \"ok\": false}', flush=True)\n\
                  os.system('sleep 300 &')\ntime.sleep(300)";
    let (folder, options) = pack_of(&[("a.py", script), ("b.py", "import sys\nprint('words')\nsys.exit('broken')")]);
    // Its first line must have been printed by then, on a machine as busy as may be.
    let sections = [section("start", "a.py", Needs::Python, 5), section("speed", "b.py", Needs::Device, 30)];
    work_through(folder.path(), &sections, &with_device(), &options, MINUTE, None).unwrap();
    let lines = results(&options);
    assert!(matches!(&lines[1], Line::Case { verdict: Verdict::Failed, .. }), "{lines:?}");
    assert_eq!(ends(&options), [("start".to_owned(), End::TimedOut), ("speed".to_owned(), End::Failed)]);
    let log = fs::read_to_string(options.out.join("log.txt")).unwrap();
    let (_, of_speed) = log.split_once("== speed\n").unwrap();
    assert!(of_speed.contains("words\n") && of_speed.contains("broken"), "{log}");
    // No further files: so many can be carried home.
    assert_eq!(fs::read_dir(&options.out).unwrap().count(), 3);
}

#[test]
fn a_second_run_goes_on_with_what_is_left() {
    let script = "import pathlib\nwith open('../../ran', 'a') as file: file.write('x')";
    let (folder, options) = pack_of(&[("a.py", script)]);
    let sections = [section("start", "a.py", Needs::Python, 30), section("device", "a.py", Needs::Device, 30)];
    work_through(folder.path(), &sections, &NOTHING, &options, MINUTE, None).unwrap();
    work_through(folder.path(), &sections, &with_device(), &options, Duration::ZERO, None).unwrap();
    work_through(folder.path(), &sections, &with_device(), &options, MINUTE, None).unwrap();
    let expected = [
        ("start".to_owned(), End::Done),
        ("device".to_owned(), End::NoDevice),
        ("device".to_owned(), End::NoTime),
        ("device".to_owned(), End::Done),
    ];
    assert_eq!(ends(&options), expected);
    assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "xx");
}

#[test]
fn lines_that_were_cut_off_are_left_out() {
    let text = "{\"date\": \"2026-11-24T11:00:00Z\", \"device\": \"NVIDIA T\", \"facts\": {\"driver\": \"580.1\"}}\n\
                {\"section\": \"speed\", \"case\": \"a\", \"ok\": true, \"figures\": {\"step_ms\": 12.345, \"n\": 3}}\n\
                {\"section\": \"speed\", \"case\": \"a\", \"ok\": false, \"note\": \"x|y\", \"figures\": {\"step_ms\": 0.00001}}\n\
                {\"section\": \"speed\", \"case\": \"b\", \"ok\": null, \"figures\": {\"over_eager\": 1}}\n\
                {\"section\": \"speed\", \"case\": \"c\", \"ok\": tr";
    let expected = "Measured on 2026-11-24 on NVIDIA T (driver 580.1) by `cargo xtask gpu run`.\n\n\
                    ### Step against PyTorch\n\n`speed`: cut off.\n\n\
                    | case | passed | step ms | over eager | note |\n|---|---|---|---|---|\n\
                    | a | **no** | 1.0e-5 |  | x/y |\n| b | – |  | 1 |  |\n";
    assert_eq!(tables(text), expected);
}

#[test]
fn tables_take_the_place_of_earlier_ones() {
    let page = "# GPU\n\n<!-- measured: begin -->\n\nold\n\n<!-- measured: end -->\n\nrest\n";
    let expected = "# GPU\n\n<!-- measured: begin -->\n\nnew\n\n<!-- measured: end -->\n\nrest\n";
    assert_eq!(read::replaced(page, "new\n").unwrap(), expected);
    assert!(read::replaced("# GPU\n", "new").unwrap_err().contains("has no lines"));
    // The page that is read into has them.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/gpu.md")).unwrap();
    assert!(read::replaced(&page, "new").is_ok());
}

#[test]
fn a_machine_without_a_device_is_not_read_into_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.jsonl");
    let check = |lines: &[&str], expected: &str| {
        fs::write(&file, lines.join("\n")).unwrap();
        let error = gpu(Some(folder.path()), &["read".to_owned(), file.display().to_string()]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&["{\"date\": \"d\", \"device\": null}"], "a machine without a CUDA device");
    check(&["{\"date\": \"d\", \"device\": \"A\"}", "{\"date\": \"d\", \"device\": \"B\"}"], "mixes lines");
    check(&["{\"date\": \"d\", \"device\": \"A\"}"], "docs/gpu.md");
}

#[test]
fn arguments_are_read() {
    let parse = |words: &str| RunOptions::parse(&words.split_whitespace().collect::<Vec<_>>());
    let options = parse("a.tar.gz --out o --limit 90 --sections speed,start --python p --cpu").unwrap();
    assert_eq!((options.limit_s, options.cpu), (90, true));
    assert_eq!((options.from, options.out, options.python), (Some("a.tar.gz".into()), "o".into(), "p".into()));
    // In the order of the suite, whatever was typed.
    let names = |options: &str| section::named(&options.split(',').collect::<Vec<_>>());
    assert_eq!(
        names("speed,start").unwrap().iter().map(|section| section.name).collect::<Vec<_>>(),
        ["start", "speed"]
    );
    for (words, expected) in [
        ("--limit x", "not a number"),
        ("--limit", "needs a value"),
        ("--sections speed,none", "no section `none`"),
        ("--quick", "not understood"),
        ("a b", "not understood"),
    ] {
        assert!(parse(words).unwrap_err().contains(expected), "{words}");
    }
    assert_eq!(first_device("NVIDIA H, 580.1, 81559 MiB\n").unwrap()[2], "81559 MiB");
    assert_eq!(first_device("No devices were found"), None);
}

/// Every command fits what a machine is lent for, and the first ten minutes hold what is most worth knowing.
#[test]
fn sections_fit_a_lease() {
    for section in SECTIONS {
        assert!(section.limit_s <= 540, "{}", section.name);
        let names = SECTIONS.iter().filter(|other| other.name == section.name);
        assert_eq!(names.count(), 1, "{}", section.name);
    }
}

#[test]
fn every_network_of_the_parity_page_is_compared_on_the_device() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let [page, script] = ["docs/parity.md", "benches/gpu/parity.py"].map(|file| fs::read_to_string(root.join(file)));
    let (page, script) = (page.unwrap(), script.unwrap());
    let networks: Vec<&str> =
        page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
    assert!(networks.len() > 15, "{networks:?}");
    for network in networks {
        assert!(script.contains(&format!("\"{network}\",")), "{network}");
    }
    // Those that have channels last on a GPU by default are compared in that layout as well.
    for network in ["resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny"] {
        assert!(script.contains(&format!("\"{network} channels_last\",")), "{network}");
    }
}

#[test]
fn a_pack_holds_what_its_scripts_need() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = tempfile::tempdir().unwrap();
    for name in ["gradus", "gradus-rank", "xtask", "examples/parity", "examples/collectives"] {
        let path = programs.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "no executable, so nothing is stripped").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("gradus-gpu");
    let packed = assemble(&root, programs.path(), &pack, "abc").unwrap();
    assert!(packed.bytes < MOST_BYTES, "{}", packed.bytes);
    for name in
        ["run.sh", "bin/gradus-rank", "gpu/suite.py", "peers/parity.py", "cuda/nccl.cpp", "examples/digits.csv.gz"]
    {
        assert!(packed.names.contains(name), "{name}");
    }
    // What a script imports or opens of the pack is in it.
    for name in packed.names.iter().filter(|name| name.starts_with("gpu/") && name.ends_with(".py")) {
        let text = fs::read_to_string(pack.join(name)).unwrap();
        for part in text.split(['"', '\'']).filter(|part| part.starts_with("peers/") || part.starts_with("examples/")) {
            assert!(packed.names.contains(part), "{name} needs {part}");
        }
    }
    pack::read_list(&pack).unwrap();
    fs::remove_file(pack.join("peers/yolo.py")).unwrap();
    assert!(pack::read_list(&pack).unwrap_err().to_string().contains("peers/yolo.py"));
    fs::remove_file(programs.path().join("gradus")).unwrap();
    assert!(assemble(&root, programs.path(), &pack, "abc").unwrap_err().to_string().contains("gradus` is missing"));
}
