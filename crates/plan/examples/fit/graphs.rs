//! The fit of what graphs need: numbers for all GPUs and for each generation.

use std::collections::BTreeMap;

use plan::estimate::fitted::rates::{FitRange, Generation, Shared, die};
use plan::estimate::{FittedCoefficients, OpProfile, Origin, Setup};
use plan::measured::Case;

use crate::least_squares::Problem;

/// How much a row counts whose program is read from the words of any table, beside one whose program is known. A tenth:
/// more, and held-out errors of those that are known grow.
const GUESSED: f64 = 0.1;

/// A row of the fit: equal measurements are one.
pub struct Sample<'a> {
    pub work: usize,
    pub case: &'a Case,
    pub setup: Setup,
    pub source: String,
    pub group: String,
    /// Logarithm of the measured seconds of a step, the mean of equal rows.
    pub seconds: f64,
    pub rows: f64,
}

pub struct Samples<'a> {
    pub works: Vec<OpProfile>,
    pub samples: Vec<Sample<'a>>,
}

/// Joins equal cases.
pub fn samples<'a>(cases: &[&'a Case]) -> Samples<'a> {
    let mut joined = Samples { works: Vec::new(), samples: Vec::new() };
    let mut models = Vec::new();
    for case in cases {
        let key = (&case.model, case.savings.adapters, case.habits.half || case.savings.half_model);
        let work = match models.iter().position(|model| *model == key) {
            Some(known) => known,
            None => {
                models.push(key);
                joined.works.push(case.work());
                models.len() - 1
            }
        };
        let setup = &case.setup;
        let seconds = (case.samples() / case.rate()).ln();
        let same = |sample: &&mut Sample| {
            sample.work == work
                && sample.setup == *setup
                && sample.source == case.row.source
                && sample.case.habits.aged == case.habits.aged
                && sample.case.others == case.others
                && sample.group == case.row.group
        };
        match joined.samples.iter_mut().find(same) {
            Some(known) => {
                known.seconds = (known.seconds * known.rows + seconds) / (known.rows + 1.0);
                known.rows += 1.0;
            }
            None => joined.samples.push(Sample {
                work,
                case,
                setup: setup.clone(),
                source: case.row.source.clone(),
                group: case.row.group.clone(),
                seconds,
                rows: 1.0,
            }),
        }
    }
    joined
}

/// The fit over some samples.
pub struct Fit<'a> {
    data: &'a Samples<'a>,
    chosen: Vec<usize>,
    weights: Vec<f64>,
    dies: Vec<&'static str>,
    touched: Vec<Vec<usize>>,
    base: &'a FittedCoefficients,
}

impl<'a> Fit<'a> {
    pub fn new(data: &'a Samples<'a>, chosen: Vec<usize>, base: &'a FittedCoefficients) -> Fit<'a> {
        let mut sizes: BTreeMap<&str, f64> = BTreeMap::new();
        for at in &chosen {
            *sizes.entry(&data.samples[*at].source).or_default() += data.samples[*at].rows.sqrt();
        }
        // A source of a thousand rows says more than one of ten, but not a hundred times as much.
        let weight = |at: &usize| {
            let sample = &data.samples[*at];
            let known = match sample.case.row.origin {
                Origin::Unknown => GUESSED,
                _ => 1.0,
            };
            known * sample.rows.sqrt() / sizes[sample.source.as_str()].powf(0.35)
        };
        let weights = chosen.iter().map(weight).collect();
        let mut dies: Vec<&'static str> = data.samples.iter().map(|sample| die(&sample.setup.device.gpu)).collect();
        dies.sort();
        dies.dedup();
        let all: Vec<usize> = (0..chosen.len()).collect();
        let mut touched = vec![all; Shared::BOUNDS.len() + Generation::BOUNDS.len()];
        for die_of in &dies {
            let rows: Vec<usize> =
                (0..chosen.len()).filter(|at| die(&data.samples[chosen[*at]].setup.device.gpu) == *die_of).collect();
            touched.extend(vec![rows; Generation::BOUNDS.len()]);
        }
        Fit { data, chosen, weights, dies, touched, base }
    }

    /// Where the fit begins: no generation differs from the others.
    pub fn start(&self) -> Vec<f64> {
        let common = Shared::BOUNDS.iter().chain(Generation::BOUNDS).map(|bound| place(bound, bound.start));
        common.chain(vec![0.0; self.dies.len() * Generation::BOUNDS.len()]).collect()
    }

    /// Coordinates are those of the shared numbers, of a usual generation, and how far each generation is from it.
    pub fn coefficients(&self, at: &[f64]) -> FittedCoefficients {
        let (of_shared, rest) = at.split_at(Shared::BOUNDS.len());
        let (usual, own) = rest.split_at(Generation::BOUNDS.len());
        let shared =
            Shared::from_values(&mut Shared::BOUNDS.iter().zip(of_shared).map(|(bound, at)| value(bound, *at)));
        let generation = |apart: &[f64]| {
            let places = usual.iter().zip(apart).map(|(usual, apart)| usual + apart);
            Generation::from_values(&mut Generation::BOUNDS.iter().zip(places).map(|(bound, at)| value(bound, at)))
        };
        let each = own.chunks(Generation::BOUNDS.len()).map(generation);
        let generations = self.dies.iter().map(|die| (*die).to_owned()).zip(each).collect();
        let unmeasured = generation(&vec![0.0; Generation::BOUNDS.len()]);
        FittedCoefficients { shared, generations, unmeasured, ..self.base.clone() }
    }
}

impl Problem for Fit<'_> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        let all: Vec<usize> = (0..self.chosen.len()).collect();
        self.some(at, &all)
    }

    fn touched(&self, coordinate: usize) -> &[usize] {
        &self.touched[coordinate]
    }

    fn some(&self, at: &[f64], rows: &[usize]) -> Vec<f64> {
        let coefficients = self.coefficients(at);
        rows.iter()
            .map(|row| {
                let sample = &self.data.samples[self.chosen[*row]];
                sample.case.seconds(&self.data.works[sample.work], &coefficients).ln() - sample.seconds
            })
            .collect()
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}

/// A bounded number as an unbounded coordinate: logarithmic between its bounds.
fn place(bound: &FitRange, value: f64) -> f64 {
    let share = (value / bound.low).ln() / (bound.high / bound.low).ln();
    let share = share.clamp(0.02, 0.98);
    (share / (1.0 - share)).ln()
}

fn value(bound: &FitRange, at: f64) -> f64 {
    bound.low * (bound.high / bound.low).powf(1.0 / (1.0 + (-at).exp()))
}
