//! `gradus node`: one request of the provider `ssh`, answered on the machine itself by the provider `local`; and `gradus
//! node-files`, the other end of copying programs and libraries to it, and `gradus node-serve`, from which another one reads them.

use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cloud::{Local, LocalSettings, Provider, ProviderCall};
use domain::rental::{NODE_SCHEMA, NodeRequest, ProviderAnswer, Refusal};
use node::blobs::ServeRequest;

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Reads a request from stdin and prints the answer, both as JSON.
///
/// # Errors
/// [`Error::Usage`] when the request cannot be read, [`Error::File`] when the folder cannot be made.
pub fn run(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(Error::file("read", Path::new("stdin")))?;
    let request: NodeRequest = serde_json::from_str(&text).map_err(|error| no_request(&error))?;
    let answer = match request.schema > NODE_SCHEMA {
        true => ProviderAnswer::Unavailable(format!(
            "the request is of version {}, and this program reads up to {NODE_SCHEMA}",
            request.schema
        )),
        false => answer(request, settings)?,
    };
    printer.json(&serde_json::json!(answer));
    Ok(exit::DONE)
}

/// `gradus node-files`: reads what is sent on stdin, installs it and prints the answer as JSON, which says why it was not.
pub fn files(printer: &mut Printer) -> u8 {
    printer.json(&node::blobs::answer(std::io::stdin().lock()));
    exit::DONE
}

/// `gradus node-serve`: reads which blobs another node may fetch, prints where, and serves them to it while stdin is open.
///
/// # Errors
/// [`Error::Usage`] when the request cannot be read.
pub fn serve(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(Error::file("read", Path::new("stdin")))?;
    let request: ServeRequest = serde_json::from_str(&line).map_err(|error| no_request(&error))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let sets = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        sets.store(true, Ordering::Relaxed);
    });
    // The home is `.gradus/homes/OWNER`.
    let root = settings.home.ancestors().nth(2).unwrap_or(&settings.home);
    let address = address(&GlobalSettings::variable("SSH_CONNECTION").unwrap_or_default());
    node::blobs::serve(root, &request, address.as_deref(), &is_over, |offer| printer.json(offer));
    Ok(exit::DONE)
}

fn no_request(error: &serde_json::Error) -> Error {
    Error::Usage {
        message: format!("stdin is no request of gradus: {error}"),
        hint: "this command is used by gradus itself; add a node with `gradus nodes add`".to_owned(),
    }
}

fn answer(request: NodeRequest, settings: &GlobalSettings) -> Result<ProviderAnswer, Error> {
    let home = &settings.home;
    std::fs::create_dir_all(home.join("instances")).map_err(Error::file("make the folder", home))?;
    let local = Local::new(LocalSettings {
        home: home.clone(),
        program: settings.program.clone(),
        owner: request.owner,
        rate: request.rate,
        price_source: "gradus nodes add --price".to_owned(),
        socket: home.join("loop.sock"),
        rank_program: settings.rank_program.clone(),
        libtorch: settings.libtorch.clone(),
        is_remote: true,
        address: address(&GlobalSettings::variable("SSH_CONNECTION").unwrap_or_default()),
        join: request.join,
    });
    let gate = home.join("launch.lock");
    let gate = std::fs::File::create(&gate).map_err(Error::file("open", &gate))?;
    if let ProviderCall::Launch(launch) = &request.call {
        // A machine runs one instance at a time, and two requests must not both find it free.
        gate.lock().map_err(Error::file("lock", home))?;
        let others = local.list().unwrap_or_default().into_iter().find(|other| !launch.members.contains(other));
        if let Some(other) = others {
            return Ok(ProviderAnswer::Refused(Refusal::Capacity { message: format!("it is in use by `{other}`") }));
        }
    }
    Ok(local.call(&request.call))
}

/// The address at which this machine was reached, by the variable that `sshd` sets: the client's address and port, then the
/// server's. Behind a jump host it is the one that other machines there use.
fn address(connection: &str) -> Option<String> {
    connection.split_whitespace().nth(2).map(str::to_owned)
}
