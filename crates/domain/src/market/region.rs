//! Regions: where a cloud's machines stand, which programmes its auditors attest there, and how clean its grid is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::listing::Cloud;

/// One region of one cloud. Unknown values are `None` or empty, never estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Region {
    pub cloud: Cloud,
    /// The cloud's name of it, such as `eu-central-1`.
    pub name: String,
    /// Two letters of ISO 3166, such as `DE`; empty where a price list has no regions.
    pub country: String,
    /// City or state, as far as it is public.
    pub place: String,
    pub compliance: Vec<Compliance>,
    pub carbon: Option<Carbon>,
}

/// Carbon intensity of a region's grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carbon {
    /// Grams of CO2 equivalent, annual mean; of the grid, regardless of certificates bought by the cloud.
    pub grams_per_kwh: f64,
    /// The year.
    pub dated: String,
    pub source: String,
}

/// A rule or programme that data may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compliance {
    /// The data stays in the EEA, the United Kingdom or Switzerland.
    Gdpr,
    /// The cloud signs a business associate agreement that covers the region.
    Hipaa,
    Iso27001,
    Soc2,
}

impl Compliance {
    /// Every regime there is.
    pub const ALL: [Compliance; 4] = [Compliance::Gdpr, Compliance::Hipaa, Compliance::Iso27001, Compliance::Soc2];

    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Compliance::Gdpr => "gdpr",
            Compliance::Hipaa => "hipaa",
            Compliance::Iso27001 => "iso27001",
            Compliance::Soc2 => "soc2",
        }
    }
}

impl fmt::Display for Compliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Compliance {
    type Err = String;

    fn from_str(text: &str) -> Result<Compliance, String> {
        let bare: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let known = Compliance::ALL.into_iter().find(|known| known.word() == bare);
        known.ok_or_else(|| format!("`{text}` is none of `gdpr`, `hipaa`, `iso27001` and `soc2`"))
    }
}
