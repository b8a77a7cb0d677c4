//! `gradus data probe`: throughput and random reads of the disk that holds a folder.

use std::path::{Path, PathBuf};
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
    let disk = rustix::fs::statvfs(&args.folder).map_err(|error| Error::file("measure", &args.folder)(error.into()))?;
    fits(args.size, Bytes(disk.f_bavail.saturating_mul(disk.f_frsize)), &args.folder)?;
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

/// Refuses a file that would fill the disk: a tenth stays free for others.
fn fits(wanted: Bytes, free: Bytes, folder: &Path) -> Result<(), Error> {
    if wanted.0 <= free.0 / 10 * 9 {
        return Ok(());
    }
    let message = format!("`--size` asks for {}; `{}` has {} free", size(wanted.0), folder.display(), size(free.0));
    Err(Error::Usage { message, hint: "remove `--size`, or use one of at most nine tenths of what is free".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_does_not_fill_the_disk() {
        let check = |wanted: u64, free: u64| fits(Bytes(wanted), Bytes(free), Path::new("d")).is_ok();
        assert!(check(90, 100) && !check(95, 100) && !check(900_000_000_000_000, 56_000_000_000));
    }
}
