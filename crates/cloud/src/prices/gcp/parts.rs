//! What a machine of Google's is billed for, and by which words its parts are found in the descriptions of prices.

use domain::listing::Listing;

/// A kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    Cores,
    Memory,
    Gpu,
    LocalDisk,
}

impl PartKind {
    /// The kind that a resource group holds.
    pub fn of(group: &str) -> Option<PartKind> {
        match group {
            "CPU" => Some(PartKind::Cores),
            "RAM" => Some(PartKind::Memory),
            "GPU" => Some(PartKind::Gpu),
            "LocalSSD" => Some(PartKind::LocalDisk),
            _ => None,
        }
    }

    /// The unit of its price.
    pub fn unit(self) -> &'static str {
        match self {
            PartKind::Cores | PartKind::Gpu => "h",
            PartKind::Memory => "GiBy.h",
            PartKind::LocalDisk => "GiBy.mo",
        }
    }
}

/// Words of descriptions, as [`plain`] writes them.
type Words = &'static [&'static str];

/// A part of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinePart {
    pub kind: PartKind,
    /// Cores, GiB or GPUs.
    pub count: u64,
    /// One of them stands in the description.
    some: Words,
    /// None of them does.
    none: Words,
}

impl MachinePart {
    /// Whether a description, as [`plain`] writes it, is that of this part.
    pub fn is_meant(&self, description: &str) -> bool {
        let has = |words: &&str| description.contains(&format!(" {words} "));
        self.some.iter().any(has) && !self.none.iter().any(has)
    }
}

/// A text in lower case, each word between single spaces: ` nvidia l4 gpu `.
pub fn plain(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    let letters: String = letters.collect();
    format!(" {} ", letters.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A family of machines whose parts are known.
struct Family {
    name: &'static str,
    /// Of its cores and memory.
    cores: Words,
    gpu: Words,
    /// Of other GPUs.
    no_gpu: Words,
    /// GiB of local disk that come with each GPU and are billed.
    disk_gib: u64,
}

const A2: Words = &["a2"];
const A3: Words = &["a3"];
const A3_MEGA: Words = &["a3plus"];
const G2: Words = &["g2"];
const A100: Words = &["a100"];
const A100_80: Words = &["a100 80gb"];
const H100: Words = &["h100 80gb"];
const H100_MEGA: Words = &["h100 80gb mega", "h100 mega 80gb", "h100 80gb plus"];
const L4: Words = &["l4"];
const DISK: Words = &["local storage", "local ssd"];
const NOTHING: Words = &[];

const FAMILIES: [Family; 6] = [
    Family { name: "a2-highgpu", cores: A2, gpu: A100, no_gpu: &["80gb"], disk_gib: 0 },
    Family { name: "a2-megagpu", cores: A2, gpu: A100, no_gpu: &["80gb"], disk_gib: 0 },
    Family { name: "a2-ultragpu", cores: A2, gpu: A100_80, no_gpu: NOTHING, disk_gib: 375 },
    Family { name: "a3-highgpu", cores: A3, gpu: H100, no_gpu: &["mega", "plus"], disk_gib: 0 },
    Family { name: "a3-megagpu", cores: A3_MEGA, gpu: H100_MEGA, no_gpu: NOTHING, disk_gib: 0 },
    Family { name: "g2-standard", cores: G2, gpu: L4, no_gpu: NOTHING, disk_gib: 0 },
];

/// The GPU of each family whose parts are known.
pub fn gpus() -> Vec<MachinePart> {
    let gpu = |family: &Family| MachinePart { kind: PartKind::Gpu, count: 1, some: family.gpu, none: family.no_gpu };
    FAMILIES.iter().map(gpu).collect()
}

/// Whether a description, as [`plain`] writes it, is of cores or memory of a family whose parts are known.
pub fn is_core(description: &str) -> bool {
    let words = FAMILIES.iter().flat_map(|family| family.cores);
    words.into_iter().any(|words| description.contains(&format!(" {words} ")))
}

/// The parts of a machine; none where they, or its cores and memory, are not known.
pub fn parts_of(listing: &Listing) -> Option<Vec<MachinePart>> {
    let (name, _) = listing.instance_type.rsplit_once('-')?;
    let family = FAMILIES.iter().find(|known| known.name == name)?;
    let (memory, cores) = (listing.memory?.0, u64::from(listing.cores?));
    let gpus = u64::from(listing.gpus.count);
    let is_whole = memory.is_multiple_of(1 << 30) && listing.gpus.slice == 1 && gpus > 0;
    let part = |kind: PartKind, count: u64, some: Words| MachinePart { kind, count, some, none: NOTHING };
    let mut parts = vec![
        part(PartKind::Cores, cores, family.cores),
        part(PartKind::Memory, memory >> 30, family.cores),
        MachinePart { none: family.no_gpu, ..part(PartKind::Gpu, gpus, family.gpu) },
    ];
    if family.disk_gib > 0 {
        parts.push(part(PartKind::LocalDisk, family.disk_gib * gpus, DISK));
    }
    is_whole.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_those_of_one_family() {
        let check = |at: usize, description: &str, expected: bool| {
            let is_meant = gpus()[at].is_meant(&plain(description));
            assert_eq!(is_meant, expected, "{}: {description}", FAMILIES[at].name);
        };
        check(0, "Nvidia Tesla A100 GPU running in Americas", true);
        check(0, "Nvidia Tesla A100 80GB GPU running in Americas", false);
        check(2, "Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Iowa", true);
        check(2, "Nvidia Tesla A100 GPU running in Americas", false);
        check(3, "Nvidia H100 80GB GPU running in Americas", true);
        check(3, "Nvidia H100 80GB Mega GPU running in Americas", false);
        check(4, "Nvidia H100 80GB Plus GPU running in Americas", true);
        check(5, "Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", true);
        check(5, "Nvidia L40 GPU running in Americas", false);
        let is_meant = |some: Words, description: &str| {
            let part = MachinePart { kind: PartKind::Cores, count: 1, some, none: NOTHING };
            part.is_meant(&plain(description))
        };
        assert!(is_meant(A3, "A3 Instance Core running in Americas"));
        assert!(!is_meant(A3, "A3Plus Instance Core running in Americas"));
        assert!(is_meant(A2, "Commitment v1: A2 Cpu in Americas for 1 Year"));
    }
}
