//! Machines are rented and ended while everything fails: none is left, and none is rented twice.

use std::collections::BTreeMap;

use cloud::{Provider, ProviderAnswer, ProviderCall};
use domain::InstanceId;
use domain::random::Draws;
use domain::rental::{EndRequest, MachineState, Refusal};

use super::proxy::{Fate, Proxy};
use super::server::{Moto, client, provider};
use super::{ANY_KEY, all, launch, living, request, state};

/// Machines for each seed.
const MACHINES: u32 = 12;

/// Seeds.
const SEEDS: u64 = 6;

/// What a run knows about its machine.
#[derive(Debug, PartialEq)]
enum Stage {
    Asking,
    Has,
    Ending,
    Gone,
    /// It was refused, with no uncertain request before.
    Refused,
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn nothing_leaks_and_nothing_is_rented_twice() {
    let moto = Moto::start(None);
    let direct = client(moto.port, ANY_KEY);
    let mut total: BTreeMap<Fate, u32> = BTreeMap::new();
    for seed in 0..SEEDS {
        let (proxy, home) = (Proxy::start(moto.port, Some(seed)), tempfile::tempdir().unwrap());
        let mut aws = provider(home.path(), proxy.port, ANY_KEY);
        let mut draws = Draws::new(seed ^ 0x5eed);
        let names: Vec<InstanceId> =
            (0..MACHINES).map(|number| InstanceId::new(format!("s{seed}-i{number}"))).collect();
        let mut stages: Vec<(Stage, bool)> = names.iter().map(|_| (Stage::Asking, false)).collect();
        for round in 0..400 {
            if round == 60 {
                proxy.calm();
            }
            // The loop is killed: only the disk survives.
            if draws.below(20) == 0 {
                aws = provider(home.path(), proxy.port, ANY_KEY);
            }
            for (name, (stage, was_in_doubt)) in names.iter().zip(&mut stages) {
                step(&aws, name, stage, was_in_doubt, draws.below(10));
            }
            if stages.iter().all(|(stage, _)| matches!(stage, Stage::Gone | Stage::Refused)) {
                break;
            }
        }
        assert!(
            stages.iter().all(|(stage, _)| matches!(stage, Stage::Gone | Stage::Refused)),
            "seed {seed}: {stages:?}"
        );
        assert_eq!(living(&direct), 0, "seed {seed}: a machine was left");
        for name in &names {
            let rented =
                all(&direct).iter().filter(|machine| machine.tag("gradus-instance") == Some(name.as_str())).count();
            assert!(rented <= 1, "seed {seed}: `{name}` was rented {rented} times");
        }
        for (fate, count) in proxy.counts() {
            *total.entry(fate).or_default() += count;
        }
    }
    eprintln!("{} machines, {} of them rented; requests: {total:?}", SEEDS * u64::from(MACHINES), all(&direct).len());
    for fate in
        [Fate::ReplyLost, Fate::RequestLost, Fate::BadGateway, Fate::InternalError, Fate::Throttled, Fate::NoCapacity]
    {
        assert!(total.get(&fate).is_some_and(|count| *count > 5), "{fate:?} hardly happened: {total:?}");
    }
}

/// The loop's next action for one machine.
fn step(aws: &dyn Provider, name: &InstanceId, stage: &mut Stage, was_in_doubt: &mut bool, luck: u64) {
    match stage {
        Stage::Asking => match launch(aws, &request(name.as_str(), &format!("token-{name}"))) {
            ProviderAnswer::Accepted(_) => *stage = Stage::Has,
            ProviderAnswer::Refused(Refusal::Capacity { .. } | Refusal::Throttled { .. }) => {
                // The user cancels; a refusal proves nothing about an earlier request.
                if luck == 0 {
                    *stage = if *was_in_doubt { Stage::Ending } else { Stage::Refused };
                }
            }
            ProviderAnswer::Doubt(_) => {
                *was_in_doubt = true;
                if luck == 0 {
                    *stage = Stage::Ending;
                }
            }
            other => panic!("`{name}`: {other:?}"),
        },
        Stage::Has if luck < 5 => *stage = Stage::Ending,
        Stage::Has => assert!(!matches!(state(aws, name), Some(MachineState::Gone(_))), "`{name}` was not ended yet"),
        Stage::Ending => {
            let end = EndRequest { instance: name.clone(), handle: None };
            let ended = aws.call(&ProviderCall::End(vec![end]));
            assert!(matches!(ended, ProviderAnswer::Ending | ProviderAnswer::Unavailable(_)), "{ended:?}");
            match state(aws, name) {
                Some(MachineState::Gone(usage)) => {
                    assert!(usage.is_some(), "what was rented was metered");
                    *stage = Stage::Gone;
                }
                // A request in doubt that rented nothing shows nothing, however often it is looked for: the loop waits for
                // the time that AWS may take. Here time does not pass; the same request settles what it was.
                None if luck == 1 && *was_in_doubt => {
                    launch(aws, &request(name.as_str(), &format!("token-{name}")));
                }
                _ => {}
            }
        }
        Stage::Gone | Stage::Refused => {}
    }
}
