//! What this process knows of one machine that it reaches by SSH: what was installed there, and the tunnel by which its agents
//! call. Nodes and rented machines are connected, checked and connected again by the same code.

use std::path::Path;
use std::time::Duration;

use super::bootstrap::Site;
use super::connection::{Connection, SshError};
use super::tunnel::Tunnel;

/// For so long a tunnel that was checked is trusted, while its machine is in use.
pub(crate) const TRUSTED: Duration = Duration::from_secs(5);

/// The state of one machine, in memory. What it says may have been deleted there since.
#[derive(Debug, Default)]
pub(crate) struct SshMachine {
    /// Where things are there, once they were copied.
    pub site: Option<Site>,
    tunnel: Option<Tunnel>,
}

impl SshMachine {
    /// Ensures that a machine has its files, which `copy` copies, and that its agents reach the loop: through a tunnel to the
    /// socket `local`, or, without one, directly. A tunnel that was checked a moment ago is trusted for so long.
    ///
    /// # Errors
    /// [`SshError`]; it is tried again with the next call.
    pub fn connect(
        &mut self,
        connection: &Connection,
        (local, trusted): (Option<&Path>, Duration),
        copy: impl FnOnce() -> Result<Site, SshError>,
    ) -> Result<(), SshError> {
        if let Some(tunnel) = &mut self.tunnel
            && !tunnel.leads_here(connection, trusted)?
        {
            // The machine may have been removed and added, or installed anew: nothing that was known of it holds.
            *self = SshMachine::default();
        }
        if self.site.is_none() {
            self.site = Some(copy()?);
        }
        let (Some(site), Some(local), None) = (&self.site, local, &self.tunnel) else { return Ok(()) };
        let opened = Tunnel::open(connection, &site.socket(), local);
        if opened.is_err() {
            // The folder of the socket may be gone: the next call checks the files there.
            self.site = None;
        }
        self.tunnel = Some(opened?);
        Ok(())
    }

    /// One with files and a tunnel whose connection stands.
    #[cfg(test)]
    pub fn standing() -> SshMachine {
        let place = |name: &str| format!("/nonexistent/{name}");
        let (installed, programs, root) = (place(".gradus"), place("bin"), place("home"));
        let site = Site { installed, programs, libtorch: None, root };
        SshMachine { site: Some(site), tunnel: Some(Tunnel::standing()) }
    }
}
