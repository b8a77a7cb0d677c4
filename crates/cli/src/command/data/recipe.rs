//! Options for how images are preprocessed.

use std::path::Path;

use data::recipe::{NAMES, TransformPreset};
use data::{BatchDtype, Dataset, LoaderOptions};
use domain::train::{Corrupt, Data, MemoryFormat, Normalize, Split};

use super::inspect;
use crate::error::Error;
use crate::fetch::opened::OpenedData;

/// Options for preprocessing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Preprocessing: imagenet-train, imagenet-val, resize256-randomcrop224 or small-images [default:
    /// resize256-randomcrop224]
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Height and width of a sample [default: the recipe's]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub size: Option<u32>,
    /// Data type of values: normalised f32 or bf16, or raw u8 [default: f32]
    #[arg(long, value_enum)]
    numbers: Option<DtypeArg>,
    /// Use channels-last memory format (NHWC)
    #[arg(long)]
    channels_last: bool,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// What to do with a table, of texts or of digits.
fn not_images(path: &Path, of_texts: bool) -> Error {
    let path = path.display();
    let (message, hint) = match of_texts {
        true => (
            format!("`{path}` is a table of text, not images"),
            format!("run `gradus data pack {path} OUT --tokenizer bpe:16000`, then `gradus data bench OUT --as text`"),
        ),
        false => (
            format!("`{path}` is a table of pixels, which are used without preprocessing"),
            format!("inspect it with `gradus data inspect {path}`, or give image files"),
        ),
    };
    Error::Usage { message, hint }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DtypeArg {
    F32,
    Bf16,
    U8,
}

impl Args {
    /// The preset that is meant.
    ///
    /// # Errors
    /// [`Error::Usage`], for a name that is not known.
    pub fn preset(&self) -> Result<TransformPreset, Error> {
        let name = self.recipe.as_deref().unwrap_or("resize256-randomcrop224");
        TransformPreset::named(name, self.size).ok_or_else(|| {
            let message = format!("unknown recipe `{name}`");
            Error::Usage { message, hint: format!("use one of {}", NAMES.map(|name| format!("`{name}`")).join(", ")) }
        })
    }

    /// The images at `place`, to be prepared so.
    ///
    /// # Errors
    /// [`Error::Data`]; [`Error::Usage`] for a table of digits.
    pub fn open(&self, preset: &TransformPreset, place: &OpenedData) -> Result<Dataset, Error> {
        let path = place.path();
        let name = path.to_string_lossy().to_lowercase();
        if path.is_file() && (name.ends_with(".csv") || name.ends_with(".csv.gz")) {
            return Err(not_images(place.given(), name.ends_with(".csv") && inspect::has_words(path)));
        }
        let spec = Data {
            path: String::new(),
            split: Split::default(),
            classes: None,
            labels: domain::train::Labels::Class,
            text: None,
            sampling: domain::train::Sampling::Shuffle,
            augment: preset.augment.clone(),
            // ImageNet's, which torchvision's recipes use.
            normalize: Some(Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] }),
            size: Some(preset.size),
            corrupt: Corrupt::Fail,
            workers: 1,
            cache: None,
            preload: None,
            trained_on: None,
        };
        Ok(Dataset::unlabelled(&spec, path)?)
    }

    /// How batches are made.
    pub fn options(&self, preset: &TransformPreset, batch: usize, workers: usize) -> LoaderOptions {
        let numbers = match self.numbers {
            None | Some(DtypeArg::F32) => BatchDtype::F32,
            Some(DtypeArg::Bf16) => BatchDtype::Bf16,
            Some(DtypeArg::U8) => BatchDtype::U8,
        };
        let layout = if self.channels_last { MemoryFormat::ChannelsLast } else { MemoryFormat::Contiguous };
        LoaderOptions {
            batch,
            seed: self.seed,
            workers,
            layout,
            numbers,
            augment: preset.augment.clone(),
            ..Default::default()
        }
    }

    /// The given options that apply to images only.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (self.recipe.is_some(), "--recipe"),
            (self.numbers.is_some(), "--numbers"),
            (self.channels_last, "--channels-last"),
        ];
        given.into_iter().filter_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// Shape of a sample.
    pub fn shape(&self, channels: usize, height: usize, width: usize) -> [usize; 3] {
        if self.channels_last { [height, width, channels] } else { [channels, height, width] }
    }
}
