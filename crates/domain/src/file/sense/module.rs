//! Checks of the keys for a user's own module: it needs a loss, and its layers are opaque.

use super::Validator;
use crate::train::{Labels, Loss, ModelSource, Module, Shard, Train};

impl Validator {
    pub(super) fn module(&mut self, train: &Train) {
        let name = train.model.name();
        match (&train.model, train.loss) {
            (ModelSource::Named(_), None) => {}
            (ModelSource::Named(_), Some(_)) => {
                self.wrong("train.loss", format!("`{name}` has a loss of its own"), "leave the key out");
            }
            (ModelSource::Module(Module::Torchscript(path)), loss) => {
                self.path("train.model.torchscript", path);
                self.loss(train, loss);
                if let Shard::Gradients | Shard::Parameters = train.parallel.shard {
                    let message = format!("`{name}` is run as a whole, so no rank can keep a part of it");
                    self.wrong("train.parallel.shard", message, "write `shard: optimizer`, or leave the key out");
                }
                if train.parallel.sync_batch_norm {
                    let message = format!("the normalisations of `{name}` are its own, and each rank's");
                    self.wrong("train.parallel.sync_batch_norm", message, "leave the key out");
                }
            }
        }
    }

    /// The loss of a module, and whether the data provides its targets.
    fn loss(&mut self, train: &Train, loss: Option<Loss>) {
        let name = train.model.name();
        let Some(loss) = loss else {
            let message = format!("what `{name}` learns is not said");
            let hint = "write `loss: cross_entropy` for classes, `bce` for several per sample, `mse` for numbers, \
                        `next_word` or `masked_words` for text without them";
            return self.wrong("train.loss", message, hint);
        };
        match (loss, &train.data.text) {
            (Loss::CrossEntropy | Loss::Bce | Loss::Mse, Some(text)) if text.label.is_none() => {
                let message = "the model classifies texts, but nothing says which column is the class";
                self.wrong("train.data.text.label", message, "name their column, such as `label: label`");
            }
            (Loss::NextWord | Loss::MaskedWords, None) => {
                let message = "the model is trained on tokens, but nothing says where the data has its texts";
                self.wrong("train.data.text", message, "write for example `text: {columns: [text]}`");
            }
            (Loss::CrossEntropy | Loss::Bce | Loss::Mse | Loss::NextWord | Loss::MaskedWords, _) => {}
        }
        let (labels, meant) = (train.data.labels, labels_of(loss));
        if labels != meant {
            let message = format!("the labels of this loss are `{}`, and `data.labels` says otherwise", word(meant));
            self.wrong("train.loss", message, format!("write `data: {{labels: {}}}`, or another loss", word(meant)));
        }
    }
}

/// The labels that a loss compares with.
fn labels_of(loss: Loss) -> Labels {
    match loss {
        Loss::CrossEntropy | Loss::NextWord | Loss::MaskedWords => Labels::Class,
        Loss::Bce => Labels::MultiLabel,
        Loss::Mse => Labels::Number,
    }
}

fn word(labels: Labels) -> &'static str {
    match labels {
        Labels::Class => "class",
        Labels::MultiLabel => "multi_label",
        Labels::Number => "number",
    }
}
