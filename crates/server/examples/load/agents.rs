//! Many agents that call, while users submit and list.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::wire::{Heartbeat, HeartbeatReply, SCHEMA};
use domain::{Elapsed, InstanceId, RunId, Timestamp};
use server::Home;

use crate::http::Connection;
use crate::{Failure, Options, Server, said};

/// Between two calls of an agent, until the server has said how long.
const EVERY: Duration = Duration::from_secs(5);

/// Connections that submit at the same time.
const SUBMITTERS: usize = 64;

const JOB: &str = r#"{"job": "run: true", "folder": "/tmp"}"#;

/// Submits a run for each agent, then measures while all of them call.
pub fn measure(home: &Home, options: &Options, server: &mut Server) -> Result<(), Failure> {
    let runs = submit_many(home, options.agents)?;
    let instances: Vec<InstanceId> = runs.iter().map(|run| run.instance(1)).collect();
    let is_over = AtomicBool::new(false);
    let beats: Mutex<Vec<f64>> = Mutex::new(Vec::new());
    let cpu = server.cpu()?;
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<(), Failure> {
        for (thread, some) in instances.chunks(instances.len().div_ceil(8).max(1)).enumerate() {
            let (is_over, beats) = (&is_over, &beats);
            scope.spawn(move || call_in_turn(home, thread, some, is_over, beats));
        }
        let measured = users(home, Duration::from_secs(options.seconds));
        is_over.store(true, Ordering::SeqCst);
        let (submits, lists) = measured?;
        println!("submit           {}", said(&submits));
        println!("list 100 runs    {}", said(&lists));
        Ok(())
    })?;
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), server.cpu()? - cpu);
    let mut beats = beats.into_inner().unwrap_or_default();
    beats.sort_by(f64::total_cmp);
    println!("heartbeat        {}", said(&beats));
    println!(
        "with {} agents: {:.0} MiB resident, {:.0} % of a core",
        options.agents,
        server.resident()?,
        100.0 * cpu / wall
    );
    Ok(())
}

/// Submits many runs over many connections concurrently.
fn submit_many(home: &Home, count: usize) -> Result<Vec<RunId>, Failure> {
    let begun = Instant::now();
    let runs: Mutex<Vec<RunId>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> Result<(), Failure> {
        let submit = |number: usize| -> Result<(), Failure> {
            let mut connection = Connection::open(&home.api_socket())?;
            for _ in (number..count).step_by(SUBMITTERS) {
                let (status, body) = connection.call("POST", "/v1/runs", JOB)?;
                let answer: serde_json::Value = serde_json::from_slice(&body)?;
                let run = answer["run"].as_str().ok_or_else(|| format!("{status}: {answer}"))?;
                runs.lock().map_err(|_| "a thread has ended")?.push(RunId::new(run));
            }
            Ok(())
        };
        let threads: Vec<_> = (0..SUBMITTERS).map(|number| scope.spawn(move || submit(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread has ended".into())))
    })?;
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("submit, grouped  {rate:.0} a second, each durable before its answer, over {SUBMITTERS} connections");
    Ok(runs.into_inner()?)
}

/// Lets some agents call, each at the interval that the server gives.
fn call_in_turn(home: &Home, thread: usize, some: &[InstanceId], is_over: &AtomicBool, beats: &Mutex<Vec<f64>>) {
    let Ok(mut connection) = Connection::open(&home.socket()) else { return };
    let started = Timestamp(1_700_000_000_000_000 + thread as i64);
    let begun = Instant::now();
    let mut pause = EVERY / some.len().max(1) as u32;
    let mut next = Instant::now();
    let mut times = Vec::new();
    for instance in some.iter().cycle() {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let elapsed = Elapsed(begun.elapsed().as_micros() as u64);
        let heartbeat = Heartbeat {
            schema: SCHEMA,
            instance: instance.clone(),
            started,
            elapsed,
            entries: Vec::new(),
            reclaim: None,
            incarnation: 0,
            attempt: None,
        };
        let Ok(body) = serde_json::to_string(&heartbeat) else { return };
        let called = Instant::now();
        match connection.call("POST", "/v1/tick", &body) {
            Ok((200, answer)) => {
                times.push(called.elapsed().as_secs_f64());
                let reply: Result<HeartbeatReply, _> = serde_json::from_slice(&answer);
                pause =
                    reply.map_or(pause, |reply| Duration::from_micros(reply.next.micros()) / some.len().max(1) as u32);
            }
            answer => eprintln!("a heartbeat was not answered: {answer:?}"),
        }
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if let Ok(mut beats) = beats.lock() {
        beats.extend(times);
    }
}

/// A user who submits and one who lists, one request after the other.
fn users(home: &Home, length: Duration) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let mut connection = Connection::open(&home.api_socket())?;
    let (mut submits, mut lists) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < length {
        for (method, path, body, times) in
            [("POST", "/v1/runs", JOB, &mut submits), ("GET", "/v1/runs?limit=100", "", &mut lists)]
        {
            let called = Instant::now();
            let (status, answer) = connection.call(method, path, body)?;
            if status >= 300 {
                return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&answer)).into());
            }
            times.push(called.elapsed().as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    submits.sort_by(f64::total_cmp);
    lists.sort_by(f64::total_cmp);
    Ok((submits, lists))
}
