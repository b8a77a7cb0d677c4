//! Text: tokenized once, then batches of rows.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Cursor, TextDataset, TextLoader, TextObjective};
use serde_json::json;

use super::{memory, processor_time};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;

/// Options for text.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// With `--as text`: columns or keys of the text
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// With `--as text`: a `tokenizer.json` [default: train one with a vocabulary of 8,000]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<String>,
    /// With `--as text`: tokens per row [default: 256]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    length: Option<u32>,
}

/// Tokens in a row, unless asked for.
const LENGTH: u32 = 256;

impl Args {
    /// The given options.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (!self.columns.is_empty(), "--columns"),
            (self.tokenizer.is_some(), "--tokenizer"),
            (self.length.is_some(), "--length"),
        ];
        given.into_iter().filter_map(|(is_given, flag)| is_given.then_some(flag))
    }
}

/// Rows in a batch.
const BATCH: usize = 32;

/// Opens the text, then loads batches of rows for `limit`.
///
/// # Errors
/// [`Error`].
pub fn run(path: &Path, args: &Args, seed: u64, limit: Duration, printer: &mut Printer) -> Result<u8, Error> {
    let length = args.length.unwrap_or(LENGTH);
    let mut keys = json!({"length": length});
    if !args.columns.is_empty() {
        keys["columns"] = json!(args.columns);
    }
    if let Some(tokenizer) = &args.tokenizer {
        keys["tokenizer"] = json!(tokenizer);
    }
    let wrong = |error: serde_json::Error| Error::Data(data::Error::Internal(error.to_string()));
    let keys = serde_json::from_value(keys).map_err(wrong)?;
    let spec = serde_json::from_value(json!({"path": "", "split": [1, 0, 0]})).map_err(wrong)?;
    let bytes = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let (began, worked) = (Instant::now(), processor_time());
    let texts = Arc::new(TextDataset::open(&spec, &keys, TextObjective::Next, path, seed)?);
    let (opening, opening_cpu) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let all: u64 = texts.counts().iter().sum();
    let mut loader = TextLoader::train(Arc::clone(&texts), BATCH, seed, Cursor::START, u64::MAX);
    let (mut rows, mut tokens) = (0_u64, 0_u64);
    let (began, worked) = (Instant::now(), processor_time());
    while began.elapsed() < limit
        && let Some(batch) = loader.next()
    {
        let batch = batch?;
        rows += batch.rows as u64;
        tokens += batch.tokens.len() as u64;
    }
    let (seconds, worked) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let each = worked * 1e9 / tokens.max(1) as f64;
    if printer.is_json() {
        printer.json(&json!({
            "rows": all,
            "vocabulary": texts.vocabulary(),
            "bytes": bytes,
            "opening_seconds": opening,
            "opening_cpu_seconds": opening_cpu,
            "rows_made": rows,
            "tokens_made": tokens,
            "seconds": seconds,
            "tokens_per_s": tokens as f64 / seconds,
            "cpu_ns_per_token": each,
            "peak_rss_bytes": memory("VmHWM:"),
        }));
        return Ok(exit::DONE);
    }
    let size = bytes.map_or(String::new(), |bytes| format!(" from {:.1} MB", bytes as f64 / 1e6));
    printer.data(format!(
        "opened        {all} rows of {} tokens{size} in {opening:.1} s, {opening_cpu:.1} s of CPU time; vocabulary {}",
        length,
        texts.vocabulary()
    ));
    printer.data(format!("tokens        {tokens} in {seconds:.1} s, {:.2} M tokens/s", tokens as f64 / seconds / 1e6));
    printer.data(format!("CPU time      {each:.1} ns per token, {:.1} µs per row", worked * 1e6 / rows.max(1) as f64));
    Ok(exit::DONE)
}
