//! The dimensions of each named model: the one table for the trainer, which builds the network, and the planner, which
//! counts its operations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::train::Model;

/// A network up to what its data decides: the image's size, the vocabulary, the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Two hidden layers over the flattened image.
    Mlp,
    /// Two convolutions and a hidden layer.
    Cnn,
    /// Residual stages of 16, 32 and 64 channels for small images, so many blocks each (He et al. 2015, section 4.2).
    SmallResnet { blocks: usize },
    /// Four residual stages of so many blocks each, the first of `width` channels, 64 in He et al. 2015, table 1.
    Resnet { block: ResidualBlock, blocks: [usize; 4], width: usize },
    /// Sandler et al. 2018, table 2.
    MobilenetV2,
    /// Howard et al. 2019, tables 1 and 2.
    MobilenetV3 { large: bool },
    /// A vision transformer over square patches (Dosovitskiy et al. 2020).
    Vit { patch: i64, layers: i64, width: i64, heads: i64 },
    /// Stages of so many blocks and channels, in which the last block is skipped with `drop` percent probability and the
    /// others less the earlier they are (Liu et al. 2022).
    Convnext { depths: [usize; 4], widths: [i64; 4], drop: u32 },
    /// Tan and Le 2019, table 1.
    EfficientnetB0,
    /// A detector; the number of channels of its first convolution, and of units in its four stages.
    Yolo { width: i64, repeats: [i64; 4] },
    /// An encoder of text (Devlin et al. 2018).
    Bert { layers: i64, width: i64, heads: i64 },
    /// A decoder of text (Radford et al. 2019) for rows of at most `positions` tokens.
    Gpt { layers: i64, width: i64, heads: i64, positions: i64 },
}

/// What the stages of a residual network are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResidualBlock {
    /// Two 3×3 convolutions.
    #[default]
    Basic,
    /// 1×1, 3×3 and 1×1, the last with four times the channels.
    Bottleneck,
}

/// The input of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Images with one label each.
    Images,
    /// Images in which objects are detected.
    DetectionImages,
    /// Tokens that attend to those before and after them.
    Tokens,
    /// Tokens that attend only to those before them.
    CausalTokens,
}

impl Architecture {
    /// The architecture of a name.
    pub fn of(model: Model) -> Architecture {
        use ResidualBlock::{Basic, Bottleneck};
        let resnet = |block, blocks| Architecture::Resnet { block, blocks, width: 64 };
        let bert = |layers, width, heads| Architecture::Bert { layers, width, heads };
        let gpt = |layers, width, heads, positions| Architecture::Gpt { layers, width, heads, positions };
        match model {
            Model::Mlp => Architecture::Mlp,
            Model::Cnn => Architecture::Cnn,
            Model::Resnet20 => Architecture::SmallResnet { blocks: 3 },
            Model::Resnet56 => Architecture::SmallResnet { blocks: 9 },
            Model::Resnet18 => resnet(Basic, [2, 2, 2, 2]),
            Model::Resnet34 => resnet(Basic, [3, 4, 6, 3]),
            Model::Resnet50 => resnet(Bottleneck, [3, 4, 6, 3]),
            Model::Resnet101 => resnet(Bottleneck, [3, 4, 23, 3]),
            Model::Resnet152 => resnet(Bottleneck, [3, 8, 36, 3]),
            Model::MobilenetV2 => Architecture::MobilenetV2,
            Model::MobilenetV3Small => Architecture::MobilenetV3 { large: false },
            Model::MobilenetV3Large => Architecture::MobilenetV3 { large: true },
            Model::VitS16 => Architecture::Vit { patch: 16, layers: 12, width: 384, heads: 6 },
            Model::VitB16 => Architecture::Vit { patch: 16, layers: 12, width: 768, heads: 12 },
            Model::ConvnextTiny => {
                Architecture::Convnext { depths: [3, 3, 9, 3], widths: [96, 192, 384, 768], drop: 10 }
            }
            Model::EfficientnetB0 => Architecture::EfficientnetB0,
            Model::YoloN => Architecture::Yolo { width: 16, repeats: [1, 2, 2, 1] },
            Model::YoloS => Architecture::Yolo { width: 32, repeats: [1, 2, 2, 1] },
            // Turc et al. 2019, "Well-Read Students Learn Better".
            Model::BertMini => bert(4, 256, 4),
            Model::BertBase => bert(12, 768, 12),
            Model::BertLarge => bert(24, 1024, 16),
            Model::GptTiny => gpt(4, 128, 4, 256),
            Model::Gpt2 => gpt(12, 768, 12, 1024),
            Model::Gpt2Medium => gpt(24, 1024, 16, 1024),
            Model::Gpt2Large => gpt(36, 1280, 20, 1024),
            Model::Gpt2Xl => gpt(48, 1600, 25, 1024),
            Model::Gpt(size) => gpt(size.layers.into(), size.width.into(), size.heads.into(), size.positions.into()),
            Model::Resnet(size) => Architecture::Resnet {
                block: size.block,
                blocks: size.blocks.map(|blocks| blocks as usize),
                width: size.width as usize,
            },
        }
    }

    /// Its input.
    pub fn reads(self) -> Reads {
        match self {
            Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => Reads::Images,
            Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => Reads::Images,
            Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::EfficientnetB0 => Reads::Images,
            Architecture::Yolo { .. } => Reads::DetectionImages,
            Architecture::Bert { .. } => Reads::Tokens,
            Architecture::Gpt { .. } => Reads::CausalTokens,
        }
    }

    /// The longest sequence of tokens; `None` for images.
    pub fn positions(self) -> Option<i64> {
        match self {
            Architecture::Bert { .. } => Some(512),
            Architecture::Gpt { positions, .. } => Some(positions),
            Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => None,
            Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => None,
            Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::EfficientnetB0 => None,
            Architecture::Yolo { .. } => None,
        }
    }

    /// Attention heads in each of its blocks; `None` without attention, which tensor parallelism needs.
    pub fn heads(self) -> Option<i64> {
        match self {
            Architecture::Vit { heads, .. } | Architecture::Bert { heads, .. } | Architecture::Gpt { heads, .. } => {
                Some(heads)
            }
            Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => None,
            Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => None,
            Architecture::Convnext { .. } | Architecture::EfficientnetB0 | Architecture::Yolo { .. } => None,
        }
    }

    /// Whether it has dropout layers.
    pub fn has_dropout(self) -> bool {
        match self {
            Architecture::Cnn | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => true,
            Architecture::EfficientnetB0 | Architecture::Bert { .. } | Architecture::Gpt { .. } => true,
            Architecture::Mlp | Architecture::SmallResnet { .. } | Architecture::Resnet { .. } => false,
            Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::Yolo { .. } => false,
        }
    }

    /// Whether it classifies images by convolutions alone. A detector is none: in bf16 with channels last its losses were not
    /// those of PyTorch on a GPU (`docs/gpu.md`).
    pub fn classifies_by_convolutions(self) -> bool {
        match self {
            Architecture::Cnn | Architecture::SmallResnet { .. } | Architecture::Resnet { .. } => true,
            Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => true,
            Architecture::EfficientnetB0 | Architecture::Convnext { .. } => true,
            Architecture::Mlp | Architecture::Vit { .. } | Architecture::Yolo { .. } => false,
            Architecture::Bert { .. } | Architecture::Gpt { .. } => false,
        }
    }

    /// Pixels of height and width per pixel before its last batch normalization; `None` if a batch of one can always be
    /// normalized.
    pub fn shrinks_by(self) -> Option<u32> {
        match self {
            Architecture::Mlp | Architecture::Cnn => None,
            Architecture::SmallResnet { .. } => Some(4),
            // Larger images go through the pooled stem first, and are never reduced to one pixel.
            Architecture::Resnet { .. } => Some(8),
            Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } | Architecture::Yolo { .. } => Some(32),
            Architecture::EfficientnetB0 => Some(32),
            Architecture::Vit { .. }
            | Architecture::Convnext { .. }
            | Architecture::Bert { .. }
            | Architecture::Gpt { .. } => None,
        }
    }
}
