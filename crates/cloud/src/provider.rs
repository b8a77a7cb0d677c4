//! The contract of every provider.

use domain::wire::Entry;
use domain::{InstanceId, Offer};

pub use domain::run::{ProviderTraits, Sight};

/// A place where machines are rented.
pub trait Provider {
    /// The provider's name, as offers carry it.
    fn name(&self) -> &'static str;

    /// What it promises about time.
    fn traits(&self) -> ProviderTraits;

    /// What can be rented now.
    ///
    /// # Errors
    /// [`Error`] when the provider cannot be asked.
    fn offers(&self) -> Result<Vec<Offer>, Error>;

    /// Rents a machine and starts an agent on it. Asking again with the same token rents nothing more, whatever
    /// crashed in between.
    ///
    /// # Errors
    /// [`LaunchError::Refused`] is the provider's word that nothing was rented. Whatever leaves that open, such as a lost
    /// answer, is [`LaunchError::InDoubt`].
    fn launch(&self, launch: &Launch) -> Result<(), LaunchError>;

    /// What the provider sees of an instance. One that was launched may be [`Sight::Unknown`] for
    /// [`ProviderTraits::visible_within`].
    ///
    /// An agent is to its instance what the first process is to a container: the provider ends what a dead agent left
    /// behind, whether or not a release was asked for, and this is where it may do so. It says [`Sight::Gone`] only
    /// when nothing of the instance is left. What a living agent attends is never touched.
    ///
    /// # Errors
    /// [`Error`] when it cannot be asked. That is not the same as gone.
    fn sight(&self, instance: &InstanceId) -> Result<Sight, Error>;

    /// Asks the provider to end an instance; [`Provider::sight`] tells when it is gone. Asking again does no harm.
    ///
    /// # Errors
    /// [`Error`] when it cannot be asked.
    fn release(&self, instance: &InstanceId) -> Result<(), Error>;

    /// What the agent of an instance had to say and may not have been heard with, oldest first, as far as the provider
    /// keeps it. Once the instance is gone nothing is added, so it is to be asked after [`Provider::sight`] has said
    /// [`Sight::Gone`] and before the rent is settled. Words that were heard before may be among them. None by default:
    /// not every machine leaves something behind.
    ///
    /// # Errors
    /// [`Error`] when it cannot be asked.
    fn last_words(&self, _instance: &InstanceId) -> Result<Vec<Entry>, Error> {
        Ok(Vec::new())
    }

    /// Every instance of this owner that the provider sees alive, known to us or not.
    ///
    /// # Errors
    /// [`Error`] when it cannot be asked.
    fn list(&self) -> Result<Vec<InstanceId>, Error>;
}

/// A machine to rent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its name with us; the machine is tagged with it.
    pub instance: InstanceId,
    /// The same token rents the same machine.
    pub token: String,
    /// Which offer.
    pub offer: Offer,
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
