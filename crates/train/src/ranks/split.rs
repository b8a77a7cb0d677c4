//! How the tensors of a transformer are split among the ranks of tensor parallelism, and along which dimension.
//!
//! The first product of a pair is split by output features, the second by input features, so that each rank computes
//! its own heads or hidden values in between (Shoeybi et al. 2019, figure 3). Biases of the second are undivided and
//! added once.

use tch::Tensor;

use crate::torch::Result;

/// How a tensor is split among tensor-parallel ranks: along one dimension. A fused tensor, such as query, key and value,
/// is split section by section, so that each rank has the same heads of all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorSplit {
    dimension: i64,
    /// Queries, keys and values lie in one tensor, and each rank has the same heads of all three.
    sections: i64,
}

impl TensorSplit {
    /// How the tensor of this name is split; `None` if every rank has all of it.
    pub fn of(name: &str) -> Option<TensorSplit> {
        /// Ends of names, of GPT-2, BERT and vision transformers. GPT-2's weights are inputs × outputs, the others
        /// outputs × inputs.
        const TABLE: [(&str, i64, i64); 25] = [
            (".attn.c_attn.weight", 1, 3),
            (".attn.c_attn.bias", 0, 3),
            (".attn.c_proj.weight", 0, 1),
            (".mlp.c_fc.weight", 1, 1),
            (".mlp.c_fc.bias", 0, 1),
            (".mlp.c_proj.weight", 0, 1),
            (".attention.self.query.weight", 0, 1),
            (".attention.self.query.bias", 0, 1),
            (".attention.self.key.weight", 0, 1),
            (".attention.self.key.bias", 0, 1),
            (".attention.self.value.weight", 0, 1),
            (".attention.self.value.bias", 0, 1),
            (".intermediate.dense.weight", 0, 1),
            (".intermediate.dense.bias", 0, 1),
            (".self_attention.in_proj_weight", 0, 3),
            (".self_attention.in_proj_bias", 0, 3),
            (".self_attention.out_proj.weight", 1, 1),
            (".mlp.0.weight", 0, 1),
            (".mlp.0.bias", 0, 1),
            (".mlp.3.weight", 1, 1),
            // Token embeddings, which are tied to the head, and heads of many classes.
            ("transformer.wte.weight", 0, 1),
            ("bert.embeddings.word_embeddings.weight", 0, 1),
            ("cls.predictions.bias", 0, 1),
            ("heads.head.weight", 0, 1),
            ("heads.head.bias", 0, 1),
        ];
        let found = TABLE.iter().find(|(end, _, _)| name.ends_with(end));
        if let Some((_, dimension, sections)) = found {
            return Some(TensorSplit { dimension: *dimension, sections: *sections });
        }
        // Of BERT's attention and of its hidden layer alike; the head has none.
        let is_second = name.starts_with("bert.encoder.") && name.ends_with(".output.dense.weight");
        is_second.then_some(TensorSplit { dimension: 1, sections: 1 })
    }

    /// Whether a tensor of this shape can be divided into so many equal parts; a vocabulary, or classes, may not be.
    pub fn goes_up(self, shape: &[i64], parts: u32) -> bool {
        shape[self.dimension as usize] % (self.sections * i64::from(parts)) == 0
    }

    /// Part number `place` of `parts`, in its own memory.
    pub fn take(self, whole: &Tensor, place: u32, parts: u32) -> Result<Tensor> {
        let mut taken = Vec::new();
        for section in whole.f_chunk(self.sections, self.dimension)? {
            let length = section.size()[self.dimension as usize] / i64::from(parts);
            taken.push(section.f_narrow(self.dimension, length * i64::from(place), length)?);
        }
        Ok(Tensor::f_cat(&taken, self.dimension)?)
    }

    /// Concatenates all parts in order.
    pub fn join(self, parts: &[Tensor]) -> Result<Tensor> {
        let mut sections = Vec::new();
        for section in 0..self.sections {
            for part in parts {
                let length = part.size()[self.dimension as usize] / self.sections;
                sections.push(part.f_narrow(self.dimension, section * length, length)?);
            }
        }
        Ok(Tensor::f_cat(&sections, self.dimension)?)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn names_say_how_tensors_are_cut() {
        let check = |name: &str, expected: Option<[i64; 2]>| {
            assert_eq!(TensorSplit::of(name).map(|split| [split.dimension, split.sections]), expected, "{name}");
        };
        check("transformer.h.0.attn.c_attn.weight", Some([1, 3]));
        check("transformer.h.0.attn.c_proj.weight", Some([0, 1]));
        check("transformer.h.0.attn.c_proj.bias", None);
        check("transformer.h.0.ln_1.weight", None);
        check("transformer.wte.weight", Some([0, 1]));
        check("transformer.wpe.weight", None);
        check("bert.encoder.layer.3.attention.self.key.bias", Some([0, 1]));
        check("bert.encoder.layer.3.attention.output.dense.weight", Some([1, 1]));
        check("bert.encoder.layer.3.output.dense.weight", Some([1, 1]));
        check("bert.encoder.layer.3.output.dense.bias", None);
        check("bert.pooler.dense.weight", None);
        check("encoder.layers.encoder_layer_0.self_attention.in_proj_weight", Some([0, 3]));
        check("encoder.layers.encoder_layer_0.mlp.3.weight", Some([1, 1]));
        check("heads.head.weight", Some([0, 1]));
        let embeddings = TensorSplit::of("transformer.wte.weight").unwrap();
        assert_eq!([2, 3].map(|parts| embeddings.goes_up(&[50_256, 768], parts)), [true, true]);
        assert!(!embeddings.goes_up(&[50_257, 768], 2));
    }

    #[test]
    fn parts_make_the_whole_again() {
        let check = |shape: &[i64], split: TensorSplit, parts: u32| {
            let count: i64 = shape.iter().product();
            let whole = Tensor::arange(count, (Kind::Float, Device::Cpu)).view(shape);
            let taken: Vec<Tensor> = (0..parts).map(|place| split.take(&whole, place, parts).unwrap()).collect();
            assert!(taken.iter().all(|part| part.numel() * parts as usize == whole.numel()), "{split:?}");
            assert_eq!(split.join(&taken).unwrap(), whole, "{split:?} {parts}");
        };
        check(&[4, 24], TensorSplit { dimension: 1, sections: 3 }, 2);
        check(&[24], TensorSplit { dimension: 0, sections: 3 }, 4);
        check(&[8, 5], TensorSplit { dimension: 0, sections: 1 }, 2);
        check(&[5, 8], TensorSplit { dimension: 1, sections: 1 }, 4);
    }
}
