//! The values of trials: every combination of a grid once, draws that are even and depend on nothing else.

use std::collections::{BTreeMap, BTreeSet};

use domain::Sweep;
use domain::sweep::{Between, Method, Parameter, Range};
use proptest::prelude::*;

use super::sweep;
use crate::sweep::{most, values};

#[test]
fn a_grid_has_every_combination_once() {
    let grid = sweep(Method::Grid, None);
    assert_eq!((grid.grid_size(), most(&grid)), (24, 24));
    let said = |number| values(&grid, number).iter().map(domain::sweep::Setting::say).collect::<Vec<_>>().join(" ");
    let all: BTreeSet<String> = (1..=24).map(said).collect();
    assert_eq!(all.len(), 24);
    assert_eq!([said(1), said(2), said(3), said(24)], ["1e-4 8 mlp", "1e-4 8 cnn", "1e-4 9 mlp", "0.1 11 cnn"]);
    assert!(all.contains("0.00316228 10 cnn"), "{all:?}");
}

#[test]
fn a_table_has_its_rows_in_their_order() {
    let column = |key: &str, values: [&str; 3]| {
        let values = values.into_iter().map(serde_json::Value::from).collect();
        Parameter { key: key.into(), range: Range::Choices(values) }
    };
    let parameters = vec![column("envs.LR", ["0.1", "0.2", "0.1"]), column("envs.SEED", ["1", "2", "1"])];
    let table = Sweep { parameters, metric: None, ..sweep(Method::Table, None) };
    assert_eq!(most(&table), 3);
    let said = |number| values(&table, number).iter().map(domain::sweep::Setting::say).collect::<Vec<_>>().join(" ");
    assert_eq!([said(1), said(2), said(3)], ["0.1 1", "0.2 2", "0.1 1"], "equal rows are trials each");
    assert_eq!(most(&Sweep { trials: Some(2), ..table.clone() }), 2);
    let base = domain::Job::parse("run: echo\nenvs: {LR: 9, OTHER: kept}\n", "job.yaml").unwrap().job;
    let bytes = domain::Bytes(1 << 40);
    let node = domain::Node { cpu: "sim".into(), cores: 8, memory: bytes, disk_free: bytes, volume: None };
    let (provider, kind, price_source) = ("sim".to_owned(), "m1".to_owned(), "test".to_owned());
    let offer = domain::Offer { provider, kind, node, rate: domain::Rate::default(), price_source };
    let job = crate::sweep::job(&base, &table, &values(&table, 2), &offer).unwrap();
    let envs: Vec<_> = job.envs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(envs, ["LR=0.2", "OTHER=kept", "SEED=2"]);
}

#[test]
fn draws_depend_on_seed_trial_and_key_alone() {
    let drawn = sweep(Method::Random, Some(100));
    let mut fewer = drawn.clone();
    fewer.parameters.remove(1);
    let other = Sweep { seed: 8, ..drawn.clone() };
    let mut seen = BTreeSet::new();
    for number in 1..=200 {
        let all = values(&drawn, number);
        assert_eq!(all, values(&drawn, number));
        let kept: Vec<_> = all.iter().filter(|setting| setting.key != "batch").cloned().collect();
        assert_eq!(kept, values(&fewer, number), "another key changes nothing");
        assert_ne!(all, values(&other, number));
        seen.insert(all[0].value.to_string());
    }
    assert_eq!(seen.len(), 200);
}

#[test]
fn draws_cover_their_ranges_evenly() {
    let drawn = sweep(Method::Random, None);
    let (mut below, mut counts, mut words) = (0, BTreeMap::new(), 0);
    for number in 1..=4000 {
        let settings = values(&drawn, number);
        below += u32::from(settings[0].value.as_f64().unwrap() < 10f64.powf(-2.5));
        *counts.entry(settings[1].value.as_i64().unwrap()).or_insert(0) += 1;
        words += u32::from(settings[2].value == "mlp");
    }
    assert!((1850..2150).contains(&below), "half of a logarithmic range lies below its geometric mean: {below}");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [8, 9, 10, 11]);
    assert!(counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    assert!((1850..2150).contains(&words), "{words}");
}

proptest! {
    #[test]
    fn draws_stay_in_their_ranges(min in -1000i64..1000, length in 1i64..100_000, seed: u64, number in 1u32..10_000, log: bool) {
        let log = log && min > 0;
        let max = min + length;
        let drawn = Sweep {
            parameters: vec![
                Parameter { key: "a".into(), range: Range::Integers(Between { min, max, log, points: None }) },
                Parameter { key: "b".into(), range: Range::Numbers(Between { min: min as f64 / 7.0, max: max as f64 / 7.0, log, points: None }) },
            ],
            seed,
            ..sweep(Method::Random, None)
        };
        let settings = values(&drawn, number);
        prop_assert!((min..=max).contains(&settings[0].value.as_i64().unwrap()));
        let value = settings[1].value.as_f64().unwrap();
        prop_assert!((min as f64 / 7.0..=max as f64 / 7.0).contains(&value), "{value}");
    }
}
