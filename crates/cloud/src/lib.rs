//! Machines to rent: providers behind one trait and one conformance suite.
//!
//! A provider makes no decisions. It lists offers, launches with the given token, reports its view, and ends what it is
//! told to end; only its own confirmation makes an instance gone. Read `local` for the complete contract on one page,
//! and [`conformance`] for the checks of every provider.

pub mod alibaba;
pub mod aws;
pub mod azure;
pub mod catalog;
pub mod conformance;
mod credential_process;
pub mod gcp;
pub mod lambda;
pub mod local;
pub mod prices;
pub mod provider;
pub mod rented;
pub mod ssh;
pub mod tencent;

pub use aws::{Aws, AwsOptions, AwsSettings};
pub use catalog::Catalog;
pub use local::{Local, LocalSettings};
pub use provider::{
    Error, LaunchError, LaunchRequest, Provider, ProviderAnswer, ProviderCall, ProviderTraits, Sight, offers,
};
pub use ssh::{Ssh, SshSettings};
