//! Opens texts as a rank does, reads one epoch of batches, and prints the time and the peak memory of it.
//!
//!     cargo run --release -p gradus-data --example text_memory -- TEXTS [FOLDER [TOKENIZER]]
//!
//! With a folder the tokens are stored in it, as in a run; without one they are in memory. Without a `tokenizer.json` one
//! is trained first.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use data::{Cursor, Error, Provenance, TextDataset, TextLoader, TextObjective};
use domain::train::Text;

fn main() -> ExitCode {
    formats::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [texts, folder @ ..] = &arguments[..] else {
        eprintln!("usage: text_memory TEXTS [FOLDER [TOKENIZER]]");
        return ExitCode::from(2);
    };
    match measure(Path::new(texts), folder.first().map(Path::new), folder.get(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(path: &Path, folder: Option<&Path>, tokenizer: Option<&String>) -> Result<(), Error> {
    let spec = serde_json::from_str(r#"{"path": "", "split": [0.98, 0.01, 0.01]}"#);
    let keys = serde_json::from_str::<Text>(r#"{"length": 256, "vocabulary": 8000}"#);
    let (Ok(spec), Ok(keys)) = (spec, keys) else { return Err(Error::Internal("the keys are no keys".into())) };
    let keys = Text { tokenizer: tokenizer.cloned(), ..keys };
    let began = Instant::now();
    let mut provenance = Provenance::of_run(None, false, true);
    let texts = TextDataset::open_known(&spec, &keys, TextObjective::Next, path, 1, folder, &mut provenance)?;
    let digest = provenance.found().map(|found| found.digest()).unwrap_or_default();
    drop(provenance);
    let opened = (began.elapsed().as_secs_f64(), peak());
    let began = Instant::now();
    let (mut tokens, mut hash) = (0, blake3::Hasher::new());
    let mut loader = TextLoader::train(Arc::new(texts), 32, 1, Cursor::START, 1);
    while let Some(batch) = loader.next() {
        let batch = batch?;
        tokens += batch.tokens.len();
        for token in &batch.tokens {
            hash.update(&(*token as u32).to_le_bytes());
        }
    }
    println!("opened in {:.1} s, peak memory {:.0} MB; data {}", opened.0, opened.1, &digest[..16]);
    let seconds = began.elapsed().as_secs_f64();
    let epoch = hash.finalize().to_hex();
    println!("{tokens} tokens read in {seconds:.1} s, peak memory {:.0} MB; epoch {}", peak(), &epoch[..16]);
    Ok(())
}

/// The largest resident set so far, in MB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0 / 1e6
}
