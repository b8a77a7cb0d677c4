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

#[test]
fn a_script_of_any_name_that_trains_at_top_level_is_found() {
    const ONE: &str = "import torch\nfor _ in range(3):\n    loss.backward()\n    optimizer.step()\n";
    let folder = Folder::with(&[("one.py", ONE), ("model.py", "import torch\ndef step():\n    loss.backward()\n")]);
    let made = folder.gradus(&["init", "--yes"]);
    assert!(made.code == Some(0) && made.out.contains("run: python3 one.py\n"), "{}{}", made.out, made.err);
    assert!(!made.err.contains("as likely"), "{}", made.err);
}

#[test]
fn what_lies_outside_of_the_folder_is_refused() {
    let folder = Folder::with(&[("p/train.py", TRAIN), ("two/a.py", TRAIN)]);
    folder.refuses(&["init", "p", "--yes", "--script", "../two/a.py"], &["`--script ../two/a.py` is not a path from"]);
    let absolute = folder.0.path().join("p/train.py").to_string_lossy().into_owned();
    folder.refuses(&["init", "p", "--yes", "--script", absolute.as_str()], &["name a file within `p`"]);
    folder.refuses(&["init", "p", "--yes", "-o", "../x.yaml"], &["`--output ../x.yaml` is not a path from"]);
    assert!(!folder.0.path().join("x.yaml").exists());
    std::fs::create_dir(folder.0.path().join("p/jobs")).unwrap();
    let made = folder.gradus(&["init", "p", "--yes", "--script", "./train.py", "-o", "jobs/x.yaml"]);
    assert!(made.out.contains("workdir: ..\nrun: python3 train.py\n"), "{}{}", made.out, made.err);
    let ran = folder.gradus(&["run", "p/jobs/x.yaml", "--yes"]);
    assert!(ran.code == Some(0) && ran.err.contains("| epochs 1 data\n"), "{}", ran.err);
}

#[test]
fn scripts_that_are_as_likely_are_named() {
    let folder = Folder::with(&[("a.py", "import torch\nif __name__ == '__main__': pass\n")]);
    let made = folder.gradus(&["init", "--yes"]);
    assert!(made.code == Some(0) && !made.err.contains("as likely"), "{}", made.err);
    let folder = Folder::with(&[
        ("a.py", "import torch\nif __name__ == '__main__': pass\n"),
        ("b.py", "import torch\nif __name__ == '__main__': pass\n"),
    ]);
    let made = folder.gradus(&["init", "--yes"]);
    assert!(made.err.contains("as likely to train as `a.py`: `b.py`; `--script` names one"), "{}", made.err);
}

#[test]
fn a_trainer_that_resumes_is_told_where_to_save() {
    const TUNE: &str = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\
                        if __name__ == '__main__': Trainer()\n";
    let folder = Folder::with(&[("tune.py", TUNE)]);
    let made = folder.gradus(&["init", "--yes"]);
    let expected = r#"tune.py --output_dir out ${GRADUS_RESUME:+--resume_from_checkpoint "$GRADUS_RESUME"}"#;
    assert!(made.out.contains(expected), "{}{}", made.out, made.err);
    assert!(made.out.contains("outputs:\n") && made.out.contains("- out\n"), "{}", made.out);
    let launched = folder.gradus(&["launch", "tune.py", "--dry-run"]);
    assert!(launched.err.contains("`-- --output_dir out` keeps it"), "{}", launched.err);
    let told = folder.gradus(&["launch", "tune.py", "--dry-run", "--", "--output_dir", "o"]);
    assert!(told.code == Some(0) && !told.err.contains("keeps it"), "{}", told.err);
}
