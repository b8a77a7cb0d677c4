//! One pass over encoded images when a data set is opened: finds the damaged, measures, and keeps what fits.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::fetch::{Geometry, Reading, fetch};
use crate::Error;
use crate::formats::Encoded;
use crate::identity::preparation::Preparation;

/// Sum and sum of squares of the bytes of each channel, as integers, so that the total is exact in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Moments {
    count: u128,
    sums: Vec<(u128, u128)>,
}

impl Moments {
    /// The moments of images that lie channel by channel in `planes`.
    pub fn of(planes: &[u8], channels: usize) -> Moments {
        let size = planes.len() / channels;
        let sums = planes.chunks_exact(size).map(|plane| {
            // 2³⁴ pixels fit: 2³⁴ × 255² < 2⁵⁰.
            let (sum, squares) = plane.iter().fold((0_u64, 0_u64), |(sum, squares), value| {
                let value = u64::from(*value);
                (sum + value, squares + value * value)
            });
            (u128::from(sum), u128::from(squares))
        });
        Moments { count: size as u128, sums: sums.collect() }
    }

    /// Adds the sums of another image.
    pub fn add(&mut self, other: &Moments) {
        self.count += other.count;
        self.sums.resize(other.sums.len(), (0, 0));
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
    }

    /// Mean and standard deviation of each channel, where `full` maps to 1.0. The deviation of a constant channel is 1.
    pub fn mean_and_std(&self, full: u8) -> (Vec<f32>, Vec<f32>) {
        let one = self.count as f64 * f64::from(full);
        let mean = self.sums.iter().map(|(sum, _)| (*sum as f64 / one) as f32).collect();
        let std = self.sums.iter().map(|(sum, squares)| match self.count * squares - sum * sum {
            0 => 1.0,
            spread => ((spread as f64).sqrt() / one) as f32,
        });
        (mean, std.collect())
    }
}

/// Images that one thread takes at a time.
const TAKEN: usize = 16;

/// Decodes the images `samples` on all cores and returns the result of each, in the same order.
///
/// With `keep`, of 3 × height × width bytes per image, the pixels are stored there. Unless `skip`, decoding stops at
/// the first damaged image, which is the first in `samples` for any number of threads.
pub(crate) fn survey(
    encoded: &Encoded,
    samples: &[u32],
    geometry: Geometry,
    skip: bool,
    keep: Option<&mut [u8]>,
    preparation: &Preparation,
) -> Vec<Option<Result<Moments, Error>>> {
    let bytes = 3 * geometry.height * geometry.width;
    let mut results: Vec<Option<Result<Moments, Error>>> = samples.iter().map(|_| None).collect();
    let mut slots: Vec<Option<&mut [u8]>> = match keep {
        Some(keep) => keep.chunks_exact_mut(bytes).map(Some).collect(),
        None => samples.iter().map(|_| None).collect(),
    };
    let work = samples.chunks(TAKEN).zip(slots.chunks_mut(TAKEN)).zip(results.chunks_mut(TAKEN));
    let work = Mutex::new(work);
    let stopped = AtomicBool::new(false);
    let work_through = || {
        let (mut reading, mut scratch) = (Reading::default(), vec![0; bytes]);
        while !stopped.load(Ordering::Relaxed) {
            // Chunks are claimed in order and always finished, so the error found is the first one.
            let taken = work.lock().ok().and_then(|mut work| work.next());
            let Some(((samples, slots), results)) = taken else {
                return;
            };
            for ((sample, slot), result) in samples.iter().zip(slots).zip(results) {
                let planes = slot.as_deref_mut().unwrap_or(&mut scratch);
                let fetched = fetch(encoded, *sample as usize, geometry, &mut reading, planes);
                let failed = fetched.is_err();
                preparation.advance(1);
                *result = Some(fetched.map(|()| Moments::of(planes, 3)));
                if failed && !skip {
                    stopped.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(samples.len().div_ceil(TAKEN));
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work_through);
        }
        work_through();
    });
    results
}
