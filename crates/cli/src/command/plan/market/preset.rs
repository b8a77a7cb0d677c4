//! Tiers of machines that many projects begin with.

use domain::wants::Wants;

/// A tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// One machine with a T4
    Entry,
    /// One machine with four A100
    Professional,
    /// One machine with eight A100 or H100
    Large,
    /// Two to sixteen machines with eight A100 or H100 each
    Cluster,
}

impl Preset {
    /// Fills in the tier's requirements that the job does not have itself.
    pub fn fill(self, wants: &mut Wants) {
        let (accelerators, nodes): (&[&str], &[u32]) = match self {
            Preset::Entry => (&["T4:1"], &[1]),
            Preset::Professional => (&["A100:4"], &[1]),
            Preset::Large => (&["A100:8", "H100:8"], &[1]),
            Preset::Cluster => (&["A100:8", "H100:8"], &[2, 4, 8, 16]),
        };
        if wants.accelerators.is_empty() {
            wants.accelerators = accelerators.iter().filter_map(|text| text.parse().ok()).collect();
        }
        if wants.nodes.is_empty() {
            wants.nodes = nodes.to_vec();
        }
    }
}
