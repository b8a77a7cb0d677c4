//! Machines of Tencent Cloud that stay what they are: in the account in which they were rented.

use super::*;
use crate::rented::twin::keeps_to_its_account;

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
