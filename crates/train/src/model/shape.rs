//! Input and output shapes of a network.

use domain::rank::Sample;

/// Input and output shape of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Shape of the input.
    pub input: InputShape,
    /// Shape of the output.
    pub output: OutputShape,
}

/// Input shape of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputShape {
    /// Images of one size: float32, `samples × channels × height × width`.
    Image(ImageShape),
    /// Token ids: int64, `samples × length`.
    Text(TextShape),
}

/// The shape of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageShape {
    /// Values per pixel.
    pub channels: i64,
    /// Pixels from top to bottom.
    pub height: i64,
    /// Width in pixels.
    pub width: i64,
}

/// Height and width, in pixels, from which residual networks have the usual stem.
const LARGE: i64 = 64;

impl ImageShape {
    /// Whether residual networks take such images without the usual stem (7×7, stride 2, pooled), after which they would
    /// be a single pixel.
    pub fn needs_small_stem(self) -> bool {
        self.height.min(self.width) < LARGE
    }
}

/// The shape of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextShape {
    /// Number of distinct tokens.
    pub vocabulary: i64,
    /// Tokens of the longest row.
    pub length: i64,
    /// The token that separates the two texts of a pair; none where rows are single texts.
    pub separator: Option<i64>,
}

/// Output shape of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputShape {
    /// One logit per class, of which there are so many: `samples × classes`.
    Classes(i64),
    /// One logit per label, of which a sample has any number: `samples × labels`.
    Labels(i64),
    /// A number: `samples × 1`.
    Number,
    /// One logit per token of the vocabulary at each position: `samples × length × vocabulary`.
    Tokens,
    /// Boxes of objects of so many classes, as [`crate::detect`] reads them.
    Boxes(i64),
}

impl OutputShape {
    /// Values per sample, where a sample is classified or given a number.
    pub fn units(self) -> Option<i64> {
        match self {
            OutputShape::Classes(count) | OutputShape::Labels(count) => Some(count),
            OutputShape::Number => Some(1),
            OutputShape::Tokens | OutputShape::Boxes(_) => None,
        }
    }
}

impl ModelShape {
    /// Images of `[channels, height, width]`, to be classified.
    pub fn images([channels, height, width]: [i64; 3], classes: i64) -> ModelShape {
        ModelShape {
            input: InputShape::Image(ImageShape { channels, height, width }),
            output: OutputShape::Classes(classes),
        }
    }

    /// One sample, as it is reported to the agent.
    pub fn sample(&self) -> Sample {
        let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        match self.input {
            InputShape::Image(ImageShape { channels, height, width }) => {
                Sample::Image { channels: number(channels), height: number(height), width: number(width) }
            }
            InputShape::Text(TextShape { vocabulary, length, .. }) => {
                Sample::Text { vocabulary: number(vocabulary), length: number(length) }
            }
        }
    }
}
