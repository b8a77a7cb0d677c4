//! SkyPilot's list of machines that are reached over SSH, `~/.sky/ssh_node_pools.yaml`: pools by name, each with its
//! `hosts`, and with the user and key for those that name none.

use super::super::tree::{self, Key, Node, Value};
use crate::problem::{Problem, Problems};

/// A machine of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PooledMachine {
    /// The name of its pool.
    pub pool: String,
    /// Its address, or its name in the configuration of `ssh`.
    pub address: String,
    /// Whom to log in as; `None` for what the configuration of `ssh` says.
    pub user: Option<String>,
    /// The file with the key to log in with; `None` for what the configuration of `ssh` says.
    pub identity_file: Option<String>,
}

/// The keys of a pool beside `hosts`, and of a host beside `ip`. A password is for `sudo`, which gradus does not use.
const SHARED: [&str; 3] = ["user", "identity_file", "password"];

/// What is in force for the hosts of a pool, or for one of them.
#[derive(Clone, Default)]
struct Login {
    user: Option<String>,
    identity_file: Option<String>,
}

/// Reads the machines of a file, in its order.
///
/// # Errors
/// Everything wrong in it.
pub fn pooled_machines(text: &str, file_name: &str) -> Result<Vec<PooledMachine>, Problems> {
    let all = |problems: Vec<Problem>| Problems { file: file_name.to_owned(), problems };
    let (tree, mut problems) = tree::read(text).map_err(all)?;
    let mut machines: Vec<PooledMachine> = Vec::new();
    let Value::Map(pools) = &tree.value else {
        let hint = "write pools as SkyPilot does: `lab: {hosts: [10.0.0.7, {ip: 10.0.0.8, user: me}]}`";
        return Err(all(vec![Problem::at("", "this is no mapping of pools").hint(hint)]));
    };
    for (name, pool) in pools {
        read_pool(name, pool, &mut machines, &mut problems);
    }
    let doubled = |(index, machine): (usize, &PooledMachine)| {
        machines[..index].iter().any(|before| before.address == machine.address).then(|| machine.address.clone())
    };
    for address in machines.iter().enumerate().filter_map(doubled) {
        let problem = Problem::at(address, "this machine is listed twice");
        problems.push(problem.hint("keep one of the two: a node is in one pool"));
    }
    if problems.is_empty() { Ok(machines) } else { Err(all(problems)) }
}

fn read_pool(name: &Key, pool: &Node, machines: &mut Vec<PooledMachine>, problems: &mut Vec<Problem>) {
    let path = &name.raw.text;
    let login = read_login(path, pool, "hosts", &Login::default(), problems);
    let Some((_, Node { value: Value::List(hosts), .. })) = pool.get("hosts") else {
        let problem = Problem { line: Some(name.line), ..Problem::at(path, "this pool has no list of `hosts`") };
        problems.push(problem.hint("write `hosts:` with an address, or a host of `~/.ssh/config`, per line"));
        return;
    };
    for (index, host) in hosts.iter().enumerate() {
        let place = format!("{path}.hosts[{index}]");
        let (own, address) = match &host.value {
            Value::Scalar(raw) => (login.clone(), Some(raw.text.clone())),
            Value::Map(_) => (read_login(&place, host, "ip", &login, problems), text(host, "ip")),
            Value::List(_) => (login.clone(), None),
        };
        match address.filter(|address| is_plain(address)) {
            Some(address) => {
                let Login { user, identity_file } = own;
                machines.push(PooledMachine { pool: path.clone(), address, user, identity_file });
            }
            None => {
                let problem = Problem { line: Some(host.line), ..Problem::at(place, "this host has no address") };
                problems
                    .push(problem.hint("write an address, a host of `~/.ssh/config`, or `{ip: ADDRESS, user: NAME}`"));
            }
        }
    }
}

/// The user and key that a mapping names, over those of `outer`. It may have the key `own` as well, and no other.
fn read_login(path: &str, node: &Node, own: &str, outer: &Login, problems: &mut Vec<Problem>) -> Login {
    let Value::Map(entries) = &node.value else { return outer.clone() };
    for (key, _) in entries {
        let name = key.raw.text.as_str();
        if name != own && !SHARED.contains(&name) {
            let problem =
                Problem { line: Some(key.line), ..Problem::at(format!("{path}.{name}"), "this key is not known") };
            problems.push(problem.hint(format!("there are `{own}`, `user` and `identity_file`")));
        }
    }
    let mut read = |key: &str, is_fine: fn(&str) -> bool| {
        let value = text(node, key)?;
        if is_fine(&value) {
            return Some(value);
        }
        let line = node.get(key).map(|(key, _)| key.line);
        problems
            .push(Problem { line, ..Problem::at(format!("{path}.{key}"), format!("`{value}` cannot be used here")) });
        None
    };
    let user = read("user", is_plain);
    let identity_file = read("identity_file", is_path);
    Login {
        user: user.or_else(|| outer.user.clone()),
        identity_file: identity_file.or_else(|| outer.identity_file.clone()),
    }
}

/// The text of a key with one value.
fn text(node: &Node, key: &str) -> Option<String> {
    match &node.get(key)?.1.value {
        Value::Scalar(raw) => Some(raw.text.clone()),
        Value::List(_) | Value::Map(_) => None,
    }
}

/// Whether a text is no option of `ssh`, and one word of its configuration.
fn is_plain(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_letter)
}

/// Whether a text is a path that can stand in quotes in the configuration of `ssh`.
fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|letter| letter.is_control() || letter == '"' || letter == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_of_pools_are_read_with_their_logins() {
        let text = "lab:\n  hosts: [gpu-0, {ip: 10.0.0.8, user: ann}]\n\
                    box:\n  user: ubuntu\n  identity_file: ~/.ssh/a key\n  password: for sudo\n  hosts:\n    \
                    - 10.0.0.9\n    - ip: 10.0.0.10\n      identity_file: /keys/b\n";
        let machine = |pool: &str, address: &str, user: Option<&str>, key: Option<&str>| PooledMachine {
            pool: pool.into(),
            address: address.into(),
            user: user.map(str::to_owned),
            identity_file: key.map(str::to_owned),
        };
        let expected = [
            machine("lab", "gpu-0", None, None),
            machine("lab", "10.0.0.8", Some("ann"), None),
            machine("box", "10.0.0.9", Some("ubuntu"), Some("~/.ssh/a key")),
            machine("box", "10.0.0.10", Some("ubuntu"), Some("/keys/b")),
        ];
        assert_eq!(pooled_machines(text, "pools.yaml").unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_in_a_file_of_pools_is_said_with_its_line() {
        let check = |text: &str, expected: &str| {
            let said = pooled_machines(text, "pools.yaml").unwrap_err().to_string();
            assert!(said.starts_with(&format!("pools.yaml{expected}")), "{said}");
        };
        check("- a\n", ": this is no mapping of pools");
        check("lab:\n  user: me\n", ":1: `lab`: this pool has no list of `hosts`");
        check("lab:\n  hosts: [a]\n  port: 7\n", ":3: `lab.port`: this key is not known");
        check("lab:\n  hosts: [{user: me}]\n", ":2: `lab.hosts[0]`: this host has no address");
        check("lab:\n  hosts: [a, [b]]\n", ":2: `lab.hosts[1]`: this host has no address");
        check("lab:\n  hosts: [-oProxyCommand=x]\n", ":2: `lab.hosts[0]`: this host has no address");
        check("lab:\n  hosts: [a]\n  user: 'a b'\n", ":3: `lab.user`: `a b` cannot be used here");
        check("lab:\n  hosts: [a]\n  identity_file: \"a\\nProxyCommand x\"\n", ":3: `lab.identity_file`: ");
        check("lab: {hosts: [a]}\nbox: {hosts: [a]}\n", ": `a`: this machine is listed twice");
    }
}
