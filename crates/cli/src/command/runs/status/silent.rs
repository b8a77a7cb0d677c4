//! Nodes on which agents were started that never called the loop: what is seen of them is only that machines are rented, and
//! end when the agent's lease is over.

use domain::run::InstanceState;
use plan::{Instance, Run, World};

/// From so many machines in succession it is no accident.
const SUSPICIOUS: usize = 2;

/// Why a run that waits for its machine may wait in vain: the newest agents that were started for it on a node did not call.
pub fn silent_node(world: &World, run: &Run) -> Option<String> {
    let instances: Vec<&Instance> = run.instances.iter().filter_map(|id| world.instances.get(id)).collect();
    let (node, count) = silent(&instances)?;
    Some(format!(
        "the last {count} agents started on node `{node}` did not connect; check it with `gradus doctor {node}`, or start \
         nothing there with `gradus nodes drain {node}`"
    ))
}

/// The node of the newest machine that has ended, if its agent had not called, and of how many in succession there that is so.
fn silent<'a>(instances: &[&'a Instance]) -> Option<(&'a str, usize)> {
    // The newest may be on its way.
    let is_over = |instance: &&Instance| matches!(instance.state, InstanceState::Released { .. });
    let over = instances.iter().rev().copied().filter(is_over);
    let node = node_of(over.clone().next()?)?;
    let on_node = over.filter(|instance| node_of(instance) == Some(node));
    let count = on_node.take_while(|instance| instance.started.is_none() && !instance.lost_race).count();
    (count >= SUSPICIOUS).then_some((node, count))
}

/// The node on which an agent was started.
fn node_of(instance: &Instance) -> Option<&str> {
    if instance.offer.provider != cloud::ssh::NAME {
        return None;
    }
    let (node, _) = instance.handle.as_ref()?.0.split_once('/')?;
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on a node, whose agent has called or not.
    fn instance(node: &str, has_called: bool, is_over: bool) -> Instance {
        let state = match is_over {
            true => r#"{"state":"released","usage":{"started":0,"elapsed":60300000}}"#,
            false => r#"{"state":"launching"}"#,
        };
        let started = if has_called { "1" } else { "null" };
        let machine = r#"{"cpu":"","cores":1,"memory":0,"disk_free":0}"#;
        let text = format!(
            r#"{{"run":"r","token":"t","offer":{{"provider":"ssh","kind":"{node}","node":{machine},"rate":0,"price_source":""}},
            "reserved":"$0.10","intended":0,"handle":"{node}/1","started":{started},"state":{state}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_node_whose_agents_never_call_is_named_from_the_second_one() {
        let check = |instances: &[(&str, bool, bool)], expected: Option<(&str, usize)>| {
            let all: Vec<Instance> =
                instances.iter().map(|(node, has_called, is_over)| instance(node, *has_called, *is_over)).collect();
            assert_eq!(silent(&all.iter().collect::<Vec<_>>()), expected, "{instances:?}");
        };
        check(&[], None);
        check(&[("a", false, true)], None);
        check(&[("a", false, true), ("a", false, false)], None);
        check(&[("a", false, true), ("a", false, true), ("a", false, false)], Some(("a", 2)));
        check(&[("a", true, true), ("a", false, true), ("a", false, true)], Some(("a", 2)));
        check(&[("a", false, true), ("a", true, true), ("a", false, true)], None);
        check(&[("a", false, true), ("b", false, true)], None);
        check(&[("a", false, true), ("b", true, true), ("a", false, true)], Some(("a", 2)));
        check(&[("a", false, true), ("a", false, true), ("a", true, true)], None);
    }

    #[test]
    fn a_machine_that_was_refused_has_no_silent_agent() {
        let refused = Instance { handle: None, ..instance("a", false, true) };
        assert_eq!(silent(&[&refused, &refused]), None);
    }
}
