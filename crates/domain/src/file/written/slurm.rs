//! Batch scripts of Slurm: the `#SBATCH` lines become keys, the rest is `run`.
//!
//! Slurm runs a script on the first node and `srun` on all of them; gradus runs it on every node, and a function `srun`
//! starts the processes of this one.

use super::super::lower::name_from;
use super::dstack::names;
use super::imported::{ForeignFormat, Import, Imported};
use super::processes::processes;
use super::task_array::{TASK_ID, TaskArray};
use super::yaml::YamlValue;
use crate::problem::{Problem, Problems};
use crate::sweep::MOST_TRIALS;

/// Long names of short options.
const SHORT: [(char, &str); 22] = [
    ('J', "job-name"),
    ('N', "nodes"),
    ('n', "ntasks"),
    ('c', "cpus-per-task"),
    ('t', "time"),
    ('G', "gpus"),
    ('o', "output"),
    ('e', "error"),
    ('a', "array"),
    ('p', "partition"),
    ('A', "account"),
    ('q', "qos"),
    ('C', "constraint"),
    ('d', "dependency"),
    ('D', "chdir"),
    ('w', "nodelist"),
    ('x', "exclude"),
    ('L', "licenses"),
    ('b', "begin"),
    ('i', "input"),
    ('M', "clusters"),
    ('k', "no-kill"),
];

/// Options without a value.
const FLAGS: [&str; 8] =
    ["exclusive", "requeue", "no-requeue", "hold", "parsable", "oversubscribe", "no-kill", "contiguous"];

/// Options without a counterpart: the reason, and the hint.
const LEFT_OUT: [(&[&str], &str, &str); 9] = [
    (&["output", "error", "open-mode"], "output is kept with the run", "read it with `gradus logs RUN`"),
    (
        &["partition", "account", "qos", "clusters", "reservation", "licenses", "constraint"],
        "there are no partitions, accounts or shares",
        "name a place with `resources: {infra: …}`",
    ),
    (&["mail-type", "mail-user"], "no mail is sent", "put `gradus wait RUN && mail …` behind it"),
    (&["time-min"], "a run ends when it is done, and by `--time` at the latest", ""),
    (&["exclusive", "oversubscribe"], "a machine runs the jobs of one home folder", ""),
    (&["requeue"], "lost attempts are retried by default", ""),
    (
        &["dependency", "begin", "hold"],
        "runs start when they are submitted",
        "`gradus wait RUN && gradus run NEXT` chains two",
    ),
    (&["nodelist", "exclude", "contiguous", "no-kill"], "nodes are chosen by `infra: ssh/NAME` only", ""),
    (&["export", "signal"], "a program gets the variables of `envs`, and SIGTERM 60 seconds before its end", ""),
];

/// Slurm's variables in terms of those that gradus sets for a program.
const VARIABLES: [(&str, &str); 19] = [
    ("SLURM_JOB_ID", "$GRADUS_RUN"),
    ("SLURM_JOBID", "$GRADUS_RUN"),
    ("SLURM_JOB_NAME", "$GRADUS_RUN"),
    ("SLURM_NNODES", "$SKYPILOT_NUM_NODES"),
    ("SLURM_JOB_NUM_NODES", "$SKYPILOT_NUM_NODES"),
    ("SLURM_NODEID", "$NODE_RANK"),
    ("SLURM_PROCID", "$NODE_RANK"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_JOB_NODELIST", "\"$(paste -sd, <<< \"$SKYPILOT_NODE_IPS\")\""),
    ("SLURM_NODELIST", "\"$(paste -sd, <<< \"$SKYPILOT_NODE_IPS\")\""),
    ("SLURM_LAUNCH_NODE_IPADDR", "$MASTER_ADDR"),
    ("SLURM_GPUS_ON_NODE", "$SKYPILOT_NUM_GPUS_PER_NODE"),
    ("SLURM_GPUS_PER_NODE", "$SKYPILOT_NUM_GPUS_PER_NODE"),
    ("SLURM_CPUS_ON_NODE", "$(nproc)"),
    ("SLURM_SUBMIT_DIR", "$PWD"),
    ("SLURM_RESTART_COUNT", "$((GRADUS_ATTEMPT_NUMBER - 1))"),
    ("SLURM_TMPDIR", "\"$(mktemp -d)\""),
    ("SLURM_SUBMIT_HOST", "$(hostname)"),
    ("SLURMD_NODENAME", "$(hostname)"),
];

/// The combined request of the options.
#[derive(Debug, Default)]
struct Asked {
    nodes: Option<u64>,
    tasks: Option<u64>,
    tasks_per_node: Option<u64>,
    cores_per_task: Option<u64>,
    gpus: Option<(Option<String>, u64, u32)>,
    /// Of all nodes, if not of each.
    gpus_together: bool,
    /// Of each task, if not of each node.
    gpus_per_task: bool,
    memory_per_core: Option<(String, u32)>,
    /// Tasks of an array, and the line.
    array: Option<(TaskArray, u32)>,
}

impl Asked {
    fn tasks_per_node(&self) -> u64 {
        let of_all = self.tasks.map(|tasks| tasks.div_ceil(self.nodes.unwrap_or(1)));
        self.tasks_per_node.or(of_all).unwrap_or(1).max(1)
    }
}

/// Converts a batch script to a job file.
pub(super) fn import(text: &str, file_name: &str) -> Result<Imported, Problems> {
    let (mut import, mut asked) = (Import::default(), Asked::default());
    let is_array = |(option, ..): &(String, String, u32)| option == "array";
    // What `--time` means depends on whether there is an array.
    let (arrays, others): (Vec<_>, Vec<_>) = options(text).into_iter().partition(is_array);
    for (option, value, line) in arrays.into_iter().chain(others) {
        apply(&mut import, &mut asked, &option, &value, line);
    }
    together(&mut import, &asked);
    if !import.job.has("name") {
        let name = file_name.rsplit('/').next().unwrap_or(file_name);
        import.job.text("name", name_from(name.split('.').next().unwrap_or(name)));
    }
    if !import.job.has("workdir") {
        import.job.text("workdir", ".");
        let note = "each attempt runs in a copy of the job file's folder, and not in the folder itself";
        import.note(None, "workdir", note, "write what must last to $GRADUS_CHECKPOINTS");
    }
    script(&mut import, text, &asked);
    if !import.job.has("run") {
        let problem =
            Problem::at("", "the script has no commands").hint("write the commands below the `#SBATCH` lines");
        return Err(Problems { file: file_name.to_owned(), problems: vec![problem] });
    }
    import.finish(ForeignFormat::Slurm, file_name, &|_| None)
}

/// The options of the `#SBATCH` lines before the first command: long name, value, line.
fn options(text: &str) -> Vec<(String, String, u32)> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_end();
        if !line.is_empty() && !line.starts_with('#') {
            break;
        }
        let Some(rest) = line.strip_prefix("#SBATCH") else { continue };
        let mut words = words(rest).into_iter().peekable();
        while let Some(word) = words.next() {
            let (name, value) = if let Some(long) = word.strip_prefix("--") {
                match long.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (long.to_owned(), None),
                }
            } else if let Some(short) = word.strip_prefix('-') {
                let mut letters = short.chars();
                let letter = letters.next().unwrap_or('-');
                let long = SHORT.iter().find(|(short, _)| *short == letter);
                let rest = letters.as_str().trim_start_matches('=');
                let name = long.map_or_else(|| format!("-{letter}"), |(_, long)| (*long).to_owned());
                (name, (!rest.is_empty()).then(|| rest.to_owned()))
            } else {
                continue;
            };
            let takes_next = value.is_none() && !FLAGS.contains(&&*name);
            let next = words.next_if(|next| takes_next && !next.starts_with('-'));
            found.push((name, value.or(next).unwrap_or_default(), number));
        }
    }
    found
}

/// Words as a shell divides them, up to a comment.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn apply(import: &mut Import, asked: &mut Asked, option: &str, value: &str, line: u32) {
    let number = value.split('-').next().unwrap_or_default().parse::<u64>().ok();
    let key = format!("--{option}");
    match option {
        "job-name" => import.job.text("name", name_from(value)),
        "nodes" => {
            asked.nodes = number;
            import.job.plain("num_nodes", value.split('-').next().unwrap_or_default());
            if value.contains('-') {
                import.note(Some(line), &key, "the lower number of nodes is taken", "");
            }
        }
        "ntasks" => asked.tasks = number,
        "ntasks-per-node" | "tasks-per-node" => asked.tasks_per_node = number,
        "cpus-per-task" => asked.cores_per_task = number,
        "mem" | "tmp" if matches!(value, "0" | "0M" | "0G") => {}
        "mem" => import.job.plain("resources.memory", size(value)),
        "mem-per-cpu" => asked.memory_per_core = Some((value.to_owned(), line)),
        "tmp" => import.job.plain("resources.disk_size", size(value)),
        "time" if asked.array.is_some() => {
            let why = "left out: it limits each task, and a `deadline` all tasks together";
            import.note(Some(line), &key, why, "put `timeout` before the program, or write a `deadline` for all");
        }
        "time" => deadline(import, &key, value, line),
        "gres" | "gpus-per-node" | "gpus" | "gpus-per-task" => gpus(import, asked, option, value, line),
        "chdir" => {
            import.job.text("workdir", value);
            import.note(
                Some(line),
                &key,
                "each attempt runs in a copy of this folder",
                "write what must last to $GRADUS_CHECKPOINTS",
            );
        }
        "array" => match TaskArray::read(value) {
            Some(array) => asked.array = Some((array, line)),
            None => {
                let why = format!("left out: `{value}` is no array of up to {MOST_TRIALS} tasks");
                import.note(Some(line), &key, why, "write `sweep:` in the job file");
            }
        },
        "no-requeue" => import.job.text("resources.job_recovery", "none"),
        _ => match LEFT_OUT.iter().find(|(options, ..)| options.contains(&option)) {
            Some((_, why, hint)) => import.note(Some(line), &key, format!("left out: {why}"), hint),
            None => import.note(Some(line), &key, "left out: it has no counterpart", ""),
        },
    }
}

/// `32G`, or MiB without a unit, as Slurm means it: by powers of two.
fn size(value: &str) -> String {
    let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let unit = match value[split..].chars().next().map(|unit| unit.to_ascii_uppercase()) {
        Some('K') => "KiB",
        Some('G') => "GiB",
        Some('T') => "TiB",
        _ => "MiB",
    };
    format!("{}{unit}", &value[..split])
}

/// Minutes, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`.
fn deadline(import: &mut Import, key: &str, value: &str, line: u32) {
    if matches!(value, "UNLIMITED" | "INFINITE" | "0" | "-1") {
        return;
    }
    let (days, rest) = value.split_once('-').map_or((None, value), |(days, rest)| (Some(days), rest));
    let parts: Option<Vec<u64>> = rest.split(':').map(|part| part.parse().ok()).collect();
    let days_number = days.map_or(Some(0), |days| days.parse::<u64>().ok());
    let seconds = match (parts.as_deref(), days_number) {
        (Some([hours]), Some(number)) if days.is_some() => Some(number * 86_400 + hours * 3_600),
        (Some([hours, minutes]), Some(number)) if days.is_some() => {
            Some(number * 86_400 + hours * 3_600 + minutes * 60)
        }
        (Some([minutes]), Some(_)) => Some(minutes * 60),
        (Some([minutes, seconds]), Some(_)) => Some(minutes * 60 + seconds),
        (Some([hours, minutes, seconds]), Some(days)) => Some(days * 86_400 + hours * 3_600 + minutes * 60 + seconds),
        _ => None,
    };
    let Some(seconds) = seconds else {
        return import.note(Some(line), key, format!("left out: `{value}` is no time"), "write `deadline: 12h`");
    };
    let parts = [(seconds / 3_600, 'h'), (seconds % 3_600 / 60, 'm'), (seconds % 60, 's')];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    import.job.plain("deadline", text);
    import.note(Some(line), key, "it is the `deadline` here, which counts from submission", "");
}

/// `gpu:a100:8`, `a100:8` or `8`.
fn gpus(import: &mut Import, asked: &mut Asked, option: &str, value: &str, line: u32) {
    let mut parts: Vec<&str> = value.split('(').next().unwrap_or(value).split(':').collect();
    if option == "gres" && parts.first() != Some(&"gpu") {
        return import.note(Some(line), "--gres", format!("left out: `{value}` is no GPU"), "");
    }
    parts.retain(|part| *part != "gpu");
    let count = parts.last().and_then(|count| count.parse::<u64>().ok());
    let model = parts.first().filter(|model| model.parse::<u64>().is_err()).map(|model| model.to_uppercase());
    asked.gpus_together = option == "gpus";
    asked.gpus_per_task = option == "gpus-per-task";
    asked.gpus = Some((model, count.unwrap_or(1), line)).filter(|(_, count, _)| *count > 0);
}

/// Settings that depend on several options.
fn together(import: &mut Import, asked: &Asked) {
    if let Some((array, line)) = &asked.array {
        import.job.set("sweep", array.sweep());
        if array.parallel.is_none() {
            import.note(
                Some(*line),
                "--array",
                "its tasks run one after the other",
                "write `parallel: N` under `sweep`",
            );
        }
    }
    let tasks = asked.tasks_per_node();
    let cores = asked.cores_per_task.unwrap_or(1) * tasks;
    if asked.cores_per_task.is_some() || tasks > 1 {
        import.job.plain("resources.cpus", format!("{cores}+"));
    }
    if let Some((value, line)) = &asked.memory_per_core {
        let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        match value[..split].parse::<u64>() {
            Ok(each) => import.job.plain("resources.memory", size(&format!("{}{}", each * cores, &value[split..]))),
            Err(_) => import.note(Some(*line), "--mem-per-cpu", format!("left out: `{value}` is no size"), ""),
        }
    }
    if let Some((model, count, line)) = &asked.gpus {
        let nodes = if asked.gpus_together { asked.nodes.unwrap_or(1) } else { 1 };
        let count = if asked.gpus_per_task { count * tasks } else { count.div_ceil(nodes.max(1)) };
        let kind = model.clone().unwrap_or_else(|| "1GB+".to_owned());
        import.job.text("resources.accelerators", format!("{kind}:{count}"));
        if model.is_none() {
            let hint = "name a kind, such as `accelerators: A100:8`";
            import.note(Some(*line), "--gpus", "any GPU will do, as no kind is named", hint);
        }
    }
}

/// The commands, with Slurm's variables and `srun`.
fn script(import: &mut Import, text: &str, asked: &Asked) {
    let is_command = |line: &&str| !line.starts_with("#SBATCH") && !line.starts_with("#!");
    let body: Vec<&str> = text.lines().filter(is_command).collect();
    let body = body.join("\n").trim_matches('\n').to_owned();
    if body.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return;
    }
    for (word, message, hint) in [
        (
            "scontrol",
            "`scontrol` is not there",
            "MASTER_ADDR and MASTER_PORT are set; SKYPILOT_NODE_IPS has all addresses",
        ),
        ("module load", "`module load` needs the cluster's modules", "install what the program needs in `setup`"),
        ("mpirun", "nodes do not reach each other by MPI", "start the processes with `torchrun`"),
        (TASK_ID, "`SLURM_ARRAY_TASK_ID` is not set", "pass it with `--env SLURM_ARRAY_TASK_ID=1`"),
    ] {
        if word == TASK_ID && asked.array.is_some() {
            continue;
        }
        if let Some((_, line)) = text.lines().zip(1..).find(|(line, _)| !line.starts_with('#') && line.contains(word)) {
            import.note(Some(line), word.split(' ').next().unwrap_or(word), message, hint);
        }
    }
    let tasks = asked.tasks_per_node();
    let counts = [
        ("SLURM_NTASKS", format!("$((SKYPILOT_NUM_NODES * {tasks}))")),
        ("SLURM_NTASKS_PER_NODE", tasks.to_string()),
        ("SLURM_CPUS_PER_TASK", asked.cores_per_task.unwrap_or(1).to_string()),
    ];
    let fixed = VARIABLES.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let of_array = asked.array.iter().flat_map(|(array, _)| array.variables());
    let used = fixed.chain(counts).chain(of_array).filter(|(name, _)| names(&body, name));
    let mut lines: Vec<String> = used.map(|(name, value)| format!("export {name}={value}")).collect();
    if names(&body, "srun") {
        lines.push(srun(tasks));
    }
    lines.push(body);
    import.job.set("run", YamlValue::Text(lines.join("\n") + "\n"));
}

/// Long options of `srun` whose value may be the next argument.
const SRUN_VALUES: &str = "|--nodes|--ntasks|--ntasks-per-node|--cpus-per-task|--gpus|--gpus-per-task|--gpus-per-node\
    |--mem|--time|--partition|--mpi|--output|--error|--gres|--nodelist|--job-name|--container-image|--container-mounts";

/// A function that does on this node what `srun` does: it passes over srun's options and starts the processes.
fn srun(tasks: u64) -> String {
    let more = "SLURM_PROCID=$((NODE_RANK * processes + process)) SLURM_LOCALID=$process";
    let started = processes(&tasks.to_string(), more, "\"$@\"") + "return $failed\n";
    let body: String = started.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "# Starts the processes of this node; gradus runs this script on every node.\n\
         srun() {{\n  \
           while [[ ${{1:-}} == -* ]]; do\n    \
             case $1 in -[NncwxtpGJKo]{SRUN_VALUES}) shift 2 ;; *) shift ;; esac\n  \
           done\n\
         {body}}}"
    )
}
