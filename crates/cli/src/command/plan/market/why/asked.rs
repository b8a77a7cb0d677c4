//! Selects offers by name parts separated by `/`.

use std::collections::BTreeSet;

use cloud::Catalog;
use domain::accelerators::{AcceleratorKind, Accelerators};
use domain::file::nearest::nearest;
use domain::listing::{Cloud, Listing};
use plan::search::PurchaseOption;

use crate::error::Error;

/// A selection of offers: those that match every part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    pub(super) text: String,
    /// Whether the question is `--why-not`.
    pub(super) not: bool,
    pub(super) cloud: Option<Cloud>,
    pub(super) region: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) gpus: Option<(Vec<String>, Option<u32>)>,
    pub(super) terms: Option<PurchaseOption>,
}

/// Parses a selection.
///
/// # Errors
/// [`Error::Usage`] for names that are not in the catalog, and combinations that match no offer.
pub fn asked(why: &[String], why_not: &[String], catalog: &Catalog) -> Result<Vec<Asked>, Error> {
    let each = why.iter().map(|text| (text, false)).chain(why_not.iter().map(|text| (text, true)));
    each.map(|(text, not)| read(text, not, catalog)).collect()
}

fn read(text: &str, not: bool, catalog: &Catalog) -> Result<Asked, Error> {
    let mut asked = Asked { text: text.to_owned(), not, ..Asked::default() };
    let listings = &catalog.listings;
    for part in text.split('/').map(str::trim) {
        let word = part.to_lowercase().replace(['-', ' '], "_");
        let terms = PurchaseOption::ALL.into_iter().find(|terms| terms.key() == word);
        let kind = listings.iter().find(|listing| listing.instance_type.eq_ignore_ascii_case(part));
        let gpus = part.parse::<Accelerators>().ok().and_then(|wanted| match &wanted.kind {
            AcceleratorKind::Named(name) => {
                let names = catalog.names_of(name, wanted.part.as_ref());
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                (!names.is_empty()).then_some((names, wanted.count))
            }
            AcceleratorKind::Memory { .. } => None,
        });
        if let Some(terms) = terms {
            asked.terms = Some(terms);
        } else if let Some(listing) = kind {
            asked.kind = Some(listing.instance_type.clone());
        } else if listings.iter().any(|listing| listing.cloud == Cloud::named(part)) {
            asked.cloud = Some(Cloud::named(part));
        } else if let Some(listing) = listings.iter().find(|listing| listing.region.eq_ignore_ascii_case(part)) {
            asked.region = Some(listing.region.clone());
        } else if let Some(gpus) = gpus {
            asked.gpus = Some(gpus);
        } else {
            return Err(unknown(part, catalog));
        }
    }
    let means = |listing: &&Listing| asked.means(listing);
    if !listings.iter().any(|listing| means(&listing)) {
        let elsewhere = Asked { region: None, terms: None, ..asked.clone() };
        let places: BTreeSet<String> = listings
            .iter()
            .filter(|listing| elsewhere.means(listing))
            .map(|listing| format!("`{}/{}`", listing.cloud, listing.region))
            .collect();
        let hint = match places.len() {
            0 => "`gradus offers` lists what there is".to_owned(),
            _ => format!("it is offered in {}", places.into_iter().take(6).collect::<Vec<_>>().join(", ")),
        };
        return Err(Error::Usage { message: format!("no offer is `{text}`"), hint });
    }
    Ok(asked)
}

/// The error for a part that matches no offer, with the nearest names.
fn unknown(part: &str, catalog: &Catalog) -> Error {
    let of = |names: BTreeSet<&str>| -> Vec<String> {
        let first = nearest(part, names.iter().copied()).map(str::to_owned);
        let start: String = part.to_lowercase().chars().take(3).collect();
        let alike = names.iter().filter(|name| name.to_lowercase().starts_with(&start) && start.len() == 3);
        let mut found: Vec<String> = first.into_iter().collect();
        found.extend(alike.take(4).map(|name| (*name).to_owned()));
        found
    };
    let listings = &catalog.listings;
    let mut near = of(listings.iter().map(|listing| listing.instance_type.as_str()).collect());
    near.extend(of(listings.iter().map(|listing| listing.region.as_str()).collect()));
    near.extend(of(catalog.gpus.list.iter().map(|gpu| gpu.name.as_str()).collect()));
    let mut seen = BTreeSet::new();
    near.retain(|name| seen.insert(name.clone()));
    let near: Vec<String> = near.iter().take(6).map(|name| format!("`{name}`")).collect();
    let hint = match near.is_empty() {
        true => "write a machine type, or parts such as `aws/us-east-1/p4d.24xlarge/spot`; `gradus offers` lists them"
            .to_owned(),
        false => format!("known are {} and more: `gradus offers --all` lists them", near.join(", ")),
    };
    Error::Usage { message: format!("no offer has `{part}`: it is no machine type, cloud, region, GPU or terms"), hint }
}

impl Asked {
    pub(super) fn means(&self, listing: &Listing) -> bool {
        let gpus = |(names, count): &(Vec<String>, Option<u32>)| {
            listing.gpus.name.as_ref().is_some_and(|name| names.contains(name))
                && count.is_none_or(|count| count == listing.gpus.count)
        };
        self.cloud.as_ref().is_none_or(|cloud| *cloud == listing.cloud)
            && self.region.as_ref().is_none_or(|region| *region == listing.region)
            && self.kind.as_ref().is_none_or(|kind| *kind == listing.instance_type)
            && self.gpus.as_ref().is_none_or(gpus)
    }
}
