//! `gradus plan model`: how a model file is read, to compare with the counts of its framework.

pub mod file;

use std::path::{Path, PathBuf};

use plan::estimate::memory::saved_bytes;
use plan::model::Graph;
use plan::model::read::{self, SampleShape};
use serde_json::json;

use crate::error::Error;
use crate::figures::grouped;
use crate::printer::Printer;
use crate::table;

/// Arguments of `gradus plan model`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model files: Hugging Face `config.json`, ONNX, safetensors
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Tokens per sample, if the file does not say
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    sequence: Option<u64>,
    /// Height and width of an image, if the file does not say
    #[arg(long, alias = "picture", value_name = "PIXELS", value_parser = clap::value_parser!(u64).range(1..))]
    image: Option<u64>,
}

/// Prints one line per model file; an unreadable one does not hide the others.
///
/// # Errors
/// The last file that could not be read; errors of the others are printed.
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    let shape = SampleShape { sequence: args.sequence, image: args.image.map(|side| [3, side, side]), classes: None };
    let mut rows = Vec::new();
    let mut values = Vec::new();
    let mut notes = Vec::new();
    let mut failed = Vec::new();
    for file in &args.files {
        let graph = match graph(file, &shape) {
            Ok(graph) => graph,
            Err(error) => {
                values.push(json!({ "file": file, "error": error.to_string(), "hint": error.hint() }));
                failed.push(error);
                continue;
            }
        };
        rows.push(vec![
            file.display().to_string(),
            grouped(graph.parameters()),
            grouped(graph.multiply_adds()),
            grouped(graph.activations()),
            graph.operators.len().to_string(),
            graph.blocks().to_string(),
        ]);
        notes.extend(graph.unknown.iter().map(|what| format!("{}: unknown: {what}", file.display())));
        notes.extend(graph.assumed.iter().map(|what| format!("{}: assumed: {what}", file.display())));
        values.push(json!({
            "file": file,
            "parameters": graph.parameters(),
            "buffers": graph.buffers(),
            "multiply_adds": graph.multiply_adds(),
            "activations": graph.activations(),
            "saved_bytes": saved_bytes(&graph, true) as u64,
            "saved_bytes_written_out": saved_bytes(&graph, false) as u64,
            "operators": graph.operators.len(),
            "blocks": graph.blocks(),
            "unknown": graph.unknown,
            "assumed": graph.assumed,
        }));
    }
    if printer.is_json() {
        printer.json(&values);
    } else if !rows.is_empty() {
        for line in table::lines(&["file", "parameters", "multiply-adds", "activations", "operators", "blocks"], &rows)
        {
            printer.data(line);
        }
        notes.into_iter().for_each(|line| printer.say(line));
    }
    let Some(last) = failed.pop() else { return Ok(crate::error::exit::DONE) };
    for error in failed {
        printer.error(&error);
    }
    Err(last)
}

fn graph(file: &Path, shape: &SampleShape) -> Result<Graph, Error> {
    let bytes = self::file::bytes(file)?;
    read::model(&bytes, shape).map_err(|problem| {
        let key = if problem.key.is_empty() { String::new() } else { format!("`{}`: ", problem.key) };
        Error::Usage {
            message: format!("cannot read the model `{}`: {key}{}", file.display(), problem.message),
            hint: problem.hint.unwrap_or_else(|| "use its `config.json` or an ONNX file".to_owned()),
        }
    })
}
