//! `gradus nodes show`: what is known of a node since it was looked at last.

use cloud::ssh::Host;
use server::Home;

use crate::error::{Error, exit};
use crate::figures::{grouped, size, time};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus nodes show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node
    node: String,
}

/// Shows what `nodes.json` says; nothing is asked of the node.
///
/// # Errors
/// [`Error::Usage`] for a name that is no node, [`Error::File`] when `nodes.json` cannot be read.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let inventory = machine::inventory(&home)?;
    let host = super::find(&inventory, &args.node)?;
    if printer.is_json() {
        printer.json(host);
        return Ok(exit::DONE);
    }
    let state = if host.is_drained { ", drained" } else { "" };
    printer.data(format!("node     {} ({}){state}", host.name, host.address));
    printer.data(format!("machine  {}", super::list::machine(host)));
    host.pool.iter().for_each(|pool| printer.data(format!("pool     {pool}")));
    printer.data(format!("price    {}", host.rate));
    details(host).into_iter().for_each(|line| printer.data(line));
    match &host.facts {
        Some(facts) => {
            printer.data(format!("known    since {}; `gradus doctor {}` looks again", time(facts.taken), host.name))
        }
        None => printer.say(format!("not looked at yet: `gradus doctor {}`", host.name)),
    }
    Ok(exit::DONE)
}

/// What it said of itself, a line each.
pub fn details(host: &Host) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(facts) = &host.facts {
        let libc = facts.system.glibc.as_ref().map_or(String::new(), |version| format!(", glibc {version}"));
        lines.push(format!("system   {}, kernel {}{libc}", facts.system.distribution, facts.system.kernel));
        let gpu = &facts.gpu;
        lines.extend(gpu.driver.as_ref().map(|driver| {
            let cuda = gpu.cuda.as_ref().map_or(String::new(), |cuda| format!(", CUDA {cuda} and older"));
            format!("driver   {driver}{cuda}")
        }));
        lines.extend(facts.disk.figures.map(|figures| {
            let (write, read) = (size(figures.write), size(figures.read));
            let reads = grouped(figures.random_reads);
            format!("disk     writes {write}/s, reads {read}/s, {reads} random reads/s")
        }));
    }
    lines.extend(host.link.map(|link| {
        let trip = link.round_trip_us as f64 / 1000.0;
        format!("network  {}/s to it, {}/s from it, {trip:.0} ms for a command", size(link.to.0), size(link.from.0))
    }));
    lines
}
