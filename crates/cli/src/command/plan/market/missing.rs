//! What the market lacks for a job, in sentences, and how to add it.

use std::collections::BTreeMap;

use cloud::prices::CLOUDS;
use domain::listing::Cloud;
use plan::search::{MarketGap, Reason, SearchResult};

use crate::figures::counted;

/// What is missing, and what to do about it.
pub fn told(gap: &MarketGap) -> (String, String) {
    match gap {
        MarketGap::Figures => (
            "the catalog has no figures of the GPU that the job names, so nothing can be estimated on it".to_owned(),
            "describe it under `resources`, such as `gpu_specs: {X100: {memory: 96GB, bandwidth: 3.35TB/s, bf16: \
             989TFLOPS, power: 700W}}`; `gradus catalog info` says of some GPUs why there are none"
                .to_owned(),
        ),
        MarketGap::Gpus(names) => (
            format!("no machine in the catalog has a {}", listed(names.iter().map(String::as_str))),
            "import machines that have it, with their price: `gradus catalog import FILE.csv`, a table with the columns \
             `cloud,region,instance_type,gpu,gpu_count,on_demand`; or ask for another GPU"
                .to_owned(),
        ),
        MarketGap::Prices(machines) => (format!("no price is known of {}", counts(machines)), prices(machines)),
        MarketGap::Stock(machines) => (
            format!("prices are listed of {}; sources say that the regions have no such machines", counts(machines)),
            "ask for another region or machine, or see `gradus plan JOB --why MACHINE` for the source".to_owned(),
        ),
    }
}

/// Own machines of which there are not so many.
pub fn too_few_machines(answer: &SearchResult) -> Option<(String, String)> {
    let offers = answer.ruled_out.get(&Reason::Machines)?;
    let message = format!("of {} there are fewer machines than the job runs on", counted(*offers as u64, "offer"));
    let hint = "write a smaller `num_nodes`, or import the machines with their number in the column `machines`";
    Some((message, hint.to_owned()))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// `84 machines of tencent, and the job asks for nothing else`.
fn counts(machines: &BTreeMap<Cloud, usize>) -> String {
    let each = machines.iter().map(|(cloud, count)| format!("{} of {cloud}", counted(*count as u64, "machine")));
    format!("{}, and the job asks for nothing else", each.collect::<Vec<_>>().join(" and "))
}

/// How prices come in: read from the clouds that publish them, else stated by the user.
fn prices(machines: &BTreeMap<Cloud, usize>) -> String {
    let read = machines.keys().filter(|cloud| CLOUDS.contains(cloud));
    let mut ways: Vec<String> = read.map(|cloud| format!("`gradus catalog refresh {cloud}` reads them")).collect();
    if machines.contains_key(&Cloud::Own) {
        let own = "write what yours cost into the column `on_demand`, 0 if nothing, and import the table again";
        ways.push(own.to_owned());
    }
    if machines.keys().any(|cloud| *cloud != Cloud::Own) {
        ways.push("`gradus catalog import FILE.csv` takes yours".to_owned());
    }
    ways.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_prices_say_where_they_come_from() {
        let check = |clouds: &[(Cloud, usize)], message: &str, hint: &str| {
            let gap = MarketGap::Prices(clouds.iter().cloned().collect());
            assert_eq!(told(&gap), (message.to_owned(), hint.to_owned()));
        };
        check(
            &[(Cloud::Own, 1)],
            "no price is known of 1 machine of own, and the job asks for nothing else",
            "write what yours cost into the column `on_demand`, 0 if nothing, and import the table again",
        );
        check(
            &[(Cloud::Tencent, 84), (Cloud::named("attic"), 2)],
            "no price is known of 84 machines of tencent and 2 machines of attic, and the job asks for nothing else",
            "`gradus catalog refresh tencent` reads them; `gradus catalog import FILE.csv` takes yours",
        );
    }
}
