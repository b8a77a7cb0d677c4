//! Rows that are no test of an estimate.

/// Why a row is no test of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ineligible {
    Throughput,
    Batch,
    Unit,
    /// Neither a graph nor summary figures.
    Model,
    /// It names a GPU that is not in the table of GPUs.
    Gpu,
    /// Other rows of its table say that it cannot be: each of several GPUs is faster than one alone.
    FasterThanAlone,
    /// The same: throughput does not change with the number of GPUs.
    Unchanged,
}

impl Ineligible {
    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Ineligible::Throughput => "states no throughput",
            Ineligible::Batch => "states no batch",
            Ineligible::Unit => "states no unit",
            Ineligible::Model => "its network has neither a graph here nor summary figures",
            Ineligible::Gpu => "its GPU is not in the table of GPUs",
            Ineligible::FasterThanAlone => {
                "contradicts its table: each of several GPUs does more than 1.05 times what one alone does with as many samples"
            }
            Ineligible::Unchanged => {
                "contradicts its table: from a number of GPUs to four times as many throughput is the same, so it is not that of all of them"
            }
        }
    }
}
