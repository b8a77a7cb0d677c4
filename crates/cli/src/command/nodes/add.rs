//! `gradus nodes add`.

use std::path::PathBuf;

use cloud::ssh::{Connection, Host, bootstrap};
use domain::{Node, Rate};
use server::Home;

use crate::error::{Error, exit};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus nodes add`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node in gradus
    name: String,
    /// What `ssh` is given: `user@host`, or a host of `~/.ssh/config` [default: the name]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Configuration file of `ssh` [default: your own]
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// What the machine costs per hour
    #[arg(long, value_name = "PRICE", default_value = "$0")]
    price: Rate,
}

/// Connects, prepares the machine, and writes down what it is made of. Adding it again brings it up to date.
///
/// # Errors
/// [`Error::Usage`] for a name that cannot be one, [`Error::Code`] when the machine cannot be reached or prepared.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if args.name == "any" || args.name.is_empty() || !args.name.chars().all(is_name) {
        let message = format!("`{}` cannot be the name of a node", args.name);
        let hint = match args.name.split_once('@') {
            Some((_, name)) if !name.is_empty() && name.chars().all(is_name) => {
                format!("give it a name: `gradus nodes add {name} --address {}`", args.name)
            }
            _ => "use letters, digits, `-`, `_` and `.`; `any` means all nodes".to_owned(),
        };
        return Err(Error::Usage { message, hint });
    }
    let config = match &args.ssh_config {
        Some(file) => Some(std::fs::canonicalize(file).map_err(Error::file("open", file))?),
        None => None,
    };
    let mut host = Host {
        address: args.address.unwrap_or_else(|| args.name.clone()),
        name: args.name,
        config,
        rate: args.price,
        node: Node::default(),
        is_drained: false,
        is_prepared: true,
    };
    let inventory = machine::inventory(&home)?;
    let ssh = machine::ssh(settings, &home, inventory.clone());
    match inventory.hosts.iter().any(|other| other.name == host.name) {
        true => printer.say(format!("connecting to {}", host.address)),
        false => printer.say(format!("connecting to {}; a new machine gets {}", host.address, copies(settings))),
    }
    let connection = Connection::new(&host, home.owner());
    let node = bootstrap::prepare(&connection, &ssh.program, home.owner())
        .map_err(|error| error.to_string())
        .and_then(|site| bootstrap::probe(&connection, &site, home.owner()));
    host.node = node.map_err(|message| {
        let hint = format!("try `ssh {}` yourself: it must connect without a question", host.address);
        Error::Code { message, hint: Some(hint), code: exit::WORLD }
    })?;
    let mut inventory = inventory;
    let known = inventory.hosts.iter().position(|other| other.name == host.name);
    match known {
        Some(index) => inventory.hosts[index] = host.clone(),
        None => inventory.hosts.push(host.clone()),
    }
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))?;
    match printer.is_json() {
        true => printer.json(&serde_json::json!(host)),
        false => {
            printer.data(format!("node     {} ({})", host.name, host.address));
            printer.data(format!("machine  {}", super::list::machine(&host.node)));
            printer.data(format!("price    {}", host.rate));
            printer.data(format!(
                "use      write `resources: {{infra: ssh/{}}}` in a job, or `infra: ssh` for any node",
                host.name
            ));
        }
    }
    Ok(exit::DONE)
}

/// What is copied, for people who wait for it.
fn copies(settings: &GlobalSettings) -> &'static str {
    match settings.libtorch {
        Some(_) => "the gradus executables and libtorch (about 500 MB, once)",
        None => "the gradus executables",
    }
}
