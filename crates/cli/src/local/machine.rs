//! What jobs can run on: this machine, the nodes that were added, and machines of clouds.

use std::sync::Arc;

use cloud::ssh::{Executables, Inventory};
use cloud::{Local, LocalSettings, Provider, Ssh, SshSettings};
use domain::Rate;
use server::Home;

use super::rented;
use crate::error::Error;
use crate::settings::GlobalSettings;

/// The providers of this home.
///
/// # Errors
/// [`Error::File`] when `nodes.json` cannot be read.
pub fn providers(settings: &GlobalSettings, home: &Home, rate: Rate) -> Result<Vec<Arc<dyn Provider>>, Error> {
    let local = Local::new(local(settings, home, rate, price_source(rate)));
    let inventory = inventory(home)?;
    let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(local)];
    if !inventory.hosts.is_empty() {
        providers.push(Arc::new(Ssh::new(ssh(settings, home, inventory))));
    }
    providers.extend(rented::providers(settings, home, &ssh(settings, home, Inventory::default()))?);
    Ok(providers)
}

/// The nodes of this home.
///
/// # Errors
/// [`Error::File`] when `nodes.json` cannot be read.
pub fn inventory(home: &Home) -> Result<Inventory, Error> {
    Inventory::read(home.root()).map_err(Error::file("read", &home.root().join("nodes.json")))
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
    }
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
    }
}

fn price_source(rate: Rate) -> &'static str {
    if rate == Rate::default() { "free unless `--price` says otherwise" } else { "--price" }
}

/// Bytes of a file, or of all files below a folder; inaccessible ones count zero, and are reported when they are read.
pub fn bytes_below(path: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return std::fs::metadata(path).map_or(0, |file| file.len()) };
    let below = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
        // A link counts as its target; links to folders are not followed, because they may form cycles.
        Ok(_) => std::fs::metadata(entry.path()).map_or(0, |file| file.len()),
        Err(_) => 0,
    });
    below.fold(0, u64::saturating_add)
}
