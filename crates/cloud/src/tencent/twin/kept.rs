//! Machines of Tencent Cloud that stay what they are: stopped with their disk, and in the account in which they were rented.

use super::*;
use crate::rented::kept::twin::{
    is_bound, is_on_while_it_is_billed, is_stopped_without_its_timer, starts_once_there_is_capacity, stops_and_starts,
};
use crate::rented::twin::keeps_to_its_account;

/// The machine that a request names.
fn id_of(body: &Value) -> String {
    body["InstanceIds"][0].as_str().unwrap().to_owned()
}

impl TwinState {
    /// The machine that is named, if it is there.
    pub(super) fn one(&self, region: &str, body: &Value) -> Result<HttpReply, String> {
        let found: Vec<&Value> = self.machines.get(&(region.to_owned(), id_of(body))).into_iter().collect();
        ok(json!({ "TotalCount": found.len(), "InstanceSet": found }))
    }

    /// When the machine that is named is ended.
    pub(super) fn timers(&self, region: &str, body: &Value) -> Result<HttpReply, String> {
        // Who asks for what may be done names no machine.
        let machine = body["InstanceIds"][0].as_str().map(|id| (region.to_owned(), id.to_owned()));
        let machine = machine.and_then(|key| self.machines.get(&key)).filter(|one| one["ActionTimer"].is_object());
        let timer = machine.map(|machine| {
            let id = machine["InstanceId"].as_str().unwrap();
            json!({ "ActionTimerId": format!("timer of {id}"), "TimerAction": "TerminateInstances", "Status": "UNDO",
                    "ActionTime": machine["ActionTimer"]["ActionTime"], "InstanceId": id, "Externals": {} })
        });
        ok(json!({ "ActionTimers": timer.into_iter().collect::<Vec<_>>() }))
    }

    /// Deletes a timer.
    pub(super) fn forget(&mut self, region: &str, body: &Value) -> Result<HttpReply, String> {
        let id = body["ActionTimerIds"][0].as_str().unwrap().strip_prefix("timer of ").unwrap().to_owned();
        self.machines.get_mut(&(region.to_owned(), id)).unwrap()["ActionTimer"] = Value::Null;
        ok(json!({}))
    }

    /// Sets a timer, of which a machine has one.
    pub(super) fn import(&mut self, region: &str, body: &Value) -> Result<HttpReply, String> {
        let lost = std::mem::take(&mut self.lose);
        let id = id_of(body);
        let machine = self.machines.get_mut(&(region.to_owned(), id.clone())).unwrap();
        if machine["ActionTimer"].is_object() {
            return refuse("FailedOperation.MutActionTimerExist");
        }
        machine["ActionTimer"] = body["ActionTimer"].clone();
        if lost {
            Err("connection reset".to_owned())
        } else {
            ok(json!({ "ActionTimerIds": [format!("timer of {id}")] }))
        }
    }

    /// Stops or starts a machine.
    pub(super) fn change(&mut self, action: &str, region: &str, body: &Value) -> Result<HttpReply, String> {
        let refused = if action == "StartInstances" { self.refuse.take() } else { None };
        let Some(machine) = self.machines.get_mut(&(region.to_owned(), id_of(body))) else {
            return refuse("InvalidInstanceId.NotFound");
        };
        let state = machine["InstanceState"].as_str().unwrap().to_owned();
        match (action, state.as_str()) {
            ("StopInstances", "RUNNING") => {
                // As Tencent does, one that is billed while it is off is stopped without an error.
                let is_billed = machine["InstanceType"].as_str().unwrap().starts_with("BM");
                machine["StopChargingMode"] =
                    if is_billed { "KEEP_CHARGING".into() } else { body["StoppedMode"].clone() };
                machine["InstanceState"] = "STOPPED".into();
            }
            ("StartInstances", "STOPPED") => {
                if let Some(code) = refused {
                    return refuse(code);
                }
                machine["InstanceState"] = "RUNNING".into();
                machine["StopChargingMode"] = "NOT_APPLICABLE".into();
            }
            (_, "STOPPED") => return refuse("UnsupportedOperation.InstanceStateStopped"),
            (_, "RUNNING") => return refuse("UnsupportedOperation.InstanceStateRunning"),
            _ => return refuse("UnsupportedOperation.InstanceStatePending"),
        }
        if std::mem::take(&mut self.lose) { Err("connection reset".to_owned()) } else { ok(json!({})) }
    }
}

/// A machine on demand that runs, and where it is.
fn running(twin: &Arc<Twin>, machine: &str) -> MachinePlace {
    let home = tempfile::tempdir().unwrap();
    let kind = format!("ap-guangzhou/ap-guangzhou-7/{machine}");
    assert!(matches!(launch(twin, home.path(), &kind), ProviderAnswer::Accepted(_)));
    twin.step();
    api(twin).machines(OWNER).unwrap().remove(0).place()
}

#[test]
fn a_machine_is_stopped_and_started_again() {
    let twin = Arc::new(Twin::default());
    let is_off = || twin.state.lock().unwrap().machines.values().all(|machine| machine["InstanceState"] == "STOPPED");
    let lose = || twin.state.lock().unwrap().lose = true;
    let clear = || twin.state.lock().unwrap().machines.clear();
    stops_and_starts(api(&twin), "ap-guangzhou/ap-guangzhou-7/GN7.2XLARGE32", || twin.step(), lose, (is_off, clear));
}

#[test]
fn a_stopped_machine_is_not_ended_by_its_timer() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "GN7.2XLARGE32");
    let timer = || twin.state.lock().unwrap().machines.values().next().unwrap()["ActionTimer"].clone();
    let deny = |action| twin.state.lock().unwrap().denied = action;
    let actions = ["DescribeInstancesActionTimer", "DeleteInstancesActionTimer"];
    is_stopped_without_its_timer(|| api(&twin), &place, timer, (deny, &actions));
}

/// The loop may be gone for ever before its run ends.
#[test]
fn a_machine_that_a_run_has_again_is_ended_by_a_timer() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    let kind = "ap-guangzhou/ap-guangzhou-7/GN7.2XLARGE32";
    assert!(matches!(launch(&twin, home.path(), kind), ProviderAnswer::Accepted(_)));
    twin.step();
    let timer = || twin.state.lock().unwrap().machines.values().next().unwrap()["ActionTimer"].clone();
    let check = || {
        let place = api(&twin).machines(OWNER).unwrap().remove(0).place();
        is_bound(&provider(home.path(), api(&twin)), kind, &place)
    };
    api(&twin).stop(&api(&twin).machines(OWNER).unwrap().remove(0).place()).unwrap();
    twin.state.lock().unwrap().lose = true;
    assert!(!check(), "it is tried again");
    assert!(check() && timer()["TimerAction"] == "TerminateInstances", "there is one already");
    twin.state.lock().unwrap().denied = Some("ImportInstancesActionTimer");
    assert!(check(), "without permission it is as with a cloud that cannot");
}

#[test]
fn a_start_without_capacity_says_so() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "GN7.2XLARGE32");
    let refuse = || twin.state.lock().unwrap().refuse = Some("ResourceInsufficient.SpecifiedInstanceType");
    starts_once_there_is_capacity(|| api(&twin), &place, refuse);
}

#[test]
fn a_machine_that_is_billed_while_it_is_off_is_not_off() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "BMG5t.24XLARGE384");
    is_on_while_it_is_billed(|| api(&twin), &place);
}

#[test]
fn a_machine_is_of_the_account_in_which_it_was_rented() {
    let twin = Arc::new(Twin::default());
    let state = || twin.state.lock().unwrap();
    let set = |account: Option<&'static str>| {
        let mut state = state();
        state.denied = account.is_none().then_some("GetCallerIdentity");
        state.account = account.or(state.account);
    };
    keeps_to_its_account(|| api(&twin), KIND, || twin.step(), set, || state().lose = true, || state().made);
}
