//! Runs whose machine is taken back with 30 s of notice, at an instant drawn from a seed: nothing that was trained may be
//! lost, and the next machine is rented at once.
//!
//! The notice is served once, as by Google's metadata service: the next machine is a new instance.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::harness::{self, Disturbance};
use super::verdict::{self, Run};
use super::{INTERVAL, Options, job, parallel};
use xtask::build::Programs;
use xtask::draws::Draws;

/// One such run for so many others.
const OTHERS: u64 = 16;

/// Disturbs runs by notices, and returns how many received theirs, or the first failure.
pub(super) fn storm(root: &Path, programs: &Programs, options: &Options) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("gradus-chaos-notice-{}", std::process::id()));
    let job = job(root, &folder, &format!("epochs: 6\n  checkpoint: {{every: {INTERVAL} steps, keep: 2}}"))?;
    let truth = harness::run(programs, &job, &folder.join("truth"), Disturbance::default())?;
    let runs = options.notices.unwrap_or(options.runs.div_ceil(OTHERS));
    let notice = |number| notice(programs, options, &job, &folder, &truth, number);
    let heard = parallel::map_until(runs, notice, Result::is_err).into_iter().collect::<Result<Vec<bool>, String>>()?;
    let heard = heard.iter().filter(|heard| **heard).count();
    let _ = fs::remove_dir_all(&folder);
    Ok(format!("; {runs} with a notice, {heard} heard it while they ran, 0 steps lost"))
}

/// Takes back the machine of the run of this number; returns whether its notice was heard, or what is wrong with it.
fn notice(
    programs: &Programs,
    options: &Options,
    job: &Path,
    folder: &Path,
    truth: &Run,
    number: u64,
) -> Result<bool, String> {
    let seed = options.seed.wrapping_mul(1_000_037).wrapping_add(number);
    let after = Duration::from_micros(Draws::new(seed).below((truth.seconds * 1e6) as u64 + 1));
    let home = folder.join(format!("run-{number}"));
    let service = service(after).map_err(|error| format!("cannot listen: {error}"))?;
    let run = harness::run(programs, job, &home, Disturbance { metadata: Some(&service), ..Disturbance::default() })?;
    let problems = judge(&run, truth);
    if !problems.is_empty() {
        let (what, kept) = (problems.join("; "), home.display());
        return Err(format!(
            "a run with a notice after {} ms (seed {seed}): {what}; kept in {kept}",
            after.as_millis()
        ));
    }
    let is_noticed = is_noticed(&run);
    let _ = fs::remove_dir_all(&home);
    Ok(is_noticed)
}

fn is_noticed(run: &Run) -> bool {
    run.log.iter().any(|value| value["event"] == "reclaim_noticed")
}

/// Everything that is wrong with a run that had a notice; a step more than in an undisturbed one is a step that was lost.
fn judge(run: &Run, truth: &Run) -> Vec<String> {
    let mut problems = verdict::judge(run, Some(truth), INTERVAL);
    if run.computed != truth.computed {
        problems.push(format!("{} steps computed, {} in an undisturbed run", run.computed, truth.computed));
    }
    problems
}

/// A mock metadata service that serves one notice after a delay; its address goes into `GRADUS_METADATA`.
fn service(after: Duration) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (started, told) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let is_due = started.elapsed() >= after;
            let body = if is_due && !told.swap(true, Ordering::SeqCst) { "TRUE" } else { "FALSE" };
            // Who goes away before the answer asks again.
            let _ = answer(stream, body);
        }
    });
    Ok(format!("gcp=http://{address}"))
}

fn answer(mut stream: TcpStream, body: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}
