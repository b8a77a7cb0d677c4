//! An ONNX file as slices of its bytes: [`wire`] reads Protocol Buffers' fields, [`messages`] what onnx.proto makes of them.

mod messages;
mod wire;

use super::Broken;

pub(super) use messages::{BROUGHT, Dimension, Graph, Info, MOST_DIMS, MOST_VALUES, Node, Stored, model, quoted};
