//! The arguments of `cargo xtask chaos --hosts`.

use super::faults::{FAULTS, Fault};
use super::jobs::StormJob;

/// What `cargo xtask chaos --hosts` is asked.
#[derive(Debug)]
pub(super) struct HostsOptions {
    pub(super) faults: u64,
    /// So many times one or two faults instead, each time once what the last ones have done is over.
    pub(super) schedules: u64,
    pub(super) seed: u64,
    pub(super) hosts: u64,
    /// How many of them each job trains on.
    pub(super) nodes: u64,
    /// How many more stand by for it.
    pub(super) spares: u64,
    /// What the jobs are.
    pub(super) jobs: StormJob,
    /// What is done.
    pub(super) kinds: Vec<Fault>,
    /// Whether to build first, or to take what is in the target folder.
    pub(super) builds: bool,
}

impl HostsOptions {
    /// For how many jobs there are hosts.
    pub(super) fn jobs_at_once(&self) -> u64 {
        self.hosts / (self.nodes + self.spares)
    }
}

/// Reads them.
pub(super) fn options(arguments: &[String]) -> Result<HostsOptions, String> {
    let mut options = HostsOptions {
        faults: 500,
        schedules: 0,
        seed: 1,
        hosts: 4,
        nodes: 1,
        spares: 0,
        jobs: StormJob::Trainer,
        kinds: Vec::new(),
        builds: true,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--faults" => options.faults = number(value()?)?,
            "--schedules" => options.schedules = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--on" => options.hosts = number(value()?)?.clamp(1, 9),
            "--nodes" => options.nodes = number(value()?)?.max(1),
            "--spares" => options.spares = number(value()?)?,
            "--kinds" => options.kinds = kinds(value()?)?,
            "--torchrun" => options.jobs = StormJob::Torchrun,
            "--built" => options.builds = false,
            _ => {
                let known = "--faults N, --schedules N, --seed S, --on HOSTS, --nodes N, --spares N, --kinds KIND,…, --torchrun, --built";
                return Err(format!("`{word}` is not known; there are {known}"));
            }
        }
    }
    let machines = options.nodes.saturating_add(options.spares);
    if machines > options.hosts {
        let (nodes, spares, hosts) = (options.nodes, options.spares, options.hosts);
        let asked =
            if spares > 0 { format!("`--nodes {nodes} --spares {spares}`") } else { format!("`--nodes {nodes}`") };
        return Err(format!("{asked}: there are {hosts} hosts; more with `--on`, 9 at most"));
    }
    // A disk of its own hides the cache with PyTorch.
    let can_be = |fault: &Fault| options.jobs == StormJob::Trainer || !fault.needs_refit();
    if options.kinds.is_empty() {
        // A schedule is judged by what follows for the jobs, and there are none on the host that gradus is installed on.
        let is_of_jobs = |fault: &Fault| options.schedules == 0 || *fault != Fault::Bootstrap;
        options.kinds = FAULTS.into_iter().filter(can_be).filter(is_of_jobs).collect();
    }
    match options.kinds.iter().find(|fault| !can_be(fault)) {
        Some(fault) => {
            Err(format!("`{}` is not done with `--torchrun`: hosts have no disk of their own there", fault.word()))
        }
        None => Ok(options),
    }
}

/// Words of faults, between commas.
fn kinds(text: &str) -> Result<Vec<Fault>, String> {
    let named = |word: &str| {
        let known = FAULTS.map(Fault::word).join(", ");
        Fault::named(word).ok_or_else(|| format!("`{word}` is no kind of fault; there are {known}"))
    };
    text.split(',').map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<HostsOptions, String> {
        options(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn kinds_of_faults_can_be_chosen() {
        let usual = read("").unwrap();
        assert_eq!((usual.faults, usual.kinds.len(), usual.builds), (500, FAULTS.len(), true));
        let some = read("--faults 20 --kinds full,clock --built").unwrap();
        assert_eq!((some.faults, some.kinds, some.builds), (20, vec![Fault::Full, Fault::Clock], false));
        assert_eq!((some.schedules, read("--schedules 300").unwrap().schedules), (0, 300));
        assert!(read("--kinds full,fire").unwrap_err().starts_with("`fire` is no kind of fault; there are server, "));
        let program = read("--nodes 2 --torchrun").unwrap();
        assert!(program.jobs == StormJob::Torchrun && !program.kinds.contains(&Fault::Full));
        assert!(read("--torchrun --kinds clock").unwrap_err().contains("`clock` is not done with `--torchrun`"));
        assert_eq!(read("--nodes 2").unwrap().nodes, 2);
        assert!(read("--nodes 5").unwrap_err().starts_with("`--nodes 5`: there are 4 hosts"));
        assert!(read("--nodes 2 --spares 3").unwrap_err().starts_with("`--nodes 2 --spares 3`: there are 4 hosts"));
        assert_eq!(read("--nodes 2 --spares 2").unwrap().jobs_at_once(), 1);
        assert!(read("--kinds").unwrap_err().contains("needs a value"));
    }
}
