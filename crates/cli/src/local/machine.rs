//! What jobs can run on: this machine, the nodes that were added, and machines of clouds.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use cloud::ssh::{DirectDoor, Executables, Host, Inventory};
use cloud::{Catalog, Local, LocalSettings, Provider, Ssh, SshSettings};
use domain::files::{RunInput, local_mounts};
use domain::run::InstanceState;
use domain::{Bytes, Duration, InstanceId, Job, Rate, Work};
use plan::World;
use plan::local::NodeGpus;
use server::Home;

use super::rented;
use crate::error::{Error, exit};
use crate::figures::{short, size};
use crate::settings::GlobalSettings;

/// The providers of this home.
///
/// # Errors
/// [`Error::File`] when `nodes.json` cannot be read.
pub fn providers(settings: &GlobalSettings, home: &Home, rate: Rate) -> Result<Vec<Arc<dyn Provider>>, Error> {
    providers_with(settings, home, rate, None)
}

/// The same, where agents of nodes and of clouds' machines may reach the loop over TLS through a door.
///
/// # Errors
/// As [`providers`].
pub fn providers_with(
    settings: &GlobalSettings,
    home: &Home,
    rate: Rate,
    door: Option<DirectDoor>,
) -> Result<Vec<Arc<dyn Provider>>, Error> {
    let local = Local::new(local(settings, home, rate, price_source(rate)));
    let inventory = inventory(home)?;
    // Also without nodes: a server that runs for long is to know those that are added meanwhile.
    let of = |inventory| SshSettings { door: door.clone(), ..ssh(settings, home, inventory) };
    let nodes = Ssh::following(of(inventory));
    let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(local), Arc::new(nodes)];
    providers.extend(rented::providers(settings, home, &of(Inventory::default()))?);
    Ok(providers)
}

/// The names of the providers that the server of a home has, a line each: those that were set up when it was started.
const SERVED: &str = "server.providers";

/// Writes down what the server that begins here can rent from.
///
/// # Errors
/// [`Error::File`].
pub fn note_served(home: &Home, providers: &[Arc<dyn Provider>]) -> Result<(), Error> {
    let path = home.root().join(SERVED);
    let names: Vec<&str> = providers.iter().map(|provider| provider.name()).collect();
    node::durable::replace(&path, names.join("\n").as_bytes()).map_err(Error::file("write", &path))
}

/// Forgets what an earlier server could rent from.
pub fn forget_served(home: &Home) {
    // Where it stays, work is refused with what to do.
    let _ = std::fs::remove_file(home.root().join(SERVED));
}

/// The price of this machine with the home's server; it stays once the server is gone.
const PRICE: &str = "server.price";

/// Writes down the price of this machine with the server that begins here.
///
/// # Errors
/// [`Error::File`].
pub fn note_price(home: &Home, rate: Rate) -> Result<(), Error> {
    let path = home.root().join(PRICE);
    node::durable::replace(&path, rate.to_string().as_bytes()).map_err(Error::file("write", &path))
}

/// The price of this machine with the server that ran here last, for what it was asked to run and a command continues; nothing
/// where none ran.
///
/// # Errors
/// [`Error::File`] or [`Error::Usage`] if it cannot be read.
pub fn served_price(home: &Home) -> Result<Rate, Error> {
    let path = home.root().join(PRICE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        // A server of an earlier version writes nothing down.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Rate::default()),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    text.trim().parse().map_err(|why: String| Error::Usage {
        message: format!("`{}` cannot be read: {why}", path.display()),
        hint: "start `gradus serve` with `--price`, which writes it again".to_owned(),
    })
}

/// The price of this machine for what a command submits: the one that it was given, else that of the server while it runs.
///
/// # Errors
/// As [`served_price`].
pub fn price(home: &Home, given: Option<Rate>) -> Result<Rate, Error> {
    match given {
        Some(rate) => Ok(rate),
        None if home.has_server() => served_price(home),
        None => Ok(Rate::default()),
    }
}

/// Whether a server ever ran for this home.
pub fn was_served(home: &Home) -> bool {
    home.root().join(PRICE).exists()
}

/// Refuses work for a provider that the server of this home does not have: it was set up after the server was started, or
/// only for this command, and nothing could be rented.
///
/// # Errors
/// [`Error::Code`].
pub fn require_served(home: &Home, provider: &str) -> Result<(), Error> {
    if !home.has_server() {
        return Ok(());
    }
    // A server of an earlier version writes nothing down.
    let Ok(served) = std::fs::read_to_string(home.root().join(SERVED)) else { return Ok(()) };
    if served.lines().any(|name| name == provider) {
        return Ok(());
    }
    let message =
        format!("the server of this home cannot rent from `{provider}`: it was started before that was set up");
    let hint =
        format!("stop `gradus serve`, and start it again with what `{provider}` needs; attempts continue meanwhile");
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}

/// Refuses to run a loop that has no address for agents where some call one over TLS: it would not hear them, and would end
/// their machines as silent ones.
///
/// # Errors
/// [`Error::Code`] with the machines.
pub fn require_hearing(home: &Home, world: &World) -> Result<(), Error> {
    let callers = callers(world, |provider, machine| match provider {
        cloud::ssh::NAME => cloud::ssh::calls_over_tls(home.root(), machine),
        _ => cloud::rented::calls_over_tls(home.root(), provider, machine),
    });
    if callers.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = callers.into_iter().map(|machine| format!("`{machine}`")).collect();
    let message =
        format!("agents on {} call the server of this home over TLS, and only it hears them", names.join(", "));
    let hint = "start `gradus serve` with `--agents-at` as before; agents continue without it for a while".to_owned();
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}

/// Machines that may be at work and of which `calls` says that their agents call.
fn callers(world: &World, calls: impl Fn(&str, &InstanceId) -> bool) -> Vec<&InstanceId> {
    let all = world.instances.iter();
    let at_work =
        all.filter(|(_, one)| !matches!(one.state, InstanceState::Releasing | InstanceState::Released { .. }));
    at_work.filter(|(id, one)| calls(&one.offer.provider, one.machine_name(id))).map(|(id, _)| id).collect()
}

/// Refuses a job that asks for GPUs which a node that it may run on does not have. `kind` is that of the offer.
///
/// # Errors
/// [`Error::Usage`] with the nodes that lack them, [`Error::Unfit`] and [`Error::Catalog`] for GPUs that are described wrongly.
pub fn require_gpus(job: &Job, kind: &str, inventory: &Inventory, settings: &GlobalSettings) -> Result<(), Error> {
    let wanted = &job.wants.accelerators;
    if wanted.is_empty() {
        return Ok(());
    }
    let mut catalog = Catalog::open(&settings.home)?;
    rented::constraints::described(job, &mut catalog)?;
    let lacking = inventory.without_gpus(kind, wanted, &catalog);
    if lacking.is_empty() {
        return Ok(());
    }
    let asked: Vec<String> = wanted.iter().map(|one| format!("`{one}`")).collect();
    let nodes: Vec<String> = lacking.into_iter().map(without).collect();
    let message = format!("the job asks for {} and may run on {}", asked.join(" or "), nodes.join(", "));
    let hint = "name a node that has them or a pool of such nodes (`gradus nodes pool NODE POOL`); `gradus nodes add NAME` looks again";
    Err(Error::Usage { message, hint: hint.to_owned() })
}

/// A node with the GPUs that it has instead.
fn without(host: &Host) -> String {
    match host.gpus() {
        [] => format!("`{}`, of which no GPU is known", host.name),
        [first, ..] => format!("`{}`, which has {} × {}", host.name, host.gpus().len(), first.name),
    }
}

/// The GPUs that our own trainer computes on where a job runs on nodes, if all have such of one kind.
///
/// # Errors
/// As [`inventory`]; [`Error::Unfit`] and [`Error::Catalog`] for GPUs that are described wrongly.
pub fn trainer_gpus(job: &Job, settings: &GlobalSettings, home: &Home) -> Result<Option<NodeGpus>, Error> {
    let (Some(node), Work::Train(_)) = (&job.wants.node, &job.work) else { return Ok(None) };
    let inventory = inventory(home)?;
    if inventory.hosts.iter().all(|host| host.gpus().is_empty()) {
        return Ok(None);
    }
    let mut catalog = Catalog::open(&settings.home)?;
    rented::constraints::described(job, &mut catalog)?;
    let found = inventory.trainer_gpus(&inventory.kind_of(node), &catalog);
    Ok(found.map(|(gpu, count)| NodeGpus { gpu: gpu.clone(), count }))
}

/// How long what a job reads on this machine is on its way to nodes, where that takes a while and their connections were
/// measured.
///
/// # Errors
/// As [`inventory`].
pub fn transfer(job: &Job, kind: &str, home: &Home) -> Result<Option<String>, Error> {
    if job.wants.node.is_none() {
        return Ok(None);
    }
    let Some(rate) = inventory(home)?.slowest_link(kind) else { return Ok(None) };
    let inputs = RunInput::ALL.into_iter().filter_map(|input| input.of(&job.work));
    let paths = inputs.chain(local_mounts(&job.work).map(|(_, path)| path));
    let bytes = paths.map(|path| bytes_below(Path::new(path))).fold(0, u64::saturating_add);
    Ok(transfer_time(bytes, rate))
}

/// Shorter transfers are not worth a line, in seconds.
const BRIEF: u64 = 10;

fn transfer_time(bytes: u64, rate: Bytes) -> Option<String> {
    let seconds = bytes.checked_div(rate.0).filter(|seconds| *seconds >= BRIEF)?;
    Some(format!(
        "a node without any of the {} that the job reads here begins {} later: its connection carried {}/s when it was measured",
        size(bytes),
        short(Duration::from_secs(seconds)),
        size(rate.0)
    ))
}

/// The nodes of this home.
///
/// # Errors
/// [`Error::File`] when `nodes.json` cannot be read.
pub fn inventory(home: &Home) -> Result<Inventory, Error> {
    Inventory::read(home.root()).map_err(Error::file("read", &home.root().join("nodes.json")))
}

/// Why a job cannot have so many of these nodes: a rank would wait in every step for those with slower GPUs, or not fit into their
/// memory. Of a job that hides GPUs from itself, they do not matter.
pub fn different_gpus(job: &Job, node: &str, inventory: &Inventory) -> Option<Error> {
    let (wanted, kinds) = (job.nodes(), inventory.by_gpus(&inventory.kind_of(node)));
    if wanted < 2 || kinds.len() < 2 || job.hides_gpus() {
        return None;
    }
    let each: Vec<String> = kinds.iter().map(|(gpus, names)| format!("{gpus} on {}", names.join(", "))).collect();
    let message = format!("`num_nodes: {wanted}` may get nodes with different GPUs: {}", each.join("; "));
    let hint = "make those with the same GPUs a pool with `gradus nodes pool NODE POOL`, and write `infra: ssh/POOL`; \
                a job that uses no GPU says so with `envs: {CUDA_VISIBLE_DEVICES: \"\"}`";
    Some(Error::Usage { message, hint: hint.to_owned() })
}

/// Settings of the provider `ssh`.
pub fn ssh(settings: &GlobalSettings, home: &Home, inventory: Inventory) -> SshSettings {
    let program = Executables {
        gradus: settings.program.clone(),
        rank: settings.rank_program.clone(),
        libtorch: settings.libtorch.clone(),
    };
    SshSettings {
        home: home.root().to_owned(),
        owner: home.owner().to_owned(),
        socket: home.socket(),
        program,
        inventory,
        door: None,
    }
}

/// Why a job has no node to run on.
pub fn no_node(node: &str, inventory: &Inventory) -> Error {
    let names: Vec<&str> = inventory.hosts.iter().map(|host| host.name.as_str()).collect();
    let pools: Vec<&str> = inventory.pools().into_iter().collect();
    let is_meant = |host: &&Host| node == "any" || host.name == node || host.pool.as_deref() == Some(node);
    let mut meant = inventory.hosts.iter().filter(is_meant);
    if let Some(host) = meant.find(|host| !host.is_prepared && !host.is_drained) {
        let message = format!("node `{}` is not prepared: its `gradus nodes add` failed or was interrupted", host.name);
        let hint = "type that command again; it continues the copy".to_owned();
        return Error::Usage { message, hint };
    }
    if node == "any" && !names.is_empty() || names.contains(&node) || pools.contains(&node) {
        let (message, name) = match node {
            "any" => ("all nodes are drained".to_owned(), "NODE"),
            pool if pools.contains(&pool) => (format!("all nodes of pool `{pool}` are drained"), "NODE"),
            name => (format!("node `{name}` is drained: nothing new starts there"), name),
        };
        return Error::Usage { message, hint: format!("use it again with `gradus nodes resume {name}`") };
    }
    let message = match names.is_empty() {
        true => "no node was added yet".to_owned(),
        false if pools.is_empty() => format!("there is no node `{node}`; there are {}", names.join(", ")),
        false => {
            let (names, pools) = (names.join(", "), pools.join(", "));
            format!("there is no node or pool `{node}`; there are the nodes {names} and the pools {pools}")
        }
    };
    let hint = "add one with `gradus nodes add NAME --address user@host`, to a pool with `--pool POOL`";
    Error::Usage { message, hint: hint.to_owned() }
}

/// Settings of the provider `local`.
fn local(settings: &GlobalSettings, home: &Home, rate: Rate, price_source: &str) -> LocalSettings {
    LocalSettings {
        home: home.root().to_owned(),
        program: settings.program.clone(),
        owner: home.owner().to_owned(),
        rate,
        price_source: price_source.to_owned(),
        socket: home.socket(),
        rank_program: settings.rank_program.clone(),
        libtorch: settings.libtorch.clone(),
        is_remote: false,
        address: None,
        join: None,
    }
}

fn price_source(rate: Rate) -> &'static str {
    if rate == Rate::default() { "free unless `--price` says otherwise" } else { "--price" }
}

/// Bytes of a file, or of all files below a folder; inaccessible ones count zero, and are reported when they are read.
pub fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return std::fs::metadata(path).map_or(0, |file| file.len()) };
    let below = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
        // A link counts as its target; links to folders are not followed, because they may form cycles.
        Ok(_) => std::fs::metadata(entry.path()).map_or(0, |file| file.len()),
        Err(_) => 0,
    });
    below.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_takes_a_while_is_said() {
        let check = |bytes: u64, rate: u64, expected: Option<&str>| {
            let said = transfer_time(bytes, Bytes(rate));
            assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
            assert!(said.zip(expected).is_none_or(|(said, expected)| said.contains(expected)), "{expected:?}");
        };
        check(
            12_000_000_000,
            10_000_000,
            Some("any of the 12.0 GB that the job reads here begins 20m later: its connection carried 10.0 MB/s"),
        );
        check(90_000_000, 10_000_000, None);
        check(1, 0, None);
    }

    #[test]
    fn a_loop_that_does_not_hear_agents_leaves_their_machines_alone() {
        let log = include_str!("../../../server/tests/histories/first.jsonl");
        let records: Vec<domain::Record> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let until = records.iter().position(|record| matches!(record.event, domain::Event::AgentUp { .. })).unwrap();
        let check = |records: &[domain::Record], provider: &str, expected: usize| {
            let world = World::replay(records).unwrap();
            let callers = callers(&world, |of, _| of == provider);
            assert_eq!(callers.len(), expected, "{provider}: {callers:?}");
        };
        check(&records[..=until], "local", 1);
        check(&records[..=until], "aws", 0);
        // All of its machines are gone.
        check(&records, "local", 0);
    }

    #[test]
    fn work_is_refused_for_a_cloud_that_the_server_does_not_have() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let check = |provider: &str, expected: bool| {
            assert_eq!(require_served(&home, provider).is_ok(), expected, "{provider}");
        };
        check("gcp", true);
        let server = home.try_server().unwrap().unwrap();
        check("gcp", true);
        std::fs::write(home.root().join(SERVED), "local\nssh\naws\n").unwrap();
        check("aws", true);
        check("gcp", false);
        drop(server);
        check("gcp", true);
    }

    #[test]
    fn the_price_of_this_machine_outlives_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        assert_eq!(served_price(&home).unwrap(), Rate::default());
        for price in ["0.35/h", "12.000001/h", "0/h"] {
            let rate: Rate = price.parse().unwrap();
            note_price(&home, rate).unwrap();
            forget_served(&home);
            assert_eq!(served_price(&home).unwrap(), rate, "{price}");
        }
        let (dear, given): (Rate, Rate) = ("12/h".parse().unwrap(), "0.1/h".parse().unwrap());
        note_price(&home, dear).unwrap();
        let check = |option: Option<Rate>, expected: Rate| assert_eq!(price(&home, option).unwrap(), expected);
        check(None, Rate::default());
        check(Some(given), given);
        let server = home.try_server().unwrap().unwrap();
        check(None, dear);
        check(Some(given), given);
        check(Some(Rate::default()), Rate::default());
        drop(server);
        check(None, Rate::default());
        std::fs::write(home.root().join(PRICE), "").unwrap();
        assert!(served_price(&home).unwrap_err().to_string().contains("is no price"));
    }
}
