//! Why a job cannot have as many nodes as it asks for.

use std::collections::BTreeMap;

use cloud::ssh::{Host, Inventory};
use domain::Rate;

use crate::error::Error;
use crate::figures::counted;

/// Why there are fewer nodes than a job requests.
pub(super) fn too_few_nodes(wanted: u32, node: &str, inventory: &Inventory) -> Option<Error> {
    let kind = inventory.kind_of(node);
    let found = inventory.count(&kind);
    if wanted as usize <= found {
        return None;
    }
    let (of, option) = match node {
        "any" => (String::new(), "--address user@host".to_owned()),
        pool if inventory.pools().contains(pool) => (format!(" of pool `{pool}`"), format!("--pool {pool}")),
        name => {
            let message = format!("`num_nodes: {wanted}` asks for several nodes, and `infra: ssh/{name}` names one");
            return Some(Error::Usage { message, hint: "write `infra: ssh` to use any of them".to_owned() });
        }
    };
    let asks = format!("`num_nodes: {wanted}` asks for more than the {}{of}", counted(found as u64, "node"));
    let fewer = format!("write `num_nodes: {found}` or less, or add nodes with `gradus nodes add NAME {option}`");
    let prices = inventory.by_price(&kind);
    let message = match found {
        _ if prices.len() > 1 => {
            let at = |(rate, hosts): (&Rate, &Vec<&Host>)| format!("{} at {rate}", names(hosts));
            let all = prices.iter().map(at).collect::<Vec<_>>().join("; ");
            format!("{asks} at the lowest price, and all nodes of a job cost the same: {all}")
        }
        1 => format!("{asks} that is not drained"),
        _ => format!("{asks} that are not drained"),
    };
    let hint = match one_price(wanted as usize, &prices) {
        Some(remedy) => format!("{remedy}; otherwise {fewer}"),
        None => fewer,
    };
    Some(Error::Usage { message, hint })
}

/// What gives a job so many nodes of one price; `None` where nodes have only one, or are too few together.
fn one_price(wanted: usize, prices: &BTreeMap<Rate, Vec<&Host>>) -> Option<String> {
    if prices.values().map(Vec::len).sum::<usize>() < wanted {
        return None;
    }
    let mut ascending = prices.iter();
    let ((lowest, cheapest), (next, dearer)) = (ascending.next()?, ascending.next()?);
    if let Some((rate, enough)) = prices.iter().find(|(_, hosts)| hosts.len() >= wanted) {
        let those = names(enough);
        return Some(format!(
            "for those at {rate} ({those}), run `gradus nodes pool NODE POOL` for each, and write `infra: ssh/POOL`"
        ));
    }
    // A node that was added without a price costs nothing, which is seldom what it costs.
    let (host, rate) = if *lowest == Rate::default() { (cheapest.first()?, next) } else { (dearer.first()?, lowest) };
    Some(format!("if they cost the same, add each again with that price, such as `{}`", added_again(host, *rate)))
}

/// The command that gives a node another price. The shell would read a variable in `$0.35/h`.
fn added_again(host: &Host, rate: Rate) -> String {
    let mut command = format!("gradus nodes add {}", host.name);
    if host.address != host.name {
        command.push_str(&format!(" --address {}", host.address));
    }
    if let Some(config) = &host.config {
        command.push_str(&format!(" --ssh-config {}", config.display()));
    }
    command.push_str(&format!(" --price {}", rate.to_string().trim_start_matches('$')));
    command
}

fn names(hosts: &[&Host]) -> String {
    hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refusal of a job on any nodes with these prices: its message and its hint.
    fn check(wanted: u32, prices: &[(&str, &str)]) -> Option<(String, String)> {
        let host = |(name, price): &(&str, &str)| {
            let text = format!(
                r#"{{"name":"{name}","address":"me@{name}","rate":0,"node":{{"cpu":"","cores":1,"memory":0,"disk_free":0}}}}"#
            );
            let host: Host = serde_json::from_str(&text).unwrap();
            Host { rate: price.parse().unwrap(), ..host }
        };
        let inventory = Inventory { hosts: prices.iter().map(host).collect() };
        let refused = too_few_nodes(wanted, "any", &inventory)?;
        Some((refused.to_string(), refused.hint().unwrap()))
    }

    #[test]
    fn nodes_of_several_prices_are_named_with_what_to_type() {
        let (message, hint) = check(2, &[("west", "0/h"), ("east", "0.35/h")]).unwrap();
        assert!(message.contains("more than the 1 node at the lowest price"), "{message}");
        assert!(message.ends_with("cost the same: west at $0.00/h; east at $0.35/h"), "{message}");
        assert!(hint.contains("`gradus nodes add west --address me@west --price 0.35/h`"), "{hint}");
        assert!(hint.contains("; otherwise write `num_nodes: 1` or less, or add nodes"), "{hint}");
        // Both have a price: the dearer one may have been mistyped.
        let (_, hint) = check(2, &[("west", "0.30/h"), ("east", "0.35/h")]).unwrap();
        assert!(hint.contains("`gradus nodes add east --address me@east --price 0.30/h`"), "{hint}");
        let (_, hint) = check(2, &[("a", "1/h"), ("b", "2/h"), ("c", "2/h")]).unwrap();
        assert!(hint.contains("at $2.00/h (b, c), run `gradus nodes pool NODE POOL`"), "{hint}");
        let (message, hint) = check(4, &[("west", "0/h"), ("east", "0.35/h")]).unwrap();
        assert!(message.contains("east at $0.35/h") && hint.starts_with("write `num_nodes: 1`"), "{message} {hint}");
    }

    #[test]
    fn nodes_of_one_price_are_counted() {
        assert_eq!(check(2, &[("a", "1/h"), ("b", "1/h")]), None);
        let (message, hint) = check(3, &[("a", "1/h"), ("b", "1/h")]).unwrap();
        assert!(message.ends_with("more than the 2 nodes that are not drained"), "{message}");
        assert!(hint.starts_with("write `num_nodes: 2` or less"), "{hint}");
    }
}
