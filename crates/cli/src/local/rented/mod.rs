//! Machines of clouds: the client, what the user has set, and the plan of a job that is to be run there.

mod clouds;
pub mod constraints;
pub mod cores;
mod image;
#[cfg(test)]
mod phantoms;
mod ranked;
pub mod volumes;
mod zones;

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::aws::wire::failure::AwsFailure;
use cloud::prices::CLOUDS;
use cloud::rented::MachineChoice;
use domain::listing::Cloud;
use domain::plan::CostSpread;
use domain::terms::PurchaseOption;
use domain::wants::{Spot, Wants};
use domain::{Duration, Elapsed, Job, Money, Offer, Plan, Rate};
use plan::local::JobFacts;
use server::Home;

use crate::error::{Error, exit};
use crate::figures::{OLD_DAYS, day_of, is_old};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use image::of_image;
use ranked::{Chosen, Ranked, ranked};
use volumes::{Volumes, with_disks};
use zones::{Zones, zones};

pub use clouds::{RentedCloud, asked_for, providers};

/// The region to ask about the account.
pub fn region(settings: &GlobalSettings, typed: Option<&str>) -> String {
    typed.map(str::to_owned).or_else(|| settings.aws.region()).unwrap_or_else(|| "us-east-1".to_owned())
}

/// Alternatives that a run has at most, beside what its plan has chosen.
const ALTERNATIVES: usize = 20;

/// Regions whose zones are looked up.
const ZONED_REGIONS: usize = 3;

/// An alternative costs at most so many times as much as what was chosen.
const DEARER: i64 = 2;

/// Plans a job on machines of a cloud: the choice of `gradus plan`, and what is rented instead where that one cannot be had.
///
/// # Errors
/// As [`RentedCloud::open`]; [`Error::Usage`] where nothing is what the job asks for, [`Error::Infeasible`] where nothing that there is suffices.
pub fn plan(
    (job, name): (&Job, &str),
    facts: &JobFacts,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Plan, Error> {
    if let Some(part) = job.wants.accelerators.iter().find(|wanted| wanted.part.is_some()) {
        let message =
            format!("cannot rent `{part}`: machines of `{name}` have whole GPUs, and nothing here divides them");
        let hint = "ask for whole GPUs; `gradus plan` plans with parts of them".to_owned();
        return Err(Error::Usage { message, hint });
    }
    let cloud = RentedCloud::open(name, settings, home)?;
    let mut catalog = Catalog::open(&settings.home)?;
    constraints::described(job, &mut catalog)?;
    let offered = |volumes: &Volumes| cloud.offers(&catalog, (&job.wants, &job.needs), volumes);
    let Ranked { offers, chosen, volumes } = ranked(job, &catalog, offered)?;
    if offers.is_empty() {
        let message = format!("the catalog has no machine of `{name}` that is what `resources` asks for");
        return Err(Error::Usage { message, hint: format!("`gradus offers --cloud {name}` lists what there is") });
    }
    let plans = plan::local::plans(job, &offers, facts)
        .map_err(|infeasible| Error::Infeasible { reasons: reasons(&infeasible) })?;
    let place = |plan: &Plan| offers.iter().position(|offer| *offer == plan.offer).unwrap_or(usize::MAX);
    let fitting: BTreeSet<usize> = plans.iter().map(place).collect();
    let Some(mut plan) = plans.into_iter().min_by_key(place) else {
        return Err(Error::Infeasible { reasons: vec!["no machine is offered".to_owned()] });
    };
    let chosen = chosen.filter(|_| place(&plan) == 0);
    let is_foretold = chosen.is_some();
    if let Some(chosen) = chosen {
        let disk = cloud.disk_rate(&catalog, &plan.offer);
        foretell(&mut plan, job, chosen, disk);
    }
    plan.assumptions.extend(volumes.reason(&plan.offer));
    plan.assumptions.extend(of_image(job, &catalog, &plan.offer));
    plan.assumptions.extend(of_price(&catalog, &plan.offer, day_of(jiff::Timestamp::now())));
    let others: Vec<Offer> = fitting.into_iter().map(|at| offers[at].clone()).collect();
    let zones = zones(&cloud, &catalog, &others, printer);
    spread(&mut plan, job, others, &zones);
    if job.wants.on_demand > 0 {
        let wants = Wants { spot: Spot::Never, ..job.wants.clone() };
        let on_demand = cloud.offers(&catalog, (&wants, &job.needs), &volumes);
        anchor(&mut plan, job, &on_demand, is_foretold)?;
    }
    Ok(plan)
}

/// Adds to a plan of spot machines those that are rented on demand beside them, with what they cost more unless the cost is the
/// search's, which counts them. An alternative that there is none of on demand is left out.
fn anchor(plan: &mut Plan, job: &Job, on_demand: &[Offer], is_foretold: bool) -> Result<(), Error> {
    let of = |spot: &Offer| -> Option<Offer> {
        let choice = spot.kind.parse::<MachineChoice>().ok()?;
        let is_same = |offer: &&Offer| {
            let found = offer.kind.parse::<MachineChoice>();
            found.is_ok_and(|found| found.machine == choice.machine && found.region == choice.region && !found.is_spot)
        };
        let found = on_demand.iter().find(is_same)?.clone();
        Some(Offer { kind: MachineChoice { is_spot: false, ..choice }.to_string(), ..found })
    };
    let Some(first) = of(&plan.offer) else {
        let message = format!("`{}` cannot be rented on demand within what `resources` asks for", plan.offer.kind);
        let hint = "raise `max_price`, or leave `on_demand` out".to_owned();
        return Err(Error::Usage { message, hint });
    };
    let pairs = std::mem::take(&mut plan.alternatives).into_iter().filter_map(|spot| Some((of(&spot)?, spot)));
    let (anchors, alternatives): (Vec<Offer>, Vec<Offer>) = pairs.unzip();
    plan.alternatives = alternatives;
    let (machines, number) = (job.machines(), job.wants.on_demand);
    plan.assumptions.push(format!(
        "{number} of {machines} machines on demand at {}, the others spot machines at {}",
        first.rate, plan.offer.rate
    ));
    plan.anchors = std::iter::once(first).chain(anchors).collect();
    let spot = plan.offer.rate.times(machines).micros_per_hour();
    let more = plan.rate_of(machines, number).micros_per_hour().saturating_sub(spot);
    let more = |time: Duration| Rate::from_micros_per_hour(more).cost(Elapsed(time.micros()));
    if let (Some(cost), Some(time)) = (&mut plan.cost, &plan.time)
        && !is_foretold
    {
        cost.low += more(time.low);
        cost.middle += more(time.middle);
        cost.high += more(time.high);
        plan.reserve = job.budget.map_or(cost.high, |budget| budget.max);
    }
    Ok(())
}

/// Puts what the search says of time and cost into a plan, with the price of the disks.
fn foretell(plan: &mut Plan, job: &Job, chosen: Chosen, disk: Rate) {
    let Chosen { forecast, storage, assumptions } = chosen;
    let (disks, usual) = (disk.times(job.nodes()), forecast.time.middle);
    let with_disks = |cost: Money, time: Duration| with_disks(cost, storage, disks, (time, usual));
    let cost = CostSpread {
        low: with_disks(forecast.cost.low, forecast.time.low),
        middle: with_disks(forecast.cost.middle, forecast.time.middle),
        high: with_disks(forecast.cost.high, forecast.time.high),
    };
    (plan.time, plan.cost) = (Some(forecast.time), Some(cost));
    plan.reserve = job.budget.map_or(cost.high, |budget| budget.max);
    plan.assumptions = assumptions;
}

/// That the price of an offer is old, and how to get the current one.
fn of_price(catalog: &Catalog, offer: &Offer, today: i64) -> Option<String> {
    let choice = offer.kind.parse::<MachineChoice>().ok()?;
    let cloud = Cloud::named(&offer.provider);
    let mut there = catalog.listings.iter().filter(|listing| listing.cloud == cloud && listing.region == choice.region);
    let listing = there.find(|listing| listing.instance_type == choice.machine)?;
    let terms = if choice.is_spot { PurchaseOption::Spot } else { PurchaseOption::OnDemand };
    let dated = &terms.price(listing)?.dated;
    // A refresh does not replace what the user has imported, and not every cloud's prices can be read.
    let remedy = match CLOUDS.contains(&cloud) && !catalog.is_imported(listing) {
        true => format!("`gradus catalog refresh {cloud}` reads the current one"),
        false => "`gradus catalog import` replaces it".to_owned(),
    };
    is_old(dated, today).then(|| format!("the price is still that of {dated}, more than {OLD_DAYS} days ago; {remedy}"))
}

/// Gives a plan its alternatives: first the other machines, then the zones of each region one by one. Several machines of one
/// run are always in one zone, where zones are known.
fn spread(plan: &mut Plan, job: &Job, others: Vec<Offer>, zones: &Zones) {
    let chosen = plan.offer.clone();
    let most = chosen.rate.micros_per_hour().saturating_mul(DEARER);
    let does_as_well = |offer: &Offer| {
        let (node, needed) = (&offer.node, &chosen.node);
        node.cores >= needed.cores && node.memory >= needed.memory && offer.rate.micros_per_hour() <= most
    };
    let zoned = |offer: &Offer| -> Vec<Offer> {
        let is_allowed =
            |offer: &Offer| job.wants.max_price.is_none_or(|most| offer.rate <= most) && does_as_well(offer);
        zones.split(offer).into_iter().filter(is_allowed).collect()
    };
    let others: Vec<Offer> = std::iter::once(chosen.clone())
        .chain(others.into_iter().filter(|offer| *offer != chosen && does_as_well(offer)))
        .collect();
    let mut all: Vec<Offer> = match job.nodes() {
        1 => {
            let in_zones: Vec<Offer> = others.iter().flat_map(zoned).collect();
            let half = ALTERNATIVES / 2 + 1;
            others.into_iter().take(half.max(ALTERNATIVES.saturating_sub(in_zones.len()))).chain(in_zones).collect()
        }
        _ => {
            let each = |offer: Offer| match zoned(&offer) {
                zones if zones.is_empty() => vec![offer],
                zones => zones,
            };
            others.into_iter().flat_map(each).collect()
        }
    };
    all.truncate(ALTERNATIVES + 1);
    plan.offer = all.remove(0);
    plan.alternatives = all;
}

/// The alternatives of a plan, in a line.
pub fn alternatives(plan: &Plan) -> Option<String> {
    let highest = plan.alternatives.iter().map(|offer| offer.rate).max()?;
    let kinds: Vec<&str> = plan.alternatives.iter().map(|offer| offer.kind.as_str()).collect();
    let (shown, left) = kinds.split_at(kinds.len().min(3));
    let more = if left.is_empty() { String::new() } else { format!(" and {} more", left.len()) };
    Some(format!("else     {}{more}, at up to {highest} each", shown.join(", ")))
}

/// Why no offer suffices, a line each.
pub fn reasons(infeasible: &plan::local::NoFeasibleOffer) -> Vec<String> {
    let line = |reason: &domain::Problem| {
        let hint = reason.hint.as_ref().map(|hint| format!("\n    hint: {hint}")).unwrap_or_default();
        format!("  {}{hint}", reason.message)
    };
    infeasible.reasons.iter().map(line).collect()
}

/// A request that AWS has refused.
pub fn refused(doing: &str, failure: &AwsFailure) -> Error {
    let hint = match failure {
        AwsFailure::Credentials(_) => "see docs/aws.md for where gradus reads credentials from",
        AwsFailure::Denied { .. } => "`gradus cloud policy aws` prints the policy that is needed",
        _ => "run the same command again",
    };
    Error::Code { message: format!("cannot {doing}: {failure}"), hint: Some(hint.to_owned()), code: exit::WORLD }
}
