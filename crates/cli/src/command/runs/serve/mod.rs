//! `gradus serve`: the control loop of this home as a server, with an API.

pub mod admission;
mod full_disk;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use cloud::ssh::DirectDoor;
use domain::joining::{AgentServer, ServerTrust};
use domain::{Bytes, Elapsed, Rate};
use plan::RunOrSweep;
use server::api::{self, AgentAccess, Answers, Listen, TlsIdentity};
use server::control::{Control, Left};
use server::{Home, LoopLock, Series, State, routes};
use store::WebClient;

use super::resume::preflight;
use super::run::planners::{due_planner, planner, refusal, task_planner};
use crate::error::arguments::socket;
use crate::error::{Error, exit};
use crate::follow::attend::on_signals;
use crate::follow::liveness::lease;
use crate::local::{disks, machine};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use admission::admitter;

/// Arguments of `gradus serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also serve the API on this address; clients need a token: that in `api.token` of the home
    /// folder, or one made by `gradus token`
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket)]
    listen: Option<SocketAddr>,
    /// Certificate of the server (PEM), with those that lead to who signed it; with TLS, the address may be one that other
    /// machines reach
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "listen")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address at which agents of nodes with `--reach tls`, and of clouds' machines with `reach` in their settings, find this
    /// server, such as `https://192.0.2.7:7070`
    #[arg(long, value_name = "URL", requires = "tls_cert")]
    agents_at: Option<String>,
    /// CA certificates by which those agents recognise the server, or `system` [default: this very certificate]
    #[arg(long, value_name = "FILE", requires = "agents_at")]
    agents_ca: Option<PathBuf>,
    /// Most disk space for what nodes send of all runs and clients upload, such as `200GB`; more is refused, as by a full disk
    #[arg(long, value_name = "SIZE")]
    quota: Option<Bytes>,
    /// Price of this machine for runs on it, such as `0.35/h`, whoever submits them; a command's `--price` overrides it
    #[arg(long, value_name = "PRICE", default_value = "0/h", allow_hyphen_values = true)]
    price: Rate,
}

/// Polling interval while another command hands over the loop.
const HAND_OVER: Duration = Duration::from_millis(20);

/// Runs the control loop for every run of this home, until it is asked to stop.
///
/// # Errors
/// [`Error::Usage`] for an address that others can reach, [`Error::Code`] if another server is running.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let listen = listen(&args)?;
    let home = Home::open(&settings.home)?;
    let listen = with_agents(listen, &args, &home)?;
    let mut lacked = None;
    let server = registered(&home, args.price, &mut lacked)?;
    let lock = handed_over(&home)?;
    let (sender, inbox) = channel();
    on_signals(sender.clone(), Arc::new(AtomicBool::new(false)))?;
    let door = listen.as_ref().and_then(|listen| listen.agents.clone()).map(door_for_agents);
    log_shortages(&home, printer.is_json());
    let state = opened(&home, door.is_some(), &mut lacked)?;
    let series = Series::open_for_server(&home, &mut lacked)?;
    let providers = machine::providers_with(settings, &home, args.price, door)?;
    full_disk::note_server(&home, &providers, &mut lacked)?;
    let door = routes::serve(&home, sender.clone(), args.quota)?;
    let answers = Answers {
        planner: planner(settings.clone(), home.clone(), args.price),
        due_planner: due_planner(settings.clone(), home.clone(), args.price),
        task_planner: task_planner(settings.clone(), home.clone(), args.price),
        admitter: admitter(home.clone()),
        resume_check: resume_check(home.clone()),
        offers: offers(settings),
        user: settings.user.clone(),
    };
    let places = api::serve(&home, listen, sender.clone(), answers, args.quota)?;
    for place in &places {
        match printer.is_json() {
            true => printer.json(&serde_json::json!({ "event": "listening", "address": place })),
            false => printer.say(format!("listening at {place}")),
        }
    }
    crate::command::nodes::cloud::audit::watch(settings, &home);
    crate::command::nodes::machines::timetable::watch(settings, &home);
    let mut control = Control::new(state, series, &home, &providers);
    (control.keeps_all, control.policy.lease, control.lacked) = (true, Elapsed(lease::SERVED.micros()), lacked);
    match control.run(&sender, &inbox, |_| false)? {
        // It has no other end but that there is space again.
        Left::Done => return Err(full_disk::start_again(settings)),
        Left::Interrupted => {}
    }
    machine::forget_served(&home);
    disks::forget_stops(&home);
    drop((door, lock, server));
    match control.state.world().open_runs().filter(|(_, run)| !run.state.is_final()).count() {
        0 => printer.say("stopped; no run was open"),
        open => printer.say(format!(
            "stopped; {} without the server for up to 30 minutes: start it again, or attach with `gradus attach RUN`",
            if open == 1 { "1 open run continues".to_owned() } else { format!("{open} open runs continue") }
        )),
    }
    Ok(exit::DONE)
}

/// Registers this process as the server of the home. From then on, commands submit their runs to it, also while it waits for the
/// loop and opens its databases; so its price is written down at once.
fn registered(home: &Home, price: Rate, lacked: &mut Option<String>) -> Result<LoopLock, Error> {
    let Some(server) = home.try_server()? else {
        let message = format!("another `gradus serve` runs for `{}`", home.root().display());
        let hint = "stop it first, or serve another folder with `--home`".to_owned();
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    };
    machine::forget_served(home);
    full_disk::note_price(home, price, lacked)?;
    Ok(server)
}

/// Logs what is refused for want of disk space, and when that is over.
fn log_shortages(home: &Home, is_json: bool) {
    home.space().listen(move |line| {
        let mut printer = Printer::new(is_json, false);
        match is_json {
            true => printer.json(&serde_json::json!({ "event": "disk_space", "message": line })),
            false => printer.say(line),
        }
    });
}

/// The address to serve. One that other machines can reach requires TLS, or tokens could be intercepted.
fn listen(args: &Args) -> Result<Option<Listen>, Error> {
    let Some(address) = args.listen else { return Ok(None) };
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        // Where TLS is left out, this is as well.
        WebClient::new()?;
        return Ok(Some(Listen {
            address,
            tls: Some(TlsIdentity::read(certificate, key).map_err(unusable)?),
            agents: None,
        }));
    }
    if address.ip().is_loopback() {
        return Ok(Some(Listen { address, tls: None, agents: None }));
    }
    Err(Error::Usage {
        message: format!("`{address}` can be reached from other machines, and there is no TLS without a certificate"),
        hint: "add `--tls-cert FILE --tls-key FILE`, or listen at 127.0.0.1 and reach it through `ssh -L`".to_owned(),
    })
}

/// The same address, also for agents if `--agents-at` names it for them.
fn with_agents(listen: Option<Listen>, args: &Args, home: &Home) -> Result<Option<Listen>, Error> {
    let (Some(url), Some(listen)) = (&args.agents_at, listen.clone()) else { return Ok(listen) };
    let Some(tls) = &listen.tls else { return Ok(Some(listen)) };
    let url = url.trim_end_matches('/').to_owned();
    let host = url.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.contains(['/', '@', '?', '#', ' ']) {
        return Err(Error::Usage {
            message: format!(
                "`{url}` is not an address for agents: they reach the server over TLS, by its host and port only"
            ),
            hint: "write `--agents-at https://HOST:PORT`, as nodes reach the address of `--listen`".to_owned(),
        });
    }
    let trust = match &args.agents_ca {
        None => ServerTrust::Fingerprint(tls.fingerprint().to_owned()),
        Some(file) if file.as_os_str() == "system" => ServerTrust::System,
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(Error::file("read", file))?;
            // As an agent would: one that cannot use it ends, where nobody sees why.
            WebClient::of_server(Some(&text), true)?;
            ServerTrust::Authorities(text)
        }
    };
    let agents = AgentAccess::open(home, AgentServer { url, trust })?;
    Ok(Some(Listen { agents: Some(agents), ..listen }))
}

/// The state of this home, unless agents of it call over TLS and this server has no address at which it hears them.
fn opened(home: &Home, has_door: bool, lacked: &mut Option<String>) -> Result<State, Error> {
    let state = State::open_for_server(home, lacked)?;
    if !has_door {
        machine::require_hearing(home, state.world())?;
    }
    Ok(state)
}

/// Makes join tokens for machines whose agents reach the server directly.
fn door_for_agents(access: Arc<AgentAccess>) -> DirectDoor {
    let joined = access.clone();
    DirectDoor::new(
        move |instance, within| access.offer(instance, within, server::clock::now()).map_err(|error| error.to_string()),
        move |instance| joined.has_joined(instance),
    )
}

/// The lock of the loop, once the command that has it hands it over.
fn handed_over(home: &Home) -> Result<LoopLock, Error> {
    loop {
        match home.try_loop()? {
            Some(lock) => return Ok(lock),
            None => std::thread::sleep(HAND_OVER),
        }
    }
}

/// The error for an unusable certificate or key, with a hint.
fn unusable(error: server::Error) -> Error {
    match error {
        server::Error::File { doing, path, source } if source.kind() == std::io::ErrorKind::InvalidData => {
            Error::Usage {
                message: format!("cannot {doing} `{}`: {source}", path.display()),
                hint: "give a certificate and its own key, each in the format PEM".to_owned(),
            }
        }
        server::Error::File { doing, path, source } => Error::File { doing, path, source },
        other => other.into(),
    }
}

/// Checks what a run or sweep would resume from as `gradus resume` does.
fn resume_check(home: Home) -> Arc<api::ResumeCheck> {
    Arc::new(move |world, work| {
        let checked = match work {
            RunOrSweep::Run(id) => preflight::require_resumable(&home, world, id),
            RunOrSweep::Sweep(id) => preflight::require_resumable_sweep(&home, world, id),
        };
        checked.map_err(|error| match error {
            Error::Usage { .. } | Error::Code { .. } | Error::Job(_) => refusal(409, error),
            other => refusal(500, other),
        })
    })
}

/// Lists offers as `gradus offers` does.
fn offers(settings: &GlobalSettings) -> Arc<api::OfferLister> {
    let settings = settings.clone();
    Arc::new(move |query| crate::command::offers::list(query, &settings).map_err(|error| refusal(400, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_not_started_yet_has_its_own_price() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let (before, now): (Rate, Rate) = ("0.36/h".parse().unwrap(), "1.20/h".parse().unwrap());
        machine::note_price(&home, before).unwrap();
        let mut lacked = None;
        let _server = registered(&home, now, &mut lacked).unwrap();
        assert_eq!((machine::price(&home, None).unwrap(), lacked), (now, None));
        // One that is refused does not change it.
        assert!(matches!(registered(&home, before, &mut None), Err(Error::Code { .. })));
        assert_eq!(machine::price(&home, None).unwrap(), now);
    }
}
