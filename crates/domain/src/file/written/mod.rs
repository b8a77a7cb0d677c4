//! Job files that gradus writes: converted from other systems' files ([`import`]), and from a command line
//! ([`JobText`]).
//!
//! [`yaml`] writes values so that they round-trip; [`skypilot`], [`dstack`] and [`slurm`] each convert one kind of file
//! to a job file and notes. [`Job::parse`](crate::Job::parse) accepts the result. [`pooled_machines`] reads SkyPilot's list of
//! machines, for which there is no job file.

mod dstack;
mod imported;
mod job_text;
mod node_pools;
mod processes;
mod skypilot;
mod slurm;
mod task_array;
#[cfg(test)]
mod tests;
mod yaml;

use super::shape::OUR_SECTIONS;
use super::tree::{self, Node, Value};
use crate::problem::{Problem, Problems};

pub use super::lower::name_from;
pub use imported::{ForeignFormat, Imported};
pub use job_text::JobText;
pub use node_pools::{PooledMachine, pooled_machines};
pub use processes::{processes, quoted};
pub use yaml::YamlValue;

/// Converts a task file of SkyPilot, a task of dstack or a batch script of Slurm to a job file. Settings without a
/// counterpart are omitted, with a note each.
///
/// # Errors
/// Why it is none of these, or its problems.
pub fn import(text: &str, file_name: &str) -> Result<Imported, Problems> {
    let wrong = |problem: Problem| Problems { file: file_name.to_owned(), problems: vec![problem] };
    let is_directive = |line: &str| line.starts_with("#SBATCH");
    if text.lines().any(is_directive) {
        return slurm::import(text, file_name);
    }
    if let Some((_, system)) = OTHERS.iter().find(|(mark, _)| text.lines().any(|line| line.starts_with(mark))) {
        let hint = "SkyPilot task files, dstack tasks and scripts with `#SBATCH` lines are; or write a job file: `gradus init`";
        return Err(wrong(Problem::at("", format!("files of {system} are not imported")).hint(hint)));
    }
    if file_name.ends_with(".py")
        || text.lines().next().is_some_and(|line| line.starts_with("#!") && line.contains("python"))
    {
        let hint =
            format!("start it with `gradus launch {file_name}`, or write a job file for its folder with `gradus init`");
        return Err(wrong(Problem::at("", "this is a Python program, not a task file").hint(hint)));
    }
    if text.starts_with("#!") {
        let hint = "write a job file with `run: bash SCRIPT`, or start a Python script with `gradus launch SCRIPT`";
        return Err(wrong(Problem::at("", "this script has no `#SBATCH` lines").hint(hint)));
    }
    let (tree, doubled) = tree::read(text).map_err(|problems| {
        let hint = |problem: Problem| match problem.message.contains("several documents") {
            true => problem.hint("put each document in a file of its own, and import them one by one"),
            false => problem,
        };
        Problems { file: file_name.to_owned(), problems: problems.into_iter().map(hint).collect() }
    })?;
    if !matches!(tree.value, Value::Map(_)) {
        let hint = "import a SkyPilot task file, a dstack task, or a script with `#SBATCH` lines";
        return Err(wrong(Problem::at("", "this is neither a mapping of keys nor a batch script").hint(hint)));
    }
    if !doubled.is_empty() {
        return Err(Problems { file: file_name.to_owned(), problems: doubled });
    }
    if !is_dstack(&tree)
        && let Some((key, _)) = OUR_SECTIONS.iter().find_map(|name| tree.get(name))
    {
        let message = format!("this is a job file of gradus already: `{}` is a key of no other system", key.raw.text);
        let hint = format!("use it as it is: `gradus plan {file_name}`, then `gradus run {file_name}`");
        let line = Some(key.line);
        return Err(wrong(Problem { line, ..Problem::at("", message) }.hint(hint)));
    }
    match is_dstack(&tree) {
        true => dstack::import(&tree, file_name),
        false => skypilot::import(tree, file_name),
    }
}

/// Files of other systems, recognized by the start of a line.
const OTHERS: [(&str, &str); 5] = [
    ("#PBS", "PBS"),
    ("#BSUB", "LSF"),
    ("#$ -", "Grid Engine"),
    ("apiVersion:", "Kubernetes"),
    ("services:", "Docker Compose"),
];

/// Keys of dstack that SkyPilot's files do not have.
fn is_dstack(tree: &Node) -> bool {
    tree.get("type").is_some() || tree.get("commands").is_some()
}
