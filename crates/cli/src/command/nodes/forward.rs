//! `gradus forward`: ports of a run's machine on this one.

use std::os::unix::process::CommandExt;
use std::path::Path;

use server::Home;

use super::members::machine;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus forward`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run that has machines: its name, a unique prefix of it, or `last`
    run: String,
    /// Port there, such as `6006`, or one here and one there: `8080:6006` (repeatable)
    #[arg(required = true, value_name = "[HERE:]THERE", value_parser = ports)]
    ports: Vec<(u16, u16)>,
    /// The machine of this node rank
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    node: usize,
}

/// Reads `6006` or `8080:6006`.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(format!("`{text}` is no port: write a number from 1 to 65535")),
    };
    match text.split_once(':') {
        Some((here, there)) => Ok((port(here)?, port(there)?)),
        None => port(text).map(|port| (port, port)),
    }
}

/// Becomes `ssh`, which forwards until it is interrupted.
///
/// # Errors
/// [`Error::Usage`] for a run without such a machine, or one that runs on this machine.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let machine = machine(&home, &args.run, args.node)?;
    let forwards: Vec<String> =
        args.ports.iter().map(|(here, there)| format!("127.0.0.1:{here}:localhost:{there}")).collect();
    let mut options = vec!["-N", "-T", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"];
    forwards.iter().for_each(|forward| options.extend(["-L", forward]));
    let Some(mut ssh) = machine.route.ssh(&options) else {
        let (_, there) = args.ports[0];
        let message = format!("run `{}` is on this machine, so there is nothing to forward", machine.run);
        return Err(Error::Usage { message, hint: format!("its port is at `localhost:{there}`") });
    };
    for (here, there) in &args.ports {
        printer.say(format!(
            "http://127.0.0.1:{here} is port {there} of node {} of run {}; Ctrl-C ends this",
            args.node, machine.run
        ));
    }
    Err(Error::file("start", Path::new("ssh"))(ssh.exec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_two() {
        assert_eq!(ports("6006"), Ok((6006, 6006)));
        assert_eq!(ports("8080:6006"), Ok((8080, 6006)));
        for wrong in ["", "0", "80:", "70000", "80:http", ":80"] {
            assert!(ports(wrong).unwrap_err().contains("is no port"), "{wrong}");
        }
    }
}
