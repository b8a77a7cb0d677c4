//! A program that saves, is killed, and resumes; and what it must not do.

mod agent;
mod checkpoints;
mod due;
mod kept;
mod last_save;

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use checkpoint::Dtype;
use domain::rank::Environment;
use domain::train::Every;
use domain::units::Duration;
use serde_json::{Value, json};

use crate::{Error, ProgramRun, ProgramSettings, StateView, TensorView};

fn settings(folder: &Path) -> ProgramSettings {
    ProgramSettings {
        run: "own-1".into(),
        attempt: 0,
        rank: 0,
        world: 1,
        ranks_here: 1,
        checkpoints: Some(folder.to_owned()),
        socket: None,
        program: String::new(),
        keep: 2,
        every: "10 steps".parse().unwrap(),
        mtbf: Duration::from_secs(3600),
        hang_after_s: None,
        steps: 0,
        environment: Environment::default(),
    }
}

fn begin(folder: &Path) -> ProgramRun {
    ProgramRun::begin(settings(folder)).unwrap()
}

/// Saves a state whose bytes are all `step`.
fn save(run: &ProgramRun, step: u64) -> Result<Vec<String>, Error> {
    let bytes = [step as u8; 12];
    let tensor = |name: &str, is_of_model| TensorView {
        name: name.into(),
        dtype: Dtype::F32,
        shape: vec![3],
        bytes: &bytes,
        is_of_model,
    };
    let state = StateView {
        step,
        began: Instant::now(),
        tensors: vec![tensor("weight", true), tensor("momentum", false)],
        tree: json!({"step": step, "lr": 0.1 + 0.2}),
        generators: Some(json!({"torch": step})),
    };
    run.save(state).map(|outcome| outcome.complaints)
}

/// The state loaded by a new process: step, a byte of the weights, the tree, and the generators.
fn loaded(folder: &Path) -> Option<(u64, u8, Value, Option<Value>)> {
    let found = begin(folder).load().unwrap()?;
    assert_eq!((found.model.len(), found.others.len(), found.others[0].name.as_str()), (1, 1, "momentum"));
    Some((found.step, found.model[0].bytes[0], found.tree, found.generators))
}

/// A program and its agent's end of the socket.
fn attended(folder: &Path) -> (ProgramRun, BufReader<UnixStream>) {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let with = ProgramSettings { socket: Some(socket), hang_after_s: Some(9), ..settings(&folder.join("checkpoints")) };
    let run = ProgramRun::begin(with).unwrap();
    (run, BufReader::new(listener.accept().unwrap().0))
}

/// Two ranks of one machine that save by the clock, at each question.
fn timed(folder: &Path) -> [ProgramRun; 2] {
    let every = Every::Time(Duration::from_secs(0));
    let two = ProgramSettings { world: 2, ranks_here: 2, every, ..settings(folder) };
    [0, 1].map(|rank| ProgramRun::begin(ProgramSettings { rank, ..two.clone() }).unwrap())
}
