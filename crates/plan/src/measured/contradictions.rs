//! Rows that other rows of the same table contradict, so that no estimate can be right about both.
//!
//! Both rules hold for plain data parallelism with the same samples on each GPU, whatever the network and the GPU:
//! every GPU computes what one alone computes, and then they exchange. So none does more than one alone, and what all do
//! together grows with their number, unless something that they share does all the work.

use std::collections::BTreeMap;

use super::case::{Case, GpuLookup, case};
use super::ineligible::Ineligible;
use super::row::MeasuredRow;
use super::stated::Networks;
use crate::estimate::Zero;
use crate::estimate::memory::MemoryCoefficients;

/// By how much a GPU among several may be faster than one alone: runs of the same program on the same machine differ by
/// some 3 %.
const SAME_SPEED: f64 = 1.05;
/// Throughputs that differ by less are the same.
const SAME_THROUGHPUT: f64 = 1.1;
/// Among how many times as many GPUs, at least, throughput must have grown.
const MORE: u32 = 4;

/// Understands rows, and marks those that others contradict.
pub fn cases(
    rows: &[&MeasuredRow],
    networks: &Networks,
    gpus: GpuLookup,
    memory: &MemoryCoefficients,
) -> Vec<Result<Case, Ineligible>> {
    let mut cases: Vec<Result<Case, Ineligible>> = rows.iter().map(|row| case(row, networks, gpus, memory)).collect();
    let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        if let Ok(case) = case
            && case.untimed.is_none()
            && let Some(key) = key(case)
        {
            alike.entry(key).or_default().push(at);
        }
    }
    for rows in alike.into_values() {
        let measured: Vec<(u32, f64)> = rows
            .iter()
            .filter_map(|at| cases[*at].as_ref().ok().map(|case| (case.setup.gpus(), case.rate())))
            .collect();
        for (at, contradicted) in rows.iter().zip(contradicted(&measured)) {
            if let Ok(case) = &mut cases[*at] {
                case.untimed = contradicted;
            }
        }
    }
    cases
}

/// What rows have in common that measure the same work on different numbers of GPUs; none where work is divided
/// otherwise.
fn key(case: &Case) -> Option<String> {
    let setup = &case.setup;
    let parallel = &setup.parallel;
    let is_plain = parallel.tensor == 1 && parallel.pipeline == 1 && parallel.zero == Zero::None;
    is_plain.then(|| {
        format!(
            "{} | {} | {} | {:?} {:?} {:?} | {} {} | {} {}",
            case.row.group,
            case.row.table,
            setup.device.gpu.name,
            setup.precision,
            setup.layout,
            setup.recompute,
            setup.micro_batch,
            setup.accumulate,
            setup.compiled,
            case.habits.aged
        )
    })
}

/// What is wrong with each of some rows of the same work: their GPUs, and samples of all GPUs a second.
fn contradicted(rows: &[(u32, f64)]) -> Vec<Option<Ineligible>> {
    let alone = rows.iter().filter(|(gpus, _)| *gpus == 1).map(|(_, rate)| *rate).max_by(f64::total_cmp);
    let verdict = |(gpus, rate): &(u32, f64)| {
        let each = rate / f64::from(*gpus);
        match alone {
            Some(alone) if *gpus > 1 && each > SAME_SPEED * alone => Some(Ineligible::FasterThanAlone),
            _ if is_unchanged(rows, *gpus) => Some(Ineligible::Unchanged),
            _ => None,
        }
    };
    rows.iter().map(verdict).collect()
}

/// Whether `gpus` is among three or more numbers of GPUs, the largest [`MORE`] times the smallest, on all of which every
/// row has the same throughput.
fn is_unchanged(rows: &[(u32, f64)], gpus: u32) -> bool {
    let mut numbers: Vec<u32> = rows.iter().map(|(gpus, _)| *gpus).filter(|number| *number > 1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let is_same = |from: u32, to: u32| {
        let rates = rows.iter().filter(|(gpus, _)| (from..=to).contains(gpus)).map(|(_, rate)| *rate);
        let (least, most) =
            rates.fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
        most <= SAME_THROUGHPUT * least
    };
    numbers.windows(3).any(|window| {
        let (from, to) = (window[0], window[2]);
        to >= MORE * from && (from..=to).contains(&gpus) && is_same(from, to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the same work and what is said of them: `f` faster than alone, `u` unchanged, `.` nothing.
    fn check(rows: &[(u32, f64)], expected: &str) {
        let said: String = contradicted(rows)
            .into_iter()
            .map(|verdict| match verdict {
                Some(Ineligible::FasterThanAlone) => 'f',
                Some(Ineligible::Unchanged) => 'u',
                Some(_) => '?',
                None => '.',
            })
            .collect();
        assert_eq!(said, expected, "{rows:?}");
    }

    #[test]
    fn no_gpu_of_several_is_faster_than_one_alone() {
        check(&[(1, 100.0), (2, 205.0), (4, 380.0)], "...");
        check(&[(1, 100.0), (4, 440.0), (8, 1600.0)], ".ff");
        // The fastest of those alone counts.
        check(&[(1, 70.0), (1, 100.0), (4, 400.0)], "...");
        // Nothing is known of one alone.
        check(&[(2, 100.0), (4, 900.0)], "..");
    }

    #[test]
    fn throughput_that_does_not_change_is_not_that_of_all() {
        check(&[(2, 6.0), (2, 6.3), (4, 6.1), (8, 6.2)], "uuuu");
        check(&[(1, 6.2), (2, 6.0), (4, 6.1), (8, 6.2)], ".uuu");
        // Slow growth is slow exchange.
        check(&[(2, 6.5), (4, 6.8), (8, 17.9)], "...");
        // Two numbers of GPUs may be one bad machine.
        check(&[(2, 6.0), (8, 6.1)], "..");
    }

    #[test]
    fn rows_of_two_precisions_do_not_contradict_each_other() {
        let text = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,throughput,unit,params_m,gmacs,macts_m\n\
                    ours,net,A100,1,FP32,32,100,images/s,25,4,11\n\
                    ours,net,A100,4,AMP,32,900,images/s,25,4,11\n\
                    ours,net,A100,4,FP32,32,900,images/s,25,4,11\n";
        let rows = MeasuredRow::table(text).expect("a table");
        let gpu = |_: &str, _: Option<f64>| Some(crate::measured::check::tests::gpu());
        let cases =
            cases(&rows.iter().collect::<Vec<_>>(), &Networks::published(), &gpu, &MemoryCoefficients::default());
        let said: Vec<_> = cases.iter().map(|case| case.as_ref().expect("eligible").untimed.clone()).collect();
        assert_eq!(said, [None, None, Some(Ineligible::FasterThanAlone)]);
    }
}
