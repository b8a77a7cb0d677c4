//! Hugging Face's `config.json`: the dimensions of a network, under the keys of `transformers`.
//!
//! `model_type` selects the keys. An unknown type is read as a decoder if it has a decoder's keys, and the graph
//! reports that in `unknown`; otherwise the problem lists known types.

mod decoders;
mod encoders;
mod fields;
mod halves;
mod images;
mod mixtures;
mod objects;
mod recurrent;
mod sounds;
mod stages;
#[cfg(test)]
mod tests;

use domain::problem::Problem;
use serde_json::Value;

use self::fields::{Asked, ConfigFields};
use super::SampleShape;
use crate::model::{Graph, OpKind, Operator};

/// Types that are read, for messages.
const KNOWN: &str = "albert, bart, beit, bert, bloom, camembert, clip, convnext, convnextv2, deberta, deberta-v2, deepseek_v2, deepseek_v3, deit, detr, \
    dinov2, distilbert, efficientnet, electra, falcon, gemma, gemma2, gpt2, gpt_bigcode, gpt_neo, gpt_neox, gptj, \
    llama, longformer, mamba, mamba2, mbart, mistral, mixtral, mobilevit, mobilenet_v1, mobilenet_v2, mobilenet_v3, modernbert, mpt, mt5, olmo, opt, \
    persimmon, phi, phi3, qwen2, qwen2_moe, qwen3, regnet, resnet, roberta, rwkv, segformer, siglip, stablelm, starcoder2, swin, swinv2, t5, vit, \
    wav2vec2, whisper, xlm-roberta, yolo, yolos";

/// Reads a `config.json`.
pub fn read(bytes: &[u8], shape: &SampleShape) -> Result<Graph, Problem> {
    let value: Value = serde_json::from_slice(bytes)
        .or_else(|error| serde_json::from_slice(&finite(bytes)).map_err(|_| error))
        .map_err(|error| {
            Problem::at("", format!("the file is not JSON: {error}"))
                .hint("give the model's `config.json` as it was downloaded")
        })?;
    let Value::Object(object) = &value else {
        return Err(Problem::at("", "the file holds no object").hint("give the model's `config.json`"));
    };
    // Models of several parts keep the one that reads tokens apart.
    let asked = Asked::default();
    let figures = ConfigFields::new(object, shape, &asked);
    let mut graph = whole(&figures).map_err(|problem| match asked.judge() {
        // A misspelt key is why another is missing.
        Err(misspelt) => misspelt,
        Ok(_) => problem,
    })?;
    graph.assumed.extend(asked.judge()?);
    let usual = |operator: &Operator| matches!(operator.kind, OpKind::Loss { classes: 1000, .. });
    if figures.names_pixels() && figures.text("model_type") != Some("segformer") {
        graph.unknown.push("the part that names pixels ×1".to_owned());
    }
    if figures.leaves_classes_open() && graph.operators.iter().any(usual) {
        graph.assumed.push("1000 classes are assumed; the file names none (`num_labels`)".to_owned());
    }
    Ok(graph)
}

/// The same text with `null` for what Python writes of numbers that JSON does not have (`time_step_limit` of Mamba-2).
fn finite(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    let (mut rest, mut quoted) = (bytes, false);
    while let Some(first) = rest.first() {
        let number = ["-Infinity", "Infinity", "NaN"].iter().find(|number| rest.starts_with(number.as_bytes()));
        let length = match (quoted, number, first) {
            (false, Some(number), _) => {
                text.extend_from_slice(b"null");
                rest = &rest[number.len()..];
                continue;
            }
            // What a stroke escapes ends no text.
            (true, _, b'\\') => 2.min(rest.len()),
            _ => 1,
        };
        quoted ^= *first == b'"';
        text.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    text
}

/// The network of a file or of one of its parts.
fn whole(figures: &ConfigFields) -> Result<Graph, Problem> {
    let graph = match figures.text("model_type") {
        Some(kind) => by_type(kind, figures)?,
        None => None,
    };
    match graph {
        Some(graph) => Ok(graph),
        None => guess(figures),
    }
}

/// The network of a type that `transformers` knows; none of another.
fn by_type(kind: &str, figures: &ConfigFields) -> Result<Option<Graph>, Problem> {
    match language(kind, figures)? {
        Some(graph) => Ok(Some(graph)),
        None => vision_or_sound(kind, figures),
    }
}

fn language(kind: &str, figures: &ConfigFields) -> Result<Option<Graph>, Problem> {
    Ok(Some(match kind {
        "bert"
        | "roberta"
        | "xlm-roberta"
        | "camembert"
        | "electra"
        | "albert"
        | "ernie"
        | "mpnet"
        | "megatron-bert"
        | "longformer"
        | "roberta-prelayernorm"
        | "data2vec-text" => encoders::bert(figures, kind)?,
        "distilbert" => encoders::distilbert(figures)?,
        "modernbert" => encoders::modernbert(figures)?,
        "deberta" => encoders::deberta(figures, false)?,
        "deberta-v2" => encoders::deberta(figures, true)?,
        "t5" | "mt5" | "umt5" | "longt5" => encoders::t5(figures)?,
        "bart" | "mbart" | "marian" | "m2m_100" | "pegasus" | "blenderbot" | "blenderbot-small" => {
            encoders::bart(figures, kind)?
        }
        "gpt2" | "gpt_bigcode" => decoders::gpt2(figures)?,
        "gpt_neo" => decoders::gpt_neo(figures)?,
        "gptj" | "codegen" => decoders::gptj(figures)?,
        "gpt_neox" => decoders::gpt_neox(figures)?,
        "opt" => decoders::opt(figures)?,
        "bloom" => decoders::bloom(figures)?,
        "falcon" | "RefinedWeb" | "RefinedWebModel" => decoders::falcon(figures)?,
        "mpt" => decoders::mpt(figures)?,
        "phi" => decoders::phi(figures)?,
        "persimmon" => decoders::persimmon(figures)?,
        "starcoder2" => decoders::starcoder2(figures)?,
        "stablelm" | "olmo" => decoders::layer_normed(figures)?,
        "gemma" | "gemma2" | "gemma3_text" => decoders::gemma(figures, kind)?,
        "llama" | "mistral" | "mixtral" | "qwen2" | "qwen2_moe" | "qwen3" | "qwen3_moe" | "phi3" | "internlm2"
        | "granite" | "olmo2" | "smollm3" | "yi" | "baichuan" | "ministral" | "minicpm" | "deepseek_v2"
        | "deepseek_v3" => decoders::llama(figures, kind)?,
        "mamba" => recurrent::mamba(figures)?,
        "mamba2" => recurrent::mamba2(figures)?,
        "rwkv" => recurrent::rwkv(figures)?,
        _ => return Ok(None),
    }))
}

fn vision_or_sound(kind: &str, figures: &ConfigFields) -> Result<Option<Graph>, Problem> {
    Ok(Some(match kind {
        "vit" | "deit" | "beit" | "dinov2" | "vit_msn" | "data2vec-vision" | "yolos" => images::vit(figures, kind)?,
        "resnet" => images::resnet(figures)?,
        "convnext" => images::convnext(figures, false)?,
        "convnextv2" => images::convnext(figures, true)?,
        "regnet" => stages::regnet(figures)?,
        "efficientnet" => stages::efficientnet(figures)?,
        "swin" => stages::swin(figures, false)?,
        "swinv2" => stages::swin(figures, true)?,
        "segformer" => stages::segformer(figures)?,
        "mobilevit" => stages::mobilevit(figures)?,
        "clip" => images::clip(figures, false)?,
        "siglip" => images::clip(figures, true)?,
        "clip_vision_model" | "siglip_vision_model" => images::clip_half(figures, kind, true)?,
        "clip_text_model" | "siglip_text_model" => images::clip_half(figures, kind, false)?,
        "whisper" => sounds::whisper(figures)?,
        "wav2vec2" | "hubert" => sounds::wav2vec(figures)?,
        "detr" => objects::detr(figures)?,
        "mobilenet_v1" => images::mobilenet_first(figures)?,
        "mobilenet_v2" => images::mobilenet_second(figures)?,
        "mobilenet_v3" => images::mobilenet_third(figures)?,
        "yolo" | "yolov8" => images::yolo(figures)?,
        _ => return Ok(None),
    }))
}

/// Keys of blocks that are no plain transformer's: of recurrence, of convolutions between or instead of attention, of
/// several kinds of blocks in turn, of products in groups.
const STRANGE: [&str; 14] = [
    "mamba_d_state",
    "mamba_d_conv",
    "ssm_cfg",
    "state_size",
    "lru_width",
    "block_types",
    "conv_L_cache",
    "conv1d_width",
    "attn_layer_period",
    "linear_num_key_heads",
    "linear_conv_kernel_dim",
    "q_groups",
    "altup_num_inputs",
    "laurel_rank",
];

/// Keys of files that lie beside a network's own, and what those describe.
const OTHERS: [(&str, &str); 5] = [
    ("peft_type", "what an adapter adds to a network"),
    ("weight_map", "which weights lie in which file"),
    ("tokenizer_class", "how text becomes tokens"),
    ("_class_name", "a part of a pipeline of diffusers"),
    ("image_processor_type", "how images are made ready"),
];

/// Reads a type that is not known by its keys.
fn guess(figures: &ConfigFields) -> Result<Graph, Problem> {
    let wrapped = matches!(figures.text("model_type"), None | Some("timm_wrapper" | "timm_backbone"));
    if wrapped && let Some(name) = figures.text("architecture").or(figures.text("backbone")) {
        let why = format!("the file is of timm and names a network, `{name}`, but not of what it is made");
        return Err(Problem::at("architecture", why).hint("export the network to ONNX and give that file"));
    }
    if let Some((key, what)) = OTHERS.iter().find(|(key, _)| figures.has(key) && !figures.has("model_type")) {
        return Err(Problem::at(*key, format!("the file describes {what}, and no network as a whole"))
            .hint("give the network's own `config.json`, or export it to ONNX and give that file"));
    }
    let kind = figures
        .text("model_type")
        .map_or("a file without `model_type`".to_owned(), |kind| format!("`model_type` `{kind}`"));
    // Models of several parts keep the one that reads and writes text apart.
    for part in ["text_config", "language_config", "llm_config"] {
        if let Some(inner) = figures.part(part) {
            let mut graph = whole(&inner)?;
            if let Some(both) = halves::joined(figures, &inner, &graph)? {
                return Ok(both);
            }
            graph.unknown.push(format!("everything but `{part}` of {kind} ×1"));
            return Ok(graph);
        }
    }
    if let Some(key) = STRANGE.iter().find(|key| figures.has(key)) {
        let why = format!("{kind} is not known, and has blocks of another kind than a transformer's: `{key}` says so");
        return Err(Problem::at("model_type", why).hint("export the network to ONNX and give that file"));
    }
    let has = |keys: &[&str]| keys.iter().all(|key| figures.has(key));
    if has(&["conv_dim", "conv_kernel", "conv_stride", "hidden_size", "num_hidden_layers"]) {
        let mut graph = sounds::wav2vec(figures)?;
        graph.unknown.push(format!("{kind}, read as an encoder of sounds like wav2vec 2.0 by its keys ×1"));
        return Ok(graph);
    }
    let patches = has(&["hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size"]);
    let like = match (
        has(&["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]),
        figures.has("rms_norm_eps") || figures.has("num_key_value_heads") || figures.has("rope_theta"),
    ) {
        (true, true) => Some(("a decoder like Llama", decoders::llama(figures, "llama")?)),
        (true, false) => Some(("an encoder like BERT", encoders::bert(figures, "bert")?)),
        (false, _) if has(&["n_embd", "n_layer", "n_head", "vocab_size"]) => {
            Some(("a decoder like GPT-2", decoders::gpt2(figures)?))
        }
        (false, _) if has(&["dim", "n_layers", "n_heads", "norm_eps"]) => {
            Some(("a decoder like Llama", decoders::llama_of_dim(figures)?))
        }
        (false, _) if patches => Some(("a vision transformer", images::vit(figures, "vit")?)),
        (false, _) => None,
    };
    match like {
        Some((like, mut graph)) => {
            graph.unknown.push(format!("{kind}, read as {like} by its keys ×1"));
            Ok(graph)
        }
        None => Err(Problem::at("model_type", format!("{kind} is not known, and its keys are not those of a decoder"))
            .hint(format!("export the network to ONNX and give that file; known are {KNOWN}"))),
    }
}
