//! A user's own network, saved as a TorchScript module.
//!
//! Its layers are opaque: it has no blocks, and its tensors have the module's own names. Before the first step a trial
//! checks that it accepts the data and returns logits of the right shape: [`crate::state::trial`].

use std::path::Path;

use domain::finding::{Cause, Finding};
use sha2::{Digest, Sha256};
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::model::nn::{Pass, Weights};
use crate::torch::module::ScriptModule;
use crate::torch::{self, Result};

/// A module whose tensors are registered as weights.
pub(in crate::model) struct UserModule {
    script: ScriptModule,
    /// Whether it takes an attention mask in addition to token ids.
    takes_mask: bool,
}

impl UserModule {
    /// Reads the file.
    pub(in crate::model) fn open(weights: &mut Weights, path: &Path) -> std::result::Result<UserModule, Error> {
        let wrong = |why: String, hint: &str| {
            let message = format!("the module `{}` cannot be used: {why}", path.display());
            Error::from(Finding::new(Cause::Job, message).hint(hint))
        };
        if !path.is_file() {
            return Err(wrong("there is no such file".into(), "check `train.model`; it is relative to the job file"));
        }
        let script = ScriptModule::load(path, weights.device())
            .map_err(|error| wrong(error.to_string(), "write it with `torch.jit.script(module).save(\"module.pt\")`; a file of `torch.save` cannot be loaded without the Python code that defines the module"))?;
        let [least, most] = script
            .inputs()
            .map_err(|error| wrong(error.to_string(), "give it a `forward` that takes a batch and returns scores"))?;
        if least > 2 || most == 0 {
            let why = format!("its `forward` wants {least} values, and is given a batch, and of words their mask");
            return Err(wrong(why, "give the others a default"));
        }
        for (name, tensor) in script.parameters()? {
            if tensor.kind() != Kind::Float {
                let why = format!("`{name}` is {:?}, and weights are trained in 32 bits", tensor.kind());
                return Err(wrong(why, "save `module.float()`; `precision` chooses the format of the products"));
            }
            weights.bring(name, tensor, true)?;
        }
        for (name, tensor) in script.buffers()? {
            weights.bring(name, tensor, false)?;
        }
        if weights.parameters().is_empty() {
            let hint =
                "save it as it was before `torch.jit.freeze` or `optimize_for_inference` made its weights constants";
            return Err(wrong("it has no parameters to train".into(), hint));
        }
        Ok(UserModule { script, takes_mask: most >= 2 })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mut values = vec![x.shallow_clone()];
        // Words, of which there may be none that only fill.
        if self.takes_mask && x.dim() == 2 {
            values.push(match &pass.mask {
                Some(mask) => mask.shallow_clone(),
                None => x.f_ones_like()?.f_to_kind(Kind::Bool)?,
            });
        }
        self.script.forward(&values, pass.train)
    }

    pub(in crate::model) fn save(&self, path: &Path) -> torch::Result<()> {
        self.script.save(path)
    }
}

/// SHA-256 of a module's file, in hexadecimal, so that a run resumes with the same program.
pub fn fingerprint(path: &Path) -> std::result::Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("the module `{}` cannot be read: {error}", path.display());
        Finding::new(Cause::Job, message).hint("check `train.model`")
    })?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}
