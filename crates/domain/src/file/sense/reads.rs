//! Checks of a model's input: images, texts, or images with boxes; and the keys specific to each.

use super::Validator;
use crate::architecture::{Architecture, Reads};
use crate::train::{Augment, Documents, Split, Task, Train};

/// Pixels of the coarsest grid that a detector looks through.
const GRID: u32 = 32;

impl Validator {
    /// Keys specific to images, and those specific to texts.
    pub(super) fn reads(&mut self, train: &Train) {
        let (name, data) = (train.model.name(), &train.data);
        // For a module it is unknown; its input is checked when it first runs.
        let positions = train.model.architecture().map(Architecture::positions);
        let longest = match (positions, &data.text) {
            (Some(None) | None, None) => return,
            (Some(None), Some(_)) => {
                let message = format!("`{name}` reads images, not text");
                return self.wrong("train.data.text", message, "leave the key out, or choose a model that reads text");
            }
            (Some(Some(_)), None) => {
                let message = format!("`{name}` reads text, and where it stands in the data is not said");
                let hint = "write for example `text: {columns: [text], label: label}`";
                return self.wrong("train.data.text", message, hint);
            }
            (longest, Some(text)) => {
                if text.columns.is_empty() {
                    self.wrong("train.data.text.columns", "no column holds the text", "name at least one");
                }
                if text.pair.is_some() && train.task() != Task::TextClassification {
                    let message = "pairs of texts are for text classification by BERT";
                    self.wrong("train.data.text.pair", message, "name the classes with `label`, or leave the key out");
                }
                let is_gpt = train.model.architecture().is_some() && train.task() == Task::LanguageModel;
                if text.documents == Documents::Apart && !is_gpt {
                    let message = format!("`{name}` cannot be told where documents begin; GPT can");
                    self.wrong("train.data.text.documents", message, "leave the key out");
                }
                if let Some(tokenizer) = &text.tokenizer {
                    self.path("train.data.text.tokenizer", tokenizer);
                }
                longest
                    .flatten()
                    .filter(|longest| i64::from(text.length) > *longest)
                    .map(|longest| (longest, text.length))
            }
        };
        if let Some((longest, length)) = longest {
            let message = format!("sequences of {length} tokens are longer than the {longest} positions of `{name}`");
            self.wrong("train.data.text.length", message, format!("write at most {longest}"));
        }
        let of_images = [
            ("augment", !data.augment.is_empty()),
            ("normalize", data.normalize.is_some()),
            ("size", data.size.is_some()),
            ("preload", data.preload.is_some()),
        ];
        for (key, is_given) in of_images {
            if is_given {
                self.wrong(
                    &format!("train.data.{key}"),
                    "this key is for images, and the model reads text",
                    "leave the key out",
                );
            }
        }
        if matches!(data.split, Split::Folders(_)) {
            self.wrong("train.data.split", "a text file has no folders", "write for example `split: [0.7, 0.2, 0.1]`");
        }
    }

    /// Keys specific to images with boxes, and those that do not apply to them.
    pub(super) fn boxes(&mut self, train: &Train) {
        let (name, data) = (train.model.name(), &train.data);
        let finds =
            train.model.architecture().is_some_and(|architecture| architecture.reads() == Reads::DetectionImages);
        for (index, augment) in data.augment.iter().enumerate() {
            let key = format!("train.data.augment[{index}]");
            match augment {
                Augment::Flip => {}
                Augment::Mosaic if finds => {}
                Augment::Mosaic => {
                    let message = format!("`{name}` is no detector, and mosaics are for detection");
                    self.wrong(&key, message, "leave it out, or choose a detector such as `yolo_n`");
                }
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::PadCrop(_) if finds => {
                    let hint = "`flip` and `mosaic` can be used for detection";
                    self.wrong(&key, "boxes cannot be cropped with their images yet", hint);
                }
                Augment::RandAugment(_)
                | Augment::AutoAugment(_)
                | Augment::TrivialAugment
                | Augment::ColorJitter(_)
                | Augment::RandomErasing(_)
                | Augment::Mixup(_)
                | Augment::Cutmix(_)
                    if finds =>
                {
                    let hint = "`flip` and `mosaic` can be used for detection";
                    self.wrong(&key, "this change cannot be made to images with boxes yet", hint);
                }
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::PadCrop(_) => {}
                Augment::RandAugment(_) | Augment::Mixup(_) | Augment::Cutmix(_) => {}
                Augment::AutoAugment(_) | Augment::TrivialAugment => {}
                Augment::ColorJitter(_) | Augment::RandomErasing(_) => {}
            }
        }
        if !finds {
            return;
        }
        if let Some(size) = data.size
            && size % GRID != 0
        {
            let message = format!("`{name}` looks through a grid of {GRID} pixels, which does not go up with {size}");
            let near = (size / GRID).max(1) * GRID;
            self.wrong("train.data.size", message, format!("write a multiple of {GRID}, such as {near}"));
        }
        if data.preload.is_some() {
            let message = format!("images for `{name}` are read when they are needed");
            self.wrong("train.data.preload", message, "leave the key out");
        }
        if train.label_smoothing > 0.0 {
            let message = format!("`{name}` learns how sure to be from the boxes, and smooths nothing");
            self.wrong("train.label_smoothing", message, "leave the key out");
        }
    }
}
