//! Load test of a server with a long history and many agents.
//!
//! `cargo xtask bench server`, or `load [--runs N] [--events N] [--agents N] [--seconds N] [--gradus PROGRAM]`: writes
//! a history of N settled runs with so many events each, starts a server over it in a separate process, submits a run
//! for each agent, lets all agents call at its intervals, and meanwhile submits and lists. The machines are simulated
//! by a provider that accepts every request. The disk, the sockets and the events are real.

mod agents;
mod history;
mod http;
mod passes;
mod server_process;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use server::{Home, State};

/// Parameters of the measurement.
pub struct Options {
    pub runs: u64,
    pub events: u64,
    pub agents: usize,
    pub seconds: u64,
    pub gradus: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, home] = arguments.as_slice()
        && word == "serve"
    {
        return server_process::serve(Path::new(home));
    }
    let options = options(&arguments)?;
    let folder = tempfile::tempdir()?;
    let home = Home::open(folder.path())?;
    let begun = Instant::now();
    let events = history::write(&home, options.runs, options.events)?;
    let size = std::fs::metadata(home.state())?.len() >> 20;
    let took = begun.elapsed().as_secs_f64();
    println!("history          {} settled runs, {events} events, {size} MiB, written in {took:.0} s", options.runs);
    let opened = times(20, || State::open_lean(&home).map(drop))?;
    println!("open the log     {}", said(&opened));
    if let Some(gradus) = &options.gradus {
        let mut command = || {
            let mut status = Command::new(gradus);
            status.arg("--home").arg(home.root()).arg("status").stdout(Stdio::null()).stderr(Stdio::null());
            status.status().map(drop)
        };
        println!("gradus status    {}", said(&times(20, &mut command)?));
    }
    let begun = Instant::now();
    let mut child = Server::start(home.root())?;
    http::wait(&home.api_socket(), "/v1/ready")?;
    println!("start to ready   {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    std::thread::sleep(Duration::from_secs(2));
    println!("idle server      {:.0} MiB resident", child.resident()?);
    agents::measure(&home, &options, &mut child)?;
    drop(child);
    passes::measure(options.agents.max(1))
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options { runs: 100_000, events: 11, agents: 1_000, seconds: 20, gradus: None };
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else { return Err(format!("`{}` needs a value", pair[0]).into()) };
        match flag.as_str() {
            "--runs" => options.runs = value.parse()?,
            "--events" => options.events = value.parse()?,
            "--agents" => options.agents = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--gradus" => options.gradus = Some(value.into()),
            other => {
                return Err(format!("`{other}` is no option: --runs, --events, --agents, --seconds, --gradus").into());
            }
        }
    }
    Ok(options)
}

/// The server's process; it ends with this.
pub struct Server(Child);

impl Server {
    fn start(home: &Path) -> Result<Server, Failure> {
        let program = std::env::current_exe()?;
        Ok(Server(Command::new(program).arg("serve").arg(home).stdout(Stdio::null()).spawn()?))
    }

    /// Resident memory, in MiB.
    pub fn resident(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the server has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Processor time of the process, in seconds.
    pub fn cpu(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        // Linux reports processor times in hundredths of a second.
        Ok(ticks / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Times of so many repetitions, sorted.
pub fn times<E: Into<Failure>>(count: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        work().map_err(Into::into)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Median, 99th percentile and maximum of sorted times, in milliseconds.
pub fn said(times: &[f64]) -> String {
    let at =
        |share: f64| times.get(((times.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN) * 1e3;
    format!("median {:.2} ms, p99 {:.2} ms, at most {:.2} ms of {}", at(0.5), at(0.99), at(1.0), times.len())
}
