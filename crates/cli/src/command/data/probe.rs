//! `gradus data probe`: throughput and random reads of the disk that holds a folder.

use std::path::PathBuf;
use std::time::Duration;

use domain::Bytes;

use crate::error::Error;
use crate::figures::size;
use crate::printer::Printer;

/// Arguments of `gradus data probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder on the disk to benchmark
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    size: Bytes,
    /// Threads for random reads
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

/// Measures and prints.
///
/// # Errors
/// [`Error::File`] when the folder cannot be written.
pub fn run(args: Args, printer: &mut Printer) -> Result<u8, Error> {
    if args.size.0 < 1 << 20 {
        let message = "`--size` must be at least 1 MiB".to_owned();
        return Err(Error::Usage { message, hint: "remove `--size`, or use `--size 1GiB`".to_owned() });
    }
    let probe = data::cache::probe(&args.folder, args.size.0, usize::from(args.threads), Duration::from_secs(1));
    let probe = probe.map_err(Error::file("measure", &args.folder))?;
    if printer.is_json() {
        printer.json(&probe);
        return Ok(crate::error::exit::DONE);
    }
    printer.data(format!("write    {}/s sequential, synced", size(probe.write_bytes_per_s as u64)));
    printer.data(format!("read     {}/s sequential", size(probe.read_bytes_per_s as u64)));
    printer.data(format!("random   {:.0} reads of 4 KiB per second, {} threads", probe.reads_4k_per_s, probe.threads));
    printer.data(format!("images   {:.0} reads of 100 KiB per second", probe.reads_100k_per_s));
    Ok(crate::error::exit::DONE)
}
