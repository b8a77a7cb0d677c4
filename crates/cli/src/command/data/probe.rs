//! `gradus data probe`: how fast the disk below a folder is.

use std::path::PathBuf;
use std::time::Duration;

use domain::Bytes;

use super::transfer::size;
use crate::error::Error;
use crate::printer::Printer;

/// Arguments of `gradus data probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder on the disk to measure
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Length of the file that is written, read and removed
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    size: Bytes,
    /// Threads that read anywhere
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

/// Measures and tells.
///
/// # Errors
/// [`Error::File`] when the folder cannot be written.
pub fn run(args: Args, printer: &mut Printer) -> Result<u8, Error> {
    if args.size.0 < 1 << 20 {
        let message = "a file of less than 1 MiB says nothing of a disk".to_owned();
        return Err(Error::Usage { message, hint: "leave `--size` out, or write `--size 1GiB`".to_owned() });
    }
    let probe = data::cache::probe(&args.folder, args.size.0, usize::from(args.threads), Duration::from_secs(1));
    let probe = probe.map_err(Error::file("measure", &args.folder))?;
    if printer.is_json() {
        printer.json(&probe);
        return Ok(crate::exit::DONE);
    }
    printer.data(format!("write    {}/s in a row, synced", size(probe.write_bytes_per_s as u64)));
    printer.data(format!("read     {}/s in a row", size(probe.read_bytes_per_s as u64)));
    printer.data(format!("random   {:.0} reads of 4 KiB a second, {} threads", probe.reads_4k_per_s, probe.threads));
    printer.data(format!("pictures {:.0} reads of 100 KiB a second", probe.reads_100k_per_s));
    Ok(crate::exit::DONE)
}
