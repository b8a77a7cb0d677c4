//! `cargo xtask bench agent`: what the agent of a machine takes from it while a run trains there.
//!
//! A real `gradus run` trains with short steps, each of which is reported: the most that an agent has to do. Steps cannot become
//! slower by more than the processor time that others take, so that is measured, and not the difference of two noisy times.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use xtask::build;
use xtask::doing::Outcome;

use crate::measure::quiet::Watch;

/// Steps of under 1 ms, and of some 20 ms.
const MODELS: [&str; 2] = ["mlp", "cnn"];

/// Before it is measured, a run has loaded its data and reached its speed.
const WARM_UP: Duration = Duration::from_secs(5);

/// A run, stopped with all that it has started when it is dropped.
struct Running {
    child: Child,
    home: std::path::PathBuf,
    gradus: std::path::PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut stop = Command::new(&self.gradus);
        let _ = stop.arg("--home").arg(&self.home).args(["stop", "last"]).stderr(Stdio::null()).output();
        let _ = self.child.wait();
    }
}

/// Measures for 30 seconds with each model, or as long as `--seconds` says.
pub fn agent(root: &Path, arguments: &[String]) -> Outcome {
    let seconds = match arguments {
        [] => 30,
        [flag, value] if flag == "--seconds" => value.parse()?,
        _ => return Err("`bench agent` takes `--seconds N` and nothing else".into()),
    };
    let programs = build::programs(root, false)?;
    let folder = std::env::temp_dir().join(format!("gradus-bench-agent-{}", std::process::id()));
    let mut lines = Vec::new();
    for model in MODELS {
        lines.push(measure(root, &programs.gradus, &folder.join(model), model, Duration::from_secs(seconds))?);
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(lines.join("\n"))
}

fn measure(root: &Path, gradus: &Path, folder: &Path, model: &str, time: Duration) -> Result<String, Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let (home, job) = (folder.join("home"), folder.join("job.yaml"));
    let data = root.join("examples/digits.csv.gz");
    let train =
        format!("{{model: {model}, data: {{path: {}}}, epochs: 100000, batch: 64, threads: 1}}", data.display());
    fs::write(&job, format!("name: bench\ntrain: {train}\n"))?;
    let mut command = Command::new(gradus);
    command.arg("--home").arg(&home).args(["run", "--json", "--yes"]).arg(&job);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let out = child.stdout.take().ok_or("the run has no output")?;
    let running = Running { child, home: home.clone(), gradus: gradus.to_owned() };
    let step = std::sync::Arc::new(AtomicU64::new(0));
    let newest = step.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(number) = value["step"].as_u64() {
                newest.fetch_max(number, Ordering::SeqCst);
            }
        }
    });
    let begun = Instant::now();
    while step.load(Ordering::SeqCst) == 0 {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!("the run of `{model}` has made no step within a minute").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(WARM_UP);
    let agent = agent_of(&home).ok_or("the run has no agent")?;
    let watch = Watch::begin(&[std::process::id(), agent, running.child.id()]);
    let (begun, ticks, steps) = (Instant::now(), cpu(agent)?, step.load(Ordering::SeqCst));
    let mut most = 0.0_f64;
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(500));
        most = most.max(resident(agent)?);
    }
    let took = begun.elapsed().as_secs_f64();
    let (busy, steps) = (cpu(agent)? - ticks, (step.load(Ordering::SeqCst) - steps) as f64);
    Ok(format!(
        "{model}: {:.0} steps/s; agent {:.2} % of a core, {:.1} µs per step, at most {most:.1} MiB; {}",
        steps / took,
        busy / took * 100.0,
        busy / steps.max(1.0) * 1e6,
        watch.end()
    ))
}

/// The agent of the home's only machine.
fn agent_of(home: &Path) -> Option<u32> {
    let is_agent = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
        let is_of_home = |word: &String| word.starts_with(&*home.to_string_lossy());
        words.get(1).is_some_and(|word| word == "agent") && words.iter().any(is_of_home)
    };
    let names = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.into_iter().find(is_agent)
}

/// Processor time of a process, in seconds.
fn cpu(id: u32) -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    // Linux reports processor times in hundredths of a second.
    Ok((ticks(11) + ticks(12)) / 100.0)
}

/// Its resident memory, in MiB.
fn resident(id: u32) -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the agent has ended")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
