//! `gradus machines down` of a machine that is stopped: it is deleted with its disk, once what that has cost is counted.

use cloud::aws::wire::failure::AwsFailure;
use cloud::aws::wire::query;
use cloud::rented::kept::KeptMachine;
use cloud::rented::{CloudApi, CloudFailure, MachineChoice, MachinePlace};
use server::{Home, State};

use super::disk::{charge, files, of_run, settle, world};
use crate::error::{Error, exit};
use crate::local::rented::{self, RentedCloud};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Deletes a stopped machine with its disk.
///
/// # Errors
/// [`Error`].
pub fn delete(
    machine: &KeptMachine,
    home: &Home,
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let mut state = State::open_lean(home)?;
    settle(home, &mut state)?;
    charge(machine, home, &mut state)?;
    let cost = of_run(&state, machine)?.adjusted();
    match RentedCloud::open(&machine.offer.provider, settings, home)? {
        RentedCloud::Aws { client, .. } => delete_aws(&client, machine, printer)?,
        RentedCloud::Gcp(api) => delete_at(&api, machine)?,
        RentedCloud::Azure(api) => delete_at(&api, machine)?,
        RentedCloud::Alibaba(api) => delete_at(&api, machine)?,
        RentedCloud::Tencent(api) => delete_at(&api, machine)?,
        RentedCloud::Lambda(_) => {
            return Err(world("no machines of this cloud are stopped".to_owned(), "this is a fault of gradus"));
        }
    }
    files(home, &machine.offer.provider).remove(&machine.handle).map_err(Error::file("delete", home.root()))?;
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "deleted": machine.handle, "run": machine.run() })),
        false => printer.data(format!(
            "{} is deleted with its disk; run {} was adjusted by {cost}",
            machine.handle,
            machine.run()
        )),
    }
    Ok(exit::DONE)
}

/// Deletes a machine, in the account in which it was rented.
fn delete_at<C: CloudApi>(api: &C, machine: &KeptMachine) -> Result<(), Error> {
    let handle = &machine.handle;
    let other = match &machine.account {
        Some(account) if is_other(api, handle, account)? => {
            let message = format!("`{handle}` is in account `{account}`, which is not the one that is set here");
            Some(api.of_account(account).ok_or_else(|| world(message, "set that account, and run it again"))?)
        }
        _ => None,
    };
    let zone = machine.offer.kind.parse::<MachineChoice>().ok().and_then(|choice| choice.zone);
    let place = MachinePlace { handle: handle.clone(), region: machine.region.clone(), zone };
    match other.as_ref().unwrap_or(api).end(&place) {
        Ok(()) | Err(CloudFailure::NotFound(_)) => Ok(()),
        Err(failure) => Err(world(format!("cannot delete `{handle}`: {failure}"), "run the same command again")),
    }
}

/// Whether an account is another one than that of the credentials.
fn is_other<C: CloudApi>(api: &C, handle: &str, account: &str) -> Result<bool, Error> {
    let here = api.account().map_err(|failure| {
        let message = format!("cannot delete `{handle}`, which is in account `{account}`: {failure}");
        world(message, "run the same command again once the cloud says whose the credentials are")
    })?;
    Ok(here.as_deref() != Some(account))
}

fn delete_aws(client: &cloud::aws::Client, machine: &KeptMachine, printer: &mut Printer) -> Result<(), Error> {
    if let Some(account) = &machine.account {
        let here = client.account(&machine.region);
        let here = here.map_err(|failure| rented::refused("ask AWS who you are", &failure))?;
        if here != *account {
            let message =
                format!("`{}` is in account `{account}`, and the credentials here are for `{here}`", machine.handle);
            return Err(world(message, "set the credentials of that account, or delete it in the AWS console"));
        }
    }
    match client.tell(&machine.region, &query::terminate(&[&machine.handle])) {
        Ok(()) => {}
        Err(AwsFailure::NotFound(_)) if machine.account.is_some() => {}
        Err(AwsFailure::NotFound(_)) => printer.say(format!(
            "warning: AWS has no `{}` for these credentials; if it is in another account, delete it in the AWS console",
            machine.handle
        )),
        Err(failure) => return Err(rented::refused(&format!("delete `{}`", machine.handle), &failure)),
    }
    Ok(())
}
