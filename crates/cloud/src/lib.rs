//! What is rented: one [`Provider`] a place, behind one trait and one conformance suite.
//!
//! A provider never decides. It lists offers, launches what it is told with the token it is given, says what it sees,
//! and ends what it is told to end; only its own proof makes an instance gone. Read `local` for the whole contract on
//! one page, and [`conformance`] for what every provider must show.

pub mod aws;
pub mod catalog;
pub mod conformance;
pub mod gcp;
pub mod lambda;
pub mod local;
pub mod provider;
pub mod rented;
pub mod ssh;

pub use aws::{Aws, AwsOptions, AwsSettings};
pub use catalog::Catalog;
pub use local::{Local, LocalSettings};
pub use provider::{
    Error, LaunchError, LaunchRequest, Provider, ProviderAnswer, ProviderCall, ProviderTraits, Sight, offers,
};
pub use ssh::{Ssh, SshSettings};
