//! How MIG may divide a GPU: which profiles fit into one together.
//!
//! A GPU has eight slices of memory. A profile takes some of them, and begins at a multiple of its own size, as often as the table
//! of profiles says: so a `3g` begins at 0 or 4, a `4g` at 0 alone, and a `2g` at 0, 2 or 4 (NVIDIA MIG User Guide, placements).

use super::gpus::GpuTable;
use super::slices::GpuSlice;

/// Slices of memory of a GPU.
const EIGHTHS: u32 = 8;

/// A profile of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MigProfile {
    /// Slices of memory, and then of multiprocessors: the largest come first, because a `4g` must be made before a `3g`.
    size: std::cmp::Reverse<u32>,
    compute: std::cmp::Reverse<u32>,
    name: String,
    /// How many times it fits.
    times: u32,
}

impl MigProfile {
    fn of(slice: &GpuSlice) -> Option<MigProfile> {
        let size = (slice.memory_share * f64::from(EIGHTHS)).round() as u32;
        let name = slice.profile.clone()?;
        let compute = name.split_once('g').and_then(|(compute, _)| compute.parse::<u32>().ok())?;
        let (size, compute) = (std::cmp::Reverse(size), std::cmp::Reverse(compute));
        (size.0 > 0).then_some(MigProfile { size, compute, name, times: slice.instances })
    }

    /// The slices that it may take, as bits.
    fn places(&self) -> impl Iterator<Item = u32> {
        let size = self.size.0;
        let mask = (1_u32 << size) - 1;
        (0..self.times).map(move |at| at * size).filter(move |start| start + size <= EIGHTHS).map(move |at| mask << at)
    }
}

impl GpuTable {
    /// Checks that MIG can divide a GPU of this name into these profiles, and returns them as they are made: the largest first.
    ///
    /// # Errors
    /// What is wrong with it, and what there is instead.
    pub fn divided(&self, gpu: &str, profiles: &[String]) -> Result<Vec<String>, String> {
        let known = self.profiles(gpu);
        if known.is_empty() {
            return Err(format!("no profiles of MIG are known for `{gpu}`"));
        }
        let find = |name: &String| {
            let found = known.iter().find(|profile| profile.name == *name).cloned();
            found.ok_or_else(|| format!("`{gpu}` has no profile `{name}`; it has {}", names(&known)))
        };
        let mut wanted = profiles.iter().map(find).collect::<Result<Vec<MigProfile>, String>>()?;
        wanted.sort();
        match !wanted.is_empty() && fits(&wanted, 0) {
            true => Ok(wanted.into_iter().map(|profile| profile.name).collect()),
            false => {
                Err(format!("`{gpu}` cannot be divided into {}; whole layouts are {}", names(&wanted), self.whole(gpu)))
            }
        }
    }

    /// Every layout of a GPU to which nothing can be added, the largest parts first.
    pub fn layouts(&self, gpu: &str) -> Vec<Vec<String>> {
        let known = self.profiles(gpu);
        let mut found = Vec::new();
        extend(&known, &[], &mut found);
        found.into_iter().map(|layout| layout.into_iter().map(|profile| profile.name).collect()).collect()
    }

    fn profiles(&self, gpu: &str) -> Vec<MigProfile> {
        let mut known: Vec<MigProfile> =
            self.slices.iter().filter(|slice| slice.whole == gpu).filter_map(MigProfile::of).collect();
        known.sort();
        known
    }

    fn whole(&self, gpu: &str) -> String {
        let layouts: Vec<String> = self.layouts(gpu).iter().map(|layout| layout.join(",")).collect();
        layouts.join(" ")
    }
}

fn names(profiles: &[MigProfile]) -> String {
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    names.join(", ")
}

/// Whether all of these fit beside the slices that are taken.
fn fits(profiles: &[MigProfile], taken: u32) -> bool {
    let Some((first, rest)) = profiles.split_first() else { return true };
    first.places().any(|place| place & taken == 0 && fits(rest, taken | place))
}

/// Adds every layout that begins with these profiles and is whole.
fn extend(known: &[MigProfile], layout: &[MigProfile], found: &mut Vec<Vec<MigProfile>>) {
    let with = |layout: &[MigProfile], profile: &MigProfile| {
        let mut more: Vec<MigProfile> = layout.to_vec();
        more.push(profile.clone());
        more.sort();
        fits(&more, 0).then_some(more)
    };
    if !layout.is_empty() && known.iter().all(|profile| with(layout, profile).is_none()) {
        found.push(layout.to_vec());
        return;
    }
    // Each layout once: parts are added in their order.
    for profile in known.iter().filter(|profile| layout.last().is_none_or(|last| last <= *profile)) {
        if let Some(more) = with(layout, profile) {
            extend(known, &more, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::Catalog;

    fn divided(gpu: &str, layout: &str) -> Result<String, String> {
        let profiles: Vec<String> = layout.split(',').map(str::to_owned).collect();
        Catalog::embedded().unwrap().gpus.divided(gpu, &profiles).map(|made| made.join(","))
    }

    /// From the placements of the MIG User Guide.
    #[test]
    fn a_gpu_is_divided_into_what_fits_together() {
        let fits = [
            ("A100-SXM4-80GB", "3g.40gb,4g.40gb", "4g.40gb,3g.40gb"),
            ("A100-SXM4-80GB", "1g.10gb,2g.20gb,4g.40gb", "4g.40gb,2g.20gb,1g.10gb"),
            ("H100-SXM5", "3g.40gb,3g.40gb", "3g.40gb,3g.40gb"),
            ("H100-SXM5", "1g.20gb,1g.20gb,1g.20gb,1g.20gb", "1g.20gb,1g.20gb,1g.20gb,1g.20gb"),
            ("A30", "2g.12gb,1g.6gb,1g.6gb", "2g.12gb,1g.6gb,1g.6gb"),
        ];
        for (gpu, layout, expected) in fits {
            assert_eq!(divided(gpu, layout).as_deref(), Ok(expected), "{gpu}");
        }
        for (gpu, layout) in
            [("H100-SXM5", "4g.40gb,4g.40gb"), ("H100-SXM5", "7g.80gb,1g.10gb"), ("A30", "4g.24gb,1g.6gb")]
        {
            assert!(divided(gpu, layout).unwrap_err().contains("cannot be divided into"), "{gpu} {layout}");
        }
        let eight = ["1g.10gb"; 8].join(",");
        assert!(divided("H100-SXM5", &eight).is_err(), "there are seven");
        assert!(divided("H100-SXM5", "1g.5gb").unwrap_err().contains("has no profile `1g.5gb`; it has 7g.80gb, "));
        assert!(divided("T4", "1g.5gb").unwrap_err().contains("no profiles of MIG are known for `T4`"));
    }

    #[test]
    fn whole_layouts_can_have_nothing_added() {
        let gpus = Catalog::embedded().unwrap().gpus;
        let layouts: Vec<String> = gpus.layouts("A30").iter().map(|layout| layout.join(",")).collect();
        assert_eq!(layouts, ["4g.24gb", "2g.12gb,2g.12gb", "2g.12gb,1g.6gb,1g.6gb", "1g.6gb,1g.6gb,1g.6gb,1g.6gb"]);
        let layouts = gpus.layouts("H100-SXM5");
        assert!(layouts.iter().all(|layout| gpus.divided("H100-SXM5", layout).as_ref() == Ok(layout)), "{layouts:?}");
        assert!(gpus.layouts("T4").is_empty());
    }
}
