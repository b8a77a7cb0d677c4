//! Rows that are no test of an estimate.

/// Why a row is no test of an estimate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ineligible {
    Throughput,
    Batch,
    /// A pipeline of which neither micro-batches nor the batch of a step are stated: its idle ends may be any part.
    MicroBatches,
    Unit,
    /// Neither a graph nor summary figures.
    Model,
    /// A network that is not known under that name, or cannot be read.
    Network {
        name: String,
        why: String,
    },
    /// A word of the column `parallelism`.
    Parallelism(String),
    /// Degrees of sharing do not multiply to the number of GPUs.
    Degrees {
        product: u32,
        gpus: u32,
    },
    /// A number format.
    Precision(String),
    /// A word of the column `grad_checkpoint`.
    Recomputation(String),
    /// No length of samples, or one that is neither a number of tokens nor the size of an image.
    Samples(String),
    /// Samples differ in length, which says nothing of how fast one of them is.
    Varies,
    /// Its GPU draws less power than its maker states, and the row does not say how much.
    PowerLimited,
    /// It names a GPU that is not in the table of GPUs.
    Gpu(String),
    /// Other rows of its table say that it cannot be: each of several GPUs is faster than one alone.
    FasterThanAlone,
    /// The same: throughput does not change with the number of GPUs.
    Unchanged,
}

/// Why a network is not read whose name nothing is found under.
pub(super) const NOT_KNOWN: &str = "it is not known";

impl Ineligible {
    /// The name of its network, where nothing is found under it.
    pub fn unknown_network(&self) -> Option<&str> {
        let Ineligible::Network { name, why } = self else { return None };
        (why == NOT_KNOWN).then_some(name.as_str())
    }

    /// The reason in words.
    pub fn reason(&self) -> String {
        let reason = match self {
            Ineligible::Throughput => "states no throughput",
            Ineligible::Batch => "states no batch",
            Ineligible::MicroBatches => "states no number of micro-batches for its pipeline",
            Ineligible::Unit => "states no unit",
            Ineligible::Model => "its network has neither a graph here nor summary figures",
            Ineligible::Network { name, why } => {
                return format!("its network `{name}`: {why}").replace(": it is not", " is not");
            }
            Ineligible::Parallelism(word) => return format!("`{word}` in the column `parallelism` is not known"),
            Ineligible::Degrees { product, gpus } => {
                return format!("its degrees multiply to {product}, and it has {gpus} GPUs");
            }
            Ineligible::Precision(word) => return format!("the number format `{word}` is not known"),
            Ineligible::Recomputation(word) => return format!("`{word}` in the column `grad_checkpoint` is not known"),
            Ineligible::Samples(word) if word.is_empty() => "states no length of samples",
            Ineligible::Samples(word) => return format!("its samples of `{word}` are of no known size"),
            Ineligible::Varies => "its samples differ in length, so it tells memory only",
            Ineligible::PowerLimited => {
                "its GPU was limited to less power than its maker states, so it tells memory only"
            }
            Ineligible::Gpu(name) => return format!("its GPU `{name}` is not in the table of GPUs"),
            Ineligible::FasterThanAlone => {
                "contradicts its table: each of several GPUs does more than 1.05 times what one alone does with as many samples"
            }
            Ineligible::Unchanged => {
                "contradicts its table: from a number of GPUs to four times as many throughput is the same, so it is not that of all of them"
            }
        };
        reason.to_owned()
    }
}
