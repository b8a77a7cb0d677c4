//! What a user's program takes on this machine, from steps that were timed here.

use domain::plan::Spread;
use domain::{Duration, Job, Offer};

use super::machine::{MEASURED, MEMORY_MARGIN, OnMachine, RanksMemory};
use crate::search::ProgramProfile;

/// The rest of a program is taken to go on as its timed steps.
pub(super) fn on_machine(profile: &ProgramProfile, job: &Job, offer: &Offer) -> OnMachine {
    let steps = profile.steps.or_else(|| stated(job));
    let time = steps.map(|steps| {
        let first = profile.start.as_secs_f64();
        let seconds = first + steps.saturating_sub(1) as f64 * profile.step.as_secs_f64();
        let (faster, slower) = MEASURED;
        let after = |seconds: f64| Duration::from_micros((seconds * 1e6).round() as u64);
        Spread { low: after(seconds / faster), middle: after(seconds), high: after(seconds * slower) }
    });
    let fits = profile.memory.0 as f64 * MEMORY_MARGIN <= offer.node.memory.0 as f64;
    let memory = RanksMemory { first: profile.memory.0, all: profile.memory.0, preloaded: 0, fits, of_gpu: None };
    let mut assumptions = vec![timed(profile)];
    match steps {
        Some(steps) => assumptions.push(format!(
            "all {steps} steps take as long; evaluation, checkpoints and data that is \
            read only later are not in it"
        )),
        None => assumptions.push(
            "how many steps there are is not known: say it with `gradus.init(steps=…)` or \
            `workload: {steps: …}`"
                .to_owned(),
        ),
    }
    OnMachine { share: None, memory: Some(memory), checkpoint: None, time, fitting: None, assumptions }
}

/// Steps that the job states.
fn stated(job: &Job) -> Option<u64> {
    let workload = job.workload.as_ref()?;
    let of_epochs = || {
        let samples = job.data.samples.as_ref().map(|samples| samples.0)?;
        Some((workload.epochs? * samples as f64 / workload.batch.max(1) as f64).round() as u64)
    };
    workload.steps.map(|steps| steps.0).or_else(of_epochs)
}

/// What was measured, as a sentence.
fn timed(profile: &ProgramProfile) -> String {
    let milliseconds = |time: Duration| format!("{:.1} ms", 1e3 * time.as_secs_f64());
    let [low, high] = profile.range;
    let mut text = format!(
        "measured here: {} steps of {} (eight in ten took {} to {}), and {:.1} s until the first was done",
        profile.timed,
        milliseconds(profile.step),
        milliseconds(low),
        milliseconds(high),
        profile.start.as_secs_f64(),
    );
    if let Some(samples) = profile.samples {
        let speed = samples as f64 / profile.step.as_secs_f64().max(1e-9);
        text.push_str(&format!("; {samples} samples per step, {speed:.0} samples/s"));
    }
    if let Some(parameters) = profile.parameters {
        text.push_str(&format!("; {parameters} parameters"));
    }
    if let Some(memory) = profile.gpu_memory {
        text.push_str(&format!("; {:.2} GiB of GPU memory at most", memory.0 as f64 / f64::from(1 << 30)));
    }
    text
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::super::tests::machine;
    use super::*;

    const PROFILE: ProgramProfile = ProgramProfile {
        timed: 40,
        step: Duration::from_micros(250_000),
        range: [Duration::from_micros(240_000), Duration::from_micros(270_000)],
        start: Duration::from_secs(3),
        steps: None,
        samples: Some(32),
        parameters: Some(1_000),
        memory: Bytes(1 << 30),
        gpu_memory: None,
    };

    /// Lower end, middle and upper end of the time in seconds.
    fn check(yaml: &str, steps: Option<u64>, expected: Option<[f64; 3]>) {
        let job = Job::parse(&format!("run: python train.py\n{yaml}"), "job.yaml").unwrap().job;
        let found =
            on_machine(&ProgramProfile { steps, ..PROFILE }, &job, &machine("2 cores, 8 GB, 100 GB free, $0.36/h"));
        let time = found.time.map(|time| [time.low, time.middle, time.high].map(|time| time.as_secs_f64()));
        assert_eq!(time, expected, "{:?}", found.assumptions);
        assert_eq!(found.memory.map(|memory| (memory.first, memory.fits)), Some((1 << 30, true)));
    }

    #[test]
    fn timed_steps_replace_the_estimate_with_the_band_of_a_measurement() {
        let workload = "workload: {model: {totals: {parameters: 1, multiply_adds: 1, activations: 1}}, batch: 32, ";
        check("", None, None);
        check("", Some(989), Some([250.0 / 1.1, 250.0, 350.0].map(|time| (time * 1e6_f64).round() / 1e6)));
        check(&format!("{workload}steps: 9}}\n"), None, Some([4.545455, 5.0, 7.0]));
        check(&format!("{workload}epochs: 1}}\ndata: {{samples: 288}}\n"), None, Some([4.545455, 5.0, 7.0]));
        check(&format!("{workload}steps: 100}}\n"), Some(9), Some([4.545455, 5.0, 7.0]));
    }

    #[test]
    fn what_was_measured_is_said() {
        let expected = "measured here: 40 steps of 250.0 ms (eight in ten took 240.0 ms to 270.0 ms), and 3.0 s until the \
            first was done; 32 samples per step, 128 samples/s; 1000 parameters";
        assert_eq!(timed(&PROFILE), expected);
    }
}
