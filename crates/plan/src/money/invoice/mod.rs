//! A provider's bill, read from its export, and compared with the ledger.
//!
//! [`read_invoice`] makes lines of a file, whatever its provider calls its columns; [`compare`] finds those of our machines, and
//! what differs. Both are exact: amounts are decimal text, and are rounded to micro-dollars once they are added up.

mod amount;
mod columns;
mod compare;
mod days;
mod explorer;
mod kinds;
mod read;

use domain::run::BilledKind;

pub use amount::InvoiceAmount;
pub use compare::{BillComparison, BilledState, LedgerMachine, MachineComparison, UnknownResource, compare};
pub use read::read_invoice;

/// Whose export it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvoiceFormat {
    /// A Cost and Usage Report of AWS, legacy or 2.0.
    Aws,
    /// An answer of the Cost Explorer of AWS.
    CostExplorer,
    /// A billing export of Google Cloud.
    Gcp,
    /// Cost details of Azure.
    Azure,
    /// `resource,day,usd`.
    Simple,
}

impl InvoiceFormat {
    /// The provider whose machines are on it; `None` for a file that may be about any.
    pub fn provider(self) -> Option<&'static str> {
        match self {
            InvoiceFormat::Aws | InvoiceFormat::CostExplorer => Some("aws"),
            InvoiceFormat::Gcp => Some("gcp"),
            InvoiceFormat::Azure => Some("azure"),
            InvoiceFormat::Simple => None,
        }
    }

    /// Whether it says of which machine a disk is, which costs here contain: else a machine on it has cost less than was paid.
    pub fn names_disks(self) -> bool {
        match self {
            InvoiceFormat::Aws | InvoiceFormat::Gcp | InvoiceFormat::Azure | InvoiceFormat::Simple => true,
            InvoiceFormat::CostExplorer => false,
        }
    }
}

/// A line of a provider's bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceLine {
    /// The provider's names of what is billed, without the path before them; empty where the line is about nothing in
    /// particular.
    pub names: Vec<String>,
    /// Its tag with the owner.
    pub owner: Option<String>,
    /// Its tag with our name of the machine.
    pub instance: Option<String>,
    /// What it is for.
    pub kind: BilledKind,
    /// The first day of UTC of its usage, since 1970-01-01.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// How much.
    pub amount: InvoiceAmount,
}

/// A provider's bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// Whose.
    pub format: InvoiceFormat,
    /// Its lines, in their order.
    pub lines: Vec<InvoiceLine>,
}

/// Why a file is no bill that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceError {
    /// The line of the file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl std::fmt::Display for InvoiceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for InvoiceError {}
