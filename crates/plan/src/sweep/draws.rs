//! The values of a trial, from its number alone.
//!
//! A draw is a function of (seed, trial, key), from a counter-based generator: reproducible, and independent of other
//! keys. Numbers are rounded to six digits, so that a table shows the exact values.

use domain::Sweep;
use domain::random::{self, GOLDEN, mix};
use domain::sweep::{Between, Method, Range, Setting};
use serde_json::Value;

/// The values of trial `number`, from 1, in the order of the sweep's parameters.
pub fn values(sweep: &Sweep, number: u32) -> Vec<Setting> {
    let mut place = u64::from(number.max(1)) - 1;
    let mut settings = Vec::with_capacity(sweep.parameters.len());
    // The last key changes fastest, so places are divided from the end.
    for parameter in sweep.parameters.iter().rev() {
        let value = match sweep.method {
            Method::Grid => {
                let size = parameter.range.size().max(1);
                let value = point(&parameter.range, place % size);
                place /= size;
                value
            }
            Method::Table => point(&parameter.range, place),
            Method::Random | Method::Asha(_) => drawn(&parameter.range, draw(sweep.seed, number, &parameter.key)),
        };
        settings.push(Setting { key: parameter.key.clone(), value });
    }
    settings.reverse();
    settings
}

/// The value of a grid at `index`, below the range's size.
fn point(range: &Range, index: u64) -> Value {
    match range {
        Range::Choices(values) => values.get(index as usize).cloned().unwrap_or(Value::Null),
        Range::Integers(between) => {
            let all = between.max.abs_diff(between.min).saturating_add(1);
            match range.size() {
                size if size == all => Value::from(between.min.saturating_add_unsigned(index)),
                size => Value::from(whole(between, index as f64 / (size - 1).max(1) as f64)),
            }
        }
        Range::Numbers(between) => Value::from(number(between, index as f64 / (range.size() - 1).max(1) as f64)),
    }
}

/// The value that 64 bits mean.
fn drawn(range: &Range, bits: u64) -> Value {
    match range {
        Range::Choices(values) => {
            values.get(random::below(bits, values.len() as u64) as usize).cloned().unwrap_or(Value::Null)
        }
        Range::Integers(between) if between.log => Value::from(whole(between, random::share(bits))),
        Range::Integers(between) => {
            let all = between.max.abs_diff(between.min).saturating_add(1);
            Value::from(between.min.saturating_add_unsigned(random::below(bits, all)))
        }
        Range::Numbers(between) => Value::from(number(between, random::share(bits))),
    }
}

/// The number at `share` of the way from the least to the most.
fn number(between: &Between<f64>, share: f64) -> f64 {
    let (min, max) = (between.min, between.max);
    let exact = match between.log {
        true => (min.ln() + share * (max.ln() - min.ln())).exp(),
        false => min + share * (max - min),
    };
    let rounded = format!("{exact:.5e}").parse().unwrap_or(exact);
    f64::clamp(rounded, min, max)
}

/// The whole number there. By factors, each has the stretch from half below it to half above it.
fn whole(between: &Between<i64>, share: f64) -> i64 {
    let (min, max) = (between.min as f64, between.max as f64);
    let exact = match between.log {
        true => ((min - 0.5).ln() + share * ((max + 0.5).ln() - (min - 0.5).ln())).exp(),
        false => min + share * (max - min),
    };
    (exact.round() as i64).clamp(between.min, between.max)
}

/// One draw: 64 bits of (seed, trial, key).
fn draw(seed: u64, number: u32, key: &str) -> u64 {
    random::key(mix(seed ^ GOLDEN), std::iter::once(u64::from(number)).chain(key.bytes().map(u64::from)))
}
