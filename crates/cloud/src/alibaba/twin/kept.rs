//! Machines of Alibaba Cloud that stay what they are: stopped with their disk, and in the account in which they were rented.

use super::*;
use crate::rented::kept::twin::{
    is_bound, is_on_while_it_is_billed, is_stopped_without_its_timer, starts_once_there_is_capacity, stops_and_starts,
};
use crate::rented::twin::keeps_to_its_account;

impl TwinState {
    /// The machine that is named, if it is there.
    pub(super) fn one(&self, region: &str, form: &Form) -> Result<HttpReply, String> {
        let ids: Vec<String> = serde_json::from_str(&form["InstanceIds"]).unwrap();
        let found: Vec<&Value> = self.machines.get(&(region.to_owned(), ids[0].clone())).into_iter().collect();
        ok(&json!({ "RequestId": "r", "TotalCount": found.len(), "Instances": { "Instance": found } }))
    }

    /// Stops or starts a machine, or changes when it is released.
    pub(super) fn change(&mut self, action: &str, region: &str, form: &Form) -> Result<HttpReply, String> {
        if form.contains_key("DryRun") {
            return refuse(400, "DryRunOperation");
        }
        let refused = if action == "StartInstance" { self.refuse.take() } else { None };
        let Some(machine) = self.machines.get_mut(&(region.to_owned(), form["InstanceId"].clone())) else {
            let is_release = action == "ModifyInstanceAutoReleaseTime";
            return refuse(404, if is_release { "NoSuchResource" } else { "InvalidInstanceId.NotFound" });
        };
        let status = machine["Status"].as_str().unwrap().to_owned();
        match (action, status.as_str()) {
            ("ModifyInstanceAutoReleaseTime", _) => machine["AutoReleaseTime"] = json!(form.get("AutoReleaseTime")),
            ("StopInstance", "Running") => {
                // As Alibaba does, one of a family without economical mode is stopped without an error.
                let is_billed = machine["InstanceType"].as_str().unwrap().starts_with("ecs.gn5-");
                machine["StoppedMode"] = if is_billed { "KeepCharging".into() } else { json!(form["StoppedMode"]) };
                machine["Status"] = "Stopped".into();
            }
            ("StartInstance", "Stopped") => {
                if let Some((status, code)) = refused {
                    return refuse(status, code);
                }
                machine["Status"] = "Running".into();
                machine["StoppedMode"] = "Not-applicable".into();
            }
            _ => return refuse(403, "IncorrectInstanceStatus"),
        }
        if std::mem::take(&mut self.lose) {
            Err("connection reset".to_owned())
        } else {
            ok(&json!({ "RequestId": "r" }))
        }
    }
}

/// A machine on demand that runs, and where it is.
fn running(twin: &Arc<Twin>, machine: &str) -> MachinePlace {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(launch(twin, home.path(), &format!("cn-hangzhou/{machine}")), ProviderAnswer::Accepted(_)));
    twin.step();
    api(twin).machines(OWNER).unwrap().remove(0).place()
}

#[test]
fn a_machine_is_stopped_and_started_again() {
    let twin = Arc::new(Twin::default());
    let is_off = || twin.state.lock().unwrap().machines.values().all(|machine| machine["Status"] == "Stopped");
    let lose = || twin.state.lock().unwrap().lose = true;
    let clear = || twin.state.lock().unwrap().machines.clear();
    stops_and_starts(api(&twin), "cn-hangzhou/ecs.gn6i-c4g1.xlarge", || twin.step(), lose, (is_off, clear));
}

#[test]
fn a_stopped_machine_is_not_released() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "ecs.gn6i-c4g1.xlarge");
    let timer = || twin.state.lock().unwrap().machines.values().next().unwrap()["AutoReleaseTime"].clone();
    let deny = |action| twin.state.lock().unwrap().denied = action;
    is_stopped_without_its_timer(|| api(&twin), &place, timer, (deny, &["ModifyInstanceAutoReleaseTime"]));
}

/// The loop may be gone for ever before its run ends.
#[test]
fn a_machine_that_a_run_has_again_is_released_in_time() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    let kind = "cn-hangzhou/ecs.gn6i-c4g1.xlarge";
    assert!(matches!(launch(&twin, home.path(), kind), ProviderAnswer::Accepted(_)));
    twin.step();
    let release = || twin.state.lock().unwrap().machines.values().next().unwrap()["AutoReleaseTime"].clone();
    let place = api(&twin).machines(OWNER).unwrap().remove(0).place();
    api(&twin).stop(&place).unwrap();
    assert!(release().is_null());
    let check = || is_bound(&provider(home.path(), api(&twin)), kind, &place);
    twin.state.lock().unwrap().lose = true;
    assert!(!check(), "it is tried again");
    assert!(check() && release().is_string());
    twin.state.lock().unwrap().denied = Some("ModifyInstanceAutoReleaseTime");
    assert!(check(), "without permission it is as with a cloud that cannot");
}

#[test]
fn a_start_without_capacity_says_so() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "ecs.gn6i-c4g1.xlarge");
    let refuse = || twin.state.lock().unwrap().refuse = Some((403, "OperationDenied.NoStock"));
    starts_once_there_is_capacity(|| api(&twin), &place, refuse);
}

#[test]
fn a_machine_that_is_billed_while_it_is_off_is_not_off() {
    let twin = Arc::new(Twin::default());
    let place = running(&twin, "ecs.gn5-c4g1.xlarge");
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
