//! Detects from a folder's files how its training is started: a pure function.

use super::started::{trains, trains_when_started};

/// Files of a folder.
#[derive(Debug, Clone, Default)]
pub struct FolderFacts {
    /// Names of all files and, with `/` at the end, folders.
    pub names: Vec<String>,
    /// Python scripts and their texts.
    pub scripts: Vec<(String, String)>,
}

/// The proposal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DetectedProgram {
    /// Scripts that train, the likeliest first.
    pub scripts: Vec<String>,
    /// Those of them that are as likely as the first.
    pub as_likely: Vec<String>,
    /// What installs the requirements.
    pub setup: Option<String>,
    /// Arguments of the first script that must be given, or that say where data is.
    pub arguments: Vec<ScriptArgument>,
}

/// An argument that a script requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptArgument {
    /// Such as `--data`, or `data` for a positional one.
    pub name: String,
    /// Whether the script ends without it.
    pub is_required: bool,
}

impl DetectedProgram {
    /// The proposed arguments: those that are required, and data in the folder.
    pub fn proposed(&self, facts: &FolderFacts) -> String {
        let data = ["data", "dataset", "datasets"].into_iter().find(|name| facts.names.contains(&format!("{name}/")));
        let mut words = Vec::new();
        for argument in &self.arguments {
            let value = if is_data(&argument.name) { data.unwrap_or("PATH") } else { "VALUE" };
            if argument.is_required || is_data(&argument.name) && data.is_some() {
                words.extend(argument.name.starts_with('-').then(|| argument.name.clone()));
                words.push(value.to_owned());
            }
        }
        words.join(" ")
    }
}

/// Looks at the files of a folder.
pub fn detect(facts: &FolderFacts) -> DetectedProgram {
    let mut scored: Vec<(i32, &str)> = facts
        .scripts
        .iter()
        .map(|(name, text)| (score(name, text), name.as_str()))
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    let best = scored.first().map(|(score, _)| *score);
    let equals = scored.iter().skip(1).take_while(|(score, _)| Some(*score) == best);
    let as_likely = equals.map(|(_, name)| (*name).to_owned()).collect();
    let scripts: Vec<String> = scored.into_iter().map(|(_, name)| name.to_owned()).collect();
    let text = scripts.first().and_then(|first| facts.scripts.iter().find(|(name, _)| name == first));
    let arguments = text.map(|(_, text)| arguments(text)).unwrap_or_default();
    DetectedProgram { setup: setup(&facts.names), scripts, as_likely, arguments }
}

/// How likely a script trains.
fn score(name: &str, text: &str) -> i32 {
    let imports = |library: &str| {
        let is_import = |line: &str| {
            let words: Vec<&str> = line.split([' ', '.', ',']).filter(|word| !word.is_empty()).collect();
            matches!(words.first(), Some(&("import" | "from"))) && words.get(1) == Some(&library)
        };
        text.lines().any(|line| is_import(line.trim_start()))
    };
    let libraries =
        ["torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "jax", "keras", "tensorflow"];
    let is_framework = libraries.into_iter().any(imports);
    let stem = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".py");
    let named = match stem {
        "train" => 6,
        "main" => 4,
        "run" | "finetune" | "pretrain" => 3,
        _ if stem.starts_with("train") || stem.ends_with("train") || stem.ends_with("_training") => 4,
        _ => 0,
    };
    let is_test =
        stem.starts_with("test_") || stem.ends_with("_test") || matches!(stem, "setup" | "conftest" | "__init__");
    let is_started = text.contains("__main__") || text.contains("ArgumentParser(") || named >= 4;
    let is_likely = is_started && (is_framework || named > 0);
    let is_script = is_framework && trains_when_started(text);
    match () {
        () if is_test || !(is_likely || is_script) => 0,
        // Below all that have a known name or `__main__`.
        () if !is_likely && named == 0 => 2,
        () => named + 2 * i32::from(is_framework) + 2 * i32::from(trains(text)) + i32::from(text.contains("__main__")),
    }
}

/// What installs the requirements, by the file that names them.
fn setup(names: &[String]) -> Option<String> {
    let commands = [
        ("requirements.txt", "python3 -m pip install -r requirements.txt"),
        ("uv.lock", "uv sync"),
        ("pyproject.toml", "python3 -m pip install ."),
        ("setup.py", "python3 -m pip install ."),
    ];
    let (_, command) = commands.into_iter().find(|(file, _)| names.iter().any(|name| name == file))?;
    Some(command.to_owned())
}

/// Arguments of `argparse` that are required or name data.
fn arguments(text: &str) -> Vec<ScriptArgument> {
    let mut found = Vec::new();
    for (at, call) in text.match_indices("add_argument(") {
        let inner = &text[at + call.len()..];
        let end = closing(inner).unwrap_or(inner.len());
        let inner = &inner[..end];
        let names: Vec<&str> = strings_first(inner);
        let Some(name) = names.iter().find(|name| name.starts_with("--")).or(names.first()) else { continue };
        let has = |word: &str| inner.replace(' ', "").contains(word);
        let is_positional = !name.starts_with('-');
        let is_optional = has("nargs=\"?\"") || has("nargs='?'") || has("nargs=\"*\"") || has("nargs='*'");
        let is_required = has("required=True") || is_positional && !is_optional;
        if is_required || is_data(name) {
            found.push(ScriptArgument { name: (*name).to_owned(), is_required });
        }
    }
    found.dedup();
    found
}

/// Where the bracket that is open closes; brackets in strings are rare enough.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, letter)| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        (depth == 0).then_some(at)
    })
}

/// The strings that a call begins with.
fn strings_first(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let Some(quote) = part.chars().next().filter(|c| matches!(c, '"' | '\'')) else { break };
        match part.strip_prefix(quote).and_then(|part| part.strip_suffix(quote)) {
            Some(name) => names.push(name),
            None => break,
        }
    }
    names
}

/// Whether an argument says where data is.
fn is_data(name: &str) -> bool {
    let name = name.trim_start_matches('-').replace('-', "_").to_lowercase();
    let known = [
        "data",
        "data_dir",
        "data_path",
        "data_root",
        "dataset_dir",
        "dataset_path",
        "train_data",
        "train_dir",
        "root",
    ];
    known.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(names: &[&str], scripts: &[(&str, &str)]) -> FolderFacts {
        FolderFacts {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            scripts: scripts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        }
    }

    #[test]
    fn the_likeliest_script_comes_first() {
        let main = "if __name__ == '__main__':\n    main()\n";
        let detected = detect(&facts(
            &["requirements.txt", "data/"],
            &[
                ("model.py", "import torch\nclass Net: ...\n"),
                ("evaluate.py", &format!("import torch\n{main}")),
                ("train.py", &format!("import torch.nn as nn\nloss.backward()\n{main}")),
                ("test_train.py", &format!("import torch\n{main}")),
                ("tool.py", &format!("import json\n{main}")),
            ],
        ));
        assert_eq!(detected.scripts, ["train.py", "evaluate.py"]);
        assert!(detected.as_likely.is_empty());
        assert_eq!(detected.setup.as_deref(), Some("python3 -m pip install -r requirements.txt"));
        assert_eq!(detect(&facts(&[], &[("torchless.py", "print()")])), DetectedProgram::default());
        assert_eq!(detect(&facts(&[], &[("train.py", "from mylib import fit\n")])).scripts, ["train.py"]);
        let alike = format!("import torch\n{main}");
        assert_eq!(detect(&facts(&[], &[("b.py", &alike), ("a.py", &alike)])).as_likely, ["b.py"]);
    }

    #[test]
    fn a_script_that_trains_when_started_needs_no_known_name() {
        let one = ("one.py", "import torch\nloss.backward()\noptimizer.step()\n");
        let model = ("model.py", "import torch\ndef train_step(batch):\n    loss.backward()\n");
        let uses = ("alone.py", "import torch\nfrom model import train_step\nTrainer(train_step)\n");
        let scripts = |all: &[(&str, &str)]| detect(&facts(&[], all)).scripts;
        assert_eq!(scripts(&[one]), ["one.py"]);
        assert_eq!(scripts(&[model, uses]), ["alone.py"]);
        assert_eq!(scripts(&[model]), [""; 0]);
        assert_eq!(scripts(&[("one.py", "loss.backward()\n")]), [""; 0], "no framework");
        assert_eq!(scripts(&[("test_one.py", one.1)]), [""; 0]);
        let main = ("zebra.py", "import torch\nif __name__ == '__main__': pass\n");
        let named = ("run.py", "import torch\nloss.backward()\n");
        assert_eq!(scripts(&[one, main, named, ("train.py", "")]), ["run.py", "train.py", "zebra.py", "one.py"]);
    }

    #[test]
    fn arguments_that_are_required_or_name_data_are_found() {
        let text = "import torch\nparser.add_argument('-d', \"--data-dir\", default=None)\n\
                    parser.add_argument(\"--lr\", type=float, required = True, help=\"rate (of learning)\")\n\
                    p.add_argument('config')\np.add_argument('extra', nargs='?')\np.add_argument('--epochs', type=int)\n";
        let with_data = facts(&["data/"], &[("train.py", text)]);
        let detected = detect(&with_data);
        let named: Vec<(&str, bool)> =
            detected.arguments.iter().map(|argument| (argument.name.as_str(), argument.is_required)).collect();
        assert_eq!(named, [("--data-dir", false), ("--lr", true), ("config", true)]);
        assert_eq!(detected.proposed(&with_data), "--data-dir data --lr VALUE VALUE");
        assert_eq!(detected.proposed(&facts(&[], &[])), "--lr VALUE VALUE");
    }

    #[test]
    fn requirements_are_installed_by_what_names_them() {
        let setup = |names: &[&str]| detect(&facts(names, &[])).setup;
        assert_eq!(setup(&["pyproject.toml", "uv.lock"]).as_deref(), Some("uv sync"));
        assert_eq!(setup(&["pyproject.toml"]).as_deref(), Some("python3 -m pip install ."));
        assert_eq!(setup(&["README.md"]), None);
    }
}
