//! Saving: one process copies the state, and a thread hashes and writes it in the background.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use checkpoint::interval::{CheckpointCosts, Pace};
use checkpoint::{CheckpointWriter, Dtype, Snapshot, Tensor, WriterIdentity};
use domain::rank::{Checkpointed, Report};
use domain::train::Codec;
use domain::{Fence, RunId};
use rustix::fs::FlockOperation;
use serde_json::{Map, Value, json};

use crate::line::AgentLine;
use crate::resumed::{FORMAT, VERSION, job_hash};
use crate::{Error, ProgramSettings, copying, handover, resumed};

/// The file that the writing process holds. It is one of the process and not of the open file, so that a forked worker of a
/// data loader does not hold it after its parent was killed.
const HELD: &str = ".writer";

/// A tensor in the program's memory.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    /// Unique among the tensors of the model, or among the others.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// The elements in C order.
    pub bytes: &'a [u8],
    /// Whether it belongs to the model, whose file other programs may read.
    pub is_of_model: bool,
}

/// The state to save.
#[derive(Debug)]
pub struct StateView<'a> {
    /// The step of the state.
    pub step: u64,
    /// When the program began to save; the stall is measured from here.
    pub began: Instant,
    /// Its tensors.
    pub tensors: Vec<TensorView<'a>>,
    /// How the state is assembled from them.
    pub tree: Value,
    /// This rank's random number generators, if they are to be saved.
    pub generators: Option<Value>,
}

/// The result of a save when it returns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SaveOutcome {
    /// Whether the state was passed to the writer. Ranks other than 0 have none: they have done their part.
    pub is_handed: bool,
    /// Stall of the program in microseconds.
    pub stall_us: u64,
    /// Errors of this or an earlier save that do not prevent the program from continuing.
    pub complaints: Vec<String>,
}

/// The state of saving in one process.
#[derive(Debug)]
pub(crate) struct Saving {
    writer: Option<CheckpointWriter>,
    held: Option<File>,
    pace: Pace,
    /// When the last save began, or the program.
    since: Instant,
    /// Step and time of the last question whether to save, the step of the one before, and seconds of a step.
    asked: Option<(u64, Instant)>,
    asked_before: u64,
    step_s: f64,
    /// What a save has cost, stall and commit in seconds, while the time of a step is not known.
    unmeasured: Option<(f64, f64)>,
    /// The program has looked for a checkpoint.
    is_loaded: bool,
    /// The step that was saved last, and the newest that is durable.
    pub(crate) handed: Option<u64>,
    pub(crate) durable: Option<u64>,
    /// Microseconds of stall that no step has reported yet.
    pub(crate) stall_us: u64,
    /// Another rank did not call `save` with this one.
    others_are_absent: bool,
    /// How many of the newest checkpoints stay.
    keep: u32,
    /// Why the last save failed, whether a warning or an error has told the program: it may have caught the error.
    pub(crate) refused: Option<Error>,
    /// Why none of the folder's checkpoints is used, if the last load has found them all damaged.
    pub(crate) damaged: Vec<String>,
}

impl Saving {
    /// `held` is the lock of the folder, if it is held already.
    pub(crate) fn new(pace: Pace, keep: u32, held: Option<File>) -> Saving {
        Saving {
            writer: None,
            held,
            pace,
            since: Instant::now(),
            asked: None,
            asked_before: 0,
            step_s: 0.0,
            unmeasured: None,
            is_loaded: false,
            handed: None,
            durable: None,
            stall_us: 0,
            others_are_absent: false,
            keep,
            refused: None,
            damaged: Vec::new(),
        }
    }

    /// The program continues from another step. An open writer stays open, because the folder belongs to this process.
    pub(crate) fn restart(&mut self, pace: Pace) {
        (self.pace, self.since, self.asked, self.handed) = (pace, Instant::now(), None, None);
        (self.asked_before, self.is_loaded, self.refused) = (0, true, None);
    }

    /// Locks the folder early, if that can be: a program that looks for a checkpoint is about to save.
    pub(crate) fn hold_early(&mut self, folder: &Path) {
        if self.held.is_none() {
            self.held = hold(folder).ok();
        }
    }

    /// Whether the state after `step` is to be saved by its pace.
    pub(crate) fn is_due(&mut self, step: u64) -> bool {
        let now = Instant::now();
        match self.asked {
            Some((before, at)) if step > before => {
                let seconds = now.duration_since(at).as_secs_f64() / (step - before) as f64;
                // About the newest ten steps count.
                self.step_s = if self.step_s == 0.0 { seconds } else { 0.9 * self.step_s + 0.1 * seconds };
                self.asked_before = before;
            }
            // The program went back without loading.
            Some((before, _)) if step < before => self.asked_before = step.saturating_sub(1),
            Some(_) | None => {}
        }
        self.asked = Some((step, now));
        if let Some((stall, commit)) = self.unmeasured.take() {
            self.measured(stall, commit);
        }
        self.pace.due_after(self.asked_before, step, now.duration_since(self.since).as_secs_f64())
    }

    /// Notes what a save has cost; without the time of a step, which is known from the second question on, it says nothing
    /// about how many steps to wait.
    fn measured(&mut self, stall: f64, commit: f64) {
        match self.step_s > 0.0 {
            true => self.pace.measured(CheckpointCosts { stall, commit, step: self.step_s.max(1e-6) }),
            false => self.unmeasured = Some((stall, commit)),
        }
    }

    /// The state of `step` is on its way, here or by the rank that writes.
    pub(crate) fn passed_on(&mut self, line: &AgentLine, step: u64) {
        line.saves();
        self.put_off(step);
        self.handed = Some(step);
    }

    /// The next save is due an interval after `step`, whether or not that one was saved: on a disk that refuses, the state is
    /// not gathered after each step.
    pub(crate) fn put_off(&mut self, step: u64) {
        self.pace.saved(step);
        self.since = Instant::now();
    }

    /// Hands a state over to be written; waits only for an earlier one.
    pub(crate) fn save(
        &mut self,
        settings: &ProgramSettings,
        line: &AgentLine,
        state: StateView,
    ) -> Result<SaveOutcome, Error> {
        let folder = settings.checkpoints.as_deref().ok_or(Error::NoFolder)?;
        let mut complaints = Vec::new();
        let mut generators = Map::new();
        generators.extend(state.generators.map(|own| ("0".to_owned(), own)));
        if !generators.is_empty() && settings.ranks_here > 1 {
            let waits = !self.others_are_absent || handover::came_late(folder, state.step);
            let (others, missing) = handover::take(folder, state.step, settings.ranks_here, waits);
            generators.extend(others.into_iter().map(|(rank, part)| (rank.to_string(), part)));
            self.others_are_absent = !missing.is_empty();
            if waits && !missing.is_empty() {
                complaints.push(format!(
                    "ranks {missing:?} did not call `save` for step {}: their random number generators are not saved",
                    state.step
                ));
            }
        }
        self.open(folder, settings, state.step)?;
        let writer = self.writer.as_mut().ok_or(checkpoint::Error::WriterGone)?;
        let earlier = writer.wait();
        let spare = writer.spare();
        self.heard(line, earlier, &mut complaints)?;
        let snapshot = snapshot(&state.tensors, spare, state.step, state.began);
        let manifest_state = json!({
            "format": FORMAT, "version": VERSION, "world": settings.world, "generators": generators, "tree": state.tree,
        });
        let snapshot = Snapshot { state: manifest_state, ..snapshot };
        let writer = self.writer.as_mut().ok_or(checkpoint::Error::WriterGone)?;
        writer.save(snapshot)?;
        self.passed_on(line, state.step);
        let stall_us = u64::try_from(state.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stall_us += stall_us;
        Ok(SaveOutcome { is_handed: true, stall_us, complaints })
    }

    /// Opens the writer, unless it is open. What is not this program's to replace is refused first.
    fn open(&mut self, folder: &Path, settings: &ProgramSettings, step: u64) -> Result<(), Error> {
        if self.held.is_none() {
            self.held = Some(hold(folder)?);
        }
        if self.writer.is_none() {
            resumed::check_writer(folder, &settings.program)?;
            if !self.is_loaded {
                resumed::check_loaded(folder, step)?;
            }
            self.writer = Some(CheckpointWriter::open(folder, identity(settings), settings.keep, Codec::Full, None)?);
        }
        Ok(())
    }

    /// Takes note of a save that has ended meanwhile.
    pub(crate) fn poll(&mut self, line: &AgentLine, complaints: &mut Vec<String>) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let outcome = writer.poll();
        self.heard(line, outcome, complaints)
    }

    /// Waits until the last save is durable.
    pub(crate) fn wait(&mut self, line: &AgentLine) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let outcome = writer.wait();
        let mut complaints = Vec::new();
        match outcome {
            Err(error) => {
                let error = Error::of_save(error, self.keep);
                self.refused = Some(error.kept());
                Err(error)
            }
            done => self.heard(line, done, &mut complaints),
        }
    }

    fn heard(
        &mut self,
        line: &AgentLine,
        outcome: Result<Option<Checkpointed>, checkpoint::Error>,
        complaints: &mut Vec<String>,
    ) -> Result<(), Error> {
        let keep = self.keep;
        match outcome.map_err(|error| Error::of_save(error, keep)) {
            Ok(None) => {}
            Ok(Some(done)) => {
                (self.durable, self.refused) = (Some(done.step), None);
                let (stall, commit) = (done.stall_us as f64 / 1e6, done.commit_us as f64 / 1e6);
                self.measured(stall, commit);
                line.send(Report::Checkpointed(done));
            }
            Err(error) if error.may_pass() => {
                complaints.push(self.put_up_with(line, error));
            }
            Err(error) => {
                self.refused = Some(error.kept());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that a save has failed while training continues, and returns the warning.
    pub(crate) fn put_up_with(&mut self, line: &AgentLine, error: Error) -> String {
        let text = format!("a checkpoint was not saved: {}", error.while_training());
        line.send(Report::Note { text: text.clone() });
        self.refused = Some(error);
        text
    }
}

/// Who writes.
fn identity(settings: &ProgramSettings) -> WriterIdentity {
    let run = RunId::new(settings.run.clone());
    let fence = Fence(settings.attempt);
    WriterIdentity { attempt: run.attempt(fence), run, fence, job_hash: job_hash(&settings.program) }
}

/// How long a process that ends may keep its folder: the system takes back its memory first.
const ENDING: Duration = Duration::from_secs(2);

/// Locks the folder when a program begins outside of gradus, before anything there is claimed: whoever saves there, or is about
/// to, keeps it. Inside, the agent has ended the attempt before, and the fence keeps it out.
///
/// # Errors
/// [`Error::Busy`]; any other trouble with the lock is left to the first save.
pub(crate) fn hold_at_begin(folder: &Path) -> Result<Option<File>, Error> {
    let began = Instant::now();
    loop {
        match hold(folder) {
            Ok(file) => return Ok(Some(file)),
            Err(Error::Busy { .. }) if began.elapsed() < ENDING => std::thread::sleep(Duration::from_millis(20)),
            Err(busy @ Error::Busy { .. }) => return Err(busy),
            Err(_) => return Ok(None),
        }
    }
}

/// Locks the folder for this process, while the file is open.
fn hold(folder: &Path) -> Result<File, Error> {
    let path = folder.join(HELD);
    let failed = |doing| {
        let path = path.clone();
        move |source| Error::File { doing, path, source }
    };
    fs::create_dir_all(folder).map_err(failed("make the folder of"))?;
    let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(failed("open"))?;
    match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // Through this handle: to close another one of the same file would give the lock up.
            let pid = format!("{}\n", std::process::id());
            let _ = file.set_len(0).and_then(|()| (&file).write_all(pid.as_bytes()));
            Ok(file)
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(busy(folder, &path)),
        Err(errno) => Err(failed("lock")(errno.into())),
    }
}

fn busy(folder: &Path, path: &Path) -> Error {
    let owner = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    Error::Busy { folder: folder.to_owned(), owner }
}

/// A copy of the state, in the memory of an earlier one if it fits: allocating takes about as long as the copy itself.
fn snapshot(tensors: &[TensorView], spare: Option<Snapshot>, step: u64, began: Instant) -> Snapshot {
    let mut free: HashMap<(String, bool), Vec<u8>> = HashMap::new();
    if let Some(Snapshot { model, training, .. }) = spare {
        free.extend(model.into_iter().map(|tensor| ((tensor.name, true), tensor.bytes)));
        free.extend(training.into_iter().map(|tensor| ((tensor.name, false), tensor.bytes)));
    }
    let memory = |TensorView { name, bytes, is_of_model, .. }: &TensorView| {
        let earlier = free.remove(&(name.clone(), *is_of_model)).filter(|copy| copy.len() == bytes.len());
        // Fresh memory is the system's, which has cleared it.
        earlier.unwrap_or_else(|| vec![0; bytes.len()])
    };
    let mut copies: Vec<Vec<u8>> = tensors.iter().map(memory).collect();
    copying::copy(tensors.iter().map(|tensor| tensor.bytes).zip(copies.iter_mut().map(Vec::as_mut_slice)));
    let (mut model, mut training) = (Vec::new(), Vec::new());
    for (TensorView { name, dtype, shape, is_of_model, .. }, bytes) in tensors.iter().zip(copies) {
        let tensor = Tensor { name: name.clone(), dtype: *dtype, shape: shape.clone(), bytes };
        if *is_of_model { model.push(tensor) } else { training.push(tensor) }
    }
    Snapshot { step, began, model, training, state: Value::Null, best: None, part: None }
}

#[cfg(test)]
mod tests {
    use domain::train::Every;

    use super::*;

    #[test]
    fn a_copy_takes_the_memory_of_an_earlier_one_that_fits() {
        let view = |name: &str, bytes, is_of_model| {
            let (name, dtype) = (name.to_owned(), Dtype::U8);
            TensorView { name, dtype, shape: vec![3], bytes, is_of_model }
        };
        let first = [view("a", b"123".as_slice(), true), view("a", b"456", false), view("b", b"789", false)];
        let earlier = snapshot(&first, None, 1, Instant::now());
        let [of_model, other] = [&earlier.model, &earlier.training].map(|tensors| tensors[0].bytes.as_ptr());
        let second = [view("a", b"abc".as_slice(), true), view("a", b"def", false), view("b", b"longer", false)];
        let copied = snapshot(&second, Some(earlier), 2, Instant::now());
        let bytes = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.bytes.clone()).collect::<Vec<_>>();
        assert_eq!(bytes(&copied.model), [b"abc"]);
        assert_eq!(bytes(&copied.training), [b"def".to_vec(), b"longer".to_vec()]);
        assert_eq!((copied.model[0].bytes.as_ptr(), copied.training[0].bytes.as_ptr()), (of_model, other));
    }

    #[test]
    fn a_program_that_asks_rarely_is_told_to_save_again() {
        let mut saving = Saving::new(Pace::new(Every::Auto, domain::Duration::from_secs(3600), 0), 3, None);
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap_or_else(Instant::now);
        saving.since = ago(30);
        assert!(saving.is_due(400), "the first end of an epoch");
        saving.put_off(400);
        // Durable before the second question: how long a step takes is not known yet.
        saving.measured(0.01, 0.1);
        (saving.since, saving.asked) = (ago(30), Some((400, ago(30))));
        assert!(saving.is_due(800), "√(2 · 0.01 · 3600) = 8.5 s, and an epoch takes 30");
    }
}
