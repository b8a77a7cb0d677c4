//! `gradus nodes add`.

pub(super) mod pools;

use std::io::ErrorKind;
use std::path::PathBuf;

use cloud::ssh::{
    Connection, CopiedFiles, Executables, Host, Inventory, NodeReach, PeerCopy, PeerLoad, PeerNodes, SshError,
    bootstrap,
};
use domain::{Node, Offer, Rate};
use server::Home;

use super::doctor::visit::visit;
use crate::error::{Error, exit};
use crate::figures::size;
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus nodes add`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node in gradus
    #[arg(required_unless_present = "pools")]
    name: Option<String>,
    /// Add every machine of this file instead: pools as SkyPilot writes them in `~/.sky/ssh_node_pools.yaml`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "address", "pool"])]
    pools: Option<PathBuf>,
    /// SSH destination: `user@host`, or a host of `~/.ssh/config` [default: the name]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// SSH configuration file [default: that of `ssh`]
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Pool that the node belongs to: `infra: ssh/POOL` in a job is any of its nodes [default: as before]
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// How agents there reach the loop: `tunnel`, or `tls` for `gradus serve --agents-at` [default: as before, or `tunnel`]
    #[arg(long, value_name = "WAY")]
    reach: Option<NodeReach>,
    /// What the machine costs per hour
    #[arg(long, value_name = "PRICE", default_value = "$0", allow_hyphen_values = true)]
    price: Rate,
}

/// Adds a machine, or all of a file.
///
/// # Errors
/// [`Error::Usage`] for a name that cannot be one, [`Error::Code`] when a machine cannot be reached or prepared.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match &args.pools {
        Some(file) => pools::run(file, &args, settings, printer),
        None => add(args, settings, printer),
    }
}

/// Connects, prepares the machine, and records its hardware. Adding it again updates both.
fn add(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let name = args.name.unwrap_or_default();
    check_name(&name)?;
    if args.address.as_deref().is_some_and(|address| address.trim().is_empty()) {
        let hint = "write `--address user@host`, or leave it out if the name is a host of `~/.ssh/config`".to_owned();
        return Err(Error::Usage { message: "the address of the node is empty".to_owned(), hint });
    }
    let config = match &args.ssh_config {
        Some(file) => Some(std::fs::canonicalize(file).map_err(Error::file("open", file))?),
        None => None,
    };
    let inventory = machine::inventory(&home)?;
    check_pool(&name, args.pool.as_deref(), &inventory)?;
    let known = inventory.hosts.iter().find(|other| other.name == name);
    let mut host = Host {
        address: args.address.unwrap_or_else(|| name.clone()),
        name,
        config,
        // Others of its pool may have what it needs, and its connection may have been measured.
        pool: args.pool.or_else(|| known?.pool.clone()),
        reach: args.reach.or_else(|| Some(known?.reach)).unwrap_or_default(),
        rate: args.price,
        node: Node::default(),
        is_drained: known.is_some_and(|known| known.is_drained),
        is_prepared: known.is_some_and(|known| known.is_prepared),
        facts: known.and_then(|known| known.facts.clone()),
        link: known.and_then(|known| known.link),
    };
    let program = machine::ssh(settings, &home, Inventory::default()).program;
    match host.is_prepared {
        true => printer.say(format!("connecting to {}", host.address)),
        false => printer.say(format!("connecting to {}; a new machine gets {}", host.address, copies(settings))),
    }
    if !host.is_prepared {
        // Where this is interrupted while files are copied, `gradus nodes rm` deletes them.
        let connected = Connection::new(&host, home.owner()).run("run a command", "true", &[]);
        connected.map_err(|error| failed(&error, &host))?;
        record(&host, &home)?;
    }
    let load = PeerLoad::default();
    let (inventory, owner) = (&inventory, home.owner());
    let peers = PeerNodes { node: &host, inventory, owner, load: &load, private_only: false };
    let (node, copied) = prepared(&peers, &program)?;
    copied.iter().flat_map(copied_lines).for_each(|line| printer.say(line));
    (host.node, host.is_prepared) = (node, true);
    describe(&mut host, &program, home.owner());
    record(&host, &home)?;
    tell(&host, printer);
    Ok(exit::DONE)
}

/// Writes a node down, among those that there are by now.
fn record(host: &Host, home: &Home) -> Result<(), Error> {
    let mut inventory = machine::inventory(home)?;
    inventory.put(host.clone());
    inventory.write(home.root()).map_err(Error::file("write", &home.root().join("nodes.json")))
}

/// What a node is, and how a job asks for it.
fn tell(host: &Host, printer: &mut Printer) {
    match printer.is_json() {
        true => printer.json(&serde_json::json!(host)),
        false => {
            printer.data(format!("node     {} ({})", host.name, host.address));
            printer.data(format!("machine  {}", super::list::machine(host)));
            super::show::details(host).into_iter().for_each(|line| printer.data(line));
            printer.data(format!("price    {}", host.rate));
            let any =
                host.pool.as_ref().map_or(String::new(), |pool| format!("`infra: ssh/{pool}` for any of its pool, "));
            printer.data(format!(
                "use      write `resources: {{infra: ssh/{}}}` in a job, {any}or `infra: ssh` for any node",
                host.name
            ));
        }
    }
}

/// Whether something may be the name of a node or a pool.
fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty() && name != Offer::ANY && name.chars().all(is_letter)
}

/// Refuses a name for both a node and a pool: a job could mean either.
pub(super) fn check_pool(node: &str, pool: Option<&str>, inventory: &Inventory) -> Result<(), Error> {
    let usage = |message: String, hint: &str| Err(Error::Usage { message, hint: hint.to_owned() });
    if inventory.pools().contains(node) {
        return usage(
            format!("`{node}` is the name of a pool"),
            "give the node another name; `gradus nodes list` shows pools",
        );
    }
    let Some(pool) = pool else { return Ok(()) };
    if !is_name(pool) {
        let hint = "use letters, digits, `-`, `_` and `.`; `any` means all nodes";
        return usage(format!("`{pool}` cannot be the name of a pool"), hint);
    }
    if pool == node || inventory.hosts.iter().any(|host| host.name == pool) {
        let hint = "give the pool another name: a job says `infra: ssh/NAME` for either";
        return usage(format!("`{pool}` is the name of a node"), hint);
    }
    Ok(())
}

/// Refuses what cannot be the name of a node.
fn check_name(name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a node");
    let hint = match name.split_once('@') {
        Some((_, host)) if is_name(host) => format!("give it a name: `gradus nodes add {host} --address {name}`"),
        _ => "use letters, digits, `-`, `_` and `.`; `any` means all nodes".to_owned(),
    };
    Err(Error::Usage { message, hint })
}

/// Copies missing files to a machine, and queries its hardware.
fn prepared(peers: &PeerNodes, program: &Executables) -> Result<(Node, Option<CopiedFiles>), Error> {
    let (host, owner) = (peers.node, peers.owner);
    let connection = Connection::new(host, owner);
    let installed = bootstrap::install(&connection, program, owner, || Some(*peers));
    let (site, copied) = installed.map_err(|error| failed(&error, host))?;
    let node = bootstrap::probe(&connection, &site, owner).map_err(|message| Error::Code {
        message,
        hint: Some(NEEDS.to_owned()),
        code: exit::WORLD,
    })?;
    Ok((node, copied))
}

fn failed(error: &SshError, host: &Host) -> Error {
    Error::Code { message: error.to_string(), hint: Some(unprepared(error, &host.address)), code: exit::WORLD }
}

/// What was copied beside `gradus` itself, in lines: from other nodes, and from here.
fn copied_lines(copied: &CopiedFiles) -> Vec<String> {
    let CopiedFiles { whole, held, sent, peers } = copied;
    let mut lines: Vec<String> = peers.iter().flat_map(peer_lines).collect();
    let rest = copied.from_here().0;
    if rest == 0 && peers.iter().any(|copied| copied.bytes.0 > 0) {
        return lines;
    }
    let rest = size(rest);
    lines.push(match held.0 {
        0 => format!("copied {rest} of programs and libraries, compressed to {}", size(sent.0)),
        held => format!(
            "copied {rest} of programs and libraries, compressed to {}; {} of {} were there already",
            size(sent.0),
            size(held),
            size(whole.0)
        ),
    });
    lines
}

/// What came from another node, and why not everything did.
fn peer_lines(copied: &PeerCopy) -> Vec<String> {
    let PeerCopy { peer, bytes, failed } = copied;
    let came = (bytes.0 > 0).then(|| format!("fetched {} of programs and libraries from `{peer}`", size(bytes.0)));
    let failed = failed.as_ref().map(|why| format!("cannot fetch everything from `{peer}`: {why}"));
    came.into_iter().chain(failed).collect()
}

/// Adds what the machine says of itself. Disk and network are measured where it is new or was changed.
fn describe(host: &mut Host, program: &Executables, owner: &str) {
    let known = host.facts.clone();
    let quick = visit(host, program, owner, false);
    let is_known = known
        .as_ref()
        .zip(quick.facts.as_ref())
        .is_some_and(|(known, facts)| known.fingerprint() == facts.fingerprint() && known.disk.figures.is_some());
    match is_known && host.link.is_some() {
        true => quick.note(host),
        false => visit(host, program, owner, true).note(host),
    }
}

/// What to do about a machine that could not be prepared.
fn unprepared(error: &SshError, address: &str) -> String {
    match error {
        SshError::Connect { .. } => format!("try `ssh {address}` yourself: it must connect without a question"),
        SshError::Broken { .. } => CONTINUES.to_owned(),
        SshError::Here { doing, source } if doing.starts_with("run `ssh") && source.kind() == ErrorKind::NotFound => {
            "install the SSH client here, such as with `apt install openssh-client`".to_owned()
        }
        SshError::Failed { doing, .. } if doing == bootstrap::RUN_GRADUS => NEEDS.to_owned(),
        SshError::Failed { .. } | SshError::Here { .. } => COPIES.to_owned(),
    }
}

/// Where `gradus` runs.
const NEEDS: &str = "a node needs Linux on x86-64 with glibc 2.35 or newer, such as Ubuntu 22.04 or Debian 12; \
                     `gradus nodes rm NAME` deletes what was copied";

/// What to try when copying fails.
const COPIES: &str = "check the free space in the home folder there, then type the same command again: it continues; \
                      `gradus nodes rm NAME` deletes what was copied";

/// What to do where the connection broke.
const CONTINUES: &str = "type the same command again: it continues with what has arrived; \
                         `gradus nodes rm NAME` deletes what was copied";

/// Describes the files that are copied, for the progress message.
fn copies(settings: &GlobalSettings) -> &'static str {
    match settings.libtorch {
        Some(_) => "the gradus executables and libtorch (about 500 MB, once)",
        None => "the gradus executables",
    }
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::*;

    #[test]
    fn what_was_copied_is_said_with_what_was_there() {
        let check = |held: u64, expected: &str| {
            let (whole, sent) = (Bytes(500_000_000), Bytes(30_000_000));
            let copied = CopiedFiles { whole, held: Bytes(held), sent, peers: Vec::new() };
            assert_eq!(copied_lines(&copied), [expected]);
        };
        check(0, "copied 500 MB of programs and libraries, compressed to 30.0 MB");
        check(
            400_000_000,
            "copied 100 MB of programs and libraries, compressed to 30.0 MB; 400 MB of 500 MB were there already",
        );
    }

    #[test]
    fn what_came_from_another_node_is_said_and_why_not_everything_did() {
        let check = |bytes: u64, failed: Option<&str>, expected: &[&str]| {
            let peer = PeerCopy { peer: "west".into(), bytes: Bytes(bytes), failed: failed.map(str::to_owned) };
            let (whole, held, sent) = (Bytes(500_000_000), Bytes(0), Bytes(1000));
            let copied = CopiedFiles { whole, held, sent, peers: vec![peer] };
            assert_eq!(copied_lines(&copied), expected);
        };
        let all = "fetched 500 MB of programs and libraries from `west`";
        check(500_000_000, None, &[all]);
        let failed = "cannot fetch everything from `west`: the copy broke off";
        let some = "fetched 400 MB of programs and libraries from `west`";
        let rest = "copied 100 MB of programs and libraries, compressed to 1.00 kB";
        check(400_000_000, Some("the copy broke off"), &[some, failed, rest]);
        let rest = "copied 500 MB of programs and libraries, compressed to 1.00 kB";
        check(0, Some("the copy broke off"), &[failed, rest]);
    }

    #[test]
    fn a_machine_without_ssh_is_told_to_install_it() {
        let here = |doing: &str, kind: ErrorKind| {
            unprepared(&SshError::Here { doing: doing.to_owned(), source: kind.into() }, "a@b")
        };
        assert!(here("run `ssh a@b`", ErrorKind::NotFound).contains("openssh-client"));
        assert_eq!(here("run `ssh a@b`", ErrorKind::PermissionDenied), COPIES);
        assert_eq!(here("read `gradus`", ErrorKind::NotFound), COPIES);
    }

    #[test]
    fn a_machine_on_which_gradus_does_not_run_is_told_what_it_needs() {
        let failed = |doing: &str| {
            let why = "version `GLIBC_2.35' not found".to_owned();
            unprepared(&SshError::Failed { host: "old".to_owned(), doing: doing.to_owned(), why }, "a@old")
        };
        assert_eq!(failed(bootstrap::RUN_GRADUS), NEEDS);
        assert_eq!(failed("install programs and libraries"), COPIES);
    }

    #[test]
    fn a_copy_whose_connection_broke_is_to_be_continued() {
        let (host, doing) = ("west".to_owned(), bootstrap::RUN_GRADUS.to_owned());
        let hint = unprepared(&SshError::Broken { host, doing }, "a@west");
        assert!(hint.starts_with("type the same command again") && hint != NEEDS, "{hint}");
    }
}
