//! The contract of every provider.

use domain::{InstanceId, Offer};

pub use domain::rental::{BillingRule, FailedPeer, LaunchRequest, ProviderAnswer, ProviderCall, ProviderTraits};
pub use domain::run::Sight;

/// A service that rents out machines.
///
/// It makes no decisions. It carries out calls, reports what exists, and guarantees:
///
/// - Launching is idempotent: repeating a launch with the same token within [`ProviderTraits::token_lifetime`] rents
///   nothing more. [`ProviderAnswer::Refused`] means that the request has rented nothing and never will; where that is
///   uncertain, for example because the reply was lost, the answer is [`ProviderAnswer::Doubt`].
/// - A rented machine is listed within [`ProviderTraits::visible_within`]. It is reported as gone, with its usage, only
///   once nothing of it remains, and it never reappears.
/// - An agent is to its machine what PID 1 is to a container: when it dies, the provider ends everything it left behind,
///   whether or not that was requested. What belongs to a live agent is never touched.
pub trait Provider: Send + Sync {
    /// The provider's name, as offers carry it.
    fn name(&self) -> &'static str;

    /// Its promises about time.
    fn traits(&self) -> ProviderTraits;

    /// Carries out a call, and answers. It may take long; the caller has its own timeout, after which the call may or
    /// may not have been carried out.
    fn call(&self, call: &ProviderCall) -> ProviderAnswer;

    /// The account in which a machine was rented, such as a project; none where the provider has no accounts.
    fn account_of(&self, _instance: &InstanceId) -> Option<String> {
        None
    }

    /// Other machines that could not send all files when one was prepared for this instance or since the one before; none where
    /// machines are not prepared from others. Each is returned once: it is asked for with the answer to a launch, and with each
    /// view of the machine, because one of a cloud is prepared later.
    fn take_failed_peers(&self, _instance: &InstanceId) -> Vec<FailedPeer> {
        Vec::new()
    }
}

/// The current offers.
///
/// # Errors
/// [`Error`] if the provider cannot be queried.
pub fn offers(provider: &dyn Provider) -> Result<Vec<Offer>, Error> {
    let why = match provider.call(&ProviderCall::Offers) {
        ProviderAnswer::Offers(offers) => return Ok(offers),
        ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => why,
        ProviderAnswer::Refused(refusal) => refusal.message(),
        _ => "it gave another answer".to_owned(),
    };
    Err(Error {
        provider: provider.name(),
        doing: "list what can be rented".into(),
        source: std::io::Error::other(why),
    })
}

/// Why a machine was not rented, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The request was refused: it has rented nothing, and will not.
    #[error(transparent)]
    Refused(Error),
    /// The outcome is unknown. The request is repeated, with the same token, until it is answered.
    #[error(transparent)]
    InDoubt(Error),
}

/// Why a provider did not carry out a call.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}` cannot {doing}")]
pub struct Error {
    /// Which.
    pub provider: &'static str,
    /// The operation.
    pub doing: String,
    /// Why not.
    #[source]
    pub source: std::io::Error,
}

impl Error {
    /// What failed and why, in one line.
    pub fn chain(&self) -> String {
        format!("{self}: {}", self.source)
    }
}
