//! Error bands of estimates, from cross-validated residuals: a mean and pooled spreads.
//!
//! Rows of one kind of estimate that came about alike are a cell. A cell's rows have an offset in common (their program,
//! how they were taken) and lie around it by a spread of their own. Both are drawn to what all cells have, the more the
//! fewer groups of rows a cell has (a normal model of two levels; Gelman et al. 2013, *Bayesian Data Analysis*, chapter
//! 5). What is left of the offset's variance and the spread make the band; of a cell that nothing is known of, all of
//! both, which is what a plan gets.

use std::collections::{BTreeMap, BTreeSet};

use plan::estimate::{Class, ErrorBands, Origin};

use crate::outcome::Outcome;

/// A way of which this is the probability is the one that was measured.
const CLEAR: f64 = 0.95;
/// A group of many rows counts as this power of their number, and a source as this power of what its groups count: one
/// machine measured a hundred times, or one table of hundreds of rows, does not narrow the band of all others.
const ALIKE: f64 = 0.5;
/// How strongly spreads are drawn to those of others, in roots of groups.
const DRAWN: f64 = 2.0;
/// How much wider a band is than its spread says, which is itself known from few groups only: a tenth, rounded.
const SURE: f64 = 1.1;
/// The tenth and ninetieth percentile of a normal distribution.
const REACH: f64 = 1.2816;
/// No spread is counted as smaller, and no band is narrower on either side: the same machine measured twice differs by
/// a few per cent.
const LEAST: f64 = 0.02;
const NARROWEST: f64 = 0.04;

type Cell = (Origin, Class);

/// How far a row is from its estimate, in logarithms.
struct Residual<'a> {
    off: f64,
    group: &'a str,
    source: &'a str,
}

/// What the rows of a cell say by themselves, in logarithms.
struct Spread {
    offset: f64,
    deviation: f64,
    groups: f64,
}

impl Spread {
    fn of(rows: &[Residual]) -> Spread {
        let mut sizes: BTreeMap<&str, f64> = BTreeMap::new();
        for row in rows {
            *sizes.entry(row.group).or_default() += 1.0;
        }
        let of_group = |row: &Residual| sizes[row.group].powf(ALIKE - 1.0);
        let mut sources: BTreeMap<&str, f64> = BTreeMap::new();
        for row in rows {
            *sources.entry(row.source).or_default() += of_group(row);
        }
        let weight = |row: &Residual| of_group(row) * sources[row.source].powf(ALIKE - 1.0);
        let weighted = |of: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
            rows.iter().map(|row| (of(row.off), weight(row))).collect()
        };
        let offset = quantile(weighted(&|off| off), 0.5);
        // Four fifths of a normal distribution lie within that reach.
        let deviation = quantile(weighted(&|off| (off - offset).abs()), 0.8) / REACH;
        Spread { offset, deviation: deviation.max(LEAST), groups: sizes.len() as f64 }
    }

    /// How much its spread counts: one group does not show how far groups are from each other.
    fn known(&self) -> f64 {
        (self.groups - 1.0).sqrt()
    }
}

/// The bands of each class, and of each by how rows came about.
pub fn bands(outcomes: &[&Outcome]) -> ErrorBands {
    // Where one of several ways was measured, the distance of the ways is no error.
    let clear = outcomes.iter().filter(|outcome| outcome.clearest() > CLEAR);
    let mut rows: BTreeMap<Cell, Vec<Residual>> = BTreeMap::new();
    for outcome in clear {
        let cell = (outcome.case.row.origin, outcome.class);
        let row = &outcome.case.row;
        rows.entry(cell).or_default().push(Residual { off: outcome.off(), group: &row.group, source: &row.source });
    }
    let cells: BTreeMap<Cell, Spread> = rows.iter().map(|(cell, rows)| (*cell, Spread::of(rows))).collect();

    let every = drawn(cells.values().map(|spread| (spread.deviation, spread.known())), 1.0, 0.0);
    let classes: BTreeSet<Class> = cells.keys().map(|(_, class)| *class).collect();
    let usual: BTreeMap<Class, f64> = classes
        .iter()
        .map(|class| {
            let own = cells.iter().filter(|((_, of), _)| of == class);
            (*class, drawn(own.map(|(_, spread)| (spread.deviation, spread.known())), every, DRAWN))
        })
        .collect();
    let weight: f64 = cells.values().map(|spread| spread.groups.sqrt()).sum();
    let squares: f64 = cells.values().map(|spread| spread.groups.sqrt() * spread.offset.powi(2)).sum();
    let of_offsets = if weight > 0.0 { squares / weight } else { 0.0 };

    let origins: BTreeSet<Origin> = cells.keys().map(|(origin, _)| *origin).collect();
    let of_origin = |origin: Origin| -> BTreeMap<Class, [f64; 2]> {
        let own = cells.iter().filter(|((of, _), _)| *of == origin);
        let beside = own.map(|((_, class), spread)| (spread.deviation / usual[class], spread.known()));
        let factor = drawn(beside, 1.0, DRAWN);
        let band = |class: Class| match cells.get(&(origin, class)) {
            Some(spread) => {
                let deviation = drawn([(spread.deviation, spread.known())].into_iter(), usual[&class] * factor, DRAWN);
                let of_mean = deviation.powi(2) / spread.groups;
                let share = of_offsets / (of_offsets + of_mean);
                around(share * spread.offset, deviation.powi(2) + (1.0 - share) * of_offsets)
            }
            None => around(0.0, (usual[&class] * factor).powi(2) + of_offsets),
        };
        classes.iter().map(|class| (*class, band(*class))).collect()
    };
    ErrorBands {
        classes: of_origin(Origin::Unknown),
        unmeasured_generation: 0.0,
        unstated_details: 0.0,
        origins: origins
            .into_iter()
            .filter(|origin| *origin != Origin::Unknown)
            .map(|origin| (origin, of_origin(origin)))
            .collect(),
    }
}

/// The band of a normal distribution.
fn around(mean: f64, variance: f64) -> [f64; 2] {
    let reach = SURE * REACH * variance.sqrt();
    [(mean - reach).min(-NARROWEST), (mean + reach).max(NARROWEST)]
}

/// The geometric mean of some spreads by their weights, drawn to `to` by so much weight.
fn drawn(spreads: impl Iterator<Item = (f64, f64)>, to: f64, by: f64) -> f64 {
    let (sum, weight) =
        spreads.fold((by * to.ln(), by), |(sum, weight), (spread, known)| (sum + known * spread.ln(), weight + known));
    if weight > 0.0 { (sum / weight).exp() } else { to }
}

/// The value that this share of all weight lies below or at.
fn quantile(mut values: Vec<(f64, f64)>, share: f64) -> f64 {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let reached = values.iter().find(|(_, weight)| {
        below += weight;
        below >= share * all
    });
    reached.map_or(0.0, |(value, _)| *value)
}
