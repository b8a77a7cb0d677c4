//! Networks over tokens: decoder-only ([`decoder`], of which [`gpt`], [`llama`] and [`mpt`] are cases), encoders ([`bert`]), both
//! ([`encoder_decoder`]), and recurrent ones ([`mamba`], [`mamba2`], [`rwkv`]).

pub mod bert;
pub mod decoder;
pub mod encoder_decoder;
pub mod gpt;
pub mod llama;
pub mod mamba;
pub mod mamba2;
pub mod mpt;
pub mod rwkv;

pub use bert::Bert;
pub use decoder::DecoderOnly;
pub use encoder_decoder::EncoderDecoder;
pub use gpt::Gpt;
pub use llama::Llama;
pub use mamba::Mamba;
pub use mamba2::Mamba2;
pub use mpt::Mpt;
pub use rwkv::Rwkv;
