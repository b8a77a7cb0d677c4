//! Families of networks as pure functions: figures in, [`Graph`](super::Graph) out. One file per family, in the order in
//! which its layers run; [`block`] holds what transformers share, with [`latent`] attention as a part of it.
//!
//! [`vision`] takes images, [`language`] tokens, [`sound`] audio, and [`clip`] images and texts.

pub mod block;
pub mod clip;
pub mod language;
pub mod latent;
pub mod sound;
#[cfg(test)]
mod tests;
pub mod vision;

pub use clip::Clip;
pub use language::{Bert, DecoderOnly, EncoderDecoder, Gpt, Llama, Mamba, Mamba2, Mpt, Rwkv};
pub use sound::{Wav2vec, Whisper};
pub use vision::{Convnext, Detr, Efficientnet, Mobilenet, Mobilevit, Regnet, Resnet, Segformer, Swin, Vit, Yolo};
