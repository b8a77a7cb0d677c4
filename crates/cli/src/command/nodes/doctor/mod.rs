//! `gradus doctor`: what is wrong with this machine or with nodes, why, and what to do.

mod all_reduce;
mod between;
pub mod visit;

use cloud::ssh::{Host, Inventory};
use node::facts::{NodeFacts, gather};
use serde_json::{Value, json};
use server::Home;

use crate::doctor::{Diagnosis, Severity, all_reduce as judge_all_reduce, examine, links, worst};
use crate::error::{Error, exit};
use crate::figures::counted;
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use visit::NodeVisit;

/// Arguments of `gradus doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names of nodes [default: this machine]
    nodes: Vec<String>,
    /// This machine and every node
    #[arg(long, conflicts_with = "nodes")]
    all: bool,
    /// Leave out what measures: disk speed, bandwidth and all-reduce
    #[arg(long)]
    quick: bool,
}

impl Args {
    /// Whether it needs the nodes of a home.
    pub fn looks_at_nodes(&self) -> bool {
        self.all || !self.nodes.is_empty()
    }
}

/// What was found on one machine.
struct Examined {
    /// The name of the node; none for this machine.
    node: Option<String>,
    title: String,
    diagnoses: Vec<Diagnosis>,
    facts: Option<NodeFacts>,
}

/// Looks at machines, several at once, and then at the network between them.
///
/// # Errors
/// [`Error::Usage`] for a name that is no node, [`Error::File`] when `nodes.json` cannot be read or written.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let inventory = machine::inventory(&home)?;
    let hosts = hosts(args, &inventory)?;
    let mut all = Vec::new();
    if args.all || args.nodes.is_empty() {
        let facts = gather(&super::facts::wanted(settings, !args.quick));
        let title = format!("this machine ({})", facts.names.host);
        all.push(Examined { node: None, title, diagnoses: examine(&facts, None), facts: Some(facts) });
    }
    if !hosts.is_empty() {
        printer.say(format!("looking at {}", counted(hosts.len() as u64, "node")));
    }
    let program = machine::ssh(settings, &home, Inventory::default()).program;
    let visits = visit::all(&hosts, &program, home.owner(), !args.quick);
    let reached: Vec<(&Host, &NodeVisit)> = hosts.iter().zip(&visits).map(|(host, visit)| (*host, visit)).collect();
    let between = if args.quick { Vec::new() } else { between::measure(&reached) };
    all.extend(reached.iter().map(|(host, visit)| examined(host, visit)));
    remember(&home, &reached)?;
    let all_reduce = if args.quick { None } else { all_reduce::measure(&reached, &between) };
    let mut network = links(&between, true);
    network.extend(all_reduce.map(|outcome| judge_all_reduce(&outcome, &between)));
    let severity = all.iter().map(|one| worst(&one.diagnoses)).chain([worst(&network)]).max().unwrap_or(Severity::Pass);
    match printer.is_json() {
        true => printer.json(&report(&all, &network, severity)),
        false => show(&all, &network, printer),
    }
    Ok(match severity {
        Severity::Pass | Severity::Info | Severity::Unknown => exit::DONE,
        Severity::Warning => exit::WARNED,
        Severity::Critical => exit::SICK,
    })
}

fn hosts<'a>(args: &Args, inventory: &'a Inventory) -> Result<Vec<&'a Host>, Error> {
    match args.all {
        true => Ok(inventory.hosts.iter().collect()),
        false => args.nodes.iter().map(|name| super::find(inventory, name)).collect(),
    }
}

fn examined(host: &Host, visit: &NodeVisit) -> Examined {
    let mut diagnoses = Vec::new();
    if let Some(failure) = &visit.failure {
        diagnoses.push(failure.clone());
    }
    if let Some(facts) = &visit.facts {
        diagnoses.extend(examine(facts, visit.clock));
    }
    diagnoses.extend(links(&visit.links, false));
    let title = format!("{} ({})", host.name, host.address);
    Examined { node: Some(host.name.clone()), title, diagnoses, facts: visit.facts.clone() }
}

/// Writes down what was found out, for `nodes list` and plans.
fn remember(home: &Home, reached: &[(&Host, &NodeVisit)]) -> Result<(), Error> {
    if reached.is_empty() {
        return Ok(());
    }
    // Another command may have changed it meanwhile.
    let mut inventory = machine::inventory(home)?;
    for (host, visit) in reached {
        for known in inventory.hosts.iter_mut().filter(|known| known.name == host.name) {
            visit.note(known);
        }
    }
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))
}

fn report(all: &[Examined], network: &[Diagnosis], severity: Severity) -> Value {
    let machine = |one: &Examined| {
        json!({
            "node": one.node,
            "severity": worst(&one.diagnoses),
            "findings": one.diagnoses,
            "facts": one.facts,
        })
    };
    json!({
        "severity": severity,
        "machines": all.iter().map(machine).collect::<Vec<Value>>(),
        "network": network,
    })
}

fn show(all: &[Examined], network: &[Diagnosis], printer: &mut Printer) {
    for one in all {
        printer.data(format!("{}: {}", one.title, summary(&one.diagnoses)));
        one.diagnoses.iter().for_each(|diagnosis| print(diagnosis, printer));
    }
    if !network.is_empty() {
        printer.data(format!("between nodes: {}", summary(network)));
        network.iter().for_each(|diagnosis| print(diagnosis, printer));
    }
}

fn summary(all: &[Diagnosis]) -> String {
    let count = |severity| all.iter().filter(|one| one.severity == severity).count() as u64;
    let (critical, warnings) = (count(Severity::Critical), count(Severity::Warning));
    let words = [(critical, "critical fault"), (warnings, "warning")];
    let said: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| counted(*count, word)).collect();
    if said.is_empty() { "nothing to worry about".to_owned() } else { said.join(", ") }
}

fn print(diagnosis: &Diagnosis, printer: &mut Printer) {
    printer.data(format!("  {:<8}  {:<8}  {}", diagnosis.severity.word(), diagnosis.check, diagnosis.symptom));
    for (word, text) in [("cause", &diagnosis.cause), ("remedy", &diagnosis.remedy)] {
        if let Some(text) = text {
            printer.data(format!("            {word:<8}  {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_machine_counts_what_is_wrong() {
        let found = |severity| Diagnosis::found(severity, "disk", "s", "c", "r");
        assert_eq!(summary(&[Diagnosis::pass("disk", "s"), found(Severity::Info)]), "nothing to worry about");
        let all = [found(Severity::Warning), found(Severity::Critical), found(Severity::Warning)];
        assert_eq!(summary(&all), "1 critical fault, 2 warnings");
    }
}
