//! A loop and agents of neighbouring versions: messages as the version before wrote them, and as the next one may, with
//! what this one does not know, lead to the same states. Recorded; none of them may be changed.

mod lab;

use domain::rental::MachineState;
use domain::run::{AttemptEnd, InstanceState};
use domain::wire::{AgentCommand, Heartbeat, HeartbeatReply};
use domain::{Elapsed, Timestamp};

use control::{ControllerInput, ReplyId, Supervisor, SupervisorInput, SupervisorOutput};
use lab::{Lab, SECOND, run, seen, up};

/// What an agent of the version before sends while it starts and ends an attempt: no incarnation, no notice.
const BEFORE: [&str; 3] = [
    r#"{"schema":1,"instance":"a-i1","started":0,"elapsed":1000,"entries":[]}"#,
    r#"{"schema":1,"instance":"a-i1","started":0,"elapsed":2000,"entries":[{"seq":1,"attempt":"a-a1","word":{"word":"started"}}]}"#,
    r#"{"schema":1,"instance":"a-i1","started":0,"elapsed":3000,"entries":[{"seq":2,"attempt":"a-a1","word":{"word":"ended","end":{"end":"succeeded"}}}]}"#,
];

/// The same of the next version: more fields, another measurement, an event that nobody here knows.
const AFTER: [&str; 3] = [
    r#"{"schema":2,"instance":"a-i1","started":0,"elapsed":1000,"entries":[],"incarnation":77,"load":{"gpu":[0.5]}}"#,
    r#"{"schema":2,"instance":"a-i1","started":0,"elapsed":2000,"incarnation":77,"entries":[{"seq":1,"attempt":"a-a1","word":{"word":"started","at":7},"signed":"x"},{"seq":2,"attempt":"a-a1","word":{"word":"warmed"}}]}"#,
    r#"{"schema":2,"instance":"a-i1","started":0,"elapsed":3000,"incarnation":77,"entries":[{"seq":3,"attempt":"a-a1","word":{"word":"ended","end":{"end":"succeeded","in":3}}}]}"#,
];

fn hear(messages: [&str; 3]) {
    let mut lab = Lab::new(up(), |_, _| seen(MachineState::Running));
    let mut states = Vec::new();
    for message in messages {
        let heartbeat: Heartbeat = serde_json::from_str(message).unwrap();
        lab.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
        lab.now += SECOND;
        let world = lab.controller.world();
        states.push(world.runs.get(&run()).map(|run| run.state.word()));
        // Whatever is sent back is read by an agent of either version: what it does not know it passes over.
        let reply = serde_json::to_string(lab.replies.last().unwrap()).unwrap();
        assert_eq!(&serde_json::from_str::<HeartbeatReply>(&reply).unwrap(), lab.replies.last().unwrap());
    }
    assert_eq!(states, [Some("staging"), Some("running"), Some("succeeded")], "{messages:?}");
    assert!(matches!(lab.replies[2].orders[..], [AgentCommand::Leave]), "{:?}", lab.replies[2].orders);
    assert_eq!(lab.controller.world().instances[&run().instance(1)].state, InstanceState::Releasing);
}

#[test]
fn an_agent_of_the_version_before_or_after_works_with_this_loop() {
    hear(BEFORE);
    hear(AFTER);
}

/// A machine whose agent has said who it is, and another of the same name that says nothing of that kind, as the version
/// before: told apart by when they started, as it was before.
#[test]
fn agents_of_two_versions_with_one_name_are_told_apart() {
    for (first, second, is_other) in [
        (AFTER[0], BEFORE[0], false),
        (AFTER[0], r#"{"schema":1,"instance":"a-i1","started":5,"elapsed":1,"entries":[]}"#, true),
        (AFTER[0], r#"{"schema":1,"instance":"a-i1","started":0,"elapsed":1,"entries":[],"incarnation":78}"#, true),
    ] {
        let events = up().into_iter().take(3).collect();
        let mut lab = Lab::new(events, |_, _| seen(MachineState::Running));
        for message in [first, second] {
            let heartbeat: Heartbeat = serde_json::from_str(message).unwrap();
            lab.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
        }
        let told = &lab.replies[1].orders[..];
        assert_eq!(matches!(told, [AgentCommand::Leave]), is_other, "{second}: {told:?}");
    }
}

/// What a loop of the version before, or the next one, tells this agent.
#[test]
fn a_loop_of_the_version_before_or_after_works_with_this_agent() {
    let job = r#"{"name":"job","work":{"command":{"workdir":null,"setup":null,"run":"true"}},"envs":{},"needs":{"cores":null,"memory":null,"disk":null},"budget":null,"deadline":null,"recovery":{"restarts":20,"restarts_on_errors":0,"exit_codes":[]}}"#;
    let start = format!(
        r#"{{"order":"start","run":"a","attempt":"a-a1","fence":1,"job":{job},"job_hash":"","threads":1,"folder":"/r"}}"#
    );
    let before = format!(r#"{{"acknowledged":0,"lease":"1m","next":"200ms","orders":[{start}]}}"#);
    let newer = start.replace(r#""threads":1,"#, r#""threads":1,"island":{"rack":3},"#);
    let after = format!(
        r#"{{"acknowledged":0,"measured":0,"lease":"30m","saving":"5s","next":"5s","epoch":9,"orders":[{{"order":"warm","attempt":"a-a1"}},{newer}]}}"#
    );
    for reply in [before, after] {
        let reply: HeartbeatReply = serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{error}: {reply}"));
        let mut agent = Supervisor::new(run().instance(1), Timestamp(0), Elapsed(60 * SECOND)).with_incarnation(5);
        agent.step(SupervisorInput::Timer, Elapsed(0));
        let outputs = agent.step(SupervisorInput::Answered(Some(Box::new(reply))), Elapsed(1));
        assert!(matches!(outputs[..], [.., SupervisorOutput::Begin(_)]), "{outputs:?}");
        let ended = SupervisorInput::Ended { attempt: run().attempt(domain::Fence(1)), end: AttemptEnd::Succeeded };
        let outputs = agent.step(ended, Elapsed(2 * SECOND));
        let call = outputs.iter().find_map(|output| match output {
            SupervisorOutput::Call(heartbeat) => Some(heartbeat),
            _ => None,
        });
        assert_eq!(call.map(|call| (call.incarnation, call.entries.len())), Some((5, 1)));
    }
}
