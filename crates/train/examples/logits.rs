//! Scores of an exported model, for `cargo xtask bench parity`: `logits MODEL_FOLDER IN OUT`.
//!
//! `IN` is a safetensors file with `images`, float32 and normalised, `samples × channels × height × width`; `OUT`
//! becomes one with `logits`, `samples × classes`. `benches/peers/torchvision_logits.py` holds them against
//! torchvision's.

use std::error::Error;
use std::fs;
use std::path::Path;

use domain::train::{MemoryFormat, Model};
use serde::Deserialize;
use tch::{Device, Tensor};
use train::model::{ModelShape, Network, Pass};

/// The part of `model.json` that it takes to score.
#[derive(Debug, Deserialize)]
struct Card {
    architecture: Model,
    classes: Vec<String>,
    input: Input,
}

#[derive(Debug, Deserialize)]
struct Input {
    channels: i64,
    height: i64,
    width: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, input, output] = arguments.as_slice() else { return Err("usage: logits MODEL_FOLDER IN OUT".into()) };
    let folder = Path::new(folder);
    let Card { architecture, classes, input: Input { channels, height, width } } =
        serde_json::from_str(&fs::read_to_string(folder.join("model.json"))?)?;
    let shape = ModelShape::images([channels, height, width], classes.len() as i64);
    let network = Network::new(architecture, shape, 0, Device::Cpu, MemoryFormat::Contiguous)?;

    let mut saved = Tensor::read_safetensors(folder.join("model.safetensors"))?;
    for named in network.weights().all() {
        let place = saved.iter().position(|(name, _)| *name == named.name);
        let (name, values) = saved.swap_remove(place.ok_or_else(|| format!("`{}` is missing", named.name))?);
        if values.size() != named.tensor.size() {
            return Err(format!("`{name}` is {:?}, not {:?}", values.size(), named.tensor.size()).into());
        }
        named.tensor.f_detach()?.f_copy_(&values)?;
    }
    if let Some((name, _)) = saved.first() {
        return Err(format!("nothing in the network is called `{name}`").into());
    }

    let images = Tensor::read_safetensors(input)?;
    let (_, images) = images.iter().find(|(name, _)| name == "images").ok_or("`images` is missing")?;
    let logits = tch::no_grad(|| network.forward(images, &Pass::whole(false)))?;
    Ok(Tensor::write_safetensors(&[("logits", logits)], output)?)
}
