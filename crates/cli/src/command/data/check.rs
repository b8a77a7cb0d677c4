//! `gradus data check`: whether a pushed data set can be fetched.

use serde_json::json;
use store::{Checked, Limits, Location};

use crate::error::{Error, exit};
use crate::fetch::transfer::Transfer;
use crate::figures::{counted, size};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Lost files that are named.
const NAMED: usize = 10;

/// Arguments of `gradus data check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address the data set was pushed to: a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://`, `https://`
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Read and hash everything stored, instead of checking the listing and recorded versions
    #[arg(long)]
    verify: bool,
}

/// Checks stored data.
///
/// # Errors
/// [`Error::Store`], or that something is missing or damaged.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { address, verify } = args;
    let location: Location = address.parse()?;
    let remote = store::open(&location, &settings.access, Limits::attended())?;
    let checked = Transfer::fetching(&location).watch(printer, |meter| store::check(&remote, verify, meter))?;
    show(printer, &location, &checked, verify);
    if checked.broken.is_empty() {
        return Ok(exit::DONE);
    }
    Err(Error::Code {
        message: format!("missing or damaged at `{location}`: {}", counted(checked.broken.len() as u64, "object")),
        hint: Some(format!("send them again with `gradus data push PATH {location}`")),
        code: exit::WORLD,
    })
}

fn show(printer: &mut Printer, location: &Location, checked: &Checked, verify: bool) {
    let Checked { files, bytes, bundles, broken, lost } = checked;
    if printer.is_json() {
        let broken: Vec<_> = broken.iter().map(|(object, why)| json!({"object": object, "why": why})).collect();
        printer.json(&json!({
            "event": "checked",
            "verified": verify,
            "files": files,
            "bytes": bytes,
            "bundles": bundles,
            "broken": broken,
            "lost": lost,
        }));
        return;
    }
    let how = if verify { "by reading every byte" } else { "by their listing" };
    let whole = format!("{}, {} in {}", counted(*files, "file"), size(*bytes), counted(*bundles, "bundle"));
    printer.data(format!("{location}: {whole}; checked {how}"));
    for (object, why) in broken {
        printer.data(format!("`{object}`: {why}"));
    }
    for name in lost.iter().take(NAMED) {
        printer.data(format!("at risk, in what is missing or damaged: `{name}`"));
    }
    if let Some(more) = lost.len().checked_sub(NAMED).filter(|more| *more > 0) {
        printer.data(format!("and {more} more at risk"));
    }
}
