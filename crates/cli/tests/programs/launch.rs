//! `gradus launch`, with the machine's own Python and no package.

use crate::Folder;

/// Says who it is, and what it was given.
const SCRIPT: &str = "\
import os, sys
names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE']
line = ' '.join(os.environ[name] for name in names) + ' ' + repr(sys.argv[1:]) + ' ' + os.environ.get('WHO', '')
open(os.environ['GRADUS_CHECKPOINTS'] + '/' + os.environ['RANK'], 'w').write(line)
print(line, flush=True)
";

/// Fails on rank 1 of the first attempt, and waits on the others.
const FAILS_ONCE: &str = "\
import os, sys, time
if os.environ['GRADUS_ATTEMPT_NUMBER'] == '1':
    if os.environ['RANK'] == '1':
        sys.exit(9)
    time.sleep(600)
print('went well', flush=True)
";

#[test]
fn a_script_runs_with_its_arguments() {
    let folder = Folder::with(&[("train.py", SCRIPT)]);
    let arguments = ["launch", "train.py", "--yes", "--env", "WHO=me", "--", "--lr", "0.1", "it's a"];
    let outcome = folder.gradus(&arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.err.contains("0 0 1 1 ['--lr', '0.1', \"it's a\"] me\n"), "{}", outcome.err);
    assert!(outcome.err.contains("job      train\n"), "{}", outcome.err);
}

#[test]
fn several_processes_have_torchruns_variables() {
    let folder = Folder::with(&[("scripts/train.py", SCRIPT)]);
    let outcome = folder.gradus(&["launch", "scripts/train.py", "--workdir", ".", "--nproc-per-node", "3", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    for line in ["0 0 3 3 [] \n", "1 1 3 3 [] \n", "2 2 3 3 [] \n"] {
        assert!(outcome.err.contains(line), "{}", outcome.err);
    }
}

#[test]
fn a_process_that_fails_ends_the_others_and_all_start_again() {
    let folder = Folder::with(&[("train.py", FAILS_ONCE)]);
    let failed = folder.gradus(&["launch", "train.py", "--nproc-per-node", "2", "--yes"]);
    assert_eq!(failed.code, Some(100), "{}", failed.err);
    assert!(failed.err.contains("code 9"), "{}", failed.err);
    let words = ["launch", "train.py", "--nproc_per_node=2", "--max-restarts", "1", "--yes"];
    let retried = folder.gradus(&words);
    assert_eq!(retried.code, Some(0), "{}", retried.err);
    // Both write to one pipe, the line and its end one after the other.
    assert_eq!(retried.err.matches("went well").count(), 2, "{}", retried.err);
}

/// Rank 1 fails, and the others complain that it is gone.
const BREAKS: &str = "\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit('connection closed by peer'))
print('here', flush=True)
open(os.environ['GRADUS_CHECKPOINTS'] + '/' + os.environ['RANK'], 'w').close()
while os.environ['RANK'] != '1' or sum(map(str.isdigit, os.listdir(os.environ['GRADUS_CHECKPOINTS']))) < 3:
    time.sleep(0.01)
sys.exit('boom')
";

#[test]
fn lines_have_the_rank_of_their_process_and_the_first_that_failed_is_quoted() {
    let folder = Folder::with(&[("train.py", BREAKS)]);
    let failed = folder.gradus(&["launch", "train.py", "--nproc-per-node", "3", "--yes"]);
    assert_eq!(failed.code, Some(100), "{}", failed.err);
    for line in ["rank 0 | here\n", "rank 1 | here\n", "rank 2 | here\n", "rank 1 | boom\n"] {
        assert!(failed.err.contains(line), "{line}{}", failed.err);
    }
    assert!(failed.err.contains("its last lines were:\n"), "{}", failed.err);
    let quoted = failed.err.rsplit("its last lines were:\n").next().unwrap_or_default();
    assert!(quoted.contains("[rank1]: boom") && !quoted.contains("closed by peer"), "{}", failed.err);
}

#[test]
fn a_module_is_started_by_its_name() {
    let folder = Folder::with(&[("pkg/__init__.py", ""), ("pkg/train.py", SCRIPT)]);
    let outcome = folder.gradus(&["launch", "-m", "pkg.train", "--yes", "--", "x"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.err.contains("0 0 1 1 ['x'] \n"), "{}", outcome.err);
}

#[test]
fn a_dry_run_prints_a_job_file_that_runs_the_same() {
    let folder = Folder::with(&[("train.py", SCRIPT)]);
    let words = ["launch", "train.py", "--budget", "$5", "--secret", "TOKEN=abcdef", "--dry-run", "--", "a"];
    let dry = folder.gradus(&words);
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    let expected = "name: train\nsecrets:\n  TOKEN: null\nworkdir: .\nrun: python3 train.py a\nbudget:\n  max: $5\n";
    assert_eq!(dry.out, expected);
    std::fs::write(folder.0.path().join("job.yaml"), &dry.out).unwrap();
    let outcome = folder.gradus(&["run", "job.yaml", "--secret", "TOKEN=abcdef", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.err.contains("0 0 1 1 ['a'] \n"), "{}", outcome.err);
}

#[test]
fn wrong_input_is_refused_with_what_to_type() {
    let folder = Folder::with(&[
        ("train.py", SCRIPT),
        ("job.yaml", "run: echo\n"),
        ("a.sh", "echo\n"),
        ("a.ipynb", "{}\n"),
        ("notes.txt", "hello\n"),
        ("sub/other.py", ""),
    ]);
    let check = |words: &[&str], expected: &[&str]| folder.refuses(&[&["launch"], words].concat(), expected);
    check(&["trian.py"], &["there is no script `trian.py`", "did you mean `train.py`?"]);
    check(&["sub"], &["`sub` is a folder"]);
    check(&["job.yaml"], &["not a Python script", "gradus run job.yaml"]);
    check(&["a.sh"], &["not a Python script", "run: bash a.sh"]);
    check(&["a.ipynb"], &["jupyter nbconvert --to script a.ipynb"]);
    check(&["notes.txt"], &["ends in `.py`"]);
    check(&["train.py", "--lr", "0.1"], &["unexpected argument '--lr'", "-- --lr"]);
    check(&["train.py", "data"], &["`data` stands before `--`", "gradus launch train.py -- data"]);
    check(&["train.py", "--nproc-per-node", "many"], &["`gpu`, `cpu` or `auto`"]);
    check(&["train.py", "--nnodes", "1:4"], &["write one number"]);
    check(&["train.py", "--nnodes", "2"], &["`--nnodes`", "--infra ssh"]);
    check(&["train.py", "--rdzv-endpoint", "h:1"], &["`--rdzv-endpoint` is not needed"]);
    check(
        &["train.py", "--gpus", "A100:8"],
        &["`--gpus`: GPUs can be requested only on a cloud or on nodes, and the job names none that can be used"],
    );
    let unknown = ["`--infra`: only this machine", "machines of AWS, Lambda", "`--infra local`"];
    check(&["train.py", "--infra", "mars"], &unknown);
    check(&["train.py", "--infra", "mars", "--dry-run"], &unknown);
    check(&["train.py", "--cpus", "few"], &["`--cpus`", "no number of cores"]);
    check(&["train.py", "--budget", "lots"], &["`--budget`"]);
    check(&["train.py", "--env", "A"], &["the environment has no variable `A`", "--env A=VALUE"]);
    check(&["train.py", "--workdir", "sub"], &["not in the working folder `sub`"]);
    check(&["-m", "pkg/train.py"], &["not the name of a module", "-m pkg.train"]);
}

#[test]
fn a_large_folder_is_not_copied_unasked() {
    let folder = Folder::with(&[("train.py", SCRIPT)]);
    let data = std::fs::File::create(folder.0.path().join("train.bin")).unwrap();
    // Sparse: it takes no space.
    data.set_len(3_000_000_000).unwrap();
    folder.refuses(&["launch", "train.py", "--dry-run"], &["holds 3.0 GB", "`train.bin` with 3.0 GB", ".skyignore"]);
    std::fs::write(folder.0.path().join(".skyignore"), "*.bin\n").unwrap();
    assert_eq!(folder.gradus(&["launch", "train.py", "--dry-run"]).code, Some(0));
}
