//! An exported model of images as an ONNX file, for inference without PyTorch: `gradus models export --onnx`.
//!
//! The weights keep their names; dropout is omitted. Read next: `families`.

mod families;
mod graph;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, exit};
use graph::{Graph, Shapes};

/// What a card (`model.json`) says that is needed here.
#[derive(Debug, Deserialize)]
struct Card {
    architecture: String,
    classes: Vec<String>,
    input: Input,
}

#[derive(Debug, Deserialize)]
struct Input {
    channels: Option<u64>,
    height: Option<u64>,
    width: Option<u64>,
    #[serde(default)]
    mean: Vec<f64>,
    #[serde(default)]
    std: Vec<f64>,
}

/// A file of this format holds less than 2 GiB.
const LARGEST: usize = (1 << 31) - (1 << 20);

/// The ONNX file of the weights and the card in these bytes.
///
/// # Errors
/// When the model is none of images, or the files are damaged; `name` is how messages call it.
pub fn of(weights: &[u8], card: &[u8], name: &Path) -> Result<Vec<u8>, Error> {
    let refused = |message: String, hint: &str| Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD };
    let damaged =
        |what: &str| refused(format!("{what} of `{}` cannot be read", name.display()), "export the run again");
    let card: Card = serde_json::from_slice(card).map_err(|_| damaged("the card"))?;
    let Input { channels: Some(channels), height: Some(height), width: Some(width), mean, std } = card.input else {
        let message = format!("`{}` reads text; only models of images are written as ONNX", card.architecture);
        return Err(refused(message, "export it without `--onnx`; `transformers` opens its files"));
    };
    let (shapes, places) = header(weights).ok_or_else(|| damaged("the weights"))?;
    if weights.len() > LARGEST {
        let message = format!("the weights of `{}` are too large for one ONNX file of 2 GiB", name.display());
        return Err(refused(message, "export it without `--onnx`"));
    }
    let mut graph = Graph::over(&shapes);
    let image = [channels, height, width];
    let Some(logits) = families::logits(&mut graph, &card.architecture, image) else {
        let message = format!("`{}` is not written as ONNX; classifiers of images are", card.architecture);
        return Err(refused(message, "export it without `--onnx`"));
    };
    let list = |values: &[f64]| Value::from(values.to_vec()).to_string();
    let notes = [
        ("architecture", card.architecture.clone()),
        ("classes", Value::from(card.classes.clone()).to_string()),
        ("mean", list(&mean)),
        ("std", list(&std)),
    ];
    let weight = |name: &str| places.get(name).map_or(&[][..], |place| &weights[place.clone()]);
    Ok(graph.finish(&logits, image, card.classes.len() as u64, weight, &notes))
}

/// Where the bytes of each tensor are.
type Places = BTreeMap<String, std::ops::Range<usize>>;

/// Shapes and places of the tensors in a safetensors file; none if it is damaged, or not of floats of 32 bits (but for
/// counters, which inference does not need).
fn header(bytes: &[u8]) -> Option<(Shapes, Places)> {
    let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk::<8>()?)).ok()?;
    let start = length.checked_add(8)?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(bytes.get(8..start)?).ok()?;
    let (mut shapes, mut places) = (Shapes::new(), Places::new());
    for (name, tensor) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        if tensor["dtype"] == "I64" {
            continue;
        }
        let shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).ok()?;
        let [from, to]: [usize; 2] = serde_json::from_value(tensor["data_offsets"].clone()).ok()?;
        let place = start.checked_add(from)?..start.checked_add(to)?;
        let size = shape.iter().try_fold(4_u64, |size, length| size.checked_mul(*length))?;
        let is_right = tensor["dtype"] == "F32" && bytes.get(place.clone())?.len() as u64 == size;
        if !is_right {
            return None;
        }
        places.insert(name.clone(), place);
        shapes.insert(name, shape);
    }
    Some((shapes, places))
}
