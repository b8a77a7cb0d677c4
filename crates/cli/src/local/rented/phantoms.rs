//! No search over the catalog finds a phantom: an offer that `catalog/availability.csv` denies. Many jobs are searched; each
//! candidate, what it falls back to, and each candidate of a remedy is looked up in the table itself. The same jobs in a market
//! that believes every price show what the table keeps away.

use cloud::Catalog;
use domain::Job;
use domain::listing::Listing;
use plan::estimate::FittedCoefficients;
use plan::search::{
    Availability, Candidate, Change, Constraints, Estimates, MarketIndex, PurchaseOption, ResolvedWorkload, Search,
    remedy, resolve,
};

use super::constraints::{market, question};

/// What is trained.
const TRAINED: [&str; 3] = [
    "data: {samples: 1281167, bytes: 147 GB}\n\
     workload: {model: {config: {model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}}, image: 224, \
     batch: 1024, epochs: 90, optimizer: sgd_momentum}\n",
    "data: {bytes: 1 GB}\n\
     workload: {model: {config: {model_type: llama, hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 32, \
     num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256}}, sequence: 2048, batch: 64, tokens: 100M}\n",
    "data: {bytes: 1 GB}\n\
     workload: {model: {config: {model_type: llama, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, \
     num_key_value_heads: 8, intermediate_size: 14336, vocab_size: 128256}}, sequence: 4096, batch: 64, tokens: 100M}\n",
];

/// What is asked for.
const ASKED: [&str; 28] = [
    "",
    "resources: {spot: only}",
    "resources: {spot: never}",
    "resources: {dedicated: true}",
    "resources: {cloud: gcp}",
    "resources: {cloud: gcp, spot: only}",
    "resources: {cloud: aws}",
    "resources: {cloud: azure}",
    "resources: {cloud: oci}",
    "resources: {region: NL}",
    "resources: {region: CA}",
    "resources: {region: northamerica-northeast1}",
    "resources: {region: europe-north1, spot: only}",
    "resources: {accelerators: 'A100:8'}",
    "resources: {accelerators: 'H100:8'}",
    "resources: {accelerators: 'H100:8', spot: only}",
    "resources: {accelerators: 'L4:8'}",
    "resources: {accelerators: 'L4:1', spot: only}",
    "resources: {accelerators: 'A100-80GB:8', cloud: gcp}",
    "resources: {compliance: [gdpr]}",
    "resources: {max_price: $4/h}",
    "resources: {max_price: $30/h, spot: only}",
    "resources: {max_carbon: 20}",
    "resources: {instance_type: a3-highgpu-8g}",
    "resources: {instance_type: a2-megagpu-16g, spot: only}",
    "resources: {instance_type: g2-standard-96}",
    "budget: {max: $60}",
    "deadline: 12h",
];

/// Cloud, how machines' names start, terms and regions of each row of the table.
fn table() -> Vec<[&'static str; 4]> {
    let row = |line: &'static str| {
        let mut cells = line.splitn(5, ',');
        [(); 4].map(|()| cells.next().unwrap())
    };
    include_str!("../../../../../catalog/availability.csv").lines().skip(1).map(row).collect()
}

/// Whether the table denies an offer, read without the catalog's own code.
fn is_denied(table: &[[&'static str; 4]], listing: &Listing, terms: PurchaseOption) -> bool {
    let named = table.iter().filter(|row| {
        row[0] == listing.cloud.name()
            && listing.instance_type.starts_with(row[1])
            && row[2].split(' ').any(|word| word == terms.key())
    });
    let Some(row) = named.max_by_key(|row| row[1].len()) else { return false };
    let doubtful = format!("{}?", listing.region);
    row[3] != "?" && !row[3].split(' ').any(|region| region == listing.region || region == doubtful)
}

/// Candidates of a job and of each remedy, where nothing remains: how many, and how many of them are phantoms.
fn counted(
    table: &[[&'static str; 4]],
    search: &mut Search<'_, Estimates<'_>>,
    constraints: &Constraints,
) -> (usize, usize) {
    let market = search.market;
    let is_phantom = |candidate: &&Candidate| {
        let listing = market.listings[candidate.listing].listing;
        let falls_back = candidate.timeline.fallen_back > 0.0;
        is_denied(table, listing, candidate.terms)
            || (falls_back && is_denied(table, listing, PurchaseOption::OnDemand))
    };
    let mut answers = vec![search.answer(constraints)];
    if answers[0].front.is_empty() {
        for change in Change::WISHES.into_iter().chain(Change::LIMITS) {
            answers.extend(remedy(search, constraints, change).map(|(_, answer)| answer));
        }
    }
    let all: usize = answers.iter().map(|answer| answer.candidates.len()).sum();
    (all, answers.iter().flat_map(|answer| &answer.candidates).filter(is_phantom).count())
}

/// Both counts over all that is asked for, in one market.
fn of_market(
    table: &[[&'static str; 4]],
    (market, subject): (&MarketIndex, &ResolvedWorkload),
    coefficients: &FittedCoefficients,
    asked: &[Constraints],
) -> (usize, usize) {
    let mut search = Search::new(&subject.spec, market, Estimates::new(&subject.network, coefficients));
    asked
        .iter()
        .map(|constraints| counted(table, &mut search, constraints))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[test]
fn no_job_is_answered_with_a_machine_that_its_region_does_not_have() {
    let (table, catalog) = (table(), Catalog::embedded().unwrap());
    let coefficients = FittedCoefficients::embedded().unwrap();
    let said = market(&catalog);
    // Every price is believed.
    let believed = MarketIndex::of(
        &catalog.listings,
        |name| catalog.gpus.named(name),
        |listing| catalog.region(&listing.cloud, &listing.region),
        |_, _| Availability::Known,
        &catalog.tariffs,
    );
    for trained in TRAINED {
        let job = |asked: &str| {
            let text = format!("name: searched\nrun: python train.py\n{trained}{asked}\n");
            Job::parse(&text, "job.yaml").unwrap().job
        };
        let asked: Vec<Constraints> =
            ASKED.into_iter().map(|asked| question(&job(asked), &catalog, None).unwrap()).collect();
        let subject = resolve(&job(""), None).unwrap();
        let with = of_market(&table, (&said, &subject), &coefficients, &asked);
        let without = of_market(&table, (&believed, &subject), &coefficients, &asked);
        assert_eq!(with.1, 0);
        assert!(with.0 > 1_000, "{}", with.0);
        assert!(without.1 > 100, "the check sees no phantom where every price is believed: {}", without.1);
    }
}
