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
    /// A built-in model.
    Named(Model),
    /// A user's own module.
    Module(Module),
}

/// A user's own module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// A file written by `torch.jit.script(module).save(…)`.
    Torchscript(String),
}

/// Loss of a user's own module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Cross-entropy over classes, for images or labelled texts.
    CrossEntropy,
    /// Binary cross-entropy of logits, for `data.labels: multi_label`.
    Bce,
    /// Mean squared error, for `data.labels: number`; the module returns `[samples, 1]`.
    Mse,
    /// Cross-entropy over the vocabulary at each position, for the next token.
    NextWord,
    /// Cross-entropy over the vocabulary, for masked tokens.
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

/// The built-in models; [`crate::architecture`] has their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Two hidden layers of 128 units with ReLU, over the flattened image.
    Mlp,
    /// Two 3×3 convolutions (32 and 64 channels), each with ReLU, the second pooled; 128 hidden units with dropout 0.25.
    Cnn,
    /// ResNet-20 for 32×32 images (He et al. 2015, section 4.2).
    Resnet20,
    /// ResNet-56 for 32×32 images.
    Resnet56,
    /// ResNet-18; images below 64×64 get a 3×3 stem without pooling, as with the larger ones.
    Resnet18,
    /// ResNet-34.
    Resnet34,
    /// ResNet-50, with the stride in the 3×3 convolution ("v1.5").
    Resnet50,
    /// ResNet-101.
    Resnet101,
    /// ResNet-152.
    Resnet152,
    /// MobileNetV2 (Sandler et al. 2018).
    MobilenetV2,
    /// MobileNetV3-Small (Howard et al. 2019).
    MobilenetV3Small,
    /// MobileNetV3-Large.
    MobilenetV3Large,
    /// Vision transformer ViT-S/16: 12 layers, width 384, 16×16 patches (Dosovitskiy et al. 2020).
    #[serde(rename = "vit_s_16")]
    VitS16,
    /// Vision transformer ViT-B/16: 12 layers, width 768, 16×16 patches.
    #[serde(rename = "vit_b_16")]
    VitB16,
    /// ConvNeXt-T (Liu et al. 2022), for images of at least 32×32.
    ConvnextTiny,
    /// EfficientNet-B0 (Tan and Le 2019).
    #[serde(rename = "efficientnet_b0")]
    EfficientnetB0,
    /// YOLOv8n, a one-stage detector, for square images whose size is a multiple of 32.
    YoloN,
    /// YOLOv8s, the next larger size.
    YoloS,
    /// BERT of 4 layers and width 256 (Turc et al. 2019).
    BertMini,
    /// BERT of 12 layers and width 768 (Devlin et al. 2018).
    BertBase,
    /// BERT of 24 layers and width 1024.
    BertLarge,
    /// GPT-2 of 4 layers and width 128, for sequences of up to 256 tokens.
    GptTiny,
    /// GPT-2 of 12 layers and width 768, 124 M parameters (Radford et al. 2019).
    Gpt2,
    /// GPT-2 of 24 layers and width 1024.
    Gpt2Medium,
    /// GPT-2 of 36 layers and width 1280.
    Gpt2Large,
    /// GPT-2 of 48 layers and width 1600.
    Gpt2Xl,
    /// GPT-2 of a custom size.
    Gpt(GptSize),
    /// A residual network of a custom size.
    Resnet(ResnetSize),
}

/// The size of a GPT-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GptSize {
    /// Transformer layers.
    #[schemars(range(min = 1, max = 256))]
    pub layers: u32,
    /// Hidden size; a multiple of `heads`.
    #[schemars(range(min = 8, max = 16_384))]
    pub width: u32,
    /// Attention heads per layer.
    #[schemars(range(min = 1, max = 256))]
    pub heads: u32,
    /// Maximum sequence length in tokens.
    #[serde(default = "positions")]
    #[schemars(range(min = 8, max = 1_024))]
    pub positions: u32,
}

/// The size of a residual network of four stages, each with half the height and width and twice the channels of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResnetSize {
    /// Blocks per stage, such as `[2, 2, 2, 2]`.
    pub blocks: [u32; 4],
    /// Channels of the first stage.
    #[serde(default = "channels")]
    #[schemars(range(min = 4, max = 1_024))]
    pub width: u32,
    /// Type of block.
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
            Model::VitB16 => "vit_b_16",
            Model::ConvnextTiny => "convnext_tiny",
            Model::EfficientnetB0 => "efficientnet_b0",
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
