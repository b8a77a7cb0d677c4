//! `gradus nodes add --pools FILE`: every machine of a file of pools, as SkyPilot writes them.

use std::fs;
use std::path::{Path, PathBuf};

use domain::file::written::{PooledMachine, pooled_machines};
use server::Home;

use super::{Args, add};
use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// The folder of a home with configurations of `ssh` for nodes whose key a file of pools names.
const CONFIGS: &str = "nodes";

/// Adds the machines one after the other; one that cannot be added keeps no other back.
///
/// # Errors
/// [`Error::Job`] with what is wrong in the file, [`Error::Code`] when some could not be added.
pub(super) fn run(file: &Path, args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
    let machines = pooled_machines(&text, &file.to_string_lossy()).map_err(Error::Job)?;
    let home = Home::open(&settings.home)?;
    let mut failed = 0;
    for machine in &machines {
        let added = args_of(machine, args, &home).and_then(|args| add(args, settings, printer));
        if let Err(error) = added {
            printer.error(&error);
            failed += 1;
        }
    }
    match failed {
        0 => Ok(exit::DONE),
        failed => Err(Error::Code {
            message: format!("{failed} of the {} machines in `{}` were not added", machines.len(), file.display()),
            hint: Some("type the same command again: those that were added are only looked at again".to_owned()),
            code: exit::WORLD,
        }),
    }
}

/// The arguments with which one machine is added.
fn args_of(machine: &PooledMachine, args: &Args, home: &Home) -> Result<Args, Error> {
    // A colon is of an address of IPv6.
    let name = machine.address.replace(':', "-");
    let with_user = machine.user.as_ref().map(|user| format!("{user}@{}", machine.address));
    let (address, ssh_config) = match &machine.identity_file {
        None => (with_user.unwrap_or_else(|| machine.address.clone()), args.ssh_config.clone()),
        Some(key) => {
            let path = config_of(home, &name);
            let folder = home.root().join(CONFIGS);
            fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
            // `ssh` looks for paths that are not whole in other folders than the one in which this was typed.
            let whole = |file: &PathBuf| fs::canonicalize(file).map_err(Error::file("open", file));
            let outer = args.ssh_config.as_ref().map(whole).transpose()?;
            let text = config((name.as_str(), machine), &whole_key(key)?, outer.as_deref());
            fs::write(&path, text).map_err(Error::file("write", &path))?;
            (name.clone(), Some(path))
        }
    };
    let pool = Some(machine.pool.clone());
    Ok(Args { name: Some(name), pools: None, address: Some(address), ssh_config, pool, ..*args })
}

/// The path of a key from the root, the user's folder (`~`) or what `ssh` puts in place of `%` and `$`.
fn whole_key(key: &str) -> Result<String, Error> {
    if key.starts_with(['/', '~', '%', '$']) {
        return Ok(key.to_owned());
    }
    let path = std::path::absolute(key).map_err(Error::file("find", key))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Where the configuration of `ssh` for a node of such a file is.
pub(in crate::command::nodes) fn config_of(home: &Home, name: &str) -> PathBuf {
    home.root().join(CONFIGS).join(format!("{name}.ssh_config"))
}

/// A configuration of `ssh` for one machine. What it does not say is as in `outer`, or the user's own configuration.
fn config((name, machine): (&str, &PooledMachine), key: &str, outer: Option<&Path>) -> String {
    let user = machine.user.as_ref().map_or(String::new(), |user| format!("  User {user}\n"));
    let outer = match outer {
        Some(path) => format!("  Include \"{}\"\n", path.display()),
        None => "  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n".to_owned(),
    };
    // Of a host of `outer`, that says where it is.
    let place = match machine.address == name {
        true => String::new(),
        false => format!("  HostName {}\n", machine.address),
    };
    format!("Host {name}\n{place}{user}  IdentityFile \"{key}\"\nMatch all\n{outer}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_such_a_configuration_hold_in_every_folder() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(&folder.path().join("home")).unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::write(root.join("outer"), "").unwrap();
        let (pool, address) = ("lab".into(), "10.0.0.8".into());
        let machine = PooledMachine { pool, address, user: None, identity_file: Some("keys/a".into()) };
        let args = |outer: &str| Args {
            name: None,
            pools: None,
            address: None,
            ssh_config: Some(root.join(outer)),
            pool: None,
            reach: None,
            price: domain::Rate::default(),
        };
        let added = args_of(&machine, &args("home/../outer"), &home).unwrap();
        let text = fs::read_to_string(added.ssh_config.unwrap()).unwrap();
        assert!(text.contains(&format!("Include \"{}\"\n", root.join("outer").display())), "{text}");
        let key = std::path::absolute("keys/a").unwrap();
        assert!(text.contains(&format!("IdentityFile \"{}\"\n", key.display())), "{text}");
        assert!(args_of(&machine, &args("missing"), &home).is_err());
        for key in ["/keys/a", "~/.ssh/a", "%d/a"] {
            assert_eq!(whole_key(key).unwrap(), key);
        }
    }

    #[test]
    fn a_key_is_named_in_a_configuration_that_includes_the_user_s() {
        let machine = PooledMachine {
            pool: "lab".into(),
            address: "10.0.0.8".into(),
            user: Some("ann".into()),
            identity_file: Some("~/.ssh/a key".into()),
        };
        assert_eq!(
            config(("10.0.0.8", &machine), "~/.ssh/a key", None),
            "Host 10.0.0.8\n  User ann\n  IdentityFile \"~/.ssh/a key\"\nMatch all\n  \
             Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"
        );
        let machine = PooledMachine { user: None, address: "fd00::8".into(), ..machine };
        assert_eq!(
            config(("fd00--8", &machine), "k", Some(Path::new("/c"))),
            "Host fd00--8\n  HostName fd00::8\n  IdentityFile \"k\"\nMatch all\n  Include \"/c\"\n"
        );
    }
}
