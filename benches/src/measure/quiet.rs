//! Interference: how much of the machine others used, without which figures of speed mean little.

use std::error::Error;
use std::fmt;
use std::fs;

/// Share of the machine from which others disturb a measurement.
const DISTURBED: f64 = 0.05;

/// A measurement under way.
#[derive(Debug)]
pub struct Watch {
    processes: Vec<u32>,
    load: String,
    machine: Option<Machine>,
    own: u64,
}

/// Ticks of all processors since the machine was started.
#[derive(Debug, Clone, Copy)]
struct Machine {
    busy: u64,
    stolen: u64,
    all: u64,
}

/// Usage by others meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Quiet {
    /// Load average over a minute, at the beginning.
    load: String,
    /// Shares of all processors' time: other processes of this machine, and other machines on the same processor.
    shares: Option<[f64; 2]>,
}

impl Watch {
    /// Begins to watch; what `processes` use is not counted as others'.
    pub fn begin(processes: &[u32]) -> Watch {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("unknown").to_owned();
        Watch { processes: processes.to_vec(), load, machine: machine(), own: ticks(processes) }
    }

    /// Says what happened since.
    pub fn end(&self) -> Quiet {
        let shares = self.machine.zip(machine()).map(|(before, after)| {
            let all = (after.all - before.all).max(1) as f64;
            let own = ticks(&self.processes).saturating_sub(self.own);
            let others = (after.busy - before.busy).saturating_sub(own);
            [others as f64 / all, (after.stolen - before.stolen) as f64 / all]
        });
        Quiet { load: self.load.clone(), shares }
    }
}

impl Quiet {
    /// Whether others used so much that the measurement is not reliable; unknown counts as quiet.
    pub fn disturbed(&self) -> bool {
        self.shares.is_some_and(|shares| shares.iter().sum::<f64>() > DISTURBED)
    }
}

/// Measures until `wanted` measurements were undisturbed, or four times as many were tried; returns the undisturbed ones
/// and how many were tried. Whether one counts does not depend on what it measured.
pub fn undisturbed<T>(
    wanted: usize,
    processes: &[u32],
    mut measure: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<(Vec<T>, usize), Box<dyn Error>> {
    let (mut kept, mut tried) = (Vec::with_capacity(wanted), 0);
    while kept.len() < wanted && tried < 4 * wanted {
        let watch = Watch::begin(processes);
        let measured = measure()?;
        tried += 1;
        if !watch.end().disturbed() {
            kept.push(measured);
        }
    }
    if kept.is_empty() {
        let share = 100.0 * DISTURBED;
        return Err(format!(
            "others took more than {share} % of the machine all the time
  hint: end them first"
        )
        .into());
    }
    Ok((kept, tried))
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load before {}", self.load)?;
        let Some([others, stolen]) = self.shares else { return Ok(()) };
        let (others, stolen) = (100.0 * others, 100.0 * stolen);
        write!(f, ", other processes took {others:.1} % of the machine meanwhile, other machines {stolen:.1} %")
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; see proc_stat(5).
fn machine() -> Option<Machine> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let [user, nice, system, idle, waiting, hard, soft, stolen, ..] = fields[..] else { return None };
    let busy = user + nice + system + hard + soft;
    Some(Machine { busy, stolen, all: busy + idle + waiting + stolen })
}

/// Processor time of these processes: fields 14 and 15 of `/proc/PID/stat`, counted after the name in brackets.
fn ticks(processes: &[u32]) -> u64 {
    let of = |id: &u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    processes.iter().filter_map(of).sum()
}
