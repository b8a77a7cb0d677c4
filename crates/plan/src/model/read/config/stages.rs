//! Networks over images that go on in stages, each smaller and wider than the last: RegNet, EfficientNet, Swin,
//! SegFormer and MobileViT.

use domain::problem::Problem;

use super::fields::ConfigFields;
use super::images::rounded;
use crate::model::families::vision::mobilenet::Inverted;
use crate::model::families::vision::segformer::{SegformerHead, Stage};
use crate::model::families::{Mobilenet, Mobilevit, Regnet, Segformer, Swin};
use crate::model::{Function, Graph};

/// Lists that say something of each stage, as long as each other.
fn stages<const N: usize>(figures: &ConfigFields, keys: [(&str, &[u64]); N]) -> Result<[Vec<u64>; N], Problem> {
    let mut lists = Vec::new();
    for (key, usual) in keys {
        lists.push(figures.list(key)?.unwrap_or(usual.to_vec()));
    }
    let names: Vec<String> = keys.iter().map(|(key, _)| format!("`{key}`")).collect();
    let uneven = lists.iter().any(|list| list.len() != lists[0].len());
    if lists[0].is_empty() || lists[0].len() > 32 || uneven {
        return Err(
            Problem::at(keys[0].0, format!("{} do not belong together", names.join(", "))).hint("one of each a stage")
        );
    }
    lists.try_into().map_err(|_| Problem::at(keys[0].0, "the stages cannot be read"))
}

/// Refuses more blocks than any network has.
fn shallow(key: &str, depths: &[u64]) -> Result<(), Problem> {
    match depths.iter().sum::<u64>() {
        0..=4096 => Ok(()),
        _ => Err(Problem::at(key, format!("`{depths:?}` is deeper than any network")).hint("at most 4096 in all")),
    }
}

pub(super) fn regnet(figures: &ConfigFields) -> Result<Graph, Problem> {
    let [depths, widths] = stages(figures, [("depths", &[2, 6, 12, 2]), ("hidden_sizes", &[128, 192, 512, 1088])])?;
    shallow("depths", &depths)?;
    let network = Regnet {
        image: figures.image()?,
        stem: figures.or(&["embedding_size"], 32)?.min(1 << 14),
        depths,
        widths: widths.into_iter().map(|width| width.min(1 << 16)).collect(),
        group_width: figures.or(&["groups_width"], 64)?,
        weighs: figures.text("layer_type").unwrap_or("y") == "y",
        first_halves: figures.flag("downsample_in_first_stage", true),
        classes: figures.labels()?,
    };
    Ok(network.graph())
}

/// MobileNet's blocks with channels weighed by their means, in a network that grows in all directions at once (Tan and
/// Le 2019).
pub(super) fn efficientnet(figures: &ConfigFields) -> Result<Graph, Problem> {
    let keys: [(&str, &[u64]); 6] = [
        ("num_block_repeats", &[1, 2, 2, 3, 3, 4, 1]),
        ("in_channels", &[32, 16, 24, 40, 80, 112, 192]),
        ("out_channels", &[16, 24, 40, 80, 112, 192, 320]),
        ("kernel_sizes", &[3, 3, 5, 3, 5, 5, 3]),
        ("strides", &[1, 2, 2, 2, 1, 2, 1]),
        ("expand_ratios", &[1, 6, 6, 6, 6, 6, 6]),
    ];
    let [repeats, enters, leaves, kernels, strides, expands] = stages(figures, keys)?;
    let (wider, deeper) = (figures.ratio("width_coefficient", 2.0)?, figures.ratio("depth_coefficient", 3.1)?);
    let divisor = figures.small(&["depth_divisor"], 8)?;
    let squeezed = figures.ratio("squeeze_expansion_ratio", 0.25)?;
    let wide = |channels: u64| rounded(channels.min(1 << 16) as f64 * wider, divisor, divisor);
    let repeats: Vec<u64> = repeats.into_iter().map(|count| (count as f64 * deeper).ceil() as u64).collect();
    shallow("num_block_repeats", &repeats)?;
    let function = figures.function(&["hidden_act"], Function::Silu);
    let mut blocks = Vec::new();
    for stage in 0..repeats.len() {
        for index in 0..repeats[stage] {
            let from = if index == 0 { wide(enters[stage]) } else { wide(leaves[stage]) };
            blocks.push(Inverted {
                kernel: kernels[stage].min(64),
                stride: if index == 0 { strides[stage].min(64) } else { 1 },
                expanded: (expands[stage] > 1).then_some(from * expands[stage].min(64)),
                channels: wide(leaves[stage]),
                squeeze: ((from as f64 * squeezed) as u64).max(1),
                function,
                plain: false,
                uneven: true,
            });
        }
    }
    let network = Mobilenet {
        image: figures.image()?,
        classes: figures.labels()?,
        stem: wide(32),
        stem_function: function,
        blocks,
        last: wide(1280),
        hidden: 0,
    };
    Ok(network.graph())
}

pub(super) fn swin(figures: &ConfigFields, second: bool) -> Result<Graph, Problem> {
    let [depths, heads] = stages(figures, [("depths", &[2, 2, 6, 2]), ("num_heads", &[3, 6, 12, 24])])?;
    shallow("depths", &depths)?;
    let width = figures.or(&["embed_dim"], 96)?.min(1 << 14);
    let patch = figures.small(&["patch_size"], 4)?;
    let image = figures.image()?;
    let divide = |stage: usize, heads: u64| (width << stage.min(16)).is_multiple_of(heads.max(1));
    let fits = |heads: &[u64]| heads.iter().enumerate().all(|(stage, heads)| divide(stage, *heads));
    if depths.len() > 8 || !fits(&heads) || patch > image[1] || patch > image[2] {
        return Err(Problem::at("num_heads", "stages, heads and patches do not go up with the width and the image")
            .hint("such as `depths: [2, 2, 6, 2]`, `num_heads: [3, 6, 12, 24]`, `embed_dim: 96`, `patch_size: 4`"));
    }
    let network = Swin {
        image,
        patch,
        width,
        depths,
        heads,
        window: figures.small(&["window_size"], 7)?.min(256),
        ratio: figures.ratio("mlp_ratio", 4.0)?,
        function: figures.function(&["hidden_act"], Function::Gelu),
        query_bias: figures.flag("qkv_bias", true),
        positions: figures.flag("use_absolute_embeddings", false),
        dropout: figures.rate("hidden_dropout_prob", false),
        attention_dropout: figures.rate("attention_probs_dropout_prob", false),
        second,
        classes: figures.labels()?,
    };
    Ok(network.graph())
}

pub(super) fn segformer(figures: &ConfigFields) -> Result<Graph, Problem> {
    let keys: [(&str, &[u64]); 7] = [
        ("depths", &[2, 2, 2, 2]),
        ("hidden_sizes", &[32, 64, 160, 256]),
        ("num_attention_heads", &[1, 2, 5, 8]),
        ("patch_sizes", &[7, 3, 3, 3]),
        ("strides", &[4, 2, 2, 2]),
        ("sr_ratios", &[8, 4, 2, 1]),
        ("mlp_ratios", &[4, 4, 4, 4]),
    ];
    let [depths, widths, heads, patches, strides, reductions, ratios] = stages(figures, keys)?;
    shallow("depths", &depths)?;
    let stage = |index: usize| Stage {
        depth: depths[index],
        width: widths[index].min(1 << 16),
        heads: heads[index].clamp(1, widths[index].min(1 << 16)),
        patch: patches[index].min(256),
        stride: strides[index].min(256),
        reduction: reductions[index].min(256),
        ratio: ratios[index].min(256),
    };
    let head = match figures.architecture() {
        _ if figures.is_bare() => SegformerHead::Nothing,
        name if name.ends_with("ForImageClassification") => SegformerHead::Class { classes: figures.classes(2)? },
        // Without a word, what it was made for.
        _ => SegformerHead::Pixels {
            classes: figures.classes(150)?,
            width: figures.or(&["decoder_hidden_size"], 256)?.min(1 << 16),
        },
    };
    let network = Segformer {
        image: figures.image()?,
        stages: (0..depths.len()).map(stage).collect(),
        function: figures.function(&["hidden_act"], Function::Gelu),
        head,
    };
    Ok(network.graph())
}

pub(super) fn mobilevit(figures: &ConfigFields) -> Result<Graph, Problem> {
    let fixed = |key: &str, usual: &[u64]| -> Result<Vec<u64>, Problem> {
        match figures.list(key)?.unwrap_or(usual.to_vec()) {
            list if list.len() == usual.len() => Ok(list.into_iter().map(|width| width.min(1 << 14)).collect()),
            list => Err(Problem::at(key, format!("`{list:?}` is not one width for each part"))
                .hint(format!("{} of them", usual.len()))),
        }
    };
    let channels = fixed("neck_hidden_sizes", &[16, 32, 64, 96, 128, 160, 640])?;
    let widths = fixed("hidden_sizes", &[144, 192, 240])?;
    let narrowest = widths.iter().copied().min().unwrap_or(1);
    let array = |key: &'static str| Problem::at(key, "the widths cannot be read");
    let network = Mobilevit {
        image: match (figures.shape.image, figures.has("image_size")) {
            (None, false) => [figures.or(&["num_channels"], 3)?.min(4096), 256, 256],
            (Some(_), _) | (None, true) => figures.image()?,
        },
        patch: figures.small(&["patch_size"], 2)?.min(64),
        channels: channels.try_into().map_err(|_| array("neck_hidden_sizes"))?,
        widths: widths.try_into().map_err(|_| array("hidden_sizes"))?,
        heads: figures.small(&["num_attention_heads"], 4)?.min(narrowest),
        ratio: figures.ratio("mlp_ratio", 2.0)?,
        expand: figures.ratio("expand_ratio", 4.0)?,
        kernel: figures.small(&["conv_kernel_size"], 3)?.min(64),
        query_bias: figures.flag("qkv_bias", true),
        dropout: figures.rate("hidden_dropout_prob", true),
        attention_dropout: figures.rate("attention_probs_dropout_prob", false),
        function: figures.function(&["hidden_act"], Function::Silu),
        classes: figures.labels()?,
    };
    Ok(network.graph())
}
