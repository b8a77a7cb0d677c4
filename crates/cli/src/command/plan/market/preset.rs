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
    /// GPUs of a machine, of which any will do, and numbers of machines.
    fn machines(self) -> (&'static [&'static str], &'static [u32]) {
        match self {
            Preset::Entry => (&["T4:1"], &[1]),
            Preset::Professional => (&["A100:4"], &[1]),
            Preset::Large => (&["A100:8", "H100:8"], &[1]),
            Preset::Cluster => (&["A100:8", "H100:8"], &[2, 4, 8, 16]),
        }
    }

    /// What it stands for, beside the reasons why nothing can run a job: they may name keys that the job file lacks.
    pub fn note(self) -> String {
        use clap::ValueEnum as _;
        let (accelerators, nodes) = self.machines();
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        let name = self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        format!(
            "  `--preset {name}` asks for `accelerators: [{}]` and `nodes: [{}]` where the job does not\n    hint: leave \
             `--preset` out to compare all machines",
            accelerators.join(", "),
            nodes.join(", ")
        )
    }

    /// Fills in the tier's requirements that the job does not have itself.
    pub fn fill(self, wants: &mut Wants) {
        let (accelerators, nodes) = self.machines();
        if wants.accelerators.is_empty() {
            wants.accelerators = accelerators.iter().filter_map(|text| text.parse().ok()).collect();
        }
        if wants.nodes.is_empty() {
            wants.nodes = nodes.to_vec();
        }
    }
}
