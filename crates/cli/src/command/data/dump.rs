//! `gradus data dump`: one preprocessed sample as a NumPy file.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use data::{BatchDtype, Cursor, Loader, Part, SampleOrder};
use serde_json::json;

use super::recipe;
use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data dump`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Images in any supported format, or their address, such as `s3://bucket/images`
    path: PathBuf,
    #[command(flatten)]
    recipe: recipe::Args,
    /// 0-based index of the image, ordered by path
    #[arg(long)]
    index: u64,
    /// Output file, `.npy`
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes one sample as the first epoch yields it.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let preset = args.recipe.preset()?;
    let place = OpenedData::opened(&args.path, settings, printer)?;
    let dataset = Arc::new(args.recipe.open(&preset, &place)?);
    let samples = dataset.count(Part::Train);
    if args.index >= samples {
        let message = format!("no image {}: the data set has {samples}", args.index);
        return Err(Error::Usage { message, hint: format!("use an index from 0 to {}", samples.saturating_sub(1)) });
    }
    let options = args.recipe.options(&preset, 1, 0);
    let mut loader = match preset.evaluation {
        true => Loader::evaluate_from(Arc::clone(&dataset), Part::Train, options, args.index),
        false => {
            // The order is a permutation, so one position of the epoch has the image.
            let order = SampleOrder::new(samples, args.recipe.seed);
            let pos = (0..samples).find(|pos| order.at(0, *pos) == args.index).unwrap_or(0);
            Loader::train(Arc::clone(&dataset), options, Cursor { epoch: 0, pos }, 1)
        }
    };
    let batch = loader.next().transpose()?;
    let Some(batch) = batch else {
        return Err(data::Error::Internal("an image that no batch holds".to_owned()).into());
    };
    let shape = args.recipe.shape(dataset.channels(), dataset.height(), dataset.width());
    let kind = match batch.numbers() {
        BatchDtype::F32 => "<f4",
        BatchDtype::Bf16 => "<u2", // NumPy has no name for bfloat16.
        BatchDtype::U8 => "|u1",
    };
    let written = File::create(&args.out).and_then(|mut file| {
        file.write_all(&header(kind, shape))?;
        file.write_all(batch.bytes())
    });
    written.map_err(Error::file("write", &args.out))?;
    let name = dataset.name(args.index as u32);
    if printer.is_json() {
        printer.json(&json!({ "index": args.index, "name": name, "shape": shape, "dtype": kind, "file": args.out }));
    } else {
        printer.data(format!("{}  {shape:?} {kind} of `{name}`", args.out.display()));
    }
    Ok(exit::DONE)
}

/// The header of the NPY format, version 1.0, padded to a multiple of 64 bytes.
fn header(kind: &str, [a, b, c]: [usize; 3]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({a}, {b}, {c}), }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
