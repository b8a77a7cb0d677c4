//! What a script's framework does by itself: where it saves, and the option that resumes it. A pure function of the
//! script's text and arguments; the script is not started.

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptDefaults {
    /// The option that takes the path of a checkpoint.
    pub resume: Option<String>,
    /// Folders below the working folder that it saves to.
    pub outputs: Vec<String>,
    /// It saves where [`OUTPUT_OPTION`] says, and neither its arguments nor its text say where that is.
    pub lacks_output: bool,
}

/// The option of Hugging Face's `TrainingArguments` that names the folder of results.
pub const OUTPUT_OPTION: &str = "--output_dir";

/// Options of scripts that take a checkpoint's path.
const RESUME: [&str; 7] = [
    "--resume_from_checkpoint",
    "--resume-from-checkpoint",
    "--ckpt_path",
    "--ckpt-path",
    "--resume_from",
    "--resume-from",
    "--resume",
];

/// Arguments, keywords and classes that name the folder of results.
const OUTPUT: [&str; 3] = ["output_dir", "output-dir", "default_root_dir"];

/// Looks at a script and its arguments.
pub fn framework(text: &str, arguments: &[String]) -> ScriptDefaults {
    let uses = |library: &str| {
        let is_import = |line: &str| {
            let mut words = line.split([' ', '.', ',']).filter(|word| !word.is_empty());
            matches!(words.next(), Some("import" | "from")) && words.next() == Some(library)
        };
        text.lines().any(|line| is_import(line.trim_start()))
    };
    let is_lightning = uses("lightning") || uses("pytorch_lightning");
    let is_hugging_face = uses("transformers") && text.contains("Trainer");
    let folder = OUTPUT.iter().find_map(|name| given(name, arguments)).or_else(|| written(text));
    let folder = folder.or_else(|| is_lightning.then(|| "lightning_logs".to_owned()));
    let lacks_output = folder.is_none() && is_hugging_face && reads_arguments(text) && !are_in_a_file(arguments);
    let outputs = folder.filter(|folder| (is_lightning || is_hugging_face) && is_below(folder)).into_iter().collect();
    ScriptDefaults { resume: resume(text, arguments), outputs, lacks_output }
}

/// Whether a script takes `TrainingArguments` from its command line.
fn reads_arguments(text: &str) -> bool {
    text.contains("TrainingArguments") && text.contains("HfArgumentParser")
}

/// Whether a file that `HfArgumentParser` reads has the arguments.
fn are_in_a_file(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| [".json", ".yaml", ".yml"].iter().any(|end| argument.ends_with(end)))
}

/// The option that the script has for a checkpoint, unless the arguments have it already.
fn resume(text: &str, arguments: &[String]) -> Option<String> {
    let of_framework = match (reads_arguments(text), text.contains("LightningCLI(")) {
        (true, _) => Some("--resume_from_checkpoint"),
        (_, true) => Some("--ckpt_path"),
        (false, false) => None,
    };
    let option = RESUME.into_iter().find(|option| takes_value(text, option)).or(of_framework)?;
    let is_given = |argument: &String| {
        let name = argument.split('=').next().unwrap_or_default().replace('-', "_");
        RESUME.iter().any(|option| option.replace('-', "_") == name)
    };
    (!arguments.iter().any(is_given)).then(|| option.to_owned())
}

/// Whether the script declares an option, and one with a value.
fn takes_value(text: &str, option: &str) -> bool {
    let declared = ['"', '\''].into_iter().find_map(|quote| text.find(&format!("{quote}{option}{quote}")));
    let Some(at) = declared else { return false };
    let call: String = text[at..].lines().take(4).collect();
    let call = call.split("add_argument").next().unwrap_or_default().replace(' ', "");
    !["store_true", "is_flag=True", "type=bool", "BooleanOptionalAction", "type=int"]
        .iter()
        .any(|flag| call.contains(flag))
}

/// The value of `--NAME VALUE` or `--NAME=VALUE`.
fn given(name: &str, arguments: &[String]) -> Option<String> {
    let option = format!("--{name}");
    arguments.iter().enumerate().find_map(|(at, argument)| match argument.split_once('=') {
        Some((before, value)) if before == option => Some(value.to_owned()),
        None if *argument == option => arguments.get(at + 1).cloned(),
        _ => None,
    })
}

/// The folder that the script itself names: `output_dir="out"`, or the first argument of `TrainingArguments`.
fn written(text: &str) -> Option<String> {
    let starts = ["output_dir=", "output_dir =", "default_root_dir=", "TrainingArguments("];
    starts.iter().find_map(|start| {
        text.match_indices(start).find_map(|(at, _)| {
            let rest = text[at + start.len()..].trim_start();
            let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            Some(rest[1..].split(quote).next()?.to_owned())
        })
    })
}

/// Whether a folder is one below the working folder.
fn is_below(folder: &str) -> bool {
    let parts: Vec<&str> = folder.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    !folder.starts_with(['/', '~'])
        && !folder.contains(['$', ':', '{', '\\'])
        && !parts.is_empty()
        && !parts.contains(&"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, arguments: &str, resume: Option<&str>, outputs: &[&str]) {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let expected = ScriptDefaults {
            resume: resume.map(str::to_owned),
            outputs: outputs.iter().map(|folder| (*folder).to_owned()).collect(),
            lacks_output: false,
        };
        assert_eq!(framework(text, &arguments), expected, "{text} {arguments:?}");
    }

    #[test]
    fn the_option_and_the_folder_of_a_framework_are_found() {
        let hugging_face = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n";
        check(hugging_face, "--output_dir out --lr 1", Some("--resume_from_checkpoint"), &["out"]);
        check(hugging_face, "--output_dir=/mnt/out", Some("--resume_from_checkpoint"), &[]);
        check(hugging_face, "--resume-from-checkpoint x --output_dir ../out", None, &[]);
        let named =
            "import transformers\nargs = transformers.TrainingArguments(\n    'results', lr=1)\nTrainer(args)\n";
        check(named, "", None, &["results"]);
        let own = "p.add_argument('--resume_from_checkpoint', default=None)\nimport torch\n";
        check(own, "", Some("--resume_from_checkpoint"), &[]);
        check("p.add_argument('--resume', action='store_true')", "", None, &[]);
        check("p.add_argument('--resume',\n    action='store_true')", "", None, &[]);
        check(
            "p.add_argument('--resume', type=str)\np.add_argument('-x', action='store_true')",
            "",
            Some("--resume"),
            &[],
        );
        check(
            "from lightning.pytorch.cli import LightningCLI\nLightningCLI(M)\n",
            "fit",
            Some("--ckpt_path"),
            &["lightning_logs"],
        );
        check("import lightning as L\nL.Trainer(default_root_dir='run')\n", "", None, &["run"]);
        check("import torch\n", "--output_dir out", None, &[]);
    }

    /// Whether it has to be told where such a script saves.
    fn check_lack(text: &str, arguments: &str, expected: bool) {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        assert_eq!(framework(text, &arguments).lacks_output, expected, "{text} {arguments:?}");
    }

    #[test]
    fn a_script_that_is_not_told_where_to_save_is_known() {
        let hugging_face = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n";
        check_lack(hugging_face, "--lr 1", true);
        check_lack(hugging_face, "--output_dir /mnt/out", false);
        check_lack(hugging_face, "arguments.json", false);
        check_lack(&format!("{hugging_face}defaults = dict(output_dir='x')\n"), "", false);
        check_lack("from transformers import Trainer, TrainingArguments\n", "", false);
    }
}
