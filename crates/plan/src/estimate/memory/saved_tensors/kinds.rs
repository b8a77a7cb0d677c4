//! What kinds of operators write in place, and which of them a compiler computes again.

use crate::model::{Norm, OpKind};

/// Whether the output lies where the input was.
pub fn reuses(kind: &OpKind) -> bool {
    match kind {
        OpKind::View => true,
        OpKind::Activation { in_place, .. } => *in_place,
        OpKind::Convolution { .. }
        | OpKind::Linear { .. }
        | OpKind::Attention { .. }
        | OpKind::Product { .. }
        | OpKind::Recurrent { .. }
        | OpKind::Norm { .. }
        | OpKind::Elementwise { .. }
        | OpKind::Softmax { .. }
        | OpKind::Dropout { .. }
        | OpKind::Embedding { .. }
        | OpKind::Pool { .. }
        | OpKind::Resize { .. }
        | OpKind::Copy { .. }
        | OpKind::Loss { .. } => false,
    }
}

/// Whether a compiler computes it again rather than keep it: functions of single values, and normalisations from
/// statistics that are kept.
pub fn is_cheap(kind: &OpKind) -> bool {
    match kind {
        OpKind::Activation { .. } | OpKind::Dropout { .. } => true,
        OpKind::Elementwise { product, inputs, .. } => *product || *inputs == 1,
        OpKind::Norm { norm, .. } => match norm {
            Norm::Layer | Norm::Rms => true,
            Norm::Batch | Norm::Group => false,
        },
        OpKind::Convolution { .. }
        | OpKind::Linear { .. }
        | OpKind::Attention { .. }
        | OpKind::Product { .. }
        | OpKind::Recurrent { .. }
        | OpKind::Softmax { .. }
        | OpKind::Embedding { .. }
        | OpKind::Pool { .. }
        | OpKind::Resize { .. }
        | OpKind::Copy { .. }
        | OpKind::View
        | OpKind::Loss { .. } => false,
    }
}
