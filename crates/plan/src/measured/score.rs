//! How well estimates match measurements, source by source.

use std::collections::BTreeMap;

use serde::Serialize;

/// Scores of one source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    pub rows: usize,
    /// Rows whose throughput or memory is compared.
    pub eligible: usize,
    pub predicted: usize,
    /// Mean relative error of throughput in per cent, an eligible row that was not predicted at 100.
    pub mape: Option<f64>,
    pub median: Option<f64>,
    pub p90: Option<f64>,
    /// Rank correlation of estimated and measured throughput (Spearman).
    pub rank: Option<f64>,
    /// Per cent of rows between the tenth and ninetieth percentile of their estimate.
    pub interval_coverage: Option<f64>,
    /// Median of the ninetieth over the tenth percentile.
    pub interval_width: Option<f64>,
    /// Of these, rows on GPUs without measurements in the fit, and per cent of them in their wider band.
    pub unmeasured: usize,
    pub unmeasured_coverage: Option<f64>,
    /// Rows of language models that used less than a twentieth of several GPUs, and the median error of their throughput,
    /// which no other figure includes.
    pub idle: usize,
    pub idle_median: Option<f64>,
    pub memory: MemoryScore,
    pub scaling: Scaling,
    /// How many rows are eligible for their memory alone, by the reason why their throughput is not.
    pub memory_only: BTreeMap<String, usize>,
    /// How many rows are not eligible, by reason.
    pub ineligible: BTreeMap<String, usize>,
    /// Of these, how many have a network that is not known, by its name in the table.
    pub unknown_networks: BTreeMap<String, usize>,
}

/// How well the gain of eight GPUs over one of them is estimated.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Scaling {
    /// Networks, GPUs, precisions and batches that were measured on one GPU and on eight.
    pub pairs: usize,
    /// Mean difference of estimated and measured efficiency in points of a hundred.
    pub mean: Option<f64>,
    pub worst: Option<f64>,
}

impl Scaling {
    /// From measured and estimated efficiency of each pair.
    pub fn of(pairs: &[(f64, f64)]) -> Scaling {
        let off: Vec<f64> = pairs.iter().map(|(measured, estimated)| 100.0 * (measured - estimated).abs()).collect();
        let worst = off.iter().copied().max_by(f64::total_cmp);
        Scaling { pairs: pairs.len(), mean: mean(&off), worst }
    }
}

/// Answers about batches of which it is known whether they fit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Fits {
    pub known: usize,
    pub said: usize,
    pub surely: usize,
    pub filling: usize,
    pub refused: usize,
    pub searched: usize,
    pub near: usize,
}

/// Scores of peak memory over exact rows, and of whether batches fit over the others that state something.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryScore {
    pub rows: usize,
    pub mape: Option<f64>,
    pub p90: Option<f64>,
    /// Per cent of rows that were estimated more than 10 % too low.
    pub under10: Option<f64>,
    pub median: Option<f64>,
    /// Rows that state that their batch fits; per cent of them of which the estimate says that it fits or may fit, and
    /// of which it says that it surely does.
    pub known_to_fit: usize,
    pub said_to_fit: Option<f64>,
    pub surely_fit: Option<f64>,
    /// Rows that use nine tenths of the GPU or more, and per cent of them of which the estimate says that half as many
    /// samples more do not fit.
    pub filling: usize,
    pub more_refused: Option<f64>,
    /// Rows whose batch is the largest that fits, and per cent of them of which the largest that is expected to fit is
    /// between half and twice as many samples.
    pub searched: usize,
    pub near_largest: Option<f64>,
}

/// One row's estimate beside its measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    pub measured: f64,
    /// Low, middle and high; none where nothing was estimated.
    pub estimated: Option<[f64; 3]>,
}

impl Score {
    /// Scores a source of `rows` rows, without what is known of its scaling and of what fits.
    pub fn of(rows: usize, pairs: &[Pair], memory: &[Pair], ineligible: BTreeMap<String, usize>) -> Score {
        let errors = errors(pairs);
        let known: Vec<(f64, [f64; 3])> =
            pairs.iter().filter_map(|pair| Some((pair.measured, pair.estimated?))).collect();
        let inside = known.iter().filter(|(measured, [low, _, high])| (*low..=*high).contains(measured)).count();
        let mut widths: Vec<f64> = known.iter().map(|(_, [low, _, high])| high / low).collect();
        widths.sort_by(f64::total_cmp);
        Score {
            rows,
            eligible: pairs.len(),
            predicted: known.len(),
            mape: mean(&errors),
            median: percentile(&errors, 0.5),
            p90: percentile(&errors, 0.9),
            rank: rank_correlation(
                &known.iter().map(|(measured, [_, middle, _])| (*measured, *middle)).collect::<Vec<_>>(),
            ),
            interval_coverage: (!known.is_empty()).then(|| 100.0 * inside as f64 / known.len() as f64),
            interval_width: percentile(&widths, 0.5),
            unmeasured: 0,
            unmeasured_coverage: None,
            idle: 0,
            idle_median: None,
            memory: MemoryScore::of(memory),
            scaling: Scaling::default(),
            memory_only: BTreeMap::new(),
            ineligible,
            unknown_networks: BTreeMap::new(),
        }
    }
}

/// Per cent of rows that P10–P90 is to hold: four fifths, and what a source may differ by.
pub const HONEST_COVERAGE: [f64; 2] = [78.0, 92.0];

/// Rows of a source below which its coverage says nothing.
const FEW: usize = 10;

impl Score {
    /// What its bands are where P10–P90 holds too few or too many of its rows.
    pub fn dishonest_bands(&self) -> Option<&'static str> {
        let coverage = self.interval_coverage.filter(|_| self.predicted >= FEW)?;
        match HONEST_COVERAGE {
            [low, _] if coverage < low => Some("too narrow"),
            [_, high] if coverage > high => Some("too wide"),
            _ => None,
        }
    }
}

impl MemoryScore {
    fn of(pairs: &[Pair]) -> MemoryScore {
        let errors = errors(pairs);
        let under =
            pairs.iter().filter(|pair| pair.estimated.is_none_or(|[_, middle, _]| middle < 0.9 * pair.measured));
        MemoryScore {
            rows: pairs.len(),
            mape: mean(&errors),
            median: percentile(&errors, 0.5),
            p90: percentile(&errors, 0.9),
            under10: share(under.count(), pairs.len()),
            ..MemoryScore::default()
        }
    }

    /// The same score, with how often it was right about which runs fit into memory.
    pub fn with(self, fits: Fits) -> MemoryScore {
        MemoryScore {
            known_to_fit: fits.known,
            said_to_fit: share(fits.said, fits.known),
            surely_fit: share(fits.surely, fits.known),
            filling: fits.filling,
            more_refused: share(fits.refused, fits.filling),
            searched: fits.searched,
            near_largest: share(fits.near, fits.searched),
            ..self
        }
    }
}

/// Per cent of `all`.
fn share(part: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| 100.0 * part as f64 / all as f64)
}

/// Relative errors in per cent, in order of size.
fn errors(pairs: &[Pair]) -> Vec<f64> {
    let error =
        |pair: &Pair| pair.estimated.map_or(100.0, |[_, middle, _]| 100.0 * (middle / pair.measured - 1.0).abs());
    let mut errors: Vec<f64> = pairs.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value below which `share` of sorted `values` lie, between neighbours by proportion.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let at = share * last as f64;
    let (below, above) = (values[at.floor() as usize], values[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// Spearman's correlation; ties share their mean rank.
fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let left = ranks(pairs.iter().map(|pair| pair.0).collect());
    let right = ranks(pairs.iter().map(|pair| pair.1).collect());
    let middle = (pairs.len() as f64 - 1.0) / 2.0;
    let [mut both, mut ones, mut others] = [0.0; 3];
    for (one, other) in left.iter().zip(&right) {
        both += (one - middle) * (other - middle);
        ones += (one - middle).powi(2);
        others += (other - middle).powi(2);
    }
    let spread = (ones * others).sqrt();
    (spread > 0.0).then(|| both / spread)
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*left].total_cmp(&values[*right]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let alike = order[from..].iter().take_while(|at| values[**at] == values[order[from]]).count();
        for at in &order[from..from + alike] {
            ranks[*at] = from as f64 + (alike as f64 - 1.0) / 2.0;
        }
        from += alike;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(measured: f64, middle: f64) -> Pair {
        Pair { measured, estimated: Some([middle * 0.9, middle, middle * 1.1]) }
    }

    #[test]
    fn a_row_without_estimate_counts_as_wholly_wrong() {
        let pairs = [pair(10.0, 11.0), Pair { measured: 10.0, estimated: None }];
        let score = Score::of(3, &pairs, &[], BTreeMap::from([("states no batch".to_owned(), 1)]));
        assert_eq!((score.rows, score.eligible, score.predicted), (3, 2, 1));
        assert!((score.mape.unwrap() - 55.0).abs() < 1e-9, "{score:?}");
        assert_eq!(score.interval_coverage, Some(100.0));
    }

    #[test]
    fn bands_that_hold_too_few_or_too_many_rows_are_told() {
        let of = |inside: usize, outside: usize| {
            let pairs = [vec![pair(10.0, 10.0); inside], vec![pair(10.0, 20.0); outside]].concat();
            Score::of(pairs.len(), &pairs, &[], BTreeMap::new()).dishonest_bands()
        };
        assert_eq!((of(15, 5), of(16, 4), of(18, 2), of(19, 1)), (Some("too narrow"), None, None, Some("too wide")));
        assert_eq!(of(3, 3), None, "six rows say nothing");
    }

    #[test]
    fn order_is_all_that_a_rank_sees() {
        assert_eq!(rank_correlation(&[(1.0, 1.0), (2.0, 40.0), (3.0, 41.0)]), Some(1.0));
        assert_eq!(rank_correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        assert_eq!(rank_correlation(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    #[test]
    fn memory_says_how_often_it_was_too_low() {
        let memory = MemoryScore::of(&[pair(10.0, 8.0), pair(10.0, 10.0), pair(10.0, 9.5), pair(10.0, 12.0)]);
        assert_eq!(memory.under10, Some(25.0));
        assert_eq!(memory.rows, 4);
    }
}
