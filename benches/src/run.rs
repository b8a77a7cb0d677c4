//! A real run of `gradus-rank`, with its agent played here, that can be halted between blocks of steps.
//!
//! It is the program that `gradus run` starts, with all of its work besides the step function: the loader, the reports,
//! the orders, and a checkpoint every hundred steps. It is halted by SIGSTOP, which it does not notice.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::case::{self, Case};
use crate::measure::program::{as_in_a_run, number};
use xtask::draws::Draws;

/// Images of the data set: 306 batches in an epoch.
const IMAGES: usize = 10_000;

/// Reports after a halt that are not counted: the step that was halted, and one that may have ended unread before it.
const HALTED: usize = 2;

/// A run under way, halted except while steps are taken from it.
#[derive(Debug)]
pub struct Run {
    child: Child,
    folder: PathBuf,
    reports: Receiver<Value>,
    _orders: UnixStream,
}

/// The run's own report of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// From the end of the step before to its own end.
    pub seconds: f64,
    /// Of those, waiting for data.
    pub waited: f64,
    /// Of those, copying the state and waiting for the checkpoint's writer.
    pub saving: f64,
}

impl Run {
    /// Starts a run in `folder`, which must be new, over random images.
    pub fn start(rank: &Path, folder: &Path, case: Case) -> Result<Run, Box<dyn Error>> {
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("data_batch_1.bin"), images())?;
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket)?;
        let spec = folder.join("spec.json");
        let text = json!({
            "schema": 1, "run": "bench", "attempt": "bench-a1", "fence": 1, "rank": 0, "world_size": 1, "job_hash": "bench",
            "train": case.job(&data), "data": data, "threads": case::threads(),
            "checkpoints": folder.join("checkpoints"), "export": folder.join("export"), "socket": socket,
        });
        fs::write(&spec, text.to_string())?;
        let mut child = as_in_a_run(rank)?.arg(&spec).stdin(Stdio::null()).spawn()?;
        let agent = accept(&listener, &mut child)?;
        let (sender, reports) = channel();
        let reader = BufReader::new(agent.try_clone()?);
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                // The other end is gone when the run is over.
                let _ = sender.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        Ok(Run { child, folder: folder.to_owned(), reports, _orders: agent })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it continue for `count` counted steps, and halts it again.
    pub fn steps(&mut self, count: usize) -> Result<Vec<Step>, Box<dyn Error>> {
        self.signal("-CONT")?;
        let mut steps = Vec::with_capacity(HALTED + count);
        while steps.len() < HALTED + count {
            let report = self.reports.recv().map_err(|_| "the run ended; its message is above")?;
            match report["report"].as_str() {
                Some("step") => steps.push(read(&report)?),
                Some("failed") => return Err(format!("the run failed: {report}").into()),
                Some(_) | None => {}
            }
        }
        self.signal("-STOP")?;
        Ok(steps.split_off(HALTED))
    }

    fn signal(&self, signal: &str) -> Result<(), Box<dyn Error>> {
        let status = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status()?;
        if status.success() { Ok(()) } else { Err(format!("`kill {signal}` failed: {status}").into()) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until the rank connects, or ends without.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream, Box<dyn Error>> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("`gradus-rank` ended before it began: {status}").into());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn read(report: &Value) -> Result<Step, Box<dyn Error>> {
    let seconds = |key: &str| -> Result<f64, Box<dyn Error>> { Ok(number(report, key)? / 1e6) };
    Ok(Step { seconds: seconds("step_us")?, waited: seconds("data_wait_us")?, saving: seconds("checkpoint_us")? })
}

/// Random images in the binary form of CIFAR-10: a label byte and 3×32×32 pixels each.
fn images() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IMAGES * 3073);
    let mut draws = Draws::new(0);
    for image in 0..IMAGES {
        bytes.push((image % 10) as u8);
        bytes.extend(draws.bytes(3072));
    }
    bytes
}
