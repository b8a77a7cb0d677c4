//! Shared by push, pull and sync: options, the progress line and the summary.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use domain::{Elapsed, Money};
use serde_json::{Value, json};
use store::{Limits, Location, Meter, Options, Pushed, Reading, Remote, StoreFormat};

use crate::error::Error;
use crate::figures::{clock, counted, size};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Options of a transfer.
#[derive(Debug, Clone, clap::Args)]
pub struct TransferArgs {
    /// Print how many bytes would be transferred and their cost, without transferring
    #[arg(long)]
    dry_run: bool,
    /// Egress price per gigabyte (10⁹ bytes) in dollars, such as `0.09`
    #[arg(long, value_name = "DOLLARS")]
    egress: Option<Money>,
    /// Concurrent requests
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
}

/// A transfer with its meter and its prices.
#[derive(Debug)]
pub struct Transfer {
    args: TransferArgs,
    /// Whether both ends are on this machine, where transfers are free.
    is_local: bool,
    /// The host, if it is one.
    host: Option<String>,
    began: Instant,
}

/// The summary of a transfer.
#[derive(Debug)]
pub struct TransferSummary {
    /// The operation in the past tense, such as `pushed`.
    pub verb: &'static str,
    /// Files of the data set, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// Bytes of data that were not there yet.
    pub new_bytes: u64,
    /// Bytes over the network; in a dry run those that would go at most.
    pub moved: u64,
    /// Objects or files that were removed at the target.
    pub removed: u64,
    /// Objects that are marked for removal after the grace period.
    pub marked: u64,
    /// Stored objects that were missing or damaged at the target.
    pub repaired: u64,
    /// Keys of objects that were left out, because no file can have them.
    pub unreadable: Vec<String>,
}

/// The note on objects that were left out; none if there are none.
pub fn left_out(unreadable: &[String]) -> Option<String> {
    store::left_out_objects(unreadable).map(|told| format!("note: {told}"))
}

impl TransferArgs {
    /// How the store should work.
    pub fn options(&self, form: StoreFormat, delete: bool, settings: &GlobalSettings) -> Options {
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let journals = settings.home.join("transfers");
        Options { form, dry_run: self.dry_run, delete, grace: store::GRACE, verify: false, threads, journals }
    }

    /// Limits of the transfer.
    pub fn limits(&self) -> Limits {
        Limits { streams: usize::from(self.streams), ..Limits::attended() }
    }

    /// Begins a transfer with `remote`.
    pub fn begin(&self, remote: &Remote) -> Transfer {
        let is_local = !remote.location().is_remote();
        Transfer { args: self.clone(), is_local, host: remote.host(), began: Instant::now() }
    }
}

impl Transfer {
    /// A transfer from this location with the usual options.
    pub fn fetching(location: &Location) -> Transfer {
        let args = TransferArgs { dry_run: false, egress: None, streams: 8 };
        Transfer { args, is_local: !location.is_remote(), host: None, began: Instant::now() }
    }

    /// Runs `work` on a thread, and prints its progress.
    pub fn watch<T: Send>(
        &self,
        printer: &mut Printer,
        work: impl FnOnce(&Meter) -> Result<T, store::Error> + Send,
    ) -> Result<T, Error> {
        let meter = Arc::new(Meter::default());
        let often = if printer.is_terminal() { Duration::from_millis(200) } else { Duration::from_secs(10) };
        let result = std::thread::scope(|scope| {
            let (done, ended) = channel::<()>();
            let meter_there = meter.clone();
            let worker = scope.spawn(move || {
                // Dropped when the work ends, however it ends.
                let _done = done;
                work(&meter_there)
            });
            // A very short transfer needs no progress line.
            while ended.recv_timeout(often) == Err(RecvTimeoutError::Timeout) {
                if !printer.is_json() {
                    printer.progress(&self.line(meter.read()));
                }
            }
            worker.join()
        });
        let panicked = |_| Error::Code {
            message: "internal error during the transfer".into(),
            hint: Some("run the same command again: it resumes".into()),
            code: crate::error::exit::INTERNAL,
        };
        Ok(result.map_err(panicked)??)
    }

    /// The progress line.
    fn line(&self, reading: Reading) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let Reading { total, done, sent, received, read } = reading;
        if (total, read) == (0, 0) {
            let host = self.host.as_ref().map(|host| format!(" from {host}")).unwrap_or_default();
            return format!("waiting for a response{host}");
        }
        if total == 0 {
            return format!("scanning files · {} · {}/s", size(read), size((read as f64 / seconds) as u64));
        }
        let rate = done as f64 / seconds;
        let left = if done == 0 { None } else { Some((total.saturating_sub(done)) as f64 / rate) };
        let left = left.map_or("unknown".to_owned(), |left| clock(Elapsed((left * 1e6) as u64)));
        let cost = self.cost(sent + received).map_or(String::new(), |cost| format!(" · {cost}"));
        let share = 100.0 * done as f64 / total as f64;
        format!("{} of {} · {share:.0} % · {}/s · {left} left{cost}", size(done), size(total), size(rate as u64))
    }

    /// The cost of so many bytes, rounded up to the micro-dollar; none without a price.
    fn cost(&self, bytes: u64) -> Option<Money> {
        if self.is_local {
            return Some(Money::default());
        }
        let price = i128::from(self.args.egress?.micros());
        let micros = (price * i128::from(bytes) + 999_999_999) / 1_000_000_000;
        Some(Money::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)))
    }

    /// Prints the summary.
    pub fn tell(&self, printer: &mut Printer, told: &TransferSummary) {
        let seconds = self.began.elapsed().as_secs_f64();
        let cost = self.cost(told.moved);
        if printer.is_json() {
            printer.json(&self.json(told, seconds, cost));
            return;
        }
        let cost = cost.map_or("cost unknown (set `--egress`)".to_owned(), |cost| cost.to_string());
        let TransferSummary { verb, files, bytes, new_bytes, moved, removed, marked, repaired, unreadable } = told;
        let whole = format!("{}, {}", counted(*files, "file"), size(*bytes));
        printer.data(match self.args.dry_run {
            true => {
                format!("dry run: {whole}, {} new, at most {} to transfer · {cost}", size(*new_bytes), size(*moved))
            }
            false => {
                format!(
                    "{verb}: {whole}, {} new, {} transferred in {seconds:.1} s · {cost}",
                    size(*new_bytes),
                    size(*moved)
                )
            }
        });
        if *removed > 0 {
            printer.data(format!("deleted from the target: {removed}"));
        }
        if *marked > 0 {
            let marked = counted(*marked, "object");
            printer
                .data(format!("no longer needed: {marked}, which the first `--delete` after the grace period removes"));
        }
        if *repaired > 0 {
            let done = if self.args.dry_run { "would be replaced" } else { "replaced" };
            printer.data(format!("missing or damaged at the target, {done}: {}", counted(*repaired, "object")));
        }
        left_out(unreadable).into_iter().for_each(|note| printer.data(note));
    }

    fn json(&self, told: &TransferSummary, seconds: f64, cost: Option<Money>) -> Value {
        json!({
            "event": told.verb,
            "dry_run": self.args.dry_run,
            "files": told.files,
            "bytes": told.bytes,
            "new_bytes": told.new_bytes,
            "moved_bytes": told.moved,
            "removed": told.removed,
            "marked": told.marked,
            "repaired": told.repaired,
            "unreadable": told.unreadable,
            "seconds": seconds,
            "cost_micro_usd": cost.map(Money::micros),
        })
    }
}

impl TransferSummary {
    /// Of a push; how well its bytes compress is not known before.
    pub fn pushed(pushed: &Pushed, is_dry: bool) -> TransferSummary {
        let Pushed { files, bytes, new_bytes, sent, removed, marked, repaired, .. } = *pushed;
        TransferSummary {
            verb: "pushed",
            files,
            bytes,
            new_bytes,
            moved: if is_dry { new_bytes } else { sent },
            removed,
            marked,
            repaired,
            unreadable: Vec::new(),
        }
    }

    /// Of a pull.
    pub fn pulled(pulled: &store::Pulled, is_dry: bool) -> TransferSummary {
        let store::Pulled { files, bytes, new_bytes, to_receive, received, removed, .. } = *pulled;
        let unreadable = pulled.unreadable.clone();
        let moved = if is_dry { to_receive } else { received };
        TransferSummary { verb: "pulled", files, bytes, new_bytes, moved, removed, marked: 0, repaired: 0, unreadable }
    }
}
