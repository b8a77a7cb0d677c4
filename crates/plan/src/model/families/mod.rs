//! Families of networks as pure functions: figures in, [`Graph`](super::Graph) out. One file a family, in the order in
//! which its layers run; [`block`] holds what transformers share.

pub mod bert;
pub mod block;
pub mod clip;
pub mod convnext;
pub mod decoder;
pub mod detr;
pub mod encoder_decoder;
pub mod gpt;
pub mod latent;
pub mod llama;
pub mod mamba;
pub mod mamba2;
pub mod mobilenet;
pub mod mobilevit;
pub mod mpt;
pub mod regnet;
pub mod resnet;
pub mod rwkv;
pub mod segformer;
pub mod sound;
pub mod swin;
#[cfg(test)]
mod tests;
pub mod vit;
pub mod yolo;

pub use bert::Bert;
pub use clip::Clip;
pub use convnext::Convnext;
pub use decoder::DecoderOnly;
pub use detr::Detr;
pub use encoder_decoder::EncoderDecoder;
pub use gpt::Gpt;
pub use llama::Llama;
pub use mamba::Mamba;
pub use mamba2::Mamba2;
pub use mobilenet::Mobilenet;
pub use mobilevit::Mobilevit;
pub use mpt::Mpt;
pub use regnet::Regnet;
pub use resnet::Resnet;
pub use rwkv::Rwkv;
pub use segformer::Segformer;
pub use sound::{Wav2vec, Whisper};
pub use swin::Swin;
pub use vit::Vit;
pub use yolo::Yolo;
