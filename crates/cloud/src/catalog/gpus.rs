//! The GPU table and its aliases: many spellings, one name. Memory decides between GPUs that share a spelling.

use std::collections::HashMap;

use domain::Bytes;
use domain::accelerators::{AcceleratorKind, Accelerators};
use domain::gpu::{Gpu, GpuArchitecture, GpuClass, GpuMemoryKind, GpuPlatform, GpuTraits, Link, Rates};

use crate::catalog::slices::{self, GpuSlice};
use crate::catalog::table::{gibibytes, needed, number, rows, whole};
use crate::catalog::{EMBEDDED, Error};

/// Words of makers and product lines, which some spell out and others do not.
const DECORATION: [&str; 7] = ["nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "tensorcoregpu"];

/// Tolerance between a stated memory and the table: clouds state the memory without ECC overhead.
const MEMORY_TOLERANCE: f64 = 0.12;

/// Every GPU that is known, and how it is spelled elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuTable {
    pub list: Vec<Gpu>,
    /// What they can be divided into.
    pub slices: Vec<GpuSlice>,
    /// Possible meanings of a normalized spelling; the first is the default.
    spellings: HashMap<String, Vec<Meaning>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    /// Index into the list.
    Known(usize),
    /// A GPU that the table leaves out, and why.
    LeftOut(String),
}

impl GpuTable {
    /// The tables that are part of the program.
    ///
    /// # Errors
    /// [`Error`] when a table of ours is wrong; a test reads them all.
    pub fn embedded() -> Result<GpuTable, Error> {
        GpuTable::read(EMBEDDED.gpus, EMBEDDED.aliases, EMBEDDED.mig)
    }

    /// Reads the tables.
    ///
    /// # Errors
    /// [`Error`] with file and line.
    pub fn read(gpus: &str, aliases: &str, mig: &str) -> Result<GpuTable, Error> {
        let mut read = GpuTable::default();
        rows("catalog/gpus.csv", gpus, COLUMNS, |cells| {
            let index = read.list.len();
            read.list.push(gpu(cells)?);
            read.spellings.entry(bare(cells[0])).or_default().push(Meaning::Known(index));
            Ok(())
        })?;
        rows("catalog/aliases.csv", aliases, ["spelling", "gpu", "note"], |[spelling, gpu, note]| {
            let meaning = match gpu {
                "" => Meaning::LeftOut(note.to_owned()),
                name => Meaning::Known(read.index(name).ok_or_else(|| format!("no GPU `{name}` in the GPU table"))?),
            };
            read.spellings.entry(bare(spelling)).or_default().push(meaning);
            Ok(())
        })?;
        read.slices = slices::read(mig, &read)?;
        Ok(read)
    }

    /// Adds a GPU that a user describes.
    ///
    /// # Errors
    /// The name of the GPU that its name means already.
    pub fn add(&mut self, gpu: Gpu) -> Result<(), String> {
        if let Some(known) = self.meant(&gpu.name, None) {
            return Err(known.name.clone());
        }
        let index = self.list.len();
        self.spellings.entry(bare(&gpu.name)).or_default().push(Meaning::Known(index));
        self.list.push(gpu);
        Ok(())
    }

    /// The GPU of that name in the table, or the slice of one.
    pub fn named(&self, name: &str) -> Option<&Gpu> {
        let slice = || self.slices.iter().map(|slice| &slice.gpu).find(|gpu| gpu.name == name);
        match name.contains(':') {
            true => slice(),
            false => self.index(name).map(|index| &self.list[index]),
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|gpu| gpu.name == name)
    }

    /// The GPU that a spelling means; `memory` decides between several, and must match if given.
    pub fn meant(&self, spelling: &str, memory: Option<Bytes>) -> Option<&Gpu> {
        if spelling.contains(':') {
            return self.named(spelling).or_else(|| self.slice_meant(spelling));
        }
        // As the driver names a slice: `NVIDIA A100-SXM4-80GB MIG 1g.10gb`.
        if let Some((whole, profile)) = spelling.split_once(" MIG ") {
            return self.slice_meant(&format!("{whole}:{profile}"));
        }
        let bare = bare(spelling);
        if let Some(meanings) = self.spellings.get(&bare) {
            return self.choose(meanings, memory);
        }
        // `L4-24GB`: the memory is part of the spelling. If the name ends in a digit too, the table decides.
        let number = bare.strip_suffix("gb")?;
        let meant = |digits: usize| {
            let (name, gibibytes) = number.split_at_checked(number.len().checked_sub(digits)?)?;
            self.choose(self.spellings.get(name)?, Some(Bytes(gibibytes.parse::<u64>().ok()? << 30)))
        };
        [3, 2, 1].into_iter().find_map(meant)
    }

    /// The slice of a spelling such as `A100-80GB:1g.10gb`.
    fn slice_meant(&self, spelling: &str) -> Option<&Gpu> {
        let wanted: Accelerators = spelling.parse().ok()?;
        let (AcceleratorKind::Named(name), Some(part)) = (&wanted.kind, &wanted.part) else { return None };
        self.parts(name, part).first().map(|slice| &slice.gpu)
    }

    fn choose(&self, meanings: &[Meaning], memory: Option<Bytes>) -> Option<&Gpu> {
        let known = meanings.iter().filter_map(|meaning| match meaning {
            Meaning::Known(index) => Some(&self.list[*index]),
            Meaning::LeftOut(_) => None,
        });
        let Some(memory) = memory else { return known.into_iter().next() };
        let apart = |gpu: &Gpu| (gpu.memory.0 as f64 / memory.0 as f64 - 1.0).abs();
        known.filter(|gpu| apart(gpu) < MEMORY_TOLERANCE).min_by(|one, other| apart(one).total_cmp(&apart(other)))
    }

    /// Why a GPU of this spelling is not in the table, if known.
    pub fn left_out(&self, spelling: &str) -> Option<&str> {
        self.spellings.get(&bare(spelling))?.iter().find_map(|meaning| match meaning {
            Meaning::LeftOut(why) => Some(why.as_str()),
            Meaning::Known(_) => None,
        })
    }

    /// Every GPU that a spelling may mean, of any memory and form.
    pub fn candidates(&self, spelling: &str) -> Vec<&Gpu> {
        let meanings = self.spellings.get(&bare(spelling)).map(Vec::as_slice).unwrap_or_default();
        let known = meanings.iter().filter_map(|meaning| match meaning {
            Meaning::Known(index) => Some(&self.list[*index]),
            Meaning::LeftOut(_) => None,
        });
        known.collect()
    }
}

/// The columns of `catalog/gpus.csv`.
const COLUMNS: [&str; 21] = [
    "gpu",
    "architecture",
    "memory_gib",
    "usable_gib",
    "bandwidth_gbs",
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "link",
    "pcie",
    "multiprocessors",
    "watts",
    "source",
    "class",
    "peer_access",
    "memory_kind",
    "platform",
    "nvlink_domain",
    "traits_source",
];

fn gpu(cells: [&str; 21]) -> Result<Gpu, String> {
    let [
        name,
        architecture,
        memory,
        usable,
        bandwidth,
        fp32,
        tf32,
        fp16,
        bf16,
        fp8,
        link,
        pcie,
        processors,
        watts,
        source,
        traits @ ..,
    ] = cells;
    let empty = |column: &str| format!("`{column}` is empty");
    let rate = |column: &str, cell: &str| Ok::<_, String>(number(column, cell)?.map(|tera| tera * 1e12));
    Ok(Gpu {
        name: name.to_owned(),
        architecture: self::architecture(architecture)?,
        memory: gibibytes("memory_gib", memory)?.ok_or_else(|| empty("memory_gib"))?,
        usable: gibibytes("usable_gib", usable)?.ok_or_else(|| empty("usable_gib"))?,
        bandwidth: needed("bandwidth_gbs", bandwidth)? * 1e9,
        rates: Rates {
            fp32: needed("fp32_tflops", fp32)? * 1e12,
            tf32: rate("tf32_tflops", tf32)?,
            fp16: rate("fp16_tflops", fp16)?,
            bf16: rate("bf16_tflops", bf16)?,
            fp8: rate("fp8_tflops", fp8)?,
        },
        link: self::link(link)?,
        pcie: whole("pcie", pcie)?.and_then(|pcie| u8::try_from(pcie).ok()).ok_or_else(|| empty("pcie"))?,
        multiprocessors: whole("multiprocessors", processors)?.ok_or_else(|| empty("multiprocessors"))?,
        power: needed("watts", watts)?,
        source: source.to_owned(),
        traits: self::traits(traits)?,
    })
}

/// The facts that no rate says, each of a closed set of words. Their source must be there.
fn traits(cells: [&str; 6]) -> Result<GpuTraits, String> {
    let [class, peer_access, memory_kind, platform, nvlink_domain, source] = cells;
    if source.is_empty() {
        return Err("`traits_source` is empty".to_owned());
    }
    let unknown = |column: &str, cell: &str, words: &str| Err(format!("`{column}`: `{cell}` is none of {words}"));
    Ok(GpuTraits {
        class: match class {
            "consumer" => GpuClass::Consumer,
            "professional" => GpuClass::Professional,
            other => return unknown("class", other, "`consumer` and `professional`"),
        },
        peer_access: match peer_access {
            "yes" => true,
            "no" => false,
            other => return unknown("peer_access", other, "`yes` and `no`"),
        },
        memory_kind: match memory_kind {
            "hbm" => GpuMemoryKind::Stacked,
            "gddr" => GpuMemoryKind::Graphics,
            other => return unknown("memory_kind", other, "`hbm` and `gddr`"),
        },
        platform: match platform {
            "cuda" => GpuPlatform::Cuda,
            "cuda-arm" => GpuPlatform::CudaArm,
            "rocm" => GpuPlatform::Rocm,
            other => return unknown("platform", other, "`cuda`, `cuda-arm` and `rocm`"),
        },
        nvlink_domain: whole("nvlink_domain", nvlink_domain)?,
        described: false,
    })
}

fn architecture(cell: &str) -> Result<GpuArchitecture, String> {
    Ok(match cell {
        "pascal" => GpuArchitecture::Pascal,
        "volta" => GpuArchitecture::Volta,
        "turing" => GpuArchitecture::Turing,
        "ampere" => GpuArchitecture::Ampere,
        "ada" => GpuArchitecture::Ada,
        "hopper" => GpuArchitecture::Hopper,
        "blackwell" => GpuArchitecture::Blackwell,
        "cdna3" => GpuArchitecture::Cdna3,
        "cdna4" => GpuArchitecture::Cdna4,
        other => return Err(format!("`architecture`: `{other}` is not known")),
    })
}

/// `pcie`, or `bridge`, `mesh` or `switch` with GB/s, both directions together.
pub fn link(cell: &str) -> Result<Link, String> {
    let (kind, speed) = cell.split_once(' ').unwrap_or((cell, ""));
    let speed = || needed("link", speed).map(|speed| speed * 1e9);
    Ok(match kind {
        "pcie" => Link::Pcie,
        "bridge" => Link::Bridge(speed()?),
        "mesh" => Link::Mesh(speed()?),
        "switch" => Link::Switch(speed()?),
        other => return Err(format!("`link`: `{other}` is none of `pcie`, `bridge`, `mesh` and `switch`")),
    })
}

/// A spelling without case, punctuation and vendor: `NVIDIA A100-SXM4-80GB` is `a100sxm480gb`.
fn bare(spelling: &str) -> String {
    let letters = spelling.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase());
    let mut bare: String = letters.collect();
    for word in DECORATION {
        if let Some(rest) = bare.strip_prefix(word) {
            bare = rest.to_owned();
        }
    }
    bare
}
