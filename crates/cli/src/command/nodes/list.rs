//! `gradus nodes list`.

use cloud::ssh::Host;
use cloud::{Provider, ProviderAnswer, ProviderCall, Ssh};
use domain::rental::MachineState;
use server::Home;

use crate::error::{Error, exit};
use crate::local::machine as machines;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Lists nodes, and the work that each of them reports.
///
/// # Errors
/// [`Error::File`] if `nodes.json` cannot be read.
pub fn run(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let inventory = machines::inventory(&home)?;
    let (has_pools, mut rows) = (!inventory.pools().is_empty(), Vec::new());
    for host in &inventory.hosts {
        let alone = cloud::ssh::Inventory { hosts: vec![host.clone()] };
        let ssh = Ssh::new(machines::ssh(settings, &home, alone));
        let state = match ssh.call(&ProviderCall::Observe(Vec::new())) {
            _ if !host.is_prepared => "not prepared: type its `gradus nodes add` again".to_owned(),
            ProviderAnswer::Observed(view) => {
                let running = view.machines.iter().filter(|seen| !matches!(seen.state, MachineState::Gone(_)));
                let names: Vec<&str> = running.map(|seen| seen.instance.as_str()).collect();
                if names.is_empty() { "idle".to_owned() } else { format!("runs {}", names.join(", ")) }
            }
            ProviderAnswer::Unavailable(why) => why,
            _ => "it gave another answer".to_owned(),
        };
        let state = if host.is_drained { format!("drained, {state}") } else { state };
        if printer.is_json() {
            printer.json(&serde_json::json!({ "node": host, "state": state }));
        }
        let mut row = vec![host.name.clone(), host.address.clone(), machine(host), host.rate.to_string(), state];
        if has_pools {
            row.insert(1, host.pool.clone().unwrap_or_default());
        }
        rows.push(row);
    }
    if printer.is_json() {
        return Ok(exit::DONE);
    }
    if rows.is_empty() {
        printer.say("no node was added yet; add one with `gradus nodes add NAME --address user@host`");
        return Ok(exit::DONE);
    }
    let mut columns = vec!["node", "address", "machine", "price", "state"];
    if has_pools {
        columns.insert(1, "pool");
    }
    for line in table::lines(&columns, &rows) {
        printer.data(line);
    }
    Ok(exit::DONE)
}

/// What a machine is made of, in a few words.
pub fn machine(host: &Host) -> String {
    let gigabytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let node = &host.node;
    let gpus = host.facts.as_ref().map_or(&[][..], |facts| &facts.gpu.devices[..]);
    let gpus = match gpus {
        [] => String::new(),
        [first, ..] => format!(", {} × {}", gpus.len(), first.name),
    };
    format!(
        "{} cores, {:.0} GiB memory, {:.0} GiB free disk{gpus}",
        node.cores,
        gigabytes(node.memory.0),
        gigabytes(node.disk_free.0)
    )
}
