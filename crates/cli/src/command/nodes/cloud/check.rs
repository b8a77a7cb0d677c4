//! `gradus cloud check` and `gradus cloud policy`.

use cloud::aws;

use super::CloudName;
use crate::error::{Error, exit};
use crate::local::rented;
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
/// None yet.
pub fn policy(args: &PolicyArgs, printer: &mut Printer) -> Result<u8, Error> {
    let CloudName::Aws = args.cloud;
    match printer.is_json() {
        true => printer.json(&aws::policy()),
        false => printer.data(format!("{:#}", aws::policy())),
    }
    Ok(exit::DONE)
}

/// Queries the cloud.
///
/// # Errors
/// [`Error::Code`] if it rejects the credentials, cannot be reached, or a permission is missing.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let CloudName::Aws = args.cloud;
    let region = rented::region(settings, args.region.as_deref());
    let client = rented::client(settings)?;
    let report = aws::check(&client, &region).map_err(|failure| rented::refused("ask AWS who you are", &failure))?;
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
