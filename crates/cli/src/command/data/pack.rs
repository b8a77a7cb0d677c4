//! `gradus data pack`: a data set of any form becomes shards.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use data::{Codec, PackFormat, PackOptions, PackProgress, TextOptions, Vocabulary};
use serde_json::json;

use super::place::Place;
use crate::error::Error;
use crate::exit;
use crate::printer::Printer;
use crate::progress::{counted, grouped};
use crate::settings::Settings;

/// Arguments of `gradus data pack`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder or tar of `…/<class>/<file>.jpg|png`, WebDataset tars (`train-{000..146}.tar`), TFRecords, Parquet or
    /// Arrow files, a folder of any of these, CIFAR-10 binary files, a COCO JSON, pictures with a `metadata.csv|jsonl`, or
    /// with `--tokenizer` text: `.csv`, `.jsonl`, `.txt`, Parquet or Arrow; or the address of any of these, such as
    /// `s3://bucket/pictures`
    source: PathBuf,
    /// The folder to write to; made if it is not there
    out: PathBuf,
    /// Bytes of samples in a shard, such as `64MB`
    #[arg(long, default_value = "64MB", value_name = "BYTES", value_parser = bytes)]
    shard_size: u64,
    /// Seed of the order, and of the split
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Shares of training, validation and test, such as `7:2:1`; default: as the data's folders say
    #[arg(long, value_name = "A:B:C", value_parser = shares)]
    split: Option<[f64; 3]>,
    /// What becomes of a picture
    #[arg(long, value_enum, default_value_t = As::Original)]
    codec: As,
    /// Shrink the short side of larger pictures to so many pixels; this loses detail
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(8..=8192))]
    shrink: Option<u32>,
    /// What is written
    #[arg(long, value_enum, default_value_t = Format::Shards)]
    format: Format,
    /// Pack text as tokens: a `tokenizer.json` of HuggingFace, or `bpe:16000` or `wordpiece:30000` to learn one
    #[arg(long, value_name = "FILE|KIND:SIZE", value_parser = vocabulary)]
    tokenizer: Option<Vocabulary>,
    /// Columns or keys of the text; numbers from 1 where a CSV has no header
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "text", requires = "tokenizer")]
    columns: Vec<String>,
    /// Column or key of a text's class
    #[arg(long, value_name = "NAME", requires = "tokenizer")]
    label: Option<String>,
    /// Leave out pictures that cannot be read, and count them
    #[arg(long)]
    skip_corrupt: bool,
    /// Threads that read and encode [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum As {
    /// The file as it is
    Original,
    /// JPEGs as packed coefficients: the same pixels, decoded in less time, as many as make a shard of at most 102 % of
    /// its files; other files as they are
    Coefficients,
    /// Plain pixels, which need no decoding and much more room
    Pixels,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Our own, with an index and hashes
    Shards,
    /// Tars of `.jpg|png` and `.cls`
    Webdataset,
}

/// Packs, and tells what was written.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let options = PackOptions {
        shard_bytes: args.shard_size,
        seed: args.seed,
        split: args.split,
        codec: match args.codec {
            As::Original => Codec::Original,
            As::Coefficients => Codec::Coefficients,
            As::Pixels => Codec::Pixels,
        },
        shrink: args.shrink,
        format: match args.format {
            Format::Shards => PackFormat::Shards,
            Format::Webdataset => PackFormat::Webdataset,
        },
        skip: args.skip_corrupt,
        text: args.tokenizer.clone().map(|vocabulary| TextOptions {
            vocabulary,
            columns: args.columns.clone(),
            label: args.label.clone(),
        }),
        threads: args.threads.map_or_else(cores, |threads| threads as usize),
    };
    if options.format == PackFormat::Webdataset && options.codec != Codec::Original {
        let message = format!("tars hold picture files, not {}", options.codec.word());
        let hint = format!("leave out `--codec {}`, or `--format webdataset`", options.codec.word());
        return Err(Error::Usage { message, hint });
    }
    if options.text.is_some()
        && (options.format, options.codec, options.shrink) != (PackFormat::Shards, Codec::Original, None)
    {
        let message = "text is packed into shards of tokens, without `--codec`, `--shrink` and `--format`".to_owned();
        return Err(Error::Usage { message, hint: "leave those out, or `--tokenizer` to pack pictures".to_owned() });
    }
    let place = Place::fetched(&args.source, settings, printer)?;
    let (began, mut told) = (Instant::now(), None);
    let packed = data::pack(place.path(), &args.out, &options, &mut |progress| {
        let due = told.is_none_or(|told: Instant| told.elapsed() >= interval(printer));
        if due && began.elapsed() >= Duration::from_millis(500) {
            told = Some(Instant::now());
            printer.progress(&line(progress, began.elapsed()));
        }
    });
    let packed = packed.map_err(|error| match options.text {
        None => super::inspect::of_texts(error, &place),
        Some(_) => error.into(),
    })?;
    let manifest = &packed.manifest;
    let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
    let source: Option<u64> = manifest.shards.iter().map(|shard| shard.source_bytes).sum();
    if printer.is_json() {
        printer.json(&json!({
            "out": args.out, "samples": manifest.samples, "classes": manifest.classes.len(), "shards": manifest.shards.len(),
            "bytes": bytes, "source_bytes": source, "skipped": manifest.skipped.len(), "resumed_shards": packed.resumed,
            "nothing_to_do": packed.nothing_to_do, "seconds": began.elapsed().as_secs_f64(),
        }));
        return Ok(exit::DONE);
    }
    if let Some(first) = manifest.skipped.first() {
        let count = manifest.skipped.len();
        printer.say(format!("{count} cannot be read and are left out; the first is `{}`: {}", first.name, first.why));
    }
    match (packed.nothing_to_do, packed.resumed) {
        (true, _) => printer.say("nothing to do: it is packed already"),
        (false, 0) => {}
        (false, shards) => {
            printer.say(format!("went on behind {} that were there", counted(shards as u64, "shard")));
        }
    }
    let share = source.filter(|source| *source > 0).map(|source| {
        let share = 100.0 * bytes as f64 / source as f64;
        format!(" ({share:.1} % of the {:.1} MB that were packed)", source as f64 / 1e6)
    });
    let what = match &manifest.recipe.tokens {
        Some(tokens) => format!(
            "{} as tokens of {} bytes, of {} that are known,",
            counted(manifest.samples, "text"),
            tokens.width,
            grouped(tokens.vocabulary.into())
        ),
        None => format!("{} of {} classes", counted(manifest.samples, "sample"), manifest.classes.len()),
    };
    printer.data(format!(
        "{what} in {}, {:.1} MB{}: {}",
        counted(manifest.shards.len() as u64, "shard"),
        bytes as f64 / 1e6,
        share.unwrap_or_default(),
        args.out.display()
    ));
    Ok(exit::DONE)
}

/// Time between two lines of progress: a terminal's is overwritten, a log's stays.
fn interval(printer: &Printer) -> Duration {
    if printer.is_terminal() { Duration::from_millis(200) } else { Duration::from_secs(10) }
}

fn line(progress: PackProgress, elapsed: Duration) -> String {
    let PackProgress { done, samples, bytes } = progress;
    let rate = bytes as f64 / 1e6 / elapsed.as_secs_f64();
    let share = 100.0 * done as f64 / samples.max(1) as f64;
    format!("packing {done} of {samples} samples ({share:.0} %), {rate:.0} MB/s")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A number of bytes with a unit of powers of ten or two.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let lower = text.trim().to_lowercase();
    let unit = UNITS.iter().find(|(unit, _)| lower.ends_with(&unit.to_lowercase()));
    let (number, unit) = unit.map_or((lower.as_str(), 1), |(unit, bytes)| (&lower[..lower.len() - unit.len()], *bytes));
    let bytes = number.trim().parse::<f64>().map(|number| number * unit as f64);
    match bytes {
        Ok(bytes) if (4096.0..=1e12).contains(&bytes) => Ok(bytes as u64),
        Ok(_) => Err("give 4 KiB at least, and 1 TB at most".to_owned()),
        Err(_) => Err("write for example `64MB`".to_owned()),
    }
}

/// A tokenizer's file, or the kind and size of one to be learnt.
fn vocabulary(text: &str) -> Result<Vocabulary, String> {
    let Some((kind, size)) = text.split_once(':').filter(|(kind, _)| matches!(*kind, "bpe" | "wordpiece")) else {
        return Ok(Vocabulary::File(text.into()));
    };
    match size.parse::<u32>() {
        Ok(size) if (300..=262_144).contains(&size) && kind == "bpe" => Ok(Vocabulary::Bpe(size)),
        Ok(size) if (300..=262_144).contains(&size) => Ok(Vocabulary::WordPiece(size)),
        Ok(_) | Err(_) => Err("give a size from 300 to 262144, such as `bpe:16000`".to_owned()),
    }
}

/// Three shares, in any unit: `7:2:1` is `0.7:0.2:0.1`.
fn shares(text: &str) -> Result<[f64; 3], String> {
    let parts: Vec<f64> = text.split(':').map_while(|part| part.trim().parse().ok()).collect();
    let sound = |part: &f64| part.is_finite() && *part >= 0.0;
    let total: f64 = parts.iter().sum();
    match parts[..] {
        [train, validation, test] if parts.iter().all(sound) && train > 0.0 && text.split(':').count() == 3 => {
            Ok([train, validation, test].map(|part| part / total))
        }
        _ => Err("write for example `7:2:1`".to_owned()),
    }
}
