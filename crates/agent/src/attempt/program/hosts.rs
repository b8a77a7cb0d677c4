//! The machines of an attempt, as Open MPI, Horovod, DeepSpeed and TensorFlow want to be told of them.

use std::fs;
use std::path::Path;

use domain::Finding;
use domain::wire::{NodeAddress, NodeRank};
use serde_json::json;

use super::HERE;
use node::folder::not_written;

/// `GRADUS_HOSTFILE`, a file with a line `HOST slots=PROCESSES` for each machine, by node rank; and, where there are several,
/// `TF_CONFIG`. Every machine is taken to have as many GPUs as this one.
pub fn variables(
    folder: &Path,
    member: Option<NodeRank>,
    nodes: &[NodeAddress],
    gpus: usize,
) -> Result<Vec<(&'static str, String)>, Box<Finding>> {
    let file = folder.join("hosts");
    let alone = [NodeAddress { host: HERE.to_owned(), port: 0 }];
    let all = if nodes.is_empty() { &alone[..] } else { nodes };
    let text: String = all.iter().map(|node| format!("{} slots={}\n", node.host, gpus.max(1))).collect();
    fs::write(&file, text).map_err(|error| not_written("write", &file, &error))?;
    let mut variables = vec![("GRADUS_HOSTFILE", file.to_string_lossy().into_owned())];
    // A program on one machine that finds a cluster of one behaves in another way than without.
    if let (Some(member), [_, _, ..]) = (member, nodes) {
        let workers: Vec<String> = nodes.iter().map(|node| format!("{}:{}", node.host, node.port)).collect();
        let config = json!({ "cluster": { "worker": workers }, "task": { "type": "worker", "index": member.rank } });
        variables.push(("TF_CONFIG", config.to_string()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn hosts_are_listed_by_node_rank() {
        let folder = tempfile::tempdir().unwrap();
        let node = |host: &str, port| NodeAddress { host: host.to_owned(), port };
        let check = |nodes: &[NodeAddress], gpus, file: &str, cluster: Option<Value>| {
            let member = (nodes.len() > 1).then_some(NodeRank { rank: 1, nodes: 2 });
            let variables = variables(folder.path(), member, nodes, gpus).unwrap();
            let value = |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
            assert_eq!(fs::read_to_string(value("GRADUS_HOSTFILE").unwrap()).unwrap(), file);
            assert_eq!(value("TF_CONFIG").map(|text| serde_json::from_str::<Value>(text).unwrap()), cluster);
        };
        let two = [node("10.0.0.7", 4711), node("10.0.0.8", 4712)];
        let cluster = json!({
            "cluster": { "worker": ["10.0.0.7:4711", "10.0.0.8:4712"] },
            "task": { "type": "worker", "index": 1 },
        });
        check(&two, 8, "10.0.0.7 slots=8\n10.0.0.8 slots=8\n", Some(cluster));
        check(&[], 0, "127.0.0.1 slots=1\n", None);
    }
}
