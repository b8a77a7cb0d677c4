//! Figures of a `config.json`, each within bounds that no network exceeds, so that sums and products of them fit.

use std::sync::LazyLock;

use domain::problem::Problem;
use serde_json::{Map, Value};

use super::super::super::SampleShape;
use super::asked::Asked;
use super::defaults::Usual;
use crate::model::Function;
use crate::model::families::language::bert::Head;
use crate::model::families::language::decoder::DecoderHead;

/// No table or layer is larger.
pub(super) const LARGEST: u64 = 1 << 24;
/// No network has more layers, experts or patches of more pixels a side.
pub(super) const MOST_LAYERS: u64 = 4096;
/// How files say how many classes there are; the first is today's.
const LABELS: [&str; 3] = ["num_labels", "_num_labels", "num_classes"];

/// A part of a file that has none.
static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// The figures of one file.
#[derive(Clone, Copy)]
pub(in super::super) struct ConfigFields<'a> {
    object: &'a Map<String, Value>,
    pub shape: &'a SampleShape,
    /// What `transformers` takes where the file does not say.
    usual: Usual,
    asked: &'a Asked<'a>,
    part: usize,
}

impl<'a> ConfigFields<'a> {
    /// The fields of a whole file, read for samples of `shape`; `asked` notes which of them are looked at.
    pub fn new(object: &'a Map<String, Value>, shape: &'a SampleShape, asked: &'a Asked<'a>) -> ConfigFields<'a> {
        ConfigFields::of("", object, shape, asked)
    }

    fn of(
        path: &'a str,
        object: &'a Map<String, Value>,
        shape: &'a SampleShape,
        asked: &'a Asked<'a>,
    ) -> ConfigFields<'a> {
        let kind = object.get("model_type").and_then(Value::as_str).unwrap_or_default();
        ConfigFields { object, shape, usual: Usual::of(kind), asked, part: asked.part(path, object) }
    }

    /// A part of the file as a file of its own.
    pub fn part(&self, key: &str) -> Option<ConfigFields<'a>> {
        self.asked.note(self.part, &[key]);
        let (key, value) = self.object.get_key_value(key)?;
        value.as_object().map(|object| ConfigFields::of(key, object, self.shape, self.asked))
    }

    /// A part that is of `kind` where it does not say so itself, and of the usual figures where the file has none.
    pub fn part_or_usual(&self, key: &'static str, kind: &str) -> ConfigFields<'a> {
        let part = self.part(key).unwrap_or_else(|| ConfigFields::of(key, &NOTHING, self.shape, self.asked));
        let usual = if part.text("model_type").is_some() { part.usual } else { Usual::of(kind) };
        ConfigFields { usual, ..part }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.asked.note(self.part, &[key]);
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Notes a sentence for whoever reads the answer.
    pub fn say(&self, sentence: String) {
        self.asked.say(sentence);
    }

    /// Whether the file has a value for `key` other than null. Does not count as looking at it.
    pub fn has(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(|value| !value.is_null())
    }

    /// The value of `key`, where it is a string.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    /// Yes or no: what the file says, else its type, else `otherwise`.
    pub fn flag(&self, key: &str, otherwise: bool) -> bool {
        let otherwise = self.usual.flag(key).unwrap_or(otherwise);
        match self.get(key) {
            None => otherwise,
            Some(Value::Bool(yes)) => *yes,
            Some(value) if value.as_u64() == Some(0) => false,
            Some(value) if value.as_u64() == Some(1) => true,
            Some(_) => {
                self.asked.strange(self.part, key, "`true` or `false`");
                otherwise
            }
        }
    }

    /// A rate above zero.
    pub fn rate(&self, key: &str, otherwise: bool) -> bool {
        let Some(value) = self.get(key) else { return otherwise };
        match value.as_f64().filter(|rate| *rate >= 0.0) {
            Some(rate) => rate > 0.0,
            None => {
                self.asked.strange(self.part, key, "a number from 0");
                otherwise
            }
        }
    }

    /// The first of `keys` that is there, a whole number from 1.
    pub fn maybe(&self, keys: &[&str]) -> Result<Option<u64>, Problem> {
        self.asked.note(self.part, keys);
        for key in keys {
            match self.object.get(*key) {
                None | Some(Value::Null) => continue,
                Some(value) => {
                    let number = value.as_u64().or_else(|| {
                        value
                            .as_f64()
                            .filter(|number| number.fract() == 0.0 && *number >= 0.0)
                            .map(|number| number as u64)
                    });
                    return match number {
                        Some(number) if (1..=LARGEST).contains(&number) => Ok(Some(number)),
                        Some(_) | None => Err(Problem::at(*key, format!("`{value}` is no size that a network has"))
                            .hint(format!("a whole number from 1 to {LARGEST}"))),
                    };
                }
            }
        }
        Ok(None)
    }

    /// The first of `keys` that the file or its type says, a whole number from 1.
    pub fn said(&self, keys: &[&str]) -> Result<Option<u64>, Problem> {
        if let Some(number) = self.maybe(keys)? {
            return Ok(Some(number));
        }
        let usual = self.usual.number(keys).filter(|(_, number)| *number > 0);
        Ok(usual.map(|(key, number)| {
            self.asked.taken(self.part, key, number);
            number
        }))
    }

    /// A whole number from 1; none where the file says none, 0 or less, which stand for "without".
    pub fn positive(&self, key: &str) -> Result<Option<u64>, Problem> {
        match self.get(key).and_then(Value::as_f64) {
            Some(number) if number <= 0.0 => Ok(None),
            Some(_) | None => self.maybe(&[key]),
        }
    }

    /// As [`positive`](ConfigFields::positive), and what is usual for the type where the file is silent.
    pub fn positive_or_usual(&self, key: &str) -> Result<Option<u64>, Problem> {
        match self.get(key).and_then(Value::as_f64) {
            Some(number) if number <= 0.0 => Ok(None),
            Some(_) => self.maybe(&[key]),
            None if self.object.contains_key(key) => Ok(None),
            None => self.said(&[key]),
        }
    }

    /// A list of places, counted from 0; empty where the file has none.
    pub fn indices(&self, key: &str) -> Vec<u64> {
        let list = self.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_u64).take(MOST_LAYERS as usize).collect()
    }

    /// Words of a list, or of a text with bars between them.
    pub fn words(&self, key: &str) -> Option<Vec<String>> {
        match self.get(key)? {
            Value::String(text) => Some(text.to_lowercase().split('|').map(|word| word.trim().to_owned()).collect()),
            Value::Array(list) => Some(list.iter().filter_map(Value::as_str).map(str::to_lowercase).collect()),
            _ => None,
        }
    }

    /// A ratio above 0, such as by how much a network is wider than the usual one.
    pub fn ratio(&self, key: &str, otherwise: f64) -> Result<f64, Problem> {
        let Some(value) = self.get(key) else { return Ok(otherwise) };
        value.as_f64().filter(|ratio| (0.01..=100.0).contains(ratio)).ok_or_else(|| {
            Problem::at(key, format!("`{value}` is no ratio that a network has")).hint("a number from 0.01 to 100")
        })
    }

    /// A size or a count under the first of `keys` that has one.
    ///
    /// # Errors
    /// No key has a number and the type has no usual one, or it is out of bounds.
    pub fn number(&self, keys: &[&str]) -> Result<u64, Problem> {
        self.said(keys)?.ok_or_else(|| {
            let also: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let problem = Problem::at(keys[0], format!("the file has no {}", also.join(" or ")));
            match keys.iter().find_map(|key| Some((key, self.asked.near(self.part, key)?))) {
                Some((key, near)) => problem.hint(format!("write `{key}` instead of `{near}`")),
                None => problem.hint(format!(
                    "add `\"{}\": …` to the file, or give the whole `config.json` as it was downloaded",
                    keys[0]
                )),
            }
        })
    }

    /// As [`number`](ConfigFields::number), and `otherwise` where the file says nothing.
    pub fn or(&self, keys: &[&str], otherwise: u64) -> Result<u64, Problem> {
        Ok(self.said(keys)?.unwrap_or(otherwise))
    }

    /// A figure that is never large, such as a count of experts or a ratio of widths.
    pub fn small(&self, keys: &[&str], otherwise: u64) -> Result<u64, Problem> {
        match self.or(keys, otherwise)? {
            small if small <= MOST_LAYERS => Ok(small),
            large => Err(Problem::at(keys[0], format!("{large} is more than any network has"))
                .hint(format!("at most {MOST_LAYERS}"))),
        }
    }

    /// A count of layers, at most [`MOST_LAYERS`].
    pub fn layers(&self, keys: &[&str]) -> Result<u64, Problem> {
        match self.number(keys)? {
            layers if layers <= MOST_LAYERS => Ok(layers),
            layers => Err(Problem::at(keys[0], format!("{layers} layers are more than any network has"))
                .hint(format!("at most {MOST_LAYERS}"))),
        }
    }

    /// As [`layers`](ConfigFields::layers), and `usual` where the file says nothing.
    pub fn layers_or(&self, key: &str, usual: u64) -> Result<u64, Problem> {
        if self.has(key) { self.layers(&[key]) } else { Ok(usual) }
    }

    /// A list of whole numbers from 1.
    pub fn list(&self, key: &str) -> Result<Option<Vec<u64>>, Problem> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let numbers = value.as_array().filter(|list| list.len() <= 64).map(|list| {
            list.iter()
                .map(|number| number.as_u64().filter(|number| (1..=LARGEST).contains(number)))
                .collect::<Option<Vec<u64>>>()
        });
        match numbers.flatten() {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(Problem::at(key, format!("`{value}` is no list of sizes")).hint("such as `[3, 4, 6, 3]`")),
        }
    }

    /// Classes: what is asked for, else what the file names, else what `transformers` gives a network that is to tell
    /// them apart, else `otherwise`.
    pub fn classes(&self, otherwise: u64) -> Result<u64, Problem> {
        if let Some(classes) = self.shape.classes {
            return Ok(classes.clamp(1, LARGEST));
        }
        let named = self.get("id2label").and_then(Value::as_object).map(|labels| labels.len() as u64);
        match named.filter(|named| *named > 0) {
            Some(named) => Ok(named),
            None if !self.architecture().is_empty() => self.or(&LABELS, 2),
            None => self.or(&LABELS, otherwise),
        }
    }

    /// Classes of an image: none for blocks alone, else as [`ConfigFields::classes`].
    pub fn labels(&self) -> Result<u64, Problem> {
        if self.is_bare() || self.names_pixels() { Ok(0) } else { self.classes(1000) }
    }

    /// Whether a class of each pixel is asked for.
    pub fn names_pixels(&self) -> bool {
        self.architecture().ends_with("ForSemanticSegmentation")
    }

    /// Whether neither the file nor who asks says how many classes there are, or that there are none.
    pub fn leaves_classes_open(&self) -> bool {
        self.shape.classes.is_none()
            && !self.has("id2label")
            && !LABELS.iter().any(|key| self.has(key))
            && self.architecture().is_empty()
    }

    /// The class of `transformers` that the file belongs to; empty where it does not say.
    pub fn architecture(&self) -> &'a str {
        let first = self.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the file is of blocks alone, without anything that is asked of them.
    pub fn is_bare(&self) -> bool {
        let name = self.architecture();
        let asks = ["HeadModel", "HeadsModel", "MTModel"].iter().any(|end| name.ends_with(end));
        name.ends_with("Model") && !asks
    }

    /// What the file's architecture asks of a decoder.
    pub fn decoder_head(&self) -> Result<DecoderHead, Problem> {
        Ok(match (self.architecture(), self.shape.classes) {
            (name, _) if name.ends_with("ForSequenceClassification") => {
                DecoderHead::Classes { classes: self.classes(2)?, bias: false }
            }
            (name, _) if name.ends_with("ForTokenClassification") => {
                DecoderHead::Classes { classes: self.classes(2)?, bias: true }
            }
            (name, _) if name.ends_with("ForQuestionAnswering") => DecoderHead::Classes { classes: 2, bias: true },
            _ if self.is_bare() => DecoderHead::Nothing,
            _ => DecoderHead::Tokens,
        })
    }

    /// What the file's architecture asks of an encoder.
    pub fn encoder_head(&self) -> Result<Head, Problem> {
        let classes = self.classes(2)?;
        Ok(match self.architecture() {
            name if name.ends_with("ForPreTraining") => Head::PreTraining,
            name if ["ForMaskedLM", "ForCausalLM", "LMHeadModel"].iter().any(|end| name.ends_with(end)) => {
                Head::MaskedLanguage
            }
            name if name.ends_with("ForQuestionAnswering") => Head::Tokens { classes: 2 },
            name if name.ends_with("ForTokenClassification") => Head::Tokens { classes },
            name if name.ends_with("ForSequenceClassification") => Head::Sequence { classes },
            name if name.ends_with("ForMultipleChoice") => Head::Sequence { classes: 1 },
            _ => match self.shape.classes {
                Some(classes) => Head::Sequence { classes },
                None => Head::Pooled,
            },
        })
    }

    /// A function of each value, by the names of `transformers`.
    pub fn function(&self, keys: &[&str], otherwise: Function) -> Function {
        let Some(name) = keys.iter().find_map(|key| self.text(key)) else { return otherwise };
        match name {
            "relu" => Function::Relu,
            "silu" | "swish" => Function::Silu,
            "tanh" => Function::Tanh,
            "sigmoid" => Function::Sigmoid,
            "hardswish" | "hard_swish" => Function::HardSwish,
            "gelu_new" | "gelu_python_tanh" | "gelu_fast" | "gelu_accurate" => Function::GeluNew,
            "quick_gelu" => Function::QuickGelu,
            "relu2" => Function::SquaredRelu,
            name if name.contains("gelu") => Function::Gelu,
            _ => Function::Other,
        }
    }
}
