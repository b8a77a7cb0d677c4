//! `gradus cloud check` and `gradus cloud policy`.

use cloud::alibaba::{self, Alibaba};
use cloud::aws;
use cloud::azure::{self, Azure};
use cloud::gcp::{self, Gcp};
use cloud::lambda::Lambda;
use cloud::rented::CloudApi;
use cloud::tencent::{self, Tencent};
use server::Home;

use super::{CloudName, not_answered};
use crate::error::{Error, exit};
use crate::local::rented::{self, RentedCloud};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus cloud check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cloud to check
    #[arg(value_enum)]
    cloud: CloudName,
    /// Region to ask [default: `AWS_REGION`, the region of the profile, or `us-east-1`]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
}

/// Arguments of `gradus cloud policy`.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// Cloud of the policy
    #[arg(value_enum)]
    cloud: CloudName,
}

/// Prints the policy.
///
/// # Errors
/// [`Error::Usage`] for a cloud without policies.
pub fn policy(args: &PolicyArgs, printer: &mut Printer) -> Result<u8, Error> {
    let policy = match args.cloud {
        CloudName::Aws => aws::policy(),
        CloudName::Gcp => gcp::role(),
        CloudName::Azure => azure::role(),
        CloudName::Alibaba => alibaba::policy(),
        CloudName::Tencent => tencent::policy(),
        CloudName::Lambda => {
            let message = "Lambda has no policies: each key may do everything in its account".to_owned();
            return Err(Error::Usage { message, hint: "`gradus cloud check lambda` tries the key".to_owned() });
        }
    };
    match printer.is_json() {
        true => printer.json(&policy),
        false => printer.data(format!("{policy:#}")),
    }
    Ok(exit::DONE)
}

/// Queries the cloud.
///
/// # Errors
/// [`Error::Code`] if it rejects the credentials, cannot be reached, or a permission is missing.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if args.cloud != CloudName::Aws && args.region.is_some() {
        let message = format!("`--region` is for AWS; {} is asked in all regions at once", args.cloud.display_name());
        return Err(Error::Usage { message, hint: "leave it out".to_owned() });
    }
    let home = Home::open(&settings.home)?;
    match RentedCloud::open(args.cloud.provider(), settings, &home)? {
        RentedCloud::Aws { client, .. } => of_aws(&client, &rented::region(settings, args.region.as_deref()), printer),
        RentedCloud::Lambda(api) => of_lambda(&api, home.owner(), printer),
        RentedCloud::Gcp(api) => of_gcp(&api, home.owner(), printer),
        RentedCloud::Azure(api) => of_azure(&api, home.owner(), printer),
        RentedCloud::Alibaba(api) => of_alibaba(&api, home.owner(), printer),
        RentedCloud::Tencent(api) => of_tencent(&api, home.owner(), printer),
    }
}

fn of_lambda(api: &Lambda, owner: &str, printer: &mut Printer) -> Result<u8, Error> {
    let all = api.check().map_err(|failure| not_answered("verify the Lambda API key", &failure))?;
    let own = api.machines(owner).map_err(|failure| not_answered("list machines of Lambda", &failure))?.len();
    if printer.is_json() {
        printer.json(&serde_json::json!({ "key": "accepted", "machines": all, "of_this_home": own }));
    } else {
        printer.data("key       accepted; it may do everything in its account");
        printer.data(format!("machines  {all} in the account, {own} of this home"));
    }
    Ok(exit::DONE)
}

fn of_gcp(api: &Gcp, owner: &str, printer: &mut Printer) -> Result<u8, Error> {
    let report = api
        .check(owner)
        .map_err(|failure| not_answered("check the permissions in the Google Cloud project", &failure))?;
    if printer.is_json() {
        printer.json(&serde_json::json!(report));
    } else {
        printer.data(format!("project      {}", report.project));
        printer.data(format!("machines     {} of this home", report.machines));
        printer.data(permissions(report.unknown.as_deref(), &report.missing));
    }
    if report.missing.is_empty() {
        return Ok(exit::DONE);
    }
    let message = format!("the identity lacks permissions in project `{}` that runs need", report.project);
    let hint = "`gradus cloud policy gcp` prints a role for `gcloud iam roles create gradus --project PROJECT --file`";
    Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
}

fn of_azure(api: &Azure, owner: &str, printer: &mut Printer) -> Result<u8, Error> {
    let report = api.check(owner).map_err(|failure| not_answered("look into the resource group of Azure", &failure))?;
    if printer.is_json() {
        printer.json(&serde_json::json!(report));
    } else {
        printer.data(format!("subscription {}", report.subscription));
        printer.data(format!("group        {}", report.resource_group));
        printer.data(format!("machines     {} of this home", report.machines));
        printer.data(permissions(report.unknown.as_deref(), &report.missing));
    }
    if report.missing.is_empty() {
        return Ok(exit::DONE);
    }
    let message =
        format!("the identity lacks permissions in resource group `{}` that runs need", report.resource_group);
    let hint = "`gradus cloud policy azure` prints a role for `az role definition create --role-definition`";
    Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
}

fn of_alibaba(api: &Alibaba, owner: &str, printer: &mut Printer) -> Result<u8, Error> {
    let report = api.check(owner).map_err(|failure| not_answered("ask Alibaba Cloud who you are", &failure))?;
    let hint = "`gradus cloud policy alibaba` prints a policy for `aliyun ram CreatePolicy --PolicyDocument`";
    let (who, whole) = ((report.account.as_str(), report.arn.as_str()), serde_json::json!(report));
    of_account(who, (report.machines, &report.missing, &[]), &whole, hint, printer)
}

fn of_tencent(api: &Tencent, owner: &str, printer: &mut Printer) -> Result<u8, Error> {
    let report = api.check(owner).map_err(|failure| not_answered("ask Tencent Cloud who you are", &failure))?;
    let hint = "`gradus cloud policy tencent` prints a policy for `tccli cam CreatePolicy --PolicyDocument`";
    let (who, whole) = ((report.account.as_str(), report.arn.as_str()), serde_json::json!(report));
    of_account(who, (report.machines, &report.missing, &report.untried), &whole, hint, printer)
}

/// Who a key belongs to, what it is not allowed, and what could not be tried; `whole` is the same as JSON.
fn of_account(
    (account, arn): (&str, &str),
    (machines, missing, untried): (usize, &[&str], &[&str]),
    whole: &serde_json::Value,
    hint: &str,
    printer: &mut Printer,
) -> Result<u8, Error> {
    if printer.is_json() {
        printer.json(whole);
    } else {
        printer.data(format!("account      {account}"));
        printer.data(format!("identity     {arn}"));
        printer.data(format!("machines     {machines} of this home"));
        printer.data(permissions(None, missing));
        untried.iter().for_each(|action| printer.data(format!("not tried    {action}")));
    }
    if missing.is_empty() {
        return Ok(exit::DONE);
    }
    let message = format!("`{arn}` lacks permissions that runs need");
    Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
}

/// The line about permissions of an account, a project or a resource group.
fn permissions(unknown: Option<&str>, missing: &[&str]) -> String {
    match (unknown, missing) {
        (Some(why), _) => format!("permissions  unknown: {why}"),
        (None, []) => "permissions  all that a run needs".to_owned(),
        (None, missing) => format!("permissions  missing: {}", missing.join(", ")),
    }
}

fn of_aws(client: &aws::Client, region: &str, printer: &mut Printer) -> Result<u8, Error> {
    let report = aws::check(client, region).map_err(|failure| rented::refused("ask AWS who you are", &failure))?;
    let missing = report.missing();
    if printer.is_json() {
        let mut value = serde_json::json!(report);
        value["missing"] = serde_json::Value::from(missing.clone());
        printer.json(&value);
    } else {
        printer.data(format!("identity     {}", report.arn));
        printer.data(format!("account      {}", report.account));
        printer.data(format!("credentials  from {}", report.origin));
        printer.data(format!("region       {region}"));
        let rows: Vec<Vec<String>> = report.permissions.iter().map(row).collect();
        table::lines(&["action", "allowed", "why"], &rows).into_iter().for_each(|line| printer.data(line));
    }
    if missing.is_empty() {
        return Ok(exit::DONE);
    }
    if !printer.is_json() {
        printer.data("add to the policy of this identity:");
        missing.iter().for_each(|statement| printer.data(format!("{statement:#}")));
    }
    let message = format!("`{}` lacks permissions that runs on AWS need", report.arn);
    let hint = Some("`gradus cloud policy aws` prints the whole policy".to_owned());
    Err(Error::Code { message, hint, code: exit::WORLD })
}

fn row(permission: &aws::Permission) -> Vec<String> {
    let allowed = match permission.is_allowed {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    vec![permission.action.clone(), allowed.to_owned(), permission.said.clone().unwrap_or_default()]
}
