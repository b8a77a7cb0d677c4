//! A built-in model of images as a TorchScript file, for inference with `torch.jit.load` or libtorch, without gradus.
//!
//! The forward pass is traced, with the weights as constants. A trace may have taken the size of its batch for a constant
//! as well, so the file is read back and must give the same logits for batches of other sizes.

use std::path::Path;

use domain::finding::{Cause, Finding};
use domain::train::MemoryFormat;
use serde::Serialize;
use tch::{CModule, Device, Kind, Tensor};

use super::{Input, card, relative, shape_of};
use crate::error::Error;
use crate::model::{Network, Pass};
use crate::state::pretrained;
use crate::torch::{self, Result};

/// The file that was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scripted {
    /// Largest difference of a logit over the largest logit, for images of noise.
    pub difference: f64,
}

/// Logits may differ by rounding alone: the same operations are done.
const MOST: f64 = 1e-5;
/// Samples in the traced batch, and in those that are compared.
const TRACED: i64 = 2;
const COMPARED: [i64; 3] = [1, 2, 5];

/// Writes the exported model in the folder `from` as the TorchScript file `to`.
///
/// # Errors
/// If it is no model of images, or cannot be read or written.
pub fn torchscript(from: &Path, to: &Path) -> std::result::Result<Scripted, Error> {
    let (_, card) = card(&from.join("model.json"))?;
    let Input { channels, height, width } = card.input;
    if channels == 0 {
        let message =
            format!("`{}` reads text; only models of images are written as TorchScript", card.architecture.name());
        return Err(Finding::new(Cause::Job, message).hint("`transformers` opens its exported files").into());
    }
    torch::set_deterministic(true)?;
    let network = Network::new(card.architecture, shape_of(&card), 0, Device::Cpu, MemoryFormat::Contiguous)?;
    pretrained::load(&network, &card.architecture.into(), &from.join("model.safetensors"))?;
    write(&network, [channels, height, width], to)
}

fn write(network: &Network, image: [i64; 3], to: &Path) -> std::result::Result<Scripted, Error> {
    for named in network.weights().parameters() {
        // A trace takes only tensors without gradients as constants.
        let _ = named.tensor.f_set_requires_grad(false).map_err(torch::Error::from)?;
    }
    torch::seed(0)?;
    let noise = |samples: i64| -> Result<Tensor> {
        let [channels, height, width] = image;
        Ok(Tensor::f_randn([samples, channels, height, width], (Kind::Float, Device::Cpu))?)
    };
    let forward = |images: &Tensor| tch::no_grad(|| network.forward(images, &Pass::whole(false)));
    let traced = noise(TRACED)?;
    // What fails does so here, and not while libtorch traces.
    let _ = forward(&traced)?;
    let mut failed = None;
    let mut pass = |inputs: &[Tensor]| match inputs.first().map(&forward) {
        Some(Ok(logits)) => vec![logits],
        Some(Err(error)) => {
            failed = Some(error);
            Vec::new()
        }
        None => Vec::new(),
    };
    let module = CModule::create_by_tracing("Model", "forward", &[traced], &mut pass);
    if let Some(error) = failed {
        return Err(error.into());
    }
    let module = module.map_err(torch::Error::from)?;
    let unfinished = to.with_extension("part");
    module.save(&unfinished).map_err(torch::Error::from)?;
    let read = CModule::load(&unfinished).map_err(torch::Error::from)?;
    let mut difference: f64 = 0.0;
    for samples in COMPARED {
        let images = noise(samples)?;
        let found = tch::no_grad(|| read.forward_ts(std::slice::from_ref(&images))).map_err(torch::Error::from)?;
        difference = difference.max(relative(&forward(&images)?, &found)?);
    }
    // Not `>`: a difference that is no number must fail too.
    if difference <= MOST {
        let renamed = std::fs::File::open(&unfinished).and_then(|file| file.sync_all());
        renamed.and_then(|()| std::fs::rename(&unfinished, to)).map_err(|error| {
            let message = format!("the file `{}` cannot be written: {error}", to.display());
            Finding::new(Cause::DiskFull, message).hint("free some disk, or choose another folder")
        })?;
        return Ok(Scripted { difference });
    }
    let _ = std::fs::remove_file(&unfinished);
    let message =
        format!("as TorchScript, the model's logits differ by {difference:.1e} of the largest, more than {MOST:.0e}");
    Err(Finding::new(Cause::Internal, message).hint("export it without `--torchscript`, and report this").into())
}

#[cfg(test)]
mod tests {
    use domain::train::Model;

    use super::*;
    use crate::model::{ModelShape, OutputShape};

    #[test]
    fn models_of_images_give_the_same_logits_from_their_files() {
        let _turn = torch::turn();
        let folder = tempfile::tempdir().unwrap();
        let models = [(Model::Cnn, 16), (Model::Resnet20, 32), (Model::MobilenetV3Small, 32), (Model::VitS16, 32)];
        for (model, side) in models {
            let image = [3, side, side];
            let shape = ModelShape::images(image, 7);
            let network = Network::new(model, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap();
            let file = folder.path().join("model.pt");
            let found =
                write(&network, image, &file).unwrap_or_else(|error| panic!("{model:?}: {}", error.finding().message));
            assert!(found.difference <= 1e-6 && file.is_file(), "{model:?}: {found:?}");
        }
        let shape = ModelShape { output: OutputShape::Boxes(3), ..ModelShape::images([3, 64, 64], 3) };
        let network = Network::new(Model::YoloN, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap();
        let found = write(&network, [3, 64, 64], &folder.path().join("model.pt")).unwrap();
        assert!(found.difference <= 1e-6, "{found:?}");
    }
}
