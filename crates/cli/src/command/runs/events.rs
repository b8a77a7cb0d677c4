//! `gradus events`: the event log.

use domain::Record;
use plan::World;
use server::secrets::SecretKey;
use server::{Home, Series, State};

use crate::command::find::{find, open_named};
use crate::error::Error;
use crate::error::exit;
use crate::figures::time;
use crate::follow::history::{sentence, subject};
use crate::follow::narrator::record_json;
use crate::printer::Printer;
use crate::remote;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last` [default: all]
    #[arg(conflicts_with = "operations")]
    run: Option<String>,
    /// Show the operations log instead: what went wrong with providers, machines and gradus itself
    #[arg(long)]
    operations: bool,
}

/// Prints the log, oldest first: time, run or sweep, and the event.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        if args.operations {
            return Err(remote::only_here("`gradus events --operations`", &server));
        }
        let run = args.run.map(|name| server.find(&name)).transpose()?;
        let records = server.records(run.as_ref())?;
        let world = match run {
            Some(run) => server.run(&run, 0)?.world,
            None => plan::World::replay(&records).map_err(server::Error::from)?,
        };
        return print(&records, &world, None, printer);
    }
    let home = Home::open(&settings.home)?;
    if args.operations {
        return operations(&home, printer);
    }
    let state = args.run.as_ref().map_or_else(|| Ok(State::open(&home)?), |name| open_named(&home, name))?;
    let records = match args.run {
        Some(name) => state.records(&find(state.world(), &name)?, 0)?,
        None => state.records_after(0)?,
    };
    print(&records, state.world(), Some(state.key()), printer)
}

/// Prints events; with a key, also the values of `envs` that it has sealed.
fn print(records: &[Record], world: &World, key: Option<&SecretKey>, printer: &mut Printer) -> Result<u8, Error> {
    let mut rows = Vec::new();
    for record in records {
        if printer.is_json() {
            let mut value = record_json(record);
            if let Some(key) = key.filter(|_| printer.shows_values()) {
                key.unseal_envs(&mut value);
            }
            printer.json(&value);
            continue;
        }
        rows.push(vec![time(record.at), subject(world, &record.event), sentence(&record.event)]);
    }
    if !printer.is_json() && !rows.is_empty() {
        table::lines(&["time", "run", "event"], &rows).into_iter().for_each(|line| printer.data(line));
    } else if !printer.is_json() {
        printer.say("no events yet; start with `gradus run JOB`");
    }
    Ok(exit::DONE)
}

/// Prints the operations log, oldest first: time, subject and problem.
fn operations(home: &Home, printer: &mut Printer) -> Result<u8, Error> {
    let mut rows = Vec::new();
    // On a full disk, what is refused cannot be written there yet.
    let refused = home.shortages(server::clock::now()).into_iter().map(|shortage| (shortage.since, shortage.note()));
    let mut notes = Series::open(home)?.operations()?;
    for (since, refusal) in refused {
        if !notes.iter().any(|(at, note)| *at == since && note.subject == refusal.subject) {
            notes.push((since, refusal));
        }
    }
    for (at, note) in notes {
        if printer.is_json() {
            let value = serde_json::json!({
                "at": at, "subject": note.subject, "text": note.text, "is_mistake": note.is_mistake,
            });
            printer.json(&value);
            continue;
        }
        let text = if note.is_mistake { format!("fault of gradus: {}", note.text) } else { note.text };
        rows.push(vec![time(at), note.subject, text]);
    }
    if !printer.is_json() && !rows.is_empty() {
        table::lines(&["time", "subject", "what happened"], &rows).into_iter().for_each(|line| printer.data(line));
    } else if !printer.is_json() {
        printer.say("nothing went wrong in operation");
    }
    Ok(exit::DONE)
}
