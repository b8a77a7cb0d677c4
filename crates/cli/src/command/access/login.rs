//! `gradus login` and `gradus logout`: the server whose runs the commands show.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use server::Home;

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::remote::Server;
use crate::remote::login::{self, Login};
use crate::settings::GlobalSettings;

/// Arguments of `gradus login`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of the server, as `gradus serve` prints it, such as `http://127.0.0.1:7070`
    #[arg(value_name = "URL")]
    url: String,
    /// Read the token from a file, or from stdin for `-` [default: `GRADUS_TOKEN`, else stdin]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trust only certificates that were signed by one in this file (PEM), such as a self-signed one
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A token is short.
const TOKEN_MAX: u64 = 4096;

/// Checks that the server is reachable, has a compatible API and accepts the token, and stores both.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(Error::file("read", path));
    let authorities = args.ca.as_ref().map(read).transpose()?;
    let known = Server::new(&args.url, None, authorities.as_deref())?;
    let version = compatible(known.url(), &known.get("/v1/health")?)?;
    let token = token(args.token_file.as_deref(), settings, printer)?;
    let server = Server::new(&args.url, Some(token.clone()), authorities.as_deref())?;
    server.get("/v1/runs?limit=1")?;
    let home = Home::open(&settings.home)?;
    let url = server.url().to_owned();
    login::write(home.root(), &Login { url: url.clone(), token, authorities })?;
    match printer.is_json() {
        true => printer.json(&json!({ "event": "logged_in", "server": url, "version": version })),
        false => {
            printer.data(format!("server   {url} (gradus {version})"));
            printer.data("back     gradus logout");
        }
    }
    Ok(exit::DONE)
}

/// The version of a server with a compatible API.
fn compatible(url: &str, health: &Value) -> Result<String, Error> {
    let (api, version) = (health["api"].as_u64(), health["version"].as_str());
    if let (Some(server::api::VERSION), Some(version)) = (api, version) {
        return Ok(version.to_owned());
    }
    let which = match (api, version) {
        (Some(api), _) if api > server::api::VERSION => "is newer than this gradus: update this one",
        (None, None) if health["status"] != "ok" => "is no server of gradus: check the address",
        _ => "is older than this gradus: update it, or use an older gradus here",
    };
    let (what, hint) = which.split_once(": ").unwrap_or((which, ""));
    let message = format!("the server at `{url}` {what}");
    Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
}

/// Reads the token from the given source.
fn token(file: Option<&Path>, settings: &GlobalSettings, printer: &mut Printer) -> Result<String, Error> {
    let text = match (file, &settings.token) {
        (Some(path), _) if path != Path::new("-") => {
            std::fs::read_to_string(path).map_err(Error::file("read the token from", path))?
        }
        (None, Some(token)) => token.clone(),
        _ => typed(printer).map_err(Error::file("read the token from", "stdin"))?,
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = if token.is_empty() { "no token was given" } else { "what was given is no token" };
        let hint = "make one on its machine with `gradus token create NAME`, and pass `--token-file FILE`";
        return Err(Error::Usage { message: message.to_owned(), hint: hint.to_owned() });
    }
    printer.mask(vec![token.to_owned()]);
    Ok(token.to_owned())
}

/// Reads stdin; on a terminal a line without echo.
fn typed(printer: &mut Printer) -> std::io::Result<String> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    if !stdin.is_terminal() {
        stdin.lock().take(TOKEN_MAX).read_to_string(&mut text)?;
        return Ok(text);
    }
    printer.say("token (not shown):");
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let read = stdin.read_line(&mut text);
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    read.map(|_| text)
}

/// Forgets the server.
///
/// # Errors
/// [`Error::File`] when it cannot be forgotten.
pub fn logout(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let had_one = login::forget(&settings.home)?;
    match printer.is_json() {
        true => printer.json(&json!({ "event": "logged_out", "was_logged_in": had_one })),
        false if had_one => printer.data("the commands show the runs of this machine again"),
        false => printer.say("no server was logged in to"),
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_version_is_told_from_another_program() {
        let check = |health: Value, part: &str| {
            let error = compatible("http://u", &health).unwrap_err();
            let said = format!("{error}; {}", error.hint().unwrap());
            assert!(said.contains(part), "{said}");
        };
        check(json!({ "status": "ok" }), "is older than this gradus; update it");
        check(json!({ "status": "ok", "version": "9.0.0", "api": 2 }), "is newer than this gradus; update this one");
        check(json!({ "hello": 1 }), "is no server of gradus");
        let same = json!({ "status": "ok", "version": "0.2.0", "api": server::api::VERSION });
        assert_eq!(compatible("http://u", &same).unwrap(), "0.2.0");
    }
}
