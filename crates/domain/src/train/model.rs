//! The `model:` key: the names of the architectures, and modules that users bring along.
//!
//! What a name stands for in numbers is in [`crate::architecture`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::architecture::{Architecture, ResidualBlock};

/// Where the network comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ModelSource {
    /// An architecture that is built here.
    Named(Model),
    /// A network that the user has built.
    Module(Module),
}

/// A network that the user has built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// A file that `torch.jit.script(module).save(…)` has written.
    Torchscript(String),
}

/// What a module's answers are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Cross-entropy of one score a class, for pictures, or texts with a label.
    CrossEntropy,
    /// Cross-entropy of one score a word at each place, for the word after it.
    NextWord,
    /// The same for words that were masked.
    MaskedWords,
}

impl ModelSource {
    /// The name, where the architecture is built here.
    pub fn named(&self) -> Option<Model> {
        match self {
            ModelSource::Named(model) => Some(*model),
            ModelSource::Module(_) => None,
        }
    }

    /// What the name stands for; none for a module, whose layers nobody here knows.
    pub fn architecture(&self) -> Option<Architecture> {
        self.named().map(Architecture::of)
    }

    /// The name, or the module's file.
    pub fn name(&self) -> &str {
        match self {
            ModelSource::Named(model) => model.name(),
            ModelSource::Module(Module::Torchscript(path)) => path,
        }
    }
}

impl From<Model> for ModelSource {
    fn from(model: Model) -> ModelSource {
        ModelSource::Named(model)
    }
}

/// The architectures that can be trained today; [`crate::architecture`] has their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Two hidden layers of 128 units with ReLU, over the flattened picture.
    Mlp,
    /// Two 3×3 convolutions (32 and 64 channels), each with ReLU, the second pooled; 128 hidden units with dropout 0.25.
    Cnn,
    /// The 20-layer residual network for 32×32 pictures (He et al. 2015, section 4.2).
    Resnet20,
    /// The 56-layer one.
    Resnet56,
    /// The 18-layer residual network; pictures below 64×64 get a 3×3 stem without pooling.
    Resnet18,
    /// The 34-layer one.
    Resnet34,
    /// The 50-layer one, of bottleneck blocks with the stride in the middle ("v1.5").
    Resnet50,
    /// The 101-layer one.
    Resnet101,
    /// The 152-layer one.
    Resnet152,
    /// The mobile network of inverted residual blocks (Sandler et al. 2018).
    MobilenetV2,
    /// Its successor with squeeze-and-excitation, the small one (Howard et al. 2019).
    MobilenetV3Small,
    /// The large one.
    MobilenetV3Large,
    /// The vision transformer of 12 layers, width 384 and 16×16 patches (Dosovitskiy et al. 2020).
    #[serde(rename = "vit_s_16")]
    VitS16,
    /// The small one-stage detector of the YOLO family (version 8), for square pictures of a multiple of 32.
    YoloN,
    /// The next larger one.
    YoloS,
    /// BERT of 4 layers and width 256 (Turc et al. 2019).
    BertMini,
    /// BERT of 12 layers and width 768 (Devlin et al. 2018).
    BertBase,
    /// BERT of 24 layers and width 1024.
    BertLarge,
    /// GPT-2 of 4 layers and width 128, for rows of at most 256 tokens.
    GptTiny,
    /// GPT-2 of 12 layers and width 768, 124 M parameters (Radford et al. 2019).
    Gpt2,
    /// GPT-2 of 24 layers and width 1024.
    Gpt2Medium,
    /// GPT-2 of 36 layers and width 1280.
    Gpt2Large,
    /// GPT-2 of 48 layers and width 1600.
    Gpt2Xl,
    /// GPT-2 of a size of your own.
    Gpt(GptSize),
    /// A residual network of a size of your own.
    Resnet(ResnetSize),
}

/// The size of a GPT-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GptSize {
    /// Layers.
    #[schemars(range(min = 1, max = 256))]
    pub layers: u32,
    /// Values of a word between the layers; a multiple of `heads`.
    #[schemars(range(min = 8, max = 16_384))]
    pub width: u32,
    /// Heads of the attention.
    #[schemars(range(min = 1, max = 256))]
    pub heads: u32,
    /// Words of the longest row.
    #[serde(default = "positions")]
    #[schemars(range(min = 8, max = 1_024))]
    pub positions: u32,
}

/// The size of a residual network of four stages, each of half the height and width and twice the channels of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResnetSize {
    /// Blocks of each stage, such as `[2, 2, 2, 2]`.
    pub blocks: [u32; 4],
    /// Channels of the first stage.
    #[serde(default = "channels")]
    #[schemars(range(min = 4, max = 1_024))]
    pub width: u32,
    /// What a block is made of.
    #[serde(default)]
    pub block: ResidualBlock,
}

fn positions() -> u32 {
    256
}
fn channels() -> u32 {
    64
}

impl Model {
    /// Its name in a job file.
    pub fn name(self) -> &'static str {
        match self {
            Model::Mlp => "mlp",
            Model::Cnn => "cnn",
            Model::Resnet20 => "resnet20",
            Model::Resnet56 => "resnet56",
            Model::Resnet18 => "resnet18",
            Model::Resnet34 => "resnet34",
            Model::Resnet50 => "resnet50",
            Model::Resnet101 => "resnet101",
            Model::Resnet152 => "resnet152",
            Model::MobilenetV2 => "mobilenet_v2",
            Model::MobilenetV3Small => "mobilenet_v3_small",
            Model::MobilenetV3Large => "mobilenet_v3_large",
            Model::VitS16 => "vit_s_16",
            Model::YoloN => "yolo_n",
            Model::YoloS => "yolo_s",
            Model::BertMini => "bert_mini",
            Model::BertBase => "bert_base",
            Model::BertLarge => "bert_large",
            Model::GptTiny => "gpt_tiny",
            Model::Gpt2 => "gpt2",
            Model::Gpt2Medium => "gpt2_medium",
            Model::Gpt2Large => "gpt2_large",
            Model::Gpt2Xl => "gpt2_xl",
            Model::Gpt(_) => "gpt",
            Model::Resnet(_) => "resnet",
        }
    }
}
