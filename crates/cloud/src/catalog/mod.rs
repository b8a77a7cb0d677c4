//! The catalog: what can be rented where, what it costs, and what it is made of; dated, and each figure with its source.
//!
//! The tables in `catalog/` at the root of the repository are embedded, so that planning needs no network. They are
//! joined once, when the catalog is read; nothing here decides. Money is read as decimal text and kept in whole
//! micro-dollars. Read [`listings`] for the join, and `catalog/README.md` for where every table comes from.

mod amount;
pub mod gpus;
mod listings;
mod table;

pub use amount::Currency;

use domain::Bytes;
use domain::gpu::Gpu;
use domain::listing::Listing;

use crate::catalog::amount::micros;
use crate::catalog::gpus::Gpus;
use crate::catalog::table::rows;

/// Everything that is known about what can be rented.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Every instance type in every region, in the order of the tables.
    pub listings: Vec<Listing>,
    /// Every GPU that is known, and its spellings.
    pub gpus: Gpus,
    pub currencies: Vec<Currency>,
}

/// A table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read line {line} of `{file}`: {message}")]
pub struct Error {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    pub message: String,
}

impl Error {
    fn row(file: &str, line: u64, message: String) -> Error {
        Error { file: file.to_owned(), line, message }
    }
}

/// The texts of the tables.
#[derive(Debug, Clone, Copy)]
struct Texts<'a> {
    gpus: &'a str,
    aliases: &'a str,
    currencies: &'a str,
    instances: &'a str,
    sparecores: &'a str,
    quotes: &'a str,
    offers: &'a str,
}

const EMBEDDED: Texts = Texts {
    gpus: include_str!("../../../../catalog/gpus.csv"),
    aliases: include_str!("../../../../catalog/aliases.csv"),
    currencies: include_str!("../../../../catalog/currencies.csv"),
    instances: include_str!("../../../../catalog/instances.csv"),
    sparecores: include_str!("../../../../catalog/instances-sparecores.csv"),
    quotes: include_str!("../../../../catalog/quotes.csv"),
    offers: include_str!("../../../../catalog/offers.csv"),
};

impl Catalog {
    /// The catalog that is part of the program.
    ///
    /// # Errors
    /// [`Error`] when a table of ours is wrong; a test reads them all.
    pub fn embedded() -> Result<Catalog, Error> {
        Catalog::read(&EMBEDDED)
    }

    fn read(texts: &Texts) -> Result<Catalog, Error> {
        let gpus = Gpus::read(texts.gpus, texts.aliases)?;
        let mut currencies = Vec::new();
        let columns = ["currency", "per_dollar", "dated", "source"];
        rows("catalog/currencies.csv", texts.currencies, columns, |[code, per_dollar, dated, source]| {
            let per_dollar_micros = micros(per_dollar)?;
            if per_dollar_micros == 0 {
                return Err(format!("`per_dollar`: `{per_dollar}` is nothing"));
            }
            let [code, dated, source] = [code, dated, source].map(str::to_owned);
            currencies.push(Currency { code, per_dollar_micros, dated, source });
            Ok(())
        })?;
        let listings = listings::read(texts, &gpus, &currencies)?;
        Ok(Catalog { listings, gpus, currencies })
    }

    /// The GPU that a spelling means: `A100`, `a100-80gb`, `NVIDIA H100 80GB HBM3`. Memory, where it is given, decides
    /// between GPUs of one spelling, and must fit; otherwise the smallest is meant, as SkyPilot has it.
    pub fn gpu(&self, spelling: &str, memory: Option<Bytes>) -> Option<&Gpu> {
        self.gpus.meant(spelling, memory)
    }

    /// The GPU of a listing; none where it is not in the table.
    pub fn gpu_of(&self, listing: &Listing) -> Option<&Gpu> {
        self.gpus.named(listing.gpus.name.as_deref()?)
    }
}

#[cfg(test)]
mod tests;
