//! Slices of GPUs: what MIG divides a GPU into, each with its share of memory, bandwidth and multiprocessors, and shares of
//! one that clouds rent (`slice` of an instance type).
//!
//! A slice is a GPU with the shares of the whole. Slices reach each other through the host's memory only (RAPIDS' guide to
//! MIG), and none was measured, so that estimates have the band of described GPUs.

use std::collections::BTreeSet;

use domain::Bytes;
use domain::accelerators::{AcceleratorKind, Accelerators, GpuPart};
use domain::gpu::{Gpu, GpuTraits, Link};
use domain::listing::{Gpus, Listing};

use crate::catalog::gpus::GpuTable;
use crate::catalog::table::{rows, whole};
use crate::catalog::{Catalog, Error};

/// One profile of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSlice {
    /// The slice as a GPU, called `A100-SXM4-80GB:1g.10gb`.
    pub gpu: Gpu,
    /// Name of the GPU that is divided.
    pub whole: String,
    /// MIG's name of the profile; none for a share that a cloud rents.
    pub profile: Option<String>,
    pub memory_share: f64,
    /// How many there are in one GPU.
    pub instances: u32,
}

/// Shares that differ by less than this are the same: 0.33 is a third.
const SAME_SHARE: f64 = 0.01;

/// Reads the profiles of `catalog/mig.csv`.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(text: &str, gpus: &GpuTable) -> Result<Vec<GpuSlice>, Error> {
    let mut slices = Vec::new();
    let columns = ["gpus", "profile", "memory_share", "sm_share", "instances", "source"];
    rows("catalog/mig.csv", text, columns, |[names, profile, memory, multiprocessors, instances, source]| {
        let shares = (fraction("memory_share", memory)?, fraction("sm_share", multiprocessors)?);
        let instances = whole("instances", instances)?.filter(|count| *count > 0).ok_or("`instances` is empty or 0")?;
        for name in names.split(' ') {
            let gpu = gpus.named(name).ok_or_else(|| format!("no GPU `{name}` in the GPU table"))?;
            slices.push(GpuSlice {
                gpu: slice_of(gpu, profile, shares, source),
                whole: name.to_owned(),
                profile: Some(profile.to_owned()),
                memory_share: shares.0,
                instances,
            });
        }
        Ok(())
    })?;
    Ok(slices)
}

/// `14/108`.
fn fraction(column: &str, cell: &str) -> Result<f64, String> {
    let parsed = || {
        let (part, all) = cell.split_once('/')?;
        Some((part.parse::<f64>().ok()?, all.parse::<f64>().ok()?))
    };
    let share = parsed().map(|(part, all)| part / all).filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("`{column}`: `{cell}` is no fraction such as `1/8`"))
}

/// The share of a GPU as a GPU of its own.
fn slice_of(gpu: &Gpu, part: &str, (memory, compute): (f64, f64), source: &str) -> Gpu {
    let bytes = |bytes: Bytes| Bytes((bytes.0 as f64 * memory) as u64);
    let rate = |rate: f64| rate * compute;
    Gpu {
        name: format!("{}:{part}", gpu.name),
        memory: bytes(gpu.memory),
        usable: bytes(gpu.usable),
        bandwidth: gpu.bandwidth * memory,
        rates: domain::gpu::Rates {
            fp32: rate(gpu.rates.fp32),
            tf32: gpu.rates.tf32.map(rate),
            fp16: gpu.rates.fp16.map(rate),
            bf16: gpu.rates.bf16.map(rate),
            fp8: gpu.rates.fp8.map(rate),
        },
        link: Link::Pcie,
        // A share such as 14/108 is not exact.
        multiprocessors: ((f64::from(gpu.multiprocessors) * compute + 1e-6) as u32).max(1),
        power: gpu.power * compute,
        source: format!("its share of a {} ({source})", gpu.name),
        traits: GpuTraits { peer_access: false, described: true, ..gpu.traits },
        ..gpu.clone()
    }
}

impl GpuTable {
    /// The slices that a part of a spelled GPU means: one of each GPU that the spelling means and that can be divided so.
    pub fn parts(&self, spelling: &str, part: &GpuPart) -> Vec<&GpuSlice> {
        let whole = self.meanings(spelling);
        let is_of = |slice: &&GpuSlice| whole.iter().any(|gpu| gpu.name == slice.whole);
        self.slices.iter().filter(is_of).filter(|slice| slice.is(part)).collect()
    }

    /// Every GPU that a spelling may mean; with the memory in it, the one that it means.
    fn meanings(&self, spelling: &str) -> Vec<&Gpu> {
        let several = self.candidates(spelling);
        if several.is_empty() { self.meant(spelling, None).into_iter().collect() } else { several }
    }
}

impl GpuSlice {
    fn is(&self, part: &GpuPart) -> bool {
        match part {
            GpuPart::Profile(profile) => self.profile.as_ref() == Some(profile),
            GpuPart::Share(millionths) => (self.memory_share - f64::from(*millionths) / 1e6).abs() < SAME_SHARE,
        }
    }

    /// The profile, and its shares in words.
    fn words(&self) -> String {
        let share = format!("{:.3}", self.memory_share);
        let name = self.profile.as_ref().unwrap_or(&share);
        format!("`{name}` ({share} of the memory, {} of its multiprocessors)", self.gpu.multiprocessors)
    }
}

impl Catalog {
    /// Adds what a job that asks for a part of a GPU can have: each machine with such GPUs, used by that part only, and
    /// machines that clouds rent with a share of one. The whole machine is paid for.
    ///
    /// # Errors
    /// A sentence and what to write, where the GPU is not divided so; it names the valid layouts.
    pub fn divide(&mut self, wanted: &Accelerators) -> Result<(), (String, String)> {
        let (AcceleratorKind::Named(name), Some(part)) = (&wanted.kind, &wanted.part) else { return Ok(()) };
        // An unknown name is told with the nearest known ones.
        if self.gpus.meanings(name).is_empty() {
            return Ok(());
        }
        if let GpuPart::Share(_) = part {
            self.add_rented_shares(name);
        }
        let slices: Vec<GpuSlice> = self.gpus.parts(name, part).into_iter().cloned().collect();
        if slices.is_empty() {
            return Err(self.undivided(name, part));
        }
        let count = wanted.count.unwrap_or(1);
        let most = |listing: &Listing, slice: &GpuSlice| listing.gpus.count.saturating_mul(slice.instances);
        let has_enough = |listing: &Listing, slice: &GpuSlice| {
            listing.gpus.name.as_ref() == Some(&slice.whole) && listing.gpus.slice == 1 && most(listing, slice) >= count
        };
        let divided = |listing: &Listing, slice: &GpuSlice| Listing {
            gpus: Gpus {
                name: Some(slice.gpu.name.clone()),
                spelled: format!("{name}:{part}"),
                count,
                slice: 1,
                memory: Some(slice.gpu.memory),
            },
            link: None,
            ..listing.clone()
        };
        let profiles: Vec<&GpuSlice> = slices.iter().filter(|slice| slice.profile.is_some()).collect();
        let mut added = Vec::new();
        for listing in &self.listings {
            let fitting = profiles.iter().filter(|slice| has_enough(listing, slice));
            // Of several profiles of one share, such as 3g and 4g, the one with more multiprocessors.
            let best = fitting.max_by_key(|slice| slice.gpu.multiprocessors);
            added.extend(best.map(|slice| divided(listing, slice)));
            let rented = slices.iter().find(|slice| slice.profile.is_none() && slice.is_rented(listing));
            added.extend(rented.filter(|_| listing.gpus.count == count).map(|slice| divided(listing, slice)));
        }
        self.listings.extend(added);
        Ok(())
    }

    /// Makes a slice of each share of these GPUs that an instance type has.
    fn add_rented_shares(&mut self, name: &str) {
        let names: Vec<String> = self.gpus.meanings(name).into_iter().map(|gpu| gpu.name.clone()).collect();
        let listings = self.listings.iter();
        let shares: BTreeSet<(&String, u32)> = listings
            .filter(|listing| listing.gpus.slice > 1)
            .filter_map(|listing| {
                Some((listing.gpus.name.as_ref().filter(|own| names.contains(own))?, listing.gpus.slice))
            })
            .collect();
        let slices: Vec<GpuSlice> = shares
            .into_iter()
            .filter_map(|(whole, slice)| {
                let share = 1.0 / f64::from(slice);
                let gpu =
                    slice_of(self.gpus.named(whole)?, &format!("1/{slice}"), (share, share), "as the cloud rents it");
                Some(GpuSlice { gpu, whole: whole.clone(), profile: None, memory_share: share, instances: slice })
            })
            .filter(|slice| self.gpus.named(&slice.gpu.name).is_none())
            .collect();
        self.gpus.slices.extend(slices);
    }

    /// Why a GPU has no such part, and which it has.
    fn undivided(&self, name: &str, part: &GpuPart) -> (String, String) {
        let whole = self.gpus.meanings(name);
        let is_of = |slice: &&GpuSlice| whole.iter().any(|gpu| gpu.name == slice.whole);
        let mut words: Vec<String> = Vec::new();
        for slice in self.gpus.slices.iter().filter(is_of) {
            let said = slice.words();
            if !words.contains(&said) {
                words.push(said);
            }
        }
        let message = format!("no slice of a `{name}` is `{part}`");
        match words.is_empty() {
            true => (message, format!("it cannot be divided: ask for whole ones, such as `{name}:1`")),
            false => (message, format!("valid are {}", words.join(", "))),
        }
    }
}

impl GpuSlice {
    /// Whether an instance type has this share of the GPU.
    fn is_rented(&self, listing: &Listing) -> bool {
        listing.gpus.name.as_ref() == Some(&self.whole) && listing.gpus.slice == self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(text: &str) -> Result<Catalog, String> {
        let mut catalog = Catalog::embedded().unwrap();
        let wanted: Accelerators = text.parse()?;
        catalog.divide(&wanted).map_err(|(message, hint)| format!("{message}; {hint}"))?;
        Ok(catalog)
    }

    /// The GPUs of the listings that have what is asked for, with the number of them in a machine.
    fn had(text: &str) -> BTreeSet<String> {
        let catalog = divided(text).unwrap();
        let wanted: Accelerators = text.parse().unwrap();
        let has = catalog.listings.iter().filter(|listing| catalog.has(listing, &wanted));
        has.map(|row| format!("{} × {}", row.gpus.count, row.gpus.name.as_deref().unwrap_or("?"))).collect()
    }

    #[test]
    fn slices_have_their_shares_of_the_whole() {
        let catalog = Catalog::embedded().unwrap();
        let whole = catalog.gpus.named("A100-SXM4-80GB").unwrap();
        let slice = catalog.gpus.named("A100-SXM4-80GB:1g.10gb").unwrap();
        assert_eq!((slice.memory, slice.multiprocessors), (Bytes(10 << 30), 14));
        assert!((slice.bandwidth / whole.bandwidth - 0.125).abs() < 1e-9);
        assert!((slice.rates.fp32 / whole.rates.fp32 - 14.0 / 108.0).abs() < 1e-9);
        assert!(slice.traits.described && !slice.traits.peer_access && slice.link == Link::Pcie);
        let named = |spelling: &str| catalog.gpu(spelling, None).map(|gpu| gpu.name.as_str());
        assert_eq!(named("A100-80GB:1g.10gb"), Some("A100-SXM4-80GB:1g.10gb"));
        assert_eq!(named("NVIDIA H100 80GB HBM3 MIG 2g.20gb"), Some("H100-SXM5:2g.20gb"));
        assert_eq!(named("A100-80GB:1g.11gb"), None);
        for slice in &catalog.gpus.slices {
            let whole = catalog.gpus.named(&slice.whole).unwrap();
            let named = slice.profile.as_ref().unwrap().split_once("g.").unwrap().1.trim_end_matches("gb");
            let (stated, memory) = (named.parse::<f64>().unwrap(), slice.gpu.memory.0 as f64 / f64::from(1 << 30));
            assert!((memory / stated - 1.0).abs() < 0.05, "{}: {memory}", slice.gpu.name);
            let all = slice.memory_share * f64::from(slice.instances);
            assert!(all <= 1.0 + 1e-9 && slice.gpu.multiprocessors <= whole.multiprocessors, "{}", slice.gpu.name);
        }
    }

    #[test]
    fn a_slice_is_had_on_machines_with_the_whole_gpu() {
        let one = had("A100-80GB:1g.10gb");
        assert!(one.contains("1 × A100-SXM4-80GB:1g.10gb") && one.contains("1 × A100-PCIe-80GB:1g.10gb"), "{one:?}");
        assert!(one.iter().all(|name| name.ends_with(":1g.10gb")), "{one:?}");
        assert!(had("H100:3g.40gb:2").contains("2 × H100-SXM5:3g.40gb"));
        assert!(had("A100-80GB:7g.80gb:100").is_empty());
        // Whole ones stay what they were.
        let catalog = divided("A100-80GB:1g.10gb").unwrap();
        let before = Catalog::embedded().unwrap();
        assert_eq!(catalog.listings[..before.listings.len()], before.listings[..]);
    }

    #[test]
    fn shares_are_slices_or_what_clouds_rent() {
        assert_eq!(had("L4:0.125"), BTreeSet::from(["1 × L4:1/8".to_owned()]));
        assert!(had("A10:0.167").contains("1 × A10:1/6"));
        assert!(had("A100-80GB:0.5").contains("1 × A100-SXM4-80GB:4g.40gb"), "{:?}", had("A100-80GB:0.5"));
    }

    #[test]
    fn what_cannot_be_divided_so_names_what_can() {
        let refused = |text: &str| divided(text).unwrap_err();
        let odd = refused("A100-80GB:1g.11gb");
        assert!(odd.contains("`1g.11gb`") && odd.contains("`1g.10gb` (0.125 of the memory, 14"), "{odd}");
        let third = refused("A100-80GB:0.4");
        assert!(third.contains("`0.4`") && third.contains("`4g.40gb` (0.500 of the memory"), "{third}");
        assert!(refused("T4:1g.10gb").contains("cannot be divided"));
        assert!(divided("Z9000:0.5").is_ok(), "the unknown name is told elsewhere");
    }
}
