//! Classes of estimates: what is estimated, as far as its error depends on it.

use domain::gpu::Link;

use crate::estimate::fitted::band::Class;
use crate::estimate::fitted::coefficients::FittedCoefficients;
use crate::estimate::ops::{OpBreakdown, OpProfile};
use crate::estimate::setup::{NumericFormat, Setup};
use crate::model::graph::OpKind;

/// What is estimated, as far as its error depends on it.
pub fn class(work: &OpProfile, setup: &Setup, coefficients: &FittedCoefficients) -> Class {
    let together = setup.gpus() > 1;
    match &work.form {
        OpBreakdown::Totals(summary) if coefficients.totals.knows(summary) => Class::KnownFamily,
        OpBreakdown::Totals(_) => Class::UnknownFamily,
        OpBreakdown::Groups(groups) if groups.iter().any(|group| is_unmeasured(&group.kind)) => Class::Unmeasured,
        OpBreakdown::Groups(groups) if groups.iter().any(|group| matches!(group.kind, OpKind::Convolution { .. })) => {
            if together {
                Class::ImagesTogether
            } else {
                Class::Images
            }
        }
        OpBreakdown::Groups(groups) if groups.iter().any(|group| group.copies() > 1.0) => Class::Experts,
        OpBreakdown::Groups(_) if setup.precision == NumericFormat::Fp8 => Class::EightBits,
        OpBreakdown::Groups(_) if setup.device.nodes > 1 || setup.parallel.pipeline > 1 => Class::SequencesFar,
        OpBreakdown::Groups(_) if together => match setup.device.gpu.link {
            Link::Pcie | Link::Bridge(_) => Class::SequencesOverPcie,
            Link::Mesh(_) | Link::Switch(_) => Class::SequencesTogether,
        },
        OpBreakdown::Groups(_) => Class::Sequences,
    }
}

/// Whether no network that was measured as a graph has such operators: those are ResNets and transformers.
fn is_unmeasured(kind: &OpKind) -> bool {
    match kind {
        OpKind::Recurrent { .. } | OpKind::Resize { .. } => true,
        OpKind::Convolution { columns, groups, .. } => *groups > 1 && *columns == 1,
        OpKind::Linear { .. }
        | OpKind::Attention { .. }
        | OpKind::Product { .. }
        | OpKind::Norm { .. }
        | OpKind::Activation { .. }
        | OpKind::Elementwise { .. }
        | OpKind::Softmax { .. }
        | OpKind::Dropout { .. }
        | OpKind::Embedding { .. }
        | OpKind::Pool { .. }
        | OpKind::Copy { .. }
        | OpKind::View
        | OpKind::Loss { .. } => false,
    }
}
