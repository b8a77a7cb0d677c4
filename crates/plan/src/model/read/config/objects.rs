//! Networks that find objects.

use domain::problem::Problem;

use super::fields::ConfigFields;
use super::images;
use crate::model::families::block::{Feed, Order, TransformerBlock};
use crate::model::families::{Detr, Resnet};
use crate::model::{Function, Graph};

/// Height and width of an image where neither the file nor who asks says it: as DETR is trained, the shorter side 800.
const USUAL: [u64; 2] = [800, 1066];

pub(super) fn detr(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["d_model"])?;
    let function = figures.function(&["activation_function"], Function::Relu);
    let block = |side: &str| -> Result<TransformerBlock, Problem> {
        let heads = figures.heads(&[&format!("{side}_attention_heads")], hidden)?;
        Ok(TransformerBlock {
            order: Order::After,
            placed: true,
            attention_dropout: figures.rate("attention_dropout", false),
            dropout: figures.rate("dropout", true),
            feed: Feed {
                function,
                dropout: figures.rate("activation_dropout", false),
                ..Feed::plain(figures.number(&[&format!("{side}_ffn_dim")])?)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        })
    };
    if figures.flag("dilation", false) {
        return Err(Problem::at("dilation", "a last stage that keeps its size by dilation is not known")
            .hint("export the network to ONNX and give that file"));
    }
    let network = Detr {
        sees: sees(figures)?,
        encoder_layers: figures.layers(&["encoder_layers"])?,
        decoder_layers: figures.layers(&["decoder_layers"])?,
        encoder: block("encoder")?,
        decoder: block("decoder")?,
        objects: figures.or(&["num_queries"], 100)?.min(1 << 16),
        places: if figures.text("position_embedding_type") == Some("learned") { 50 } else { 0 },
        classes: if figures.is_bare() { None } else { Some(figures.classes(91)?) },
    };
    let mut graph = network.graph();
    let frozen = "all of the residual network's convolutions are counted as trained; `transformers` trains the last three stages";
    figures.say(format!("{frozen} of one of timm's and none of one of its own, and keeps less"));
    if figures.architecture().ends_with("ForSegmentation") {
        graph.unknown.push("the part that draws masks ×1".to_owned());
    }
    Ok(graph)
}

/// The residual network that sees, whose normalisations stay as they are.
fn sees(figures: &ConfigFields) -> Result<Resnet, Problem> {
    let image = match (figures.shape.image, figures.has("image_size")) {
        (None, false) => {
            figures.say(format!("an image of {} × {} pixels is assumed", USUAL[0], USUAL[1]));
            [figures.or(&["num_channels"], 3)?.min(4096), USUAL[0], USUAL[1]]
        }
        (Some(_), _) | (None, true) => figures.image()?,
    };
    let part = figures.part("backbone_config");
    let mut network = match part.filter(|part| part.text("model_type") == Some("resnet")) {
        Some(part) => Resnet { image, ..images::residual(&part)? },
        None => {
            let named = part.and_then(|part| part.text("backbone"));
            let name = named.or(figures.text("backbone")).unwrap_or("resnet50");
            let depth = name.strip_prefix("resnet").and_then(|depth| depth.parse().ok());
            let network = depth.and_then(Resnet::imagenet).ok_or_else(|| {
                Problem::at("backbone", format!("`{name}` names a network, but not of what it is made"))
                    .hint("known are resnet18, 34, 50, 101 and 152; else export the network to ONNX and give that file")
            })?;
            figures.say(format!("`backbone` `{name}` is the residual network of that many layers (He et al. 2015)"));
            Resnet { image, ..network }
        }
    };
    network.variation.frozen = true;
    Ok(network)
}
