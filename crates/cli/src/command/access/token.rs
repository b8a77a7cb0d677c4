//! `gradus token`: who may use this home's server over TCP.

use domain::Duration;
use serde_json::json;
use server::api::{TokenRefusal, create_token, remove_token, tokens};
use server::{Home, clock};

use crate::error::{Error, exit};
use crate::figures::time;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Make a token and print it; only its hash is kept, so it is never shown again
    Create {
        /// What it is called, such as who uses it where: `ann@laptop`
        name: String,
        /// How long it can be used, such as `30d` [default: until it is removed]
        #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
        expires: Option<Duration>,
    },
    /// List tokens, with when they were made and until when they can be used
    List,
    /// Remove a token; a server refuses it at once
    Rm {
        /// What it is called
        name: String,
    },
}

/// Makes, lists or removes tokens.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    match args.command {
        Subcommand::Create { name, expires } => {
            let code = create(&home, &name, expires, printer)?;
            if let Some(warning) = shared(&name, settings.user.as_deref()) {
                printer.say(warning);
            }
            Ok(code)
        }
        Subcommand::List => list(&home, printer),
        Subcommand::Rm { name } => remove(&home, &name, printer),
    }
}

fn create(home: &Home, name: &str, expires: Option<Duration>, printer: &mut Printer) -> Result<u8, Error> {
    if expires.is_some_and(|expires| expires.micros() == 0) {
        let message = "a token that expires at once is of no use".to_owned();
        return Err(Error::Usage { message, hint: "give a time such as `--expires 30d`".to_owned() });
    }
    let (message, hint) = match create_token(home, name, clock::now(), expires)? {
        Ok(token) => {
            match printer.is_json() {
                true => printer.json(&json!({ "name": name, "token": token })),
                false => {
                    printer.data(token);
                    printer.say("it is not shown again; enter with `gradus login URL --token-file FILE`");
                }
            }
            return Ok(exit::DONE);
        }
        Err(TokenRefusal::Name) => {
            let message =
                format!("`{name}` is no name of a token: it has 1 to 64 letters, digits, `-`, `_`, `.` and `@`");
            (message, "write for example `gradus token create ann@laptop`".to_owned())
        }
        Err(TokenRefusal::Taken) => {
            (format!("there is a token `{name}`"), format!("remove it first with `gradus token rm {name}`"))
        }
    };
    Err(Error::Usage { message, hint })
}

/// Why a token of this name does not stand for one user, where `user` has started the server: as most often who types this.
fn shared(name: &str, user: Option<&str>) -> Option<String> {
    (user == Some(name)).then(|| {
        format!(
            "warning: work asked for with it counts as that of `{name}`, who also has all that is asked for on this machine: \
             budgets and `gradus cost --by user` do not tell them apart; another name does, such as `{name}@laptop`"
        )
    })
}

fn list(home: &Home, printer: &mut Printer) -> Result<u8, Error> {
    let now = clock::now();
    let mut rows = Vec::new();
    for token in tokens(home)? {
        let has_expired = token.expires.is_some_and(|expires| expires <= now);
        if printer.is_json() {
            let (name, created, expires) = (token.name, token.created, token.expires);
            printer.json(&json!({ "name": name, "created": created, "expires": expires, "has_expired": has_expired }));
            continue;
        }
        let expires = token.expires.map_or("never".to_owned(), time);
        let note = if has_expired { " (expired)" } else { "" };
        rows.push(vec![token.name, time(token.created), format!("{expires}{note}")]);
    }
    if !printer.is_json() && rows.is_empty() {
        printer.say("no tokens yet; make one with `gradus token create NAME`");
    } else if !printer.is_json() {
        table::lines(&["token", "created", "expires"], &rows).into_iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

fn remove(home: &Home, name: &str, printer: &mut Printer) -> Result<u8, Error> {
    if !remove_token(home, name)? {
        let message = format!("no token is called `{name}`");
        return Err(Error::Usage { message, hint: "list them with `gradus token list`".to_owned() });
    }
    match printer.is_json() {
        true => printer.json(&json!({ "event": "removed", "token": name })),
        false => printer.data(format!("removed {name}")),
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_the_name_of_the_server_s_user_is_warned_of() {
        assert!(shared("ann", Some("ann")).is_some_and(|warning| warning.contains("such as `ann@laptop`")));
        assert_eq!((shared("ann@laptop", Some("ann")), shared("ann", None)), (None, None));
    }
}
