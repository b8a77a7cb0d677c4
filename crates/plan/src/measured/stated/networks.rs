//! Networks by the names that tables give them: from `models.csv`, from files beside it, and from the list that is part of
//! the program.

use std::collections::{BTreeMap, BTreeSet};

use super::shape;
use crate::measured::ineligible::NOT_KNOWN;
use crate::measured::row::Unreadable;
use crate::measured::table;
use crate::model::Graph;
use crate::model::read::{self, SampleShape};

/// Published networks with their figures.
const PUBLISHED: &str = include_str!("../../../../../catalog/networks.csv");

/// Words of a name that say how a network was tuned or stored, and not which it is.
const DECORATION: [&str; 22] = [
    "chat",
    "instruct",
    "it",
    "base",
    "hf",
    "unsloth",
    "bnb",
    "4bit",
    "gptq",
    "v0.1",
    "v0.2",
    "v0.3",
    "pt",
    "finetune",
    "2507",
    "tokendrop",
    "dropless",
    "w/o",
    "mtp",
    "2",
    "node",
    "qat",
];

/// Networks by name.
#[derive(Debug, Clone, Default)]
pub struct Networks {
    named: BTreeMap<String, NetworkSource>,
}

/// Where the figures of a network come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSource {
    /// A shape in words.
    Words(String),
    /// The bytes of a `config.json`, an ONNX or a safetensors file.
    File(Vec<u8>),
}

/// One line of a `models.csv`: a name, and a shape in words or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLine {
    pub name: String,
    /// Shape in words; empty where a file is named.
    pub shape: String,
    /// A file, relative to the table.
    pub file: String,
}

impl Networks {
    /// The published networks that are part of the program.
    pub fn published() -> Networks {
        let mut networks = Networks::default();
        for line in lines(PUBLISHED).unwrap_or_default() {
            for name in line.name.split('|') {
                networks.add(name, NetworkSource::Words(line.shape.clone()));
            }
        }
        networks
    }

    /// Adds a network, or replaces the one of that name.
    pub fn add(&mut self, name: &str, source: NetworkSource) {
        self.named.insert(plain(name), source);
    }

    /// Finds a network by a table's name for it: the name itself, a shape in it, or what is left of it without words that
    /// say how it was tuned or stored.
    fn find(&self, name: &str) -> Option<NetworkSource> {
        if !self.named.contains_key(&plain(name)) && shape::is_shape(name) {
            return Some(NetworkSource::Words(name.to_owned()));
        }
        self.named.get(&self.key(name)?).cloned()
    }

    /// The key under which a table's name is found.
    fn key(&self, name: &str) -> Option<String> {
        let known = |key: String| self.named.contains_key(&key).then_some(key);
        // `Mistral-7B (mistralai/Mistral-7B-v0.1)`: what stands before the bracket.
        let outer = name.split('(').next().unwrap_or_default();
        let outer = plain(outer.rsplit('/').next().unwrap_or_default());
        let kept = || {
            let words = outer.split(' ').filter(|word| !DECORATION.contains(word) || word.is_empty());
            words.collect::<Vec<_>>().join(" ")
        };
        known(plain(name)).or_else(|| known(outer.clone())).or_else(|| known(kept()))
    }

    /// Those of some names that none of a table's names is found under.
    pub fn unused<'a>(&self, names: &'a [String], models: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let used: BTreeSet<String> = models.filter_map(|model| self.key(model)).collect();
        names.iter().map(String::as_str).filter(|name| !used.contains(&plain(name))).collect()
    }

    /// The graph of a named network for samples of a shape.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn graph(&self, name: &str, shape: &SampleShape) -> Result<Graph, String> {
        let source = self.find(name).ok_or_else(|| NOT_KNOWN.to_owned())?;
        let bytes = match source {
            NetworkSource::File(bytes) => bytes,
            NetworkSource::Words(words) => shape::config(&words).map_err(|problem| problem.message)?,
        };
        read::model(&bytes, shape).map_err(|problem| problem.message)
    }
}

/// Reads a `models.csv`: columns `model` and `shape` or `file`.
///
/// # Errors
/// A column is missing, or a line names neither a shape nor a file, or both.
pub fn lines(text: &str) -> Result<Vec<NetworkLine>, Unreadable> {
    let mut rows = table::numbered(text).into_iter();
    let (_, header) = rows.next().ok_or_else(|| Unreadable("it is empty".to_owned()))?;
    let place = |name: &str| header.iter().position(|column| column.trim() == name);
    let model = place("model").ok_or_else(|| Unreadable("its first line names no column `model`".to_owned()))?;
    let (shape, file) = (place("shape"), place("file"));
    if shape.is_none() && file.is_none() {
        return Err(Unreadable("its first line names neither a column `shape` nor `file`".to_owned()));
    }
    let mut networks = Vec::new();
    for (line, cells) in rows {
        let cell = |place: Option<usize>| place.and_then(|at| cells.get(at)).map_or("", |cell| cell.trim()).to_owned();
        let network = NetworkLine { name: cell(Some(model)), shape: cell(shape), file: cell(file) };
        if network.name.is_empty() || network.shape.is_empty() == network.file.is_empty() {
            return Err(Unreadable(format!("line {line}: give a name, and a shape in words or a file")));
        }
        networks.push(network);
    }
    Ok(networks)
}

/// A name as small words: what makers, dashes and underscores are to it does not matter.
fn plain(name: &str) -> String {
    let divided: String = name.to_lowercase().replace(['-', '_', ' ', '(', ')', ','], " ");
    divided.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, and the millions of weights of the network that is found.
    fn check(name: &str, expected: Option<u64>) {
        let shape = SampleShape { sequence: Some(64), ..SampleShape::default() };
        let found = Networks::published().graph(name, &shape).ok().map(|graph| graph.parameters() / 1_000_000);
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_of_published_networks_are_found() {
        check("Llama-3.1-8B", Some(8030));
        check("meta-llama/Llama-3.2-3B", Some(3212));
        check("Mistral-7B (mistralai/Mistral-7B-v0.1)", Some(7241));
        check("qwen-7b-chat", Some(7721));
        check("llama-3-8b-Instruct-bnb-4bit", Some(8030));
        check("LLAMA3.1_405B", Some(405_853));
        check("DeepSeekV3", Some(671_026));
        check("Qwen3_235B_a22B (tokendrop)", Some(235_093));
    }

    #[test]
    fn a_name_that_is_like_a_known_one_is_not_taken_for_it() {
        check("Llama-3.1-9B", None);
        check("Llama-3.1-8B-Vision", None);
        check("Qwen2-VL-7B-Instruct", None);
        check("GPT 200B", None);
    }

    #[test]
    fn every_published_network_can_be_read() {
        let shape = SampleShape { sequence: Some(16), ..SampleShape::default() };
        let networks = Networks::published();
        assert!(networks.named.len() > 60);
        for name in networks.named.keys() {
            let graph = networks.graph(name, &shape).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(graph.parameters() > 100_000_000, "{name}");
        }
    }

    #[test]
    fn names_that_no_row_has_are_told() {
        let mut networks = Networks::published();
        let names = ["Mine-1B".to_owned(), "Yours-2B".to_owned()];
        for name in &names {
            networks.add(name, NetworkSource::Words("layers 2 hidden 64 heads 2 ffn 128 vocab 100".to_owned()));
        }
        assert_eq!(networks.unused(&names, ["mine_1b-chat", "Llama-3.1-8B"].into_iter()), ["Yours-2B"]);
    }

    #[test]
    fn a_models_file_names_a_shape_or_a_file_in_each_line() {
        let read = lines("model,shape,file\nmine,\"layers 2, hidden 64\",\nyours,,config.json\n").expect("read");
        assert_eq!((read[0].shape.as_str(), read[1].file.as_str()), ("layers 2, hidden 64", "config.json"));
        for wrong in ["model\nx\n", "name,shape\nx,y\n", "model,shape\nx,\n", "model,shape,file\nx,a,b\n"] {
            assert!(lines(wrong).is_err(), "{wrong}");
        }
    }
}
