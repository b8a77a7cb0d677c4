//! The job file of `gradus launch`: from the options to text.

use std::str::FromStr;

use domain::Duration;
use domain::file::written::{JobText, YamlValue, processes, quoted};

/// How many processes of the script run on each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessesPerNode {
    /// So many.
    Count(u32),
    /// One per GPU, or without GPUs one per core.
    Auto,
    /// One per GPU.
    Gpu,
    /// One per core.
    Cpu,
}

impl FromStr for ProcessesPerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessesPerNode, String> {
        match (text, text.parse::<u32>()) {
            ("auto", _) => Ok(ProcessesPerNode::Auto),
            ("gpu", _) => Ok(ProcessesPerNode::Gpu),
            ("cpu", _) => Ok(ProcessesPerNode::Cpu),
            (_, Ok(count)) if (1..=1024).contains(&count) => Ok(ProcessesPerNode::Count(count)),
            _ => Err("write a number from 1 to 1024, `gpu`, `cpu` or `auto`".to_owned()),
        }
    }
}

/// The request of the options.
#[derive(Debug, Clone, Default)]
pub struct ScriptRequest {
    pub name: String,
    /// The script or module and its arguments.
    pub program: Vec<String>,
    /// The script's option that takes the path of a checkpoint.
    pub resume: Option<String>,
    /// Folders that outlive an attempt.
    pub outputs: Vec<String>,
    /// A pattern that finds steps in the output.
    pub progress: Option<String>,
    pub processes: Option<ProcessesPerNode>,
    pub nodes: Option<u32>,
    pub max_restarts: Option<u32>,
    pub infra: Option<String>,
    pub accelerators: Option<String>,
    pub cpus: Option<String>,
    pub memory: Option<String>,
    /// The container image.
    pub image: Option<String>,
    pub workdir: String,
    /// Names and values.
    pub envs: Vec<(String, String)>,
    /// Names.
    pub secrets: Vec<String>,
    pub setup: Option<String>,
    pub budget: Option<String>,
    pub deadline: Option<Duration>,
    /// Time to save after an order to stop.
    pub stop_grace: Option<Duration>,
}

/// The job file.
pub fn compose(request: &ScriptRequest) -> JobText {
    let mut job = JobText::default();
    job.text("name", &request.name);
    job.text("workdir", &request.workdir);
    job.text("run", run(request));
    let plain = [
        ("num_nodes", request.nodes.map(|nodes| nodes.to_string())),
        ("resources.job_recovery.max_restarts_on_errors", request.max_restarts.map(|restarts| restarts.to_string())),
    ];
    let text = [
        ("resources.infra", &request.infra),
        ("resources.accelerators", &request.accelerators),
        ("resources.cpus", &request.cpus),
        ("resources.memory", &request.memory),
        ("resources.image_id", &request.image),
        ("setup", &request.setup),
        ("budget.max", &request.budget),
        ("deadline", &request.deadline.map(|deadline| deadline.to_string())),
        ("stop_grace", &request.stop_grace.map(|grace| grace.to_string())),
        ("progress.regex", &request.progress),
    ];
    for (key, value) in plain {
        value.into_iter().for_each(|value| job.plain(key, value));
    }
    if !request.outputs.is_empty() {
        let folders = request.outputs.iter().map(|folder| YamlValue::Text(folder.clone()));
        job.set("outputs", YamlValue::List(folders.collect()));
    }
    for (key, value) in text {
        value.iter().for_each(|value| job.text(key, value));
    }
    for (name, value) in &request.envs {
        job.text(&format!("envs.{name}"), value);
    }
    for name in &request.secrets {
        job.set(&format!("secrets.{name}"), YamlValue::Null);
    }
    job
}

/// As torchrun: processes that share a node do not each start a thread per core.
const THREADS: &str = "OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}";

/// The commands: one process is started as it is, several with torchrun's variables.
fn run(request: &ScriptRequest) -> String {
    let mut words: Vec<String> = request.program.iter().map(|text| word(text)).collect();
    words.extend(request.resume.iter().map(|option| format!("${{GRADUS_RESUME:+{option} \"$GRADUS_RESUME\"}}")));
    let command = words.join(" ");
    let gpus = "$SKYPILOT_NUM_GPUS_PER_NODE";
    let count = match request.processes.unwrap_or(ProcessesPerNode::Count(1)) {
        ProcessesPerNode::Count(1) => return command,
        ProcessesPerNode::Count(count) => count.to_string(),
        ProcessesPerNode::Cpu => "$(nproc)".to_owned(),
        ProcessesPerNode::Gpu => gpus.to_owned(),
        ProcessesPerNode::Auto => format!("$(({gpus} > 0 ? {gpus} : $(nproc)))"),
    };
    let guard = match request.processes {
        Some(ProcessesPerNode::Gpu) => {
            format!("[[ {gpus} -gt 0 ]] || {{ echo 'no NVIDIA GPU on this machine' >&2; exit 1; }}\n")
        }
        _ => String::new(),
    };
    format!("{guard}{}exit $failed\n", processes(&count, THREADS, &command))
}

/// An argument as the script gets it: unchanged, except for variables of gradus, which are expanded on the machine.
fn word(text: &str) -> String {
    if !text.contains("$GRADUS_") && !text.contains("${GRADUS_") {
        return quoted(text);
    }
    let escape = |c: char| if matches!(c, '"' | '\\' | '`') { format!("\\{c}") } else { c.to_string() };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(program: &[&str]) -> ScriptRequest {
        let program = program.iter().map(|word| (*word).to_owned()).collect();
        ScriptRequest { name: "train".into(), program, workdir: ".".into(), ..ScriptRequest::default() }
    }

    #[test]
    fn one_process_is_one_line() {
        let text = compose(&request(&["python3", "train.py", "--lr", "0.1", "--name", "it's", "a b", ""])).render();
        assert_eq!(text, "name: train\nworkdir: .\nrun: python3 train.py --lr 0.1 --name 'it'\\''s' 'a b' ''\n");
    }

    #[test]
    fn the_option_of_a_framework_takes_the_checkpoint_if_there_is_one() {
        let resume = Some("--ckpt_path".to_owned());
        let progress = Some(r"(?<step>\d+): (?<loss>\S+)".to_owned());
        let outputs = vec!["out".to_owned(), "b c".to_owned()];
        let request = ScriptRequest { resume, progress, outputs, ..request(&["python3", "train.py"]) };
        let text = compose(&request).render();
        assert!(text.contains(r#"train.py ${GRADUS_RESUME:+--ckpt_path "$GRADUS_RESUME"}"#), "{text}");
        let job = domain::Job::parse(&text, "train.py").unwrap_or_else(|wrong| panic!("{wrong}\n{text}")).job;
        let domain::Work::Command(command) = job.work else { panic!("a program") };
        assert_eq!((command.outputs, command.progress.regex), (request.outputs, request.progress));
    }

    #[test]
    fn variables_of_gradus_are_filled_in_on_the_machine() {
        let text = compose(&request(&["python3", "train.py", "$GRADUS_CHECKPOINTS/a b", "$HOME"])).render();
        assert!(text.contains("run: python3 train.py \"$GRADUS_CHECKPOINTS/a b\" '$HOME'\n"), "{text}");
    }

    #[test]
    fn options_become_keys_that_are_read_back() {
        let text = compose(&ScriptRequest {
            nodes: Some(2),
            processes: Some(ProcessesPerNode::Gpu),
            max_restarts: Some(3),
            infra: Some("aws".into()),
            accelerators: Some("A100:8".into()),
            cpus: Some("8+".into()),
            memory: Some("64".into()),
            image: Some("docker:a/b:1".into()),
            envs: vec![("A".into(), "yes".into())],
            secrets: vec!["TOKEN".into()],
            setup: Some("pip install -r requirements.txt".into()),
            budget: Some("$20".into()),
            deadline: Some(Duration::from_secs(36 * 3600)),
            stop_grace: Some(Duration::from_secs(300)),
            ..request(&["python3", "train.py"])
        })
        .render();
        let job = domain::Job::parse(&text, "train.py")
            .map(|parsed| parsed.job)
            .unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        assert_eq!((job.nodes(), job.recovery.restarts_on_errors, job.envs["A"].as_str()), (2, 3, "yes"));
        assert_eq!((job.needs.cores, job.wants.clouds.clone()), (Some(8), vec!["aws".to_owned()]));
        assert!(job.secrets.contains_key("TOKEN") && job.budget.is_some());
        let domain::Work::Command(command) = &job.work else { panic!("a program") };
        assert_eq!(command.image.as_ref().map(ToString::to_string).as_deref(), Some("docker:a/b:1"));
        assert_eq!(job.deadline, Some(Duration::from_secs(36 * 3600)));
        assert_eq!(job.stop_grace, Some(Duration::from_secs(300)));
    }

    #[test]
    fn numbers_of_processes_are_torchruns() {
        for (text, expected) in [
            ("4", Ok(ProcessesPerNode::Count(4))),
            ("auto", Ok(ProcessesPerNode::Auto)),
            ("gpu", Ok(ProcessesPerNode::Gpu)),
            ("cpu", Ok(ProcessesPerNode::Cpu)),
        ] {
            assert_eq!(text.parse::<ProcessesPerNode>(), expected);
        }
        for text in ["0", "-1", "many", "1025", ""] {
            assert!(text.parse::<ProcessesPerNode>().is_err(), "{text}");
        }
    }
}
