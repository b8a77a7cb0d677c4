//! `gradus init`: what is found in a folder, and what is written.

use crate::Folder;

const TRAIN: &str = "\
import argparse
# import torch
parser = argparse.ArgumentParser()
parser.add_argument('--data', default='data')
parser.add_argument('--epochs', type=int, default=1)
print('epochs', parser.parse_args().epochs, parser.parse_args().data)
";

#[test]
fn a_folder_gets_a_job_file_that_runs() {
    let folder = Folder::with(&[("p/train.py", TRAIN), ("p/model.py", "import torch\n"), ("p/data/a", "")]);
    let made = folder.gradus(&["init", "p", "--yes", "--budget", "$3"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let expected = "name: train\nworkdir: .\nrun: python3 train.py --data data\nbudget:\n  max: $3\n";
    let text = std::fs::read_to_string(folder.0.path().join("p/job.yaml")).unwrap();
    let keys: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(keys.join("\n") + "\n", expected);
    assert!(made.err.contains("gradus run p/job.yaml") && made.out.contains("python3 train.py"), "{}", made.err);
    let ran = folder.gradus(&["run", "p/job.yaml", "--yes"]);
    assert!(ran.code == Some(0) && ran.err.contains("| epochs 1 data\n"), "{}", ran.err);
    folder.refuses(&["init", "p", "--yes"], &["is there already, and is not overwritten", "--output"]);
    let other = folder.gradus(&["init", "p", "--yes", "-o", "other.yaml", "--setup", "true", "--", "--epochs", "2"]);
    assert!(other.out.contains("setup: 'true'\nrun: python3 train.py --epochs 2\n"), "{}", other.out);
}

#[test]
fn what_cannot_be_found_is_said() {
    let folder = Folder::with(&[("notes.txt", ""), ("sub/model.py", "import torch\n")]);
    folder.refuses(&["init", "--yes"], &["no script in `.` looks like one that trains", "--script FILE"]);
    folder.refuses(&["init", "sub"], &["no script in `sub`"]);
    folder.refuses(&["init", "none"], &["none"]);
    folder.refuses(&["init", "sub", "--script", "x.py"], &["no script `x.py` in `sub`"]);
    let made = folder.gradus(&["init", "sub", "--script", "model.py", "--infra", "aws", "--gpus", "A100:8"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    folder.refuses(&["init", "sub", "--script", "model.py", "-o", "b.yaml", "--budget", "lots"], &["budget"]);
}
