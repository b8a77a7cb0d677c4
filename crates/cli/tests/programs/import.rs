//! `gradus import`: what is printed, and what is written.

use crate::Folder;

const DSTACK: &str =
    "type: task\nname: hello\nports: [80]\ncommands:\n  - echo $DSTACK_NODE_RANK of $DSTACK_NODES_NUM\n";

/// Two processes per node, which the function `srun` starts.
const SLURM: &str = "\
#!/bin/bash
#SBATCH --job-name=pair
#SBATCH --ntasks-per-node=2 --gres=gpu:0
srun --mpi=none -n 2 --cpus-per-task 1 bash -c 'echo task $SLURM_PROCID of $SLURM_NTASKS is rank $RANK of $WORLD_SIZE'
echo after $SLURM_NTASKS
";

#[test]
fn a_task_is_imported_and_runs() {
    let folder = Folder::with(&[("a.dstack.yml", DSTACK)]);
    let printed = folder.gradus(&["import", "a.dstack.yml"]);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    assert!(
        printed.out.starts_with("# Imported from dstack") && printed.out.contains("name: hello\n"),
        "{}",
        printed.out
    );
    assert!(printed.err.contains("note: a.dstack.yml:3: `ports`: left out"), "{}", printed.err);
    let written = folder.gradus(&["import", "a.dstack.yml", "-o", "job.yaml"]);
    assert!(written.err.contains("gradus plan job.yaml") && written.out.is_empty(), "{}", written.err);
    let ran = folder.gradus(&["run", "job.yaml", "--yes"]);
    assert!(ran.err.contains("| 0 of 1\n"), "{}", ran.err);
    folder.refuses(&["import", "a.dstack.yml", "-o", "job.yaml"], &["is there already"]);
}

#[test]
fn srun_starts_the_tasks_of_a_node() {
    let folder = Folder::with(&[("job.sbatch", SLURM)]);
    let written = folder.gradus(&["import", "job.sbatch", "-o", "job.yaml"]);
    assert_eq!(written.code, Some(0), "{}", written.err);
    let ran = folder.gradus(&["run", "job.yaml", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for line in ["task 0 of 2 is rank 0 of 2\n", "task 1 of 2 is rank 1 of 2\n", "after 2\n"] {
        assert!(ran.err.contains(line), "{}", ran.err);
    }
}

#[test]
fn notes_are_json_where_json_is_asked_for() {
    let folder = Folder::with(&[("a.yml", DSTACK)]);
    let said = folder.gradus(&["import", "a.yml", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&value["format"], &value["notes"][0]["key"]), (&"dstack".into(), &"ports".into()));
}

#[test]
fn wrong_input_is_refused() {
    let folder = Folder::with(&[("a.yaml", "apiVersion: v1\n"), ("run.sh", "#!/bin/bash\necho\n"), ("empty.yaml", "")]);
    folder.refuses(&["import", "none.yaml"], &["none.yaml"]);
    folder.refuses(&["import", "."], &["not a regular file"]);
    folder.refuses(&["import", "a.yaml"], &["files of Kubernetes are not imported", "gradus init"]);
    folder.refuses(&["import", "run.sh"], &["has no `#SBATCH` lines", "gradus launch"]);
    folder.refuses(&["import", "empty.yaml"], &["the file is empty"]);
}
