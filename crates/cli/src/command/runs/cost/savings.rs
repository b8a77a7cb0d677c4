//! What the spot machines of runs have saved against the same machines on demand.

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::rented::MachineChoice;
use domain::listing::{Cloud, Listing, Price};
use domain::run::BillLine;
use domain::{Elapsed, InstanceId, Money, Rate, RunId, Timestamp};
use plan::money::ledger::LedgerLine;
use plan::money::savings::{SpotRent, SpotSavings, spot_savings};
use plan::{Run, World};
use serde_json::{Value, json};
use server::{Home, Series, State};

use crate::error::{Error, exit};
use crate::local::ledger::open_lines;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Prints what spot has saved in each of these runs that had a spot machine, and the sum.
///
/// # Errors
/// [`Error`].
pub fn run(
    runs: &[(&RunId, &Run)],
    (home, state): (&Home, &State),
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let catalog = Catalog::open(&settings.home)?;
    let series = Series::open(home)?;
    let now = Timestamp(jiff::Timestamp::now().as_microsecond());
    let open = open_lines(home, state.world());
    let mut prices = OnDemandPrices { catalog: &catalog, dates: BTreeSet::new() };
    let mut found = Vec::new();
    for (id, run) in runs {
        let rents = rents(&mut prices, state.world(), (id, run), &open);
        if !rents.is_empty() {
            let goodput = series.goodput(id, &state.records(id, 0)?, now)?;
            found.push(((*id).clone(), spot_savings(&rents, &goodput)));
        }
    }
    print(&found, &prices.dates, printer);
    Ok(exit::DONE)
}

/// Prices on demand, and the dates of those that were asked for.
struct OnDemandPrices<'a> {
    catalog: &'a Catalog,
    dates: BTreeSet<String>,
}

impl OnDemandPrices<'_> {
    fn of(&mut self, cloud: &Cloud, choice: &MachineChoice) -> Option<Rate> {
        let is_meant = |listing: &&Listing| {
            listing.cloud == *cloud && listing.region == choice.region && listing.instance_type == choice.machine
        };
        let Price { rate, dated, .. } = self.catalog.listings.iter().find(is_meant)?.on_demand.as_ref()?;
        self.dates.insert(dated.clone());
        Some(*rate)
    }
}

/// The rents of a run's spot machines: those of its bill, or what is metered so far.
fn rents(
    prices: &mut OnDemandPrices<'_>,
    world: &World,
    (id, run): (&RunId, &Run),
    open: &[LedgerLine],
) -> Vec<SpotRent> {
    let provider_of = |instance| {
        let known = world.instances.get(instance);
        known.map_or(&run.plan.offer, |instance| &instance.offer).provider.as_str()
    };
    let mut seen = BTreeSet::new();
    let mut rent = |provider: &str, kind: &str, line: MachineRent<'_>| {
        let choice = kind.parse().ok().filter(|choice: &MachineChoice| choice.is_spot)?;
        let on_demand = prices.of(&Cloud::named(provider), &choice);
        // A second line of a machine's name is that of another one, which was rented for the same request.
        let is_extra = !seen.insert(line.instance.clone()) || line.race;
        Some(SpotRent { elapsed: line.elapsed, amount: line.amount, on_demand, is_extra })
    };
    match &run.bill {
        Some(bill) => {
            let rents = bill.lines.iter().filter_map(|line| {
                let BillLine { instance, usage, amount, race, .. } = line;
                let machine = MachineRent { instance, elapsed: usage.elapsed, amount: *amount, race: *race };
                rent(provider_of(instance), &line.kind, machine)
            });
            rents.collect()
        }
        None => {
            let rents = open.iter().filter(|line| line.run == *id && line.adjusts.is_none()).filter_map(|line| {
                let LedgerLine { instance, elapsed, amount, race, .. } = line;
                let kind = &world.instances.get(instance)?.offer.kind;
                let machine = MachineRent { instance, elapsed: *elapsed, amount: *amount, race: *race };
                rent(&line.provider, kind, machine)
            });
            rents.collect()
        }
    }
}

/// What a line of a bill, and one of a run without a bill, have in common.
struct MachineRent<'a> {
    instance: &'a InstanceId,
    elapsed: Elapsed,
    amount: Money,
    race: bool,
}

fn print(found: &[(RunId, SpotSavings)], dates: &BTreeSet<String>, printer: &mut Printer) {
    let sum = found.iter().fold(SpotSavings::default(), |sum, (_, savings)| sum.and(savings));
    if printer.is_json() {
        found.iter().for_each(|(id, savings)| printer.json(&json!({ "run": id, "savings": value(savings) })));
        return printer.json(&json!({ "total": value(&sum) }));
    }
    if found.is_empty() {
        return printer.data("no spot machine was rented");
    }
    let mut rows: Vec<Vec<String>> = found.iter().map(|(id, savings)| row(id.as_str(), savings)).collect();
    rows.push(row("total", &sum));
    let lines = table::lines(&["run", "spot", "of it interruptions", "on demand", "saved", ""], &rows);
    lines.into_iter().for_each(|line| printer.data(line));
    if sum.unknown != Money::default() {
        printer.data(format!("{} more was paid for spot machines whose on-demand price is not known", sum.unknown));
    }
    if let (Some(from), Some(to)) = (dates.first(), dates.last()) {
        printer.data(format!("on-demand prices of {from} to {to}, see `gradus catalog info`"));
    }
}

fn row(name: &str, savings: &SpotSavings) -> Vec<String> {
    let share = savings.share().map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
    let [spot, interruptions, on_demand, saved] =
        [savings.paid, savings.interruptions, savings.on_demand, savings.saved()].map(|money| money.to_string());
    vec![name.to_owned(), spot, interruptions, on_demand, saved, share]
}

fn value(savings: &SpotSavings) -> Value {
    json!({
        "spot_micro_usd": savings.paid.micros(),
        "interruptions_micro_usd": savings.interruptions.micros(),
        "on_demand_micro_usd": savings.on_demand.micros(),
        "saved_micro_usd": savings.saved().micros(),
        "unknown_price_micro_usd": savings.unknown.micros(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::event::{RentIntended, RunEnd, Submitted};
    use domain::run::{Bill, Outcome, StopBy, Usage};
    use domain::{Bytes, Event, Job, Node, Offer, Record};

    const SPOT: &str = "us-east-1/g4dn.xlarge/spot";

    fn job() -> Job {
        let job = serde_json::json!({
            "name": "a", "work": {"command": {"run": "true"}}, "envs": {},
            "needs": {"cores": null, "memory": null, "disk": null}, "budget": null, "deadline": null,
            "recovery": {"restarts": 20, "restarts_on_errors": 0, "exit_codes": []},
        });
        serde_json::from_value(job).unwrap()
    }

    /// A run that rented a machine of this kind for an hour at a dollar; without a bill it is on its way out.
    fn world(kind: &str, is_billed: bool) -> (World, RunId) {
        let run = RunId::new("a-1");
        let (instance, rate) = (run.instance(1), Rate::from_micros_per_hour(1_000_000));
        let node =
            Node { cpu: "cpu".into(), cores: 8, memory: Bytes(1 << 36), disk_free: Bytes(1 << 40), volume: None };
        let offer = Offer { provider: "aws".into(), kind: kind.into(), node, rate, price_source: "a table".into() };
        let plan = domain::Plan {
            offer: offer.clone(),
            share: None,
            memory: None,
            time: None,
            cost: None,
            reserve: Money::default(),
            assumptions: Vec::new(),
            alternatives: Vec::new(),
            anchors: Vec::new(),
        };
        let submitted = Submitted {
            run: run.clone(),
            job: job(),
            plan,
            job_hash: "h".into(),
            file: "a.yaml".into(),
            trial: None,
            user: None,
        };
        let intended = RentIntended {
            run: run.clone(),
            instance: instance.clone(),
            token: "t".into(),
            offer,
            reserved: Money::default(),
            others: Vec::new(),
        };
        let mut events = vec![
            Event::Submitted(Box::new(submitted)),
            Event::RentIntended(Box::new(intended)),
            Event::Launched { instance: instance.clone(), handle: None, account: None },
            Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 },
        ];
        if is_billed {
            events.extend(ended(&run, instance, kind, rate));
        }
        let records = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event });
        (World::replay(&records.collect::<Vec<_>>()).unwrap(), run)
    }

    fn ended(run: &RunId, instance: InstanceId, kind: &str, rate: Rate) -> Vec<Event> {
        let usage = Usage { started: Timestamp(0), elapsed: Elapsed(3_600_000_000) };
        let amount = rate.cost(usage.elapsed);
        let line = BillLine { instance: instance.clone(), kind: kind.into(), usage, rate, amount, race: false };
        let bill = Bill { lines: vec![line], total: amount, adjustment: Money::default() };
        vec![
            Event::StopRequested { run: run.clone(), by: StopBy::User },
            Event::ReleaseIntended { instance: instance.clone(), lost_race: false },
            Event::Released { instance, usage },
            Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Succeeded } },
            Event::Billed { run: run.clone(), bill },
        ]
    }

    fn found(kind: &str, is_billed: bool) -> Vec<SpotRent> {
        let home = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(home.path()).unwrap();
        let mut prices = OnDemandPrices { catalog: &catalog, dates: BTreeSet::new() };
        let (world, id) = world(kind, is_billed);
        let run = &world.runs[&id];
        let metered = LedgerLine {
            run: id.clone(),
            instance: run.instances[0].clone(),
            provider: "aws".into(),
            user: None,
            project: None,
            started: Timestamp(0),
            elapsed: Elapsed(3_600_000_000),
            amount: Money::from_micros(1_000_000),
            race: false,
            adjusts: None,
            is_final: false,
        };
        rents(&mut prices, &world, (&id, run), &[metered])
    }

    #[test]
    fn spot_is_compared_with_the_same_machine_in_the_same_region() {
        let elapsed = Elapsed(3_600_000_000);
        let paid = Money::from_micros(1_000_000);
        // As `catalog/offers.csv` has it.
        let on_demand = Some(Rate::from_micros_per_hour(526_000));
        let expected = vec![SpotRent { elapsed, amount: paid, on_demand, is_extra: false }];
        assert_eq!(found(SPOT, true), expected);
        assert_eq!(found(SPOT, false), expected, "what is metered, before there is a bill");
    }

    #[test]
    fn machines_on_demand_save_nothing_and_unknown_ones_have_no_price() {
        assert_eq!(found("us-east-1/g4dn.xlarge", true), []);
        let unknown = found("us-east-1/p99.large/spot", true);
        assert_eq!(unknown.iter().map(|rent| rent.on_demand).collect::<Vec<_>>(), [None]);
    }
}
