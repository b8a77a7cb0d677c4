//! The agent's orders, collected between steps.

use domain::rank::RankCommand;

use crate::channel::Channel;

/// Orders that have come and are not carried out yet.
pub(super) struct Commands<'a> {
    channel: &'a Channel,
    pub save: bool,
    pub stop: bool,
}

impl<'a> Commands<'a> {
    /// None yet.
    pub fn on(channel: &'a Channel) -> Commands<'a> {
        Commands { channel, save: false, stop: false }
    }

    /// Handles the orders that have arrived.
    pub fn poll(&mut self) {
        while let Some(order) = self.channel.try_order() {
            match order {
                RankCommand::Checkpoint => self.save = true,
                RankCommand::Stop { .. } => self.stop = true,
            }
        }
    }
}
