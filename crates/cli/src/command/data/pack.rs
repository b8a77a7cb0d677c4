//! `gradus data pack`: pack a data set into shards.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data::{PackFormat, PackOptions, PackProgress, PackSummary, SampleCodec, TextOptions, TokenizerSource};
use serde_json::{Value, json};

use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::figures::{counted, grouped};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data pack`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder, tar, `.tar.gz` or zip of `…/<class>/<file>.jpg|png`, WebDataset tars (`train-{000..146}.tar`), TFRecord,
    /// Parquet, Arrow or Feather files, a folder of any of these, CIFAR's binary files, a `.npz` of colour images, a COCO
    /// JSON file, images with a `metadata.csv|jsonl`, a CSV of paths and classes, or with `--tokenizer` text (`.csv`,
    /// `.jsonl`, `.txt`, Parquet or Arrow); or the address of any of these, such as `s3://bucket/images`
    source: PathBuf,
    /// Output folder, created if it does not exist
    out: PathBuf,
    /// Bytes of samples per shard, such as `64MB`
    #[arg(long, default_value = "64MB", value_name = "BYTES", value_parser = bytes)]
    shard_size: u64,
    /// Seed of the shuffle and of the split
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Shares of training, validation and test, such as `7:2:1` [default: by the data's folders]
    #[arg(long, value_name = "A:B:C", value_parser = shares)]
    split: Option<[f64; 3]>,
    /// How to store images
    #[arg(long, value_enum, default_value_t = CodecArg::Original)]
    codec: CodecArg,
    /// Shrink the short side of larger images to this many pixels (lossy)
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(8..=8192))]
    shrink: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value_t = FormatArg::Shards)]
    format: FormatArg,
    /// Tokenize text with a Hugging Face `tokenizer.json`, or train a tokenizer: `bpe:16000`, `wordpiece:30000`
    #[arg(long, value_name = "FILE|KIND:SIZE", value_parser = vocabulary)]
    tokenizer: Option<TokenizerSource>,
    /// Columns or keys of the text; 1-based numbers for a CSV without header
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "text", requires = "tokenizer")]
    columns: Vec<String>,
    /// Column or key of the label
    #[arg(long, value_name = "NAME", requires = "tokenizer")]
    label: Option<String>,
    /// Skip images that cannot be decoded, and count them
    #[arg(long)]
    skip_corrupt: bool,
    /// Threads [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CodecArg {
    /// Original files
    Original,
    /// JPEGs as entropy-recoded DCT coefficients: the same pixels with faster decoding, for as many as keep a shard within
    /// 102 % of its original size; other files unchanged
    Coefficients,
    /// Raw pixels: no decoding, much larger
    Pixels,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormatArg {
    /// gradus shards with an index and hashes
    Shards,
    /// WebDataset tars of `.jpg|png` and `.cls`
    Webdataset,
}

/// Packs, and prints a summary.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let options = options(&args);
    check(&options)?;
    if !args.source.to_string_lossy().contains("://") {
        store::may_pack(&args.source, &args.out)?;
    }
    let place = OpenedData::fetched(&args.source, settings, printer)?;
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
    match printer.is_json() {
        true => printer.json(&json(&packed, &args.out, began.elapsed())),
        false => present(&packed, &args.out, printer),
    }
    Ok(exit::DONE)
}

fn options(args: &Args) -> PackOptions {
    PackOptions {
        shard_bytes: args.shard_size,
        seed: args.seed,
        split: args.split,
        codec: match args.codec {
            CodecArg::Original => SampleCodec::Original,
            CodecArg::Coefficients => SampleCodec::Coefficients,
            CodecArg::Pixels => SampleCodec::Pixels,
        },
        shrink: args.shrink,
        format: match args.format {
            FormatArg::Shards => PackFormat::Shards,
            FormatArg::Webdataset => PackFormat::Webdataset,
        },
        skip: args.skip_corrupt,
        text: args.tokenizer.clone().map(|vocabulary| TextOptions {
            vocabulary,
            columns: args.columns.clone(),
            label: args.label.clone(),
        }),
        threads: args.threads.map_or_else(cores, |threads| threads as usize),
    }
}

/// Refuses mutually exclusive options.
fn check(options: &PackOptions) -> Result<(), Error> {
    if options.format == PackFormat::Webdataset && options.codec != SampleCodec::Original {
        let message = format!("WebDataset tars hold image files, not {}", options.codec.word());
        let hint = format!("remove `--codec {}`, or `--format webdataset`", options.codec.word());
        return Err(Error::Usage { message, hint });
    }
    if options.text.is_some()
        && (options.format, options.codec, options.shrink) != (PackFormat::Shards, SampleCodec::Original, None)
    {
        let message = "`--codec`, `--shrink` and `--format` do not apply to text".to_owned();
        return Err(Error::Usage { message, hint: "remove them, or remove `--tokenizer` to pack images".to_owned() });
    }
    Ok(())
}

/// Bytes of all shards, and of the packed data if known.
fn sizes(packed: &PackSummary) -> (u64, Option<u64>) {
    let shards = &packed.manifest.shards;
    (shards.iter().map(|shard| shard.bytes).sum(), shards.iter().map(|shard| shard.source_bytes).sum())
}

fn json(packed: &PackSummary, out: &Path, took: Duration) -> Value {
    let manifest = &packed.manifest;
    let (bytes, source) = sizes(packed);
    json!({
        "out": out, "samples": manifest.samples, "classes": manifest.classes.len(), "shards": manifest.shards.len(),
        "bytes": bytes, "source_bytes": source, "skipped": manifest.skipped.len(), "unread": packed.unread.len(),
        "resumed_shards": packed.resumed, "nothing_to_do": packed.nothing_to_do, "seconds": took.as_secs_f64(),
    })
}

/// Prints skipped and resumed parts, and a summary.
fn present(packed: &PackSummary, out: &Path, printer: &mut Printer) {
    let manifest = &packed.manifest;
    if let Some(first) = manifest.skipped.first() {
        let count = manifest.skipped.len();
        printer.say(format!("skipped {count} that cannot be decoded; the first is `{}`: {}", first.name, first.why));
    }
    if let Some(first) = packed.unread.first() {
        let count = packed.unread.len();
        printer.say(format!("left out {count} of image formats that are not read; the first is `{first}`"));
    }
    match (packed.nothing_to_do, packed.resumed) {
        (true, _) => printer.say("nothing to do: already packed"),
        (false, 0) => {}
        (false, shards) => {
            printer.say(format!("resumed after {}", counted(shards as u64, "shard")));
        }
    }
    let (bytes, source) = sizes(packed);
    let share = source.filter(|source| *source > 0).map(|source| {
        let share = 100.0 * bytes as f64 / source as f64;
        format!(" ({share:.1} % of {:.1} MB)", source as f64 / 1e6)
    });
    let what = match &manifest.recipe.tokens {
        Some(tokens) => format!(
            "{} as {}-byte tokens, vocabulary {},",
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
        out.display()
    ));
}

/// Time between progress lines: a terminal overwrites them, a log keeps them.
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
        Ok(_) => Err("must be between 4 KiB and 1 TB".to_owned()),
        Err(_) => Err("expected a size such as `64MB`".to_owned()),
    }
}

/// A tokenizer file, or the kind and vocabulary size of one to train.
fn vocabulary(text: &str) -> Result<TokenizerSource, String> {
    let Some((kind, size)) = text.split_once(':').filter(|(kind, _)| matches!(*kind, "bpe" | "wordpiece")) else {
        return Ok(TokenizerSource::File(text.into()));
    };
    match size.parse::<u32>() {
        Ok(size) if (300..=262_144).contains(&size) && kind == "bpe" => Ok(TokenizerSource::Bpe(size)),
        Ok(size) if (300..=262_144).contains(&size) => Ok(TokenizerSource::WordPiece(size)),
        Ok(_) | Err(_) => Err("the vocabulary size must be from 300 to 262144, such as `bpe:16000`".to_owned()),
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
        _ => Err("expected three shares such as `7:2:1`".to_owned()),
    }
}
