//! The jobs of a storm: those of our trainer, or of a program of stock PyTorch under `torchrun`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use xtask::setup::peers;

/// What all jobs of a storm are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StormJob {
    /// `train:` on the digits.
    Trainer,
    /// `ddp.py` under `torchrun`.
    Torchrun,
}

/// Where a job runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum JobPlace {
    /// On so many hosts, with a process on each, while so many more stand by.
    Hosts(u64, u64),
    /// On this machine, with so many processes.
    Here(u64),
    /// On a machine that is rented for it alone.
    Rented,
}

/// The program, and where hosts find PyTorch: the cache of this machine, which all of them see.
const PROGRAM: &str = include_str!("ddp.py");
const HOSTS_CACHE: &str = "/root/.cache/gradus";

/// A machine of its own: the meter of one that is taken over has the name of its first run alone.
const RENTED: &str =
    "resources: {infra: aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true, take_over: false}\n";

impl StormJob {
    /// Writes the file of a job of this kind into a folder, with its program beside it, and returns where.
    pub(super) fn write(self, folder: &Path, root: &Path, place: JobPlace) -> Result<String, String> {
        let (name, head, processes) = match place {
            JobPlace::Hosts(nodes, spares) => {
                ("ssh.yaml", format!("resources: {{infra: ssh}}\n{}", machines(nodes, spares)), 1)
            }
            JobPlace::Here(processes) => ("local.yaml", "resources: {infra: local}\n".to_owned(), processes),
            JobPlace::Rented => ("rented.yaml", RENTED.to_owned(), 1),
        };
        let text = match self {
            StormJob::Trainer => trainer(root, &head, processes),
            StormJob::Torchrun => {
                let torch = peers::pytorch().map_err(|error| error.to_string())?;
                torchrun(&torch, folder, (place, processes)).map_err(|error| error.to_string())?
            }
        };
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The model that a run of this kind has left in its folder.
    pub(super) fn model(self, run: &Path) -> Option<Vec<u8>> {
        let path = match self {
            StormJob::Trainer => "export/model.safetensors",
            StormJob::Torchrun => "checkpoints/outputs/out/weights",
        };
        fs::read(run.join(path)).ok()
    }

    /// How `status` calls a run with its result.
    pub(super) fn success(self) -> &'static str {
        match self {
            StormJob::Trainer => "trained",
            StormJob::Torchrun => "succeeded",
        }
    }
}

/// The keys that say how many machines a job has.
fn machines(nodes: u64, spares: u64) -> String {
    let spares = if spares > 0 { format!("spares: {spares}\n") } else { String::new() };
    format!("num_nodes: {nodes}\n{spares}")
}

fn trainer(root: &Path, head: &str, processes: u64) -> String {
    let data = root.join("examples/digits.csv.gz");
    format!(
        "name: chaos\n{head}train:\n  model: mlp\n  data: {{path: {}}}\n  epochs: 250\n  batch: 64\n  seed: 3\n  threads: 1\n  \
         processes: {processes}\n  checkpoint: {{every: 1s, keep: 2}}\n",
        data.display()
    )
}

fn torchrun(torch: &Path, folder: &Path, (place, processes): (JobPlace, u64)) -> io::Result<String> {
    let work = folder.join("program");
    fs::create_dir_all(&work)?;
    fs::write(work.join("ddp.py"), PROGRAM)?;
    let name = torch.file_name().unwrap_or_default();
    let (resources, torch) = match place {
        // What a process makes of the loss of another is an exit code.
        JobPlace::Hosts(nodes, spares) => (
            format!(
                "resources: {{infra: ssh, job_recovery: {{max_restarts_on_errors: 1000}}}}\n{}",
                machines(nodes, spares)
            ),
            PathBuf::from(HOSTS_CACHE).join(name),
        ),
        JobPlace::Here(_) => ("resources: {infra: local}\n".to_owned(), torch.to_owned()),
        JobPlace::Rented => (RENTED.to_owned(), PathBuf::from(HOSTS_CACHE).join(name)),
    };
    Ok(format!(
        "name: chaos\n{resources}workdir: {}\nenvs: {{PYTHONPATH: {}, OMP_NUM_THREADS: '1'}}\noutputs: [out]\n\
         progress: {{regex: 'step (?<step>\\d+)/(?<steps>\\d+) loss (?<loss>\\S+)'}}\n\
         run: python3 -m torch.distributed.run --nproc-per-node {processes} ddp.py\n",
        work.display(),
        torch.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_differ_in_their_place_alone() {
        let folder = std::env::temp_dir().join(format!("gradus-storm-jobs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let written =
            |place| fs::read_to_string(StormJob::Trainer.write(&folder, Path::new("/src"), place).unwrap()).unwrap();
        let (hosts, here) = (written(JobPlace::Hosts(2, 0)), written(JobPlace::Here(2)));
        assert!(hosts.starts_with("name: chaos\nresources: {infra: ssh}\nnum_nodes: 2\ntrain:\n"), "{hosts}");
        assert!(here.starts_with("name: chaos\nresources: {infra: local}\ntrain:\n"), "{here}");
        assert!(hosts.contains("processes: 1\n") && here.contains("processes: 2\n"));
        let program = torchrun(Path::new("/cache/torch-2"), &folder, (JobPlace::Hosts(2, 1), 1)).unwrap();
        assert!(program.contains("}}\nnum_nodes: 2\nspares: 1\nworkdir: "), "{program}");
        assert!(program.contains("PYTHONPATH: /root/.cache/gradus/torch-2,"), "{program}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
