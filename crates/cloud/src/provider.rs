//! The contract of every provider.

use domain::Offer;

pub use domain::rental::{BillingRule, LaunchRequest, ProviderAnswer, ProviderCall, ProviderTraits};
pub use domain::run::Sight;

/// A service that rents machines.
///
/// It makes no decisions. It carries out calls, reports its view, and keeps the promises of its traits:
///
/// - A launch that is asked for again with the same token rents nothing more, for as long as
///   [`ProviderTraits::token_lifetime`]. [`ProviderAnswer::Refused`] is its word that the request has rented nothing and
///   will not; whatever leaves that open, such as a lost reply, is [`ProviderAnswer::Doubt`].
/// - A machine that was rented is listed within [`ProviderTraits::visible_within`]. It is said to be gone only when
///   nothing of it is left, with what was used of it. What is gone stays gone.
/// - An agent is to its machine what the first process is to a container: the provider ends what a dead agent left
///   behind, whether or not its end was asked for. What a living agent attends is never touched.
pub trait Provider: Send + Sync {
    /// The provider's name, as offers carry it.
    fn name(&self) -> &'static str;

    /// Its promises about time.
    fn traits(&self) -> ProviderTraits;

    /// Carries out a call, and answers. It may take long; the caller has its own timeout, after which the call may or
    /// may not have been carried out.
    fn call(&self, call: &ProviderCall) -> ProviderAnswer;
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
