//! `gradus facts`: what this machine says of itself, and measuring the network from it. Used over SSH.

use std::time::Duration;

use domain::all_reduce::AllReduceRequest;
use node::facts::link::{self, Receiver};
use node::facts::{FactsWanted, gather};
use serde_json::json;

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::rank::all_reduce;
use crate::settings::GlobalSettings;

/// For so long a receiver waits for its sender.
const RECEIVING: Duration = Duration::from_secs(20);

/// Arguments of `gradus facts`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write and read 64 MiB in the home folder
    #[arg(long)]
    measure_disk: bool,
    /// Print a port, then take what one machine sends
    #[arg(long, exclusive = true)]
    receive: bool,
    /// Send to `HOST:PORT` for a second, and print how fast it was
    #[arg(long, value_name = "ADDRESS", exclusive = true)]
    send: Option<String>,
    /// Take part in an all-reduce as this JSON says, and print how fast it was; rank 0 prints first where it waits
    #[arg(long, value_name = "REQUEST", exclusive = true)]
    all_reduce: Option<String>,
}

/// Prints one JSON value, or for a receiver one at its start.
///
/// # Errors
/// [`Error::Code`] when nothing could be sent or received.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let failed = |doing: &str, error: std::io::Error| Error::Code {
        message: format!("cannot {doing}: {error}"),
        hint: Some("this command is used by `gradus doctor`".to_owned()),
        code: exit::WORLD,
    };
    if args.receive {
        let receiver = Receiver::listen().map_err(|error| failed("listen", error))?;
        let port = receiver.port().map_err(|error| failed("listen", error))?;
        printer.json(&json!({ "address": own_address(), "port": port }));
        receiver.receive(RECEIVING).map_err(|error| failed("receive", error))?;
        return Ok(exit::DONE);
    }
    if let Some(address) = &args.send {
        let (host, port) = address
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| Error::Usage {
                message: format!("`{address}` is not HOST:PORT"),
                hint: "write for example 10.0.0.7:4000".to_owned(),
            })?;
        printer.json(&link::send(host, port).map_err(|error| failed("send", error))?);
        return Ok(exit::DONE);
    }
    if let Some(text) = &args.all_reduce {
        let mut request: AllReduceRequest = serde_json::from_str(text).map_err(|error| Error::Usage {
            message: format!("`{text}` is no request: {error}"),
            hint: "this command is used by `gradus doctor`".to_owned(),
        })?;
        if request.rank == 0 {
            let receiver = Receiver::listen().map_err(|error| failed("listen", error))?;
            request.port = receiver.port().map_err(|error| failed("listen", error))?;
            let address = own_address();
            printer.json(&json!({ "address": address, "port": request.port }));
            request.host = address.unwrap_or_else(|| "127.0.0.1".to_owned());
            // The port is free again, and unlikely to be reused within the moment.
            drop(receiver);
        }
        printer.json(&all_reduce::take_part(settings, &request));
        return Ok(exit::DONE);
    }
    printer.json(&gather(&wanted(settings, args.measure_disk)));
    Ok(exit::DONE)
}

/// The address at which this machine was reached, which `sshd` says: the client's address and port, then its own.
fn own_address() -> Option<String> {
    let connection = GlobalSettings::variable("SSH_CONNECTION")?;
    connection.split_whitespace().nth(2).map(str::to_owned)
}

/// What is looked at on this machine.
pub fn wanted(settings: &GlobalSettings, measures_disk: bool) -> FactsWanted {
    FactsWanted { folder: settings.home.clone(), measures_disk, libtorch: settings.libtorch.clone() }
}
