//! Offers: machines and their prices.

use serde::{Deserialize, Serialize};

use crate::money::Rate;
use crate::units::Bytes;
use crate::volume::Volume;

/// One kind of machine at one price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the provider, such as `local`.
    pub provider: String,
    /// The provider's name of the machine.
    pub kind: String,
    /// Its hardware.
    pub node: Node,
    /// Price while it is rented.
    pub rate: Rate,
    /// Where the price comes from, such as `--price` or a dated table.
    pub price_source: String,
}

impl Offer {
    /// The kind of an offer of any machine of its provider.
    pub const ANY: &str = "any";

    /// The kind of an offer of any machine of a pool.
    pub fn kind_of_pool(pool: &str) -> String {
        format!("{}:{pool}", Offer::ANY)
    }

    /// The pool of a kind that means any machine of one.
    pub fn pool_of(kind: &str) -> Option<&str> {
        kind.strip_prefix(Offer::ANY)?.strip_prefix(':')
    }

    /// Whether it means any machine that its provider has, or any of a pool.
    pub fn is_any(&self) -> bool {
        self.kind == Offer::ANY || Offer::pool_of(&self.kind).is_some()
    }
}

/// The hardware of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// Name of the processor.
    pub cpu: String,
    /// Cores that may be used.
    pub cores: u32,
    /// Memory in all.
    pub memory: Bytes,
    /// Free disk space for the work.
    pub disk_free: Bytes,
    /// Its network volume, where that is rented faster than its base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}
