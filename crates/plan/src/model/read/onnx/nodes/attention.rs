//! Attention that is one node.

use super::super::file::Node;
use super::super::values::{State, Value, product};
use super::attributes::int;
use crate::model::builder::Owned;
use crate::model::{OpKind, TensorId};

/// No attention has more heads.
const MOST_HEADS: u64 = 1 << 16;

/// Attention that is one node: queries, keys and values apart, as batch × positions × width with a number of heads, or as
/// batch × heads × positions × width.
pub(super) fn operator<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    let (query, key, value) = (state.at(node, 0)?, state.at(node, 1)?, state.at(node, 2)?);
    let tensors: Vec<TensorId> = [&query, &key, &value].iter().filter_map(|each| each.tensor).collect();
    if tensors.len() < 3 {
        return None;
    }
    let count = |number: i64| u64::try_from(number).ok().filter(|number| (1..=MOST_HEADS).contains(number));
    let (batch, heads, key_heads, queries, keys, dims) = match (&query.dims[..], &key.dims[..]) {
        (&[batch, queries, _], &[_, keys, _]) => {
            let heads = count(int(node, "q_num_heads", int(node, "num_heads", 0)))?;
            let key_heads = count(int(node, "kv_num_heads", heads as i64))?;
            (
                batch,
                heads,
                key_heads,
                queries,
                keys,
                vec![batch, queries, (value.last() / key_heads).saturating_mul(heads)],
            )
        }
        (&[batch, heads, queries, _], &[_, key_heads, keys, _]) => {
            (batch, heads, key_heads, queries, keys, vec![batch, heads, queries, value.last()])
        }
        _ => return None,
    };
    let (width, value_width) = match query.dims.len() {
        3 => (query.last() / heads, value.last() / key_heads),
        _ => (query.last(), value.last()),
    };
    let kind = OpKind::Attention {
        heads: heads.saturating_mul(batch),
        key_heads: key_heads.saturating_mul(batch),
        width,
        value_width,
        queries,
        keys,
        causal: node.operator == "GroupQueryAttention" || int(node, "is_causal", 0) == 1,
        dropout: false,
    };
    let tensor = state.builder.add(node.name, kind, &tensors, product(&dims), Owned::NOTHING);
    Some(Value { dims, tensor: Some(tensor), ..Value::default() })
}
