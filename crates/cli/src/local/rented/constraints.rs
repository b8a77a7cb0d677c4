//! The market and the job's constraints, as the search takes them.

use cloud::Catalog;
use cloud::catalog::wanted::{Unknown, Wanted};
use domain::accelerators::{AcceleratorKind, Accelerators};
use domain::listing::Cloud;
use domain::problem::Problem;
use domain::{Elapsed, Job};
use plan::search::{Admission, Constraints, GpuRequirement, MarketIndex, NODES, Tariffs};
use plan::spot::SpotAvailability;

use crate::error::Error;

/// What is offered, as the search sees it.
pub fn market(catalog: &Catalog) -> MarketIndex<'_> {
    MarketIndex::of(
        &catalog.listings,
        |name| catalog.gpus.named(name),
        |listing| catalog.region(&listing.cloud, &listing.region),
        |listing, terms| catalog.availability(listing, terms),
        &catalog.tariffs,
    )
}

/// Adds the GPUs that a job describes, and the fractional GPUs that it asks for.
///
/// # Errors
/// [`Error::Unfit`] for a described name that the catalog knows, and for a part that a GPU is not divided into.
pub fn described(job: &Job, catalog: &mut Catalog) -> Result<(), Error> {
    let unfit = |key: &str, (message, hint): (String, String)| Error::Unfit(vec![Problem::at(key, message).hint(hint)]);
    catalog.describe(&job.wants.gpu_specs, "the job").map_err(|why| unfit("resources.gpu_specs", why))?;
    for wanted in &job.wants.accelerators {
        catalog.divide(wanted).map_err(|why| unfit("resources.accelerators", why))?;
    }
    Ok(())
}

/// What a job allows.
///
/// # Errors
/// [`Error::Unfit`] for words that nothing in the catalog has.
pub fn question(job: &Job, catalog: &Catalog, availability: Option<SpotAvailability>) -> Result<Constraints, Error> {
    let wants = &job.wants;
    let words = Wanted { clouds: wants.clouds.clone(), regions: wants.regions.clone(), ..Wanted::default() };
    words.check(catalog).map_err(|unknown| unfit("resources", &unknown))?;
    for gpu in &wants.accelerators {
        Wanted { gpu: Some(gpu.clone()), ..Wanted::default() }
            .check(catalog)
            .map_err(|unknown| unfit("resources.accelerators", &unknown))?;
    }
    let data_at = job.data.at.as_deref().map(|at| at.split_once('/').map_or((at, None), |(one, two)| (one, Some(two))));
    let data_at = data_at.map(|(cloud, region)| (Cloud::named(cloud), region.map(str::to_owned)));
    if let Some((cloud, region)) = &data_at {
        let regions = region.iter().cloned().collect();
        let place = Wanted { clouds: vec![cloud.name().to_owned()], regions, ..Wanted::default() };
        place.check(catalog).map_err(|unknown| unfit("data.at", &unknown))?;
    }
    let tariffs = |(cloud, region): &(Cloud, Option<String>)| Tariffs::of(&catalog.tariffs, cloud, region.as_deref());
    let data_tariffs = data_at.as_ref().map(tariffs).unwrap_or_default();
    Ok(Constraints {
        admission: Admission {
            gpus: wants.accelerators.iter().map(|wanted| gpus(wanted, catalog)).collect(),
            instance_type: wants.instance_type.clone(),
            clouds: wants.clouds.iter().map(|name| Cloud::named(name)).collect(),
            regions: wants.regions.clone(),
            compliance: wants.compliance.clone(),
            max_price: wants.max_price,
            spot: wants.spot,
            on_demand: wants.on_demand,
            dedicated: wants.dedicated,
            needs: job.needs,
            other_families: catalog
                .gpus
                .list
                .iter()
                .filter(|gpu| plan::search::admit::other_family(gpu).is_some())
                .map(|gpu| gpu.name.clone())
                .collect(),
        },
        nodes: if wants.nodes.is_empty() { NODES.to_vec() } else { wants.nodes.clone() },
        budget: job.budget.map(|budget| budget.max),
        deadline: job.deadline.map(|deadline| Elapsed(deadline.micros())),
        max_carbon: wants.max_carbon,
        availability,
        data_at,
        data_tariffs,
    })
}

/// The error for a name of a job file that nothing in the catalog has.
fn unfit(key: &str, unknown: &Unknown) -> Error {
    Error::Unfit(vec![Problem::at(key, unknown.to_string()).hint(unknown.hint())])
}

/// The error for an unknown name on the command line.
pub fn usage(unknown: Unknown) -> Error {
    Error::Usage { hint: unknown.hint(), message: unknown.to_string() }
}

fn gpus(wanted: &Accelerators, catalog: &Catalog) -> GpuRequirement {
    match &wanted.kind {
        AcceleratorKind::Named(name) => GpuRequirement {
            names: Some(catalog.names_of(name, wanted.part.as_ref()).into_iter().map(str::to_owned).collect()),
            memory: None,
            count: wanted.count,
        },
        AcceleratorKind::Memory { memory, or_more } => {
            GpuRequirement { names: None, memory: Some((*memory, *or_more)), count: wanted.count }
        }
    }
}
