//! A program's run as a Python class. Waits for a disk or a socket release the GIL.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use checkpoint::Tensor;
use domain::rank::Environment;
use program::{Error, LoggedStep, ProgramRun, ProgramSettings, StateView};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use crate::memory::{Handed, name_of, views};

pyo3::create_exception!(gradus, CheckpointError, PyRuntimeError, "A state could not be saved or loaded.");

/// A tensor that is given back: type, shape and bytes.
type Given<'py> = (&'static str, Vec<u64>, Bound<'py, PyByteArray>);

/// A run; see `gradus.Run`.
#[pyclass(name = "ProgramRun", frozen)]
pub struct PyProgramRun {
    run: Mutex<Option<ManuallyDrop<ProgramRun>>>,
    process: u32,
}

impl PyProgramRun {
    /// The run, of this process only: threads and files of another one are not here.
    fn run(&self) -> PyResult<MutexGuard<'_, Option<ManuallyDrop<ProgramRun>>>> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "this run was begun in another process, from which this one was forked\nhint: call `gradus.init()` in the \
                 process that trains; workers of a data loader have nothing to report",
            ));
        }
        Ok(self.run.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls the run without Python's lock.
    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&ProgramRun) -> T + Send) -> PyResult<T> {
        let called = py.detach(|| Ok(self.run()?.as_ref().map(|run| call(run))));
        called.and_then(|done: Option<T>| done.ok_or_else(|| PyRuntimeError::new_err("this run is finished")))
    }
}

impl Drop for PyProgramRun {
    fn drop(&mut self) {
        // In a forked child there is no thread to join and no file to give up.
        let run = self.run.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(run) = run.filter(|_| self.process == std::process::id()) {
            drop(ManuallyDrop::into_inner(run));
        }
    }
}

#[pymethods]
impl PyProgramRun {
    /// Begins.
    #[new]
    #[pyo3(signature = (*, run, attempt, rank, world, ranks_here, checkpoints, socket, program, keep, every, mtbf,
        hang_after, steps, environment))]
    #[allow(clippy::too_many_arguments)] // They are the keywords of a Python call.
    fn new(
        py: Python<'_>,
        run: String,
        attempt: u64,
        rank: u32,
        world: u32,
        ranks_here: u32,
        checkpoints: Option<PathBuf>,
        socket: Option<PathBuf>,
        program: String,
        keep: u32,
        every: &str,
        mtbf: &str,
        hang_after: Option<&str>,
        steps: u64,
        environment: (String, String, String, u32),
    ) -> PyResult<PyProgramRun> {
        let wrong = |name: &str, error: String| PyValueError::new_err(format!("`{name}`: {error}"));
        let every = every.parse().map_err(|error| wrong("save_every", error))?;
        let mtbf = mtbf.parse().map_err(|error| wrong("mtbf", error))?;
        let hang_after: Option<domain::Duration> =
            hang_after.map(str::parse).transpose().map_err(|error| wrong("hang_after", error))?;
        if hang_after.is_some_and(|after| after.micros() < 1_000_000) {
            let text = "a program makes no call for longer than that; write at least `1s`, or None for ever";
            return Err(wrong("hang_after", text.to_owned()));
        }
        let (device, device_name, torch, threads) = environment;
        let (precision, gradus) = (String::new(), env!("CARGO_PKG_VERSION").to_owned());
        let settings = ProgramSettings {
            run,
            attempt,
            rank,
            world,
            ranks_here,
            checkpoints,
            socket,
            program,
            keep,
            every,
            mtbf,
            hang_after_s: hang_after.map(|after| after.micros().div_ceil(1_000_000).max(1)),
            steps,
            environment: Environment { device, device_name, torch, threads, precision, gradus },
        };
        let begun = py.detach(|| ProgramRun::begin(settings)).map_err(failed)?;
        Ok(PyProgramRun { run: Mutex::new(Some(ManuallyDrop::new(begun))), process: std::process::id() })
    }

    #[getter]
    fn attempt(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |run| run.settings().attempt)
    }

    #[getter]
    fn attended(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, ProgramRun::is_attended)
    }

    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.call(py, ProgramRun::durable)
    }

    /// Reports a step; complaints about earlier saves come back.
    #[pyo3(signature = (step, epoch, loss, lr, samples, others))]
    #[allow(clippy::too_many_arguments)] // They are the arguments of a Python call.
    fn log(
        &self,
        py: Python<'_>,
        step: u64,
        epoch: u32,
        loss: Option<f64>,
        lr: Option<f64>,
        samples: u32,
        others: BTreeMap<String, f64>,
    ) -> PyResult<Vec<String>> {
        self.call(py, |run| run.log(LoggedStep { step, epoch, loss, lr, samples, others }))?.map_err(failed)
    }

    fn should_save(&self, py: Python<'_>, step: u64) -> PyResult<(bool, Vec<String>)> {
        self.call(py, |run| run.should_save(step))?.map_err(failed)
    }

    fn should_stop(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, ProgramRun::should_stop)
    }

    fn ask_to_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, ProgramRun::ask_to_stop)
    }

    /// Reports that an error which nothing has caught ends the program.
    fn fail(&self, py: Python<'_>, error: &str) -> PyResult<()> {
        self.call(py, |run| run.fail(error))
    }

    /// Saves tensors, each by its address. Python keeps them alive until this returns. `spent` is the time in seconds
    /// that it took to gather them.
    fn save(
        &self,
        py: Python<'_>,
        step: u64,
        tensors: Vec<Handed>,
        tree: &str,
        generators: Option<&str>,
        spent: f64,
    ) -> PyResult<(bool, u64, Vec<String>)> {
        let json = |text: &str| serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()));
        let (tree, generators) = (json(tree)?, generators.map(json).transpose()?);
        let now = Instant::now();
        let began = Duration::try_from_secs_f64(spent).ok().and_then(|spent| now.checked_sub(spent)).unwrap_or(now);
        let tensors = views(tensors)?;
        let state = StateView { step, began, tensors, tree, generators };
        let outcome = self.call(py, |run| run.save(state))?.map_err(failed)?;
        Ok((outcome.is_handed, outcome.stall_us, outcome.complaints))
    }

    /// The newest checkpoint: step, tree, generators, number of ranks, complaints, and tensors by whether they are of the
    /// model and name.
    #[allow(clippy::type_complexity)] // It is a Python tuple.
    fn load<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(u64, String, Option<String>, u32, Vec<String>, Bound<'py, PyDict>, Bound<'py, PyDict>)>> {
        let Some(found) = self.call(py, ProgramRun::load)?.map_err(failed)? else { return Ok(None) };
        let given = |tensors: Vec<Tensor>| {
            let dict = PyDict::new(py);
            for tensor in tensors {
                let bytes = PyByteArray::new(py, &tensor.bytes);
                let given: Given = (name_of(tensor.dtype), tensor.shape, bytes);
                dict.set_item(tensor.name, given)?;
            }
            PyResult::Ok(dict)
        };
        let generators = found.generators.map(|generators| generators.to_string());
        let (model, others) = (given(found.model)?, given(found.others)?);
        Ok(Some((found.step, found.tree.to_string(), generators, found.world, found.passed_over, model, others)))
    }

    /// Waits until the last save is durable.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, ProgramRun::wait)?.map_err(failed)
    }

    /// Waits for the last save and disconnects; no further calls are allowed.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let finished = py.detach(|| {
            let Some(run) = self.run()?.take() else { return Ok(Ok(())) };
            PyResult::Ok(ManuallyDrop::into_inner(run).finish())
        });
        finished?.map_err(failed)
    }

    /// As `finish`, where the process is about to end: the agent notices if it does not.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| {
            let Some(run) = self.run()?.take() else { return Ok(Ok(())) };
            PyResult::Ok(ManuallyDrop::into_inner(run).end())
        });
        ended?.map_err(failed)
    }
}

fn failed(error: Error) -> PyErr {
    CheckpointError::new_err(error.to_string())
}
