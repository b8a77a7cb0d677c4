//! What normalisations and attention save for the backward pass.

use super::{Rules, SavedTensors, Storage};
use crate::model::{Graph, Norm, OpKind, Operator, TensorId};

impl Storage {
    pub(super) fn norm(&self, graph: &Graph, input: TensorId, norm: Norm, rules: &Rules, saved: &mut SavedTensors) {
        let index = input.0 as usize;
        let values = graph.tensors[index] as f64 / self.shared[index];
        match norm {
            Norm::Batch => self.save(graph, input, rules, saved),
            // The difference from the mean, once to be squared and once to be divided, and what the weight scales.
            Norm::Layer if rules.written_out => saved.own += 3.0 * values * rules.wide(),
            Norm::Layer | Norm::Group => match self.width[index] < rules.wide() {
                // Autocast hands it a copy in fp32.
                true => saved.own += 4.0 * values,
                false => self.save(graph, input, rules, saved),
            },
            Norm::Rms => {
                self.save(graph, input, rules, saved);
                // Written out in Python it computes in fp32 and saves the copy, and what it scales.
                if !rules.compiled && !rules.fused_norms {
                    saved.own += values * rules.narrow() + if self.width[index] < 4.0 { 4.0 * values } else { 0.0 };
                }
            }
        }
    }

    pub(super) fn attention(
        &self,
        graph: &Graph,
        operator: &Operator,
        rules: &Rules,
        share: f64,
        saved: &mut SavedTensors,
    ) {
        let OpKind::Attention { heads, key_heads, width, value_width, queries, keys, dropout, .. } = operator.kind
        else {
            return;
        };
        for input in &operator.inputs {
            match self.made_of(graph, operator, *input) {
                // Of a joined product whose queries and keys were turned only the values are read, and they are copied.
                Some(turned) if !rules.flash => {
                    saved.own += (self.bytes_of(graph, *input) - self.bytes_of(graph, turned)).max(0.0);
                }
                Some(_) | None => self.save(graph, *input, rules, saved),
            }
        }
        if rules.flash {
            saved.roots.push(self.root_of(operator.output));
            saved.own += 4.0 * (heads * queries) as f64 / share;
            return;
        }
        let scores = heads as f64 * queries as f64 * keys as f64 / share;
        // Softmax answers in fp32 under autocast and for bf16 as models write it; the product takes it in its own type.
        let (narrow, wide) = (rules.narrow(), if rules.casts() { 4.0 } else { rules.narrow() });
        saved.own += scores * wide;
        if dropout {
            saved.own += scores;
        }
        if dropout || wide > narrow {
            saved.own += scores * narrow;
        }
        if key_heads < heads {
            saved.own += ((heads - key_heads) * (width + value_width)) as f64 * keys as f64 * narrow / share;
        }
        // The gradients of the probabilities before and after the softmax.
        saved.transient += 2.0 * scores * wide;
    }
}
