//! `gradus nodes drain`, `resume` and `rm`.

use cloud::ssh::{Connection, bootstrap};
use cloud::{Provider, ProviderAnswer, ProviderCall, Ssh};
use domain::rental::MachineState;
use server::Home;

use crate::error::{Error, exit};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus nodes drain` and `gradus nodes resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node
    node: String,
}

/// Arguments of `gradus nodes pool`.
#[derive(Debug, clap::Args)]
pub struct PoolArgs {
    /// Name of the node
    node: String,
    /// Pool to put it into; without one it belongs to none
    pool: Option<String>,
}

/// Arguments of `gradus nodes rm`.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// Name of the node
    node: String,
    /// Forget the node although it cannot be reached; what was copied to it stays there
    #[arg(long)]
    force: bool,
}

/// Drains a node, or uses it again.
///
/// # Errors
/// [`Error::Usage`] for a name that is no node, [`Error::File`] when `nodes.json` cannot be written.
pub fn drain(args: &Args, is_drained: bool, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut inventory = machine::inventory(&home)?;
    super::find(&inventory, &args.node)?;
    for host in inventory.hosts.iter_mut().filter(|host| host.name == args.node) {
        host.is_drained = is_drained;
    }
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))?;
    match is_drained {
        true => printer.say(format!("node {} is drained: nothing new starts there", args.node)),
        false => printer.say(format!("node {} is used again", args.node)),
    }
    Ok(exit::DONE)
}

/// Puts a node into a pool, or takes it out of its own.
///
/// # Errors
/// As [`drain`], and for a name that cannot be that of a pool.
pub fn pool(args: &PoolArgs, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut inventory = machine::inventory(&home)?;
    super::find(&inventory, &args.node)?;
    super::add::check_pool(&args.node, args.pool.as_deref(), &inventory)?;
    for host in inventory.hosts.iter_mut().filter(|host| host.name == args.node) {
        host.pool.clone_from(&args.pool);
    }
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))?;
    match &args.pool {
        Some(pool) => printer.say(format!("node {} is in pool {pool}: `infra: ssh/{pool}` in a job", args.node)),
        None => printer.say(format!("node {} is in no pool", args.node)),
    }
    Ok(exit::DONE)
}

/// Removes a node on which nothing runs.
///
/// # Errors
/// [`Error::Usage`] for a name that is no node or one that is in use, [`Error::Code`] when it cannot be reached.
pub fn remove(args: &RemoveArgs, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut inventory = machine::inventory(&home)?;
    let host = super::find(&inventory, &args.node)?.clone();
    if !args.force {
        let alone = cloud::ssh::Inventory { hosts: vec![host.clone()] };
        let ssh = Ssh::new(machine::ssh(settings, &home, alone));
        let unreachable = |message: String| {
            let hint = "`--force` forgets the node and leaves its files there".to_owned();
            Error::Code { message, hint: Some(hint), code: exit::WORLD }
        };
        match ssh.call(&ProviderCall::Observe(Vec::new())) {
            ProviderAnswer::Observed(view) => {
                let used = view.machines.iter().find(|seen| !matches!(seen.state, MachineState::Gone(_)));
                if let Some(used) = used {
                    let message = format!("node `{}` is in use by `{}`", host.name, used.instance);
                    let hint = "stop that run first (`gradus status` lists runs), or drain the node".to_owned();
                    return Err(Error::Usage { message, hint });
                }
            }
            ProviderAnswer::Unavailable(why) => return Err(unreachable(why)),
            _ => return Err(unreachable(format!("node `{}` gave another answer", host.name))),
        }
        let removed = bootstrap::remove(&Connection::new(&host, home.owner()), home.owner());
        removed.map_err(|error| unreachable(error.to_string()))?;
    }
    inventory.hosts.retain(|other| other.name != host.name);
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))?;
    // Only of a node that was added with its key.
    let _ = std::fs::remove_file(super::add::pools::config_of(&home, &host.name));
    printer.say(format!("node {} is removed", host.name));
    Ok(exit::DONE)
}
