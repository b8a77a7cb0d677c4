//! The contract of every provider.

use domain::Offer;

pub use domain::rental::{LaunchRequest, ProviderAnswer, ProviderCall, ProviderTraits};
pub use domain::run::Sight;

/// A place where machines are rented.
///
/// It never decides. It does what it is asked, says what it sees, and keeps what its traits promise:
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

    /// What it promises about time.
    fn traits(&self) -> ProviderTraits;

    /// Does what it is asked, and answers. It may take long; the caller gives up by itself, and then what was asked may
    /// have been done or not.
    fn call(&self, call: &ProviderCall) -> ProviderAnswer;
}

/// What can be rented now.
///
/// # Errors
/// [`Error`] when the provider cannot be asked.
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
    /// The provider said no: this request has rented nothing, and will not.
    #[error(transparent)]
    Refused(Error),
    /// The request may have gone through. It is made again, with the same token, until it is answered.
    #[error(transparent)]
    InDoubt(Error),
}

/// Why a provider did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}` cannot {doing}")]
pub struct Error {
    /// Which.
    pub provider: &'static str,
    /// What it was asked.
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
