//! The network of a lab: a bridge with an address of this machine, and a pair of virtual links per host.

use std::collections::BTreeSet;

use super::names::{Host, Lab, Subnet};
use super::{Done, ran};

/// States of a bridge's port: a disabled one drops everything in both directions, and the host sees a link that is up.
const DISABLED: &str = "0";
const FORWARDING: &str = "3";

/// The addresses of this lab; makes its bridge if there is none.
pub fn bridge(lab: &Lab) -> Done<Subnet> {
    let bridge = lab.bridge.as_str();
    if !links()?.contains(&lab.bridge) {
        ran(&["ip", "link", "add", "name", bridge, "address", &lab.server_hardware(), "type", "bridge"])?;
    }
    let printed = ran(&["ip", "-brief", "-4", "address"])?;
    let addresses = subnets(&printed);
    let own = addresses.iter().find(|(link, _)| *link == bridge).map(|(_, subnet)| *subnet);
    let taken: BTreeSet<Subnet> = addresses.iter().map(|(_, subnet)| *subnet).collect();
    let subnet = own.or_else(|| lab.subnet(&taken)).ok_or_else(|| {
        let hint = "`cargo xtask lab hosts --folder FOLDER down` removes a lab; `ip -brief address` lists them";
        format!("every network in 10.77.0.0/16 is taken\n  hint: {hint}")
    })?;
    if own.is_none() {
        ran(&["ip", "address", "add", &format!("{}/24", subnet.server()), "dev", bridge])?;
    }
    ran(&["ip", "link", "set", "dev", bridge, "up"])?;
    Ok(subnet)
}

/// Connects a host, whose first process is `init`, to the bridge of its lab.
pub fn add(lab: &Lab, host: &Host, subnet: Subnet, init: u32) -> Done {
    let (init, address, link) = (init.to_string(), subnet.address(host.number), host.link.as_str());
    let (hardware, bridge) = (host.hardware.as_str(), lab.bridge.as_str());
    ran(&[
        "ip", "link", "add", "name", link, "type", "veth", "peer", "name", "eth0", "address", hardware, "netns", &init,
    ])?;
    ran(&["ip", "link", "set", "dev", link, "master", bridge, "up"])?;
    // A host that is off drops its packets, as behind a router. Without this, the answer would be "no route".
    ran(&["ip", "neighbour", "replace", &address, "lladdr", hardware, "dev", bridge, "nud", "permanent"])?;
    let (network, server) = (format!("{address}/24"), subnet.server());
    let inside: [&[&str]; 4] = [
        &["link", "set", "dev", "lo", "up"],
        &["address", "add", &network, "dev", "eth0"],
        &["link", "set", "dev", "eth0", "up"],
        &["route", "add", "default", "via", &server],
    ];
    for words in inside {
        ran(&[&["nsenter", "--target", &init, "--net", "--", "ip"], words].concat())?;
    }
    Ok(())
}

/// Cuts a host off, or connects it again.
pub fn connect(host: &Host, connected: bool) -> Done {
    let state = if connected { FORWARDING } else { DISABLED };
    ran(&["bridge", "link", "set", "dev", &host.link, "state", state]).map(drop)
}

/// Takes a host's link away, if it has one.
pub fn remove(host: &Host) -> Done {
    delete(|link| link == host.link)
}

/// Takes the bridge and the links of a lab away.
pub fn remove_all(lab: &Lab) -> Done {
    delete(|link| lab.owns(link))
}

fn delete(chosen: impl Fn(&str) -> bool) -> Done {
    for link in links()?.iter().filter(|link| chosen(link)) {
        let deleted = ran(&["ip", "link", "delete", "dev", link]);
        // The kernel takes the link of a host that ended away by itself, a little later.
        if deleted.is_err() && links()?.contains(link) {
            return deleted.map(drop);
        }
    }
    Ok(())
}

fn links() -> Done<Vec<String>> {
    Ok(link_names(&ran(&["ip", "-brief", "link"])?))
}

/// The names in what `ip -brief link` prints, without the other ends'.
fn link_names(text: &str) -> Vec<String> {
    let first = |line: &str| line.split(['@', ' ']).next().filter(|name| !name.is_empty()).map(str::to_owned);
    text.lines().filter_map(first).collect()
}

/// The links with addresses in `10.77.0.0/16` in what `ip -brief -4 address` prints.
fn subnets(text: &str) -> Vec<(&str, Subnet)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let link = words.next().unwrap_or_default();
        let numbers = words.filter_map(|word| word.strip_prefix("10.77.")?.split('.').next()?.parse().ok());
        found.extend(numbers.map(|number| (link, Subnet(number))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_ip_prints_them() {
        let text = "lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \n\
                    grv1@if2         UP             02:fc:00:00:00:01 <BROADCAST> \n";
        assert_eq!(link_names(text), ["lo", "grv1"]);
    }

    #[test]
    fn subnets_are_read_as_ip_prints_them() {
        let text = "lo               UNKNOWN        127.0.0.1/8 \n\
                    eth0             UP             10.7.7.1/24 10.77.12.1/24 \n\
                    gr00000001       UP             10.77.3.254/24 \n";
        assert_eq!(subnets(text), [("eth0", Subnet(12)), ("gr00000001", Subnet(3))]);
    }
}
