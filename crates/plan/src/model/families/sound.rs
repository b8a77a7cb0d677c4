//! Networks over audio: Whisper, for transcription (Radford et al. 2022), and wav2vec 2.0, for self-supervised training
//! on audio alone (Baevski et al. 2020).

use super::super::builder::{Builder, Owned, Rows};
use super::super::graph::{Function, Graph, Input, Norm, OpKind, WeightSplit};
use super::block::TransformerBlock;

/// Values of the sound that a Whisper reads: 16,000 a second.
const THIRTY_SECONDS: u64 = 480_000;

/// A Whisper.
#[derive(Debug, Clone, PartialEq)]
pub struct Whisper {
    /// Bands of the spectrum.
    pub bands: u64,
    /// Positions of the encoder; twice as many moments of the spectrum enter.
    pub source: u64,
    /// Positions of the decoder that have an embedding, and tokens of one answer.
    pub positions: u64,
    pub target: u64,
    /// 0: the decoder alone.
    pub encoder_layers: u64,
    pub decoder_layers: u64,
    pub encoder: TransformerBlock,
    pub decoder: TransformerBlock,
    pub vocabulary: u64,
    /// The next token is scored.
    pub scores: bool,
    /// Only a class of the sound is asked for: width of the layer before it, and classes.
    pub class: Option<(u64, u64)>,
}

impl Whisper {
    /// Builds the graph of one sample: 30 seconds of audio that the encoder reads, and tokens that the decoder predicts.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let encoded = if self.encoder_layers > 0 { Some(self.encode(&mut builder)) } else { None };
        if let (Some((width, classes)), Some(encoded)) = (self.class, encoded) {
            let thin = builder.linear("projector", encoded, width, true, WeightSplit::Whole);
            let scores = builder.linear("classifier", Rows { rows: 1, ..thin }, classes, true, WeightSplit::Whole);
            builder.loss(scores.tensor, 1, classes);
            return builder.finish();
        }
        let hidden = self.decoder.hidden;
        let tokens = builder.embed_tokens("decoder.tokens", self.target, self.vocabulary, hidden);
        let places = builder.embed("decoder.positions", self.target, self.positions, hidden, WeightSplit::Whole);
        let mut at = builder.combine("decoder.sum", tokens, places, false);
        for _ in 0..self.decoder_layers {
            at = match encoded {
                Some(encoded) => self.decoder.add_across(&mut builder, at, encoded),
                None => {
                    let idle = Owned::parameters(self.decoder.across_weights());
                    builder.add("across.idle", OpKind::View, &[], 0, idle);
                    self.decoder.add(&mut builder, at)
                }
            };
        }
        builder.end_blocks();
        at = builder.norm("decoder.norm", at, Norm::Layer, true);
        if self.scores {
            builder.predict_tokens("scores", at, self.vocabulary, true, false);
        }
        builder.finish()
    }

    fn encode(&self, builder: &mut Builder) -> Rows {
        builder.reads(Input::Sound(THIRTY_SECONDS));
        let hidden = self.encoder.hidden;
        let sound =
            Rows { tensor: builder.input(2 * self.source * self.bands), rows: 2 * self.source, width: self.bands };
        let mut at = wave(
            builder,
            "conv1",
            sound,
            Window { columns: hidden, kernel: 3, rows: 2 * self.source, groups: 1, bias: true },
        );
        at = builder.apply("conv1.gelu", at, Function::Gelu);
        at =
            wave(builder, "conv2", at, Window { columns: hidden, kernel: 3, rows: self.source, groups: 1, bias: true });
        at = builder.apply("conv2.gelu", at, Function::Gelu);
        let places = builder.embed("encoder.positions", self.source, self.source, hidden, WeightSplit::Whole);
        let mut encoded = builder.combine("encoder.sum", at, places, false);
        for _ in 0..self.encoder_layers {
            encoded = self.encoder.add(builder, encoded);
        }
        builder.end_blocks();
        builder.norm("encoder.norm", encoded, Norm::Layer, true)
    }
}

/// A wav2vec 2.0.
#[derive(Debug, Clone, PartialEq)]
pub struct Wav2vec {
    /// Values of sound that enter.
    pub samples: u64,
    pub convolutions: Vec<Convolved>,
    pub convolution_bias: bool,
    /// Each convolution is normalised; else only the first, channel by channel.
    pub norms_each: bool,
    pub layers: u64,
    pub block: TransformerBlock,
    /// Moments and groups of the convolution that tells positions.
    pub position_kernel: u64,
    pub position_groups: u64,
    pub head: SpeechHead,
}

/// One convolution over sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolved {
    pub channels: u64,
    pub kernel: u64,
    pub stride: u64,
}

/// What is asked of a [`Wav2vec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechHead {
    Nothing,
    /// A letter at each moment.
    Letters {
        vocabulary: u64,
    },
    /// A class of the whole, from a layer of this width.
    Class {
        classes: u64,
        width: u64,
    },
}

impl Wav2vec {
    /// Builds the graph of one sample of `samples` values of audio, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        builder.reads(Input::Sound(self.samples));
        let hidden = self.block.hidden;
        let mut at = Rows { tensor: builder.input(self.samples), rows: self.samples, width: 1 };
        at = self.features(&mut builder, at);
        // What is hidden from it is replaced by one learned vector.
        let elements = at.elements();
        let masked =
            builder.add("masked", OpKind::Copy { elements }, &[at.tensor], elements, Owned::parameters(hidden));
        at = Rows { tensor: masked, ..at };
        at = self.positions(&mut builder, at);
        let before = matches!(self.block.order, super::block::Order::Before);
        if !before {
            at = builder.norm("norm", at, Norm::Layer, true);
        }
        for _ in 0..self.layers {
            at = self.block.add(&mut builder, at);
        }
        builder.end_blocks();
        if before {
            at = builder.norm("norm", at, Norm::Layer, true);
        }
        self.predict(&mut builder, at);
        builder.finish()
    }

    /// Convolutions over the sound, and a layer to the width of the blocks.
    fn features(&self, builder: &mut Builder, mut at: Rows) -> Rows {
        for (index, convolved) in self.convolutions.iter().enumerate() {
            let name = format!("feature{index}");
            let rows = at.rows.saturating_sub(convolved.kernel) / convolved.stride.max(1) + 1;
            let window = Window {
                columns: convolved.channels,
                kernel: convolved.kernel,
                rows,
                groups: 1,
                bias: self.convolution_bias,
            };
            at = wave(builder, &name, at, window);
            if self.norms_each || index == 0 {
                at = builder.norm(format!("{name}.norm"), at, Norm::Layer, true);
            }
            at = builder.apply(format!("{name}.gelu"), at, Function::Gelu);
        }
        at = builder.norm("features.norm", at, Norm::Layer, true);
        builder.linear("features.widen", at, self.block.hidden, true, WeightSplit::Whole)
    }

    /// Positions from a convolution along time, added to what it reads.
    fn positions(&self, builder: &mut Builder, at: Rows) -> Rows {
        let elements = at.elements();
        let window = Window {
            columns: self.block.hidden,
            kernel: self.position_kernel,
            rows: at.rows,
            groups: self.position_groups,
            bias: true,
        };
        let places = wave(builder, "positions", at, window);
        // Its weight is stored as directions and a length for each moment.
        let places = builder.add(
            "positions.gelu",
            OpKind::Activation { function: Function::Gelu, elements, in_place: false },
            &[places.tensor],
            elements,
            Owned::parameters(self.position_kernel),
        );
        builder.combine("positions.sum", at, Rows { tensor: places, ..at }, false)
    }

    fn predict(&self, builder: &mut Builder, at: Rows) {
        match self.head {
            SpeechHead::Nothing => {}
            SpeechHead::Letters { vocabulary } => {
                let scores = builder.linear("scores", at, vocabulary, true, WeightSplit::Whole);
                builder.loss(scores.tensor, at.rows, vocabulary);
            }
            SpeechHead::Class { classes, width } => {
                let thin = builder.linear("projector", at, width, true, WeightSplit::Whole);
                let scores = builder.linear("classifier", Rows { rows: 1, ..thin }, classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, 1, classes);
            }
        }
    }
}

/// A convolution along time.
#[derive(Debug, Clone, Copy)]
struct Window {
    columns: u64,
    kernel: u64,
    /// Moments that leave it.
    rows: u64,
    groups: u64,
    bias: bool,
}

fn wave(builder: &mut Builder, name: &str, from: Rows, with: Window) -> Rows {
    let groups = with.groups.max(1);
    let inner = with.kernel * from.width / groups;
    let kind = OpKind::Convolution {
        positions: with.rows,
        inner,
        columns: with.columns / groups,
        groups,
        kernel: with.kernel as u32,
    };
    let owned = Owned::parameters(inner * with.columns + if with.bias { with.columns } else { 0 });
    let tensor = builder.add(name, kind, &[from.tensor], with.rows * with.columns, owned);
    Rows { tensor, rows: with.rows, width: with.columns }
}
