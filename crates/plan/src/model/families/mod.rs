//! Families of networks as pure functions: figures in, [`Graph`](super::Graph) out. One file a family, in the order in
//! which its layers run; [`block`] holds what transformers share.

pub mod bert;
pub mod block;
pub mod convnext;
pub mod decoder;
pub mod encoder_decoder;
pub mod gpt;
pub mod llama;
pub mod mobilenet;
pub mod mpt;
pub mod resnet;
#[cfg(test)]
mod tests;
pub mod vit;
pub mod yolo;

pub use bert::Bert;
pub use convnext::Convnext;
pub use decoder::Decoder;
pub use encoder_decoder::EncoderDecoder;
pub use gpt::Gpt;
pub use llama::Llama;
pub use mobilenet::Mobilenet;
pub use mpt::Mpt;
pub use resnet::Resnet;
pub use vit::Vit;
pub use yolo::Yolo;
