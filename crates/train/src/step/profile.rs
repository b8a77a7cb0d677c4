//! Profiles a step: each phase is timed on the training thread, summarized, and written as a trace for
//! `chrome://tracing` and Perfetto.
//!
//! A phase on a GPU ends when the device has finished it, so a profiled run synchronizes after each; profiled steps
//! take a little longer than others.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use domain::finding::{Cause, Finding};
use serde_json::{Value, json};
use tch::{Cuda, Device};

use crate::error::Error;

/// The phase of the training thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a batch, and moving it to the device.
    Data,
    /// From a batch to its loss.
    Forward,
    /// From the loss to gradients, including recomputation.
    Backward,
    /// Adding up gradients over the ranks, as far as it is not hidden behind the backward pass.
    Exchange,
    /// From gradients to new weights.
    Optimizer,
    /// Copying the state, and waiting for the writer.
    Checkpoint,
    /// Scoring the validation split.
    Evaluation,
}

const ALL: [Phase; 7] = [
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Exchange,
    Phase::Optimizer,
    Phase::Checkpoint,
    Phase::Evaluation,
];

/// Maximum number of spans in the trace; sums include all.
const LONGEST_TRACE: usize = 50_000;

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Data => "data wait",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Exchange => "exchange",
            Phase::Optimizer => "optimiser",
            Phase::Checkpoint => "checkpoint",
            Phase::Evaluation => "evaluation",
        }
    }

    /// What helps if this takes most of the time.
    fn advice(self) -> &'static str {
        match self {
            Phase::Data => "raise `data.workers`, or pack the data with `gradus data pack`",
            Phase::Forward | Phase::Backward => {
                "the arithmetic itself: try `precision: bf16` or `memory_format: channels_last`"
            }
            Phase::Exchange => "use fewer ranks, a larger `batch`, or machines with a faster network",
            Phase::Optimizer => "raise `batch`, so that weights are updated less often",
            Phase::Checkpoint => "raise `checkpoint.every`",
            Phase::Evaluation => "give validation a smaller share in `data.split`",
        }
    }
}

/// One stretch of one phase.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    phase: Phase,
    from: Duration,
    took: Duration,
}

/// The profiler of a run; free of cost when it is off.
pub struct Timeline(Option<Recorder>);

struct Recorder {
    began: Instant,
    device: Device,
    spans: Vec<Span>,
    sums: [Duration; ALL.len()],
    steps: u64,
}

impl Timeline {
    /// One that takes no notes.
    pub fn off() -> Timeline {
        Timeline(None)
    }

    /// One that begins now.
    pub fn on(device: Device) -> Timeline {
        let (spans, sums) = (Vec::new(), [Duration::ZERO; ALL.len()]);
        Timeline(Some(Recorder { began: Instant::now(), device, spans, sums, steps: 0 }))
    }

    /// Runs the work, and records its duration.
    pub fn time<T>(&mut self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let Some(recorder) = &mut self.0 else { return work() };
        let from = recorder.began.elapsed();
        let done = work();
        if let Device::Cuda(index) = recorder.device {
            Cuda::synchronize(index as i64);
        }
        let took = recorder.began.elapsed().saturating_sub(from);
        recorder.take(Span { phase, from, took });
        done
    }

    /// A step is done.
    pub fn stepped(&mut self) {
        if let Some(recorder) = &mut self.0 {
            recorder.steps += 1;
        }
    }

    /// Writes the trace of rank `rank` and returns its summary; `None` if profiling is off.
    pub fn finish(&self, path: &Path, rank: u32) -> Result<Option<String>, Error> {
        let Some(recorder) = &self.0 else { return Ok(None) };
        let text = recorder.trace(rank).to_string();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                let message = format!("the folder `{}` cannot be made: {error}", folder.display());
                Finding::new(Cause::ReadOnly, message).hint("make the folder above it writable, or leave `profile` out")
            })?;
        }
        checkpoint::write_file(path, text.as_bytes())?;
        Ok(Some(format!("{}; the trace is `{}`", recorder.told(recorder.began.elapsed(), rank), path.display())))
    }
}

impl Recorder {
    fn take(&mut self, span: Span) {
        if let Some(sum) = ALL.iter().position(|phase| *phase == span.phase).and_then(|at| self.sums.get_mut(at)) {
            *sum += span.took;
        }
        if self.spans.len() < LONGEST_TRACE {
            self.spans.push(span);
        }
    }

    /// In the trace event format: complete events, one process a rank, times in microseconds.
    fn trace(&self, rank: u32) -> Value {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let event = |span: &Span| {
            json!({
                "name": span.phase.name(), "cat": "step", "ph": "X", "pid": rank, "tid": 0,
                "ts": micros(span.from), "dur": micros(span.took),
            })
        };
        let name = json!({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": format!("rank {rank}")}});
        let events: Vec<Value> = std::iter::once(name).chain(self.spans.iter().map(event)).collect();
        let sums: serde_json::Map<String, Value> =
            ALL.iter().zip(self.sums).map(|(phase, sum)| (phase.name().to_owned(), json!(micros(sum)))).collect();
        json!({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"steps": self.steps, "sums_us": sums}})
    }

    /// What share each phase has of all the time, and which of them is the one to begin with.
    fn told(&self, whole: Duration, rank: u32) -> String {
        let share = |sum: Duration| 100.0 * sum.as_secs_f64() / whole.as_secs_f64().max(1e-9);
        let mut phases: Vec<(Phase, Duration)> = ALL.into_iter().zip(self.sums).collect();
        phases.retain(|(_, sum)| !sum.is_zero());
        let mean = 1e3 * whole.as_secs_f64() / self.steps.max(1) as f64;
        let mut text = format!("rank {rank}, {} steps of {mean:.1} ms in the mean: ", self.steps);
        for (phase, sum) in &phases {
            let _ = write!(text, "{} {:.1} %, ", phase.name(), share(*sum));
        }
        let rest = whole.saturating_sub(phases.iter().map(|(_, sum)| *sum).sum());
        let _ = write!(text, "the rest {:.1} %", share(rest));
        if let Some((phase, _)) = phases.into_iter().max_by_key(|(_, sum)| *sum) {
            let _ = write!(text, "; the bottleneck is {} ({})", phase.name(), phase.advice());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(spans: &[(Phase, u64)]) -> Recorder {
        let mut recorder = Recorder {
            began: Instant::now(),
            device: Device::Cpu,
            spans: Vec::new(),
            sums: [Duration::ZERO; ALL.len()],
            steps: 2,
        };
        let mut from = Duration::ZERO;
        for (phase, millis) in spans {
            let took = Duration::from_millis(*millis);
            recorder.take(Span { phase: *phase, from, took });
            from += took;
        }
        recorder
    }

    #[test]
    fn the_longest_phase_is_named_with_what_helps() {
        let recorder = recorder(&[
            (Phase::Data, 60),
            (Phase::Forward, 10),
            (Phase::Backward, 20),
            (Phase::Data, 5),
            (Phase::Optimizer, 1),
        ]);
        assert_eq!(
            recorder.told(Duration::from_millis(100), 1),
            "rank 1, 2 steps of 50.0 ms in the mean: data wait 65.0 %, forward 10.0 %, backward 20.0 %, optimiser 1.0 %, \
             the rest 4.0 %; the bottleneck is data wait (raise `data.workers`, or pack the data with `gradus data pack`)"
        );
    }

    #[test]
    fn a_trace_holds_every_span_where_it_was() {
        let trace = recorder(&[(Phase::Forward, 10), (Phase::Backward, 20)]).trace(3);
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(
            (&events[2]["name"], &events[2]["ts"], &events[2]["dur"]),
            (&json!("backward"), &json!(10_000.0), &json!(20_000.0))
        );
        assert_eq!((&events[2]["ph"], &events[2]["pid"]), (&json!("X"), &json!(3)));
        assert_eq!(trace["otherData"]["sums_us"]["backward"], json!(20_000.0));
    }

    #[test]
    fn off_it_takes_no_notes() {
        let mut timeline = Timeline::off();
        assert_eq!(timeline.time(Phase::Data, || 5), 5);
        timeline.stepped();
        assert_eq!(timeline.finish(Path::new("/nowhere/trace.json"), 0).unwrap(), None);
    }
}
