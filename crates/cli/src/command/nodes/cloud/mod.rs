//! `gradus cloud`: what an account of a cloud allows, and what is rented there.

pub mod audit;
mod check;

use cloud::rented::CloudFailure;

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus cloud`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Show who you are to a cloud, what you may do there, and which permissions are missing; changes nothing
    Check(check::Args),
    /// Print the least IAM policy or role with which jobs can be run
    Policy(check::PolicyArgs),
    /// List everything rented in all regions, with its price per hour and whether a run uses it
    Audit(audit::Args),
}

/// A cloud that machines can be rented from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CloudName {
    Aws,
    Lambda,
    Gcp,
    Azure,
    Alibaba,
    Tencent,
}

impl CloudName {
    const ALL: [CloudName; 6] =
        [CloudName::Aws, CloudName::Lambda, CloudName::Gcp, CloudName::Azure, CloudName::Alibaba, CloudName::Tencent];

    /// The name of its provider, and of its folder in the home.
    fn provider(self) -> &'static str {
        match self {
            CloudName::Aws => cloud::aws::NAME,
            CloudName::Lambda => cloud::lambda::NAME,
            CloudName::Gcp => cloud::gcp::NAME,
            CloudName::Azure => cloud::azure::NAME,
            CloudName::Alibaba => cloud::alibaba::NAME,
            CloudName::Tencent => cloud::tencent::NAME,
        }
    }

    /// What it calls itself.
    fn display_name(self) -> &'static str {
        match self {
            CloudName::Aws => "AWS",
            CloudName::Lambda => "Lambda",
            CloudName::Gcp => "Google Cloud",
            CloudName::Azure => "Azure",
            CloudName::Alibaba => "Alibaba Cloud",
            CloudName::Tencent => "Tencent Cloud",
        }
    }
}

/// A cloud that was asked and did not answer as hoped.
fn not_answered(doing: &str, failure: &CloudFailure) -> Error {
    let hint = match failure {
        CloudFailure::Denied(_) => "the page of each cloud in docs/clouds.md says which permissions an identity needs",
        _ => "run the same command again",
    };
    Error::Code { message: format!("cannot {doing}: {failure}"), hint: Some(hint.to_owned()), code: exit::WORLD }
}

/// Carries out the subcommand.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::Check(args) => check::run(&args, settings, printer),
        Subcommand::Policy(args) => check::policy(&args, printer),
        Subcommand::Audit(args) => audit::run(&args, settings, printer),
    }
}
