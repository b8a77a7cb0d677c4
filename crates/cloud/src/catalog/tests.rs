//! The embedded tables hold what they promise, and what is wrong is said with its line.

use std::collections::BTreeSet;

use domain::Bytes;
use domain::listing::Cloud;

use super::*;

fn embedded() -> Catalog {
    Catalog::embedded().unwrap()
}

fn gibibytes(gibibytes: f64) -> Option<Bytes> {
    Some(Bytes((gibibytes * f64::from(1 << 30)) as u64))
}

#[test]
fn every_table_is_read() {
    let catalog = embedded();
    assert!(catalog.listings.len() > 3_500, "{}", catalog.listings.len());
    assert!(catalog.gpus.list.len() > 50);
    for cloud in [Cloud::Aws, Cloud::Azure, Cloud::Gcp, Cloud::Alibaba, Cloud::Lambda] {
        assert!(catalog.listings.iter().any(|listing| listing.cloud == cloud), "{cloud}");
    }
    let keys: BTreeSet<_> =
        catalog.listings.iter().map(|row| (row.cloud.name(), &row.region, &row.instance_type)).collect();
    assert_eq!(keys.len(), catalog.listings.len(), "a listing stands there twice");
}

#[test]
fn every_spelling_resolves_or_is_left_out_with_a_reason() {
    let catalog = embedded();
    for listing in &catalog.listings {
        let gpus = &listing.gpus;
        let whole = gpus.memory.map(|memory| Bytes(memory.0 * u64::from(gpus.slice)));
        match catalog.gpu_of(listing) {
            Some(gpu) => assert_eq!(
                catalog.gpu(&gpus.spelled, whole).map(|gpu| gpu.memory),
                Some(gpu.memory),
                "{} {}",
                listing.instance_type,
                gpus.spelled
            ),
            None => assert!(catalog.gpus.left_out(&gpus.spelled).is_some(), "{}", gpus.spelled),
        }
    }
}

#[test]
fn spellings_mean_one_gpu() {
    let catalog = embedded();
    let check = |spelling: &str, memory: Option<Bytes>, name: Option<&str>| {
        assert_eq!(catalog.gpu(spelling, memory).map(|gpu| gpu.name.as_str()), name, "{spelling} {memory:?}");
    };
    check("A100", None, Some("A100-SXM4-40GB"));
    check("a100", gibibytes(80.0), Some("A100-SXM4-80GB"));
    check("A100-80GB", None, Some("A100-SXM4-80GB"));
    check("NVIDIA A100-SXM4-80GB", None, Some("A100-SXM4-80GB"));
    check("A100-PCIe", gibibytes(80.0), Some("A100-PCIe-80GB"));
    check("Tesla V100", gibibytes(32.0), Some("V100-SXM2-32GB"));
    check("Quadro RTX 8000", None, Some("RTX8000"));
    check("l4", gibibytes(22.4), Some("L4"));
    check("L4-24GB", None, Some("L4"));
    check("L4", gibibytes(80.0), None);
    check("NVIDIA H100 80GB HBM3", None, Some("H100-SXM5"));
    check("H100", gibibytes(94.0), Some("H100-NVL"));
    check("b300", gibibytes(268.6), Some("B300-SXM"));
    check("RTX PRO 6000", None, Some("RTX-PRO-6000"));
    check("RTX6000", None, Some("RTX6000"));
    check("K80", None, None);
    check("K9000", None, None);
    check("", None, None);
    check("é", None, None);
}

#[test]
fn gpus_are_possible() {
    for gpu in &embedded().gpus.list {
        let name = &gpu.name;
        assert!(gpu.usable < gpu.memory && gpu.usable.0 > gpu.memory.0 * 85 / 100, "{name}");
        let tensor = gpu.rates.fp16.unwrap_or(gpu.rates.fp32);
        assert!(gpu.rates.fp32 <= tensor && tensor < 3e15, "{name}");
        assert!(gpu.rates.fp8.is_none_or(|fp8| fp8 > tensor && fp8 < tensor * 2.1), "{name}");
        assert!((1e11..1e13).contains(&gpu.bandwidth) && (50.0..2000.0).contains(&gpu.power), "{name}");
        assert!(!gpu.source.is_empty(), "{name}");
    }
}
