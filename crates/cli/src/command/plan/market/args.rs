//! Arguments of plans over everything that is offered.

use std::path::{Path, PathBuf};

use domain::Duration;

use super::preset::Preset;

/// Arguments for plans over everything that is offered.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Plan over every offer in the catalog, even if the job could run on this machine
    #[arg(long)]
    pub(super) catalog: bool,
    /// Plan for a common machine tier, where the job does not name machines
    #[arg(long, value_name = "TIER")]
    pub(super) preset: Option<Preset>,
    /// Take spot uptimes from this trace instead of the clouds' published interruption rates
    #[arg(long, value_name = "TRACE")]
    pub(super) spot_trace: Option<PathBuf>,
    /// Correct estimated step times with measured ones. Without FILE.csv, measure the job's steps on this machine now;
    /// other kinds of machines are not corrected. With it, use its rows of this model: the columns `gpu`, `n_gpus`,
    /// `batch_per_gpu`, `throughput` and `unit`, as in tables for `gradus plan check`
    #[arg(long, value_name = "FILE.csv")]
    pub(super) calibrate: Option<Option<PathBuf>>,
    /// Run the job's own program on this machine until it has logged N steps after its first, and plan from their time and
    /// memory. The program uses the Python package `gradus`; it saves nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "calibrate")]
    pub(super) profile: Option<u32>,
    /// Compare the cost of 1- and 3-year reservations with on-demand over this period, such as `365 days`
    #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    pub(super) horizon: Option<Duration>,
    /// Number of times the job runs within the horizon
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "horizon")]
    pub(super) runs: u32,
    /// Write the plan as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write a chart of cost against time as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Explain the choice in about ten lines instead of the whole plan
    #[arg(long)]
    pub(super) explain: bool,
    /// Show why an offer is chosen: its memory, time and cost part by part, and the limits that it keeps. OFFER is a machine
    /// type, or parts such as `aws/us-east-1/p4d.24xlarge/spot`, `gcp`, `H100:8` (repeatable)
    #[arg(long, value_name = "OFFER")]
    pub(super) why: Vec<String>,
    /// Show why an offer is not chosen: which limit rules it out, or what is better, with the same parts (repeatable)
    #[arg(long, value_name = "OFFER")]
    pub(super) why_not: Vec<String>,
    /// Show the CPU time of the search, and of the same search repeated
    #[arg(long)]
    pub(super) timings: bool,
}

impl Args {
    /// Whether the arguments request a plan over the market.
    pub fn asks(&self) -> bool {
        self.catalog
            || self.preset.is_some()
            || self.spot_trace.is_some()
            || matches!(self.calibrate, Some(Some(_)))
            || self.horizon.is_some()
            || self.svg.is_some()
            || self.explain
            || !self.why.is_empty()
            || !self.why_not.is_empty()
            || self.timings
    }

    /// How many steps of the job's own program are to be timed.
    pub fn profiles(&self) -> Option<u32> {
        self.profile
    }

    /// Where the plan is to be written as a page.
    pub fn page(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// The table of measured steps, where one is named.
    pub fn table(&self) -> Option<&Path> {
        self.calibrate.as_ref()?.as_deref()
    }

    /// Whether steps are to be made on this machine.
    pub fn calibrates(&self) -> bool {
        matches!(self.calibrate, Some(None))
    }
}
