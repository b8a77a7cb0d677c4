//! Listings that are wanted, and words that are not known.

use domain::region::Compliance;

use super::embedded;
use crate::catalog::wanted::{Market, Wanted};

/// How many listings are wanted, or what is wrong with the wish.
fn wanted(gpu: &str, change: impl FnOnce(&mut Wanted)) -> Result<usize, String> {
    let catalog = embedded();
    let mut wanted = Wanted { gpu: Some(gpu.parse()?), ..Wanted::default() };
    change(&mut wanted);
    wanted.check(&catalog).map_err(|unknown| format!("{unknown}; {}", unknown.hint()))?;
    let found = catalog.listings.iter().filter(|row| wanted.admits(&catalog, row) && wanted.affords(row));
    Ok(found.count())
}

#[test]
fn wishes_are_held_against_listings() {
    let check = |gpu: &str, change: fn(&mut Wanted), least: usize, most: usize| {
        let count = wanted(gpu, change).unwrap();
        assert!((least..=most).contains(&count), "{gpu}: {count}");
    };
    let all = wanted("A100", |_| {}).unwrap();
    check("A100:8", |_| {}, 100, all - 1);
    check("A100-80GB", |_| {}, 100, all - 1);
    check("80GB+:8", |_| {}, 300, 600);
    check("80GB:8", |_| {}, 200, wanted("80GB+:8", |_| {}).unwrap() - 1);
    check("A10:1", |_| {}, 50, 200);
    check("A100:8", |wanted| wanted.regions = vec!["us-east-1".into()], 2, 20);
    check("A100:8", |wanted| wanted.regions = vec!["DE".into()], 1, 20);
    check("A100:8", |wanted| wanted.regions = vec!["europe-*".into()], 5, 40);
    check("A100:8", |wanted| wanted.compliance = vec![Compliance::Gdpr], 10, 80);
    check("A100:8", |wanted| wanted.market = Market::Spot, 10, all);
    check("A100:8", |wanted| wanted.max_price = "0.01/h".parse().ok(), 0, 0);
    check("H100:8", |wanted| wanted.clouds = vec!["AWS".into()], 5, 15);
}

#[test]
fn machines_of_ones_own_are_to_be_imported() {
    let told = wanted("A100", |wanted| wanted.clouds = vec!["own".into()]).unwrap_err();
    let start =
        "no cloud `own` is known: no machine of yours was imported; import your machines: `gradus catalog import ";
    assert!(told.starts_with(start), "{told}");
}

#[test]
fn unknown_words_name_known_ones() {
    let check = |gpu: &str, change: fn(&mut Wanted), expected: &str| {
        let error = wanted(gpu, change).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check("A1000", |_| {}, "no GPU `A1000` is known");
    check("RTX4091", |_| {}, "`RTX4090`");
    check("V10", |_| {}, "`V100-PCIe-16GB`");
    check("K800", |_| {}, "no GPU `K800`");
    check("T4", |wanted| wanted.clouds = vec!["awz".into()], "`aws`");
    check("T4", |wanted| wanted.regions = vec!["us-eest-1".into()], "`us-east-1`");
    check("T4", |wanted| wanted.regions = vec!["mars".into()], "no region `mars`");
    check("A100:0", |_| {}, "asks for none");
}
