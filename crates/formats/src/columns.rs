//! Finds the columns of a table that hold the samples and their classes, as laid out by HuggingFace's `datasets`.
//!
//! The schema's metadata `huggingface` names the features; without it, the usual names are used. An image is a struct
//! with its file in `bytes`, or a column of bytes; a class is an integer or a string.

use arrow_schema::{DataType, Field, Schema};
use plugin::{LABELS, Want};

/// The relevant columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Names from the top to the column of bytes or text.
    pub content: Vec<String>,
    /// The column of classes, and the type of its values.
    pub label: Option<(String, DataType)>,
    /// Why the named column cannot be used as classes; `None` if it can, or does not exist.
    pub unfit: Option<String>,
    /// Names of the classes, from label 0.
    pub names: Option<Vec<String>>,
}

const IMAGES: [&str; 6] = ["image", "img", "picture", "jpg", "png", "bytes"];

impl Columns {
    /// Finds the columns of a schema.
    ///
    /// # Errors
    /// A message that says what is missing.
    pub fn find(schema: &Schema, want: Want<'_>) -> Result<Columns, String> {
        let features = features(schema);
        let kind = |field: &Field| features.as_ref()?.get(field.name())?.get("_type")?.as_str().map(str::to_owned);
        let fields = || schema.fields().iter().map(|field| field.as_ref());
        let named = |names: &[&str]| {
            let of_name = |name: &&str| fields().find(|field| field.name() == name);
            names.iter().filter_map(of_name).collect::<Vec<&Field>>()
        };
        let content = match want {
            Want::Images => {
                let mut candidates: Vec<&Field> =
                    fields().filter(|field| kind(field).as_deref() == Some("Image")).collect();
                candidates.extend(named(&IMAGES));
                candidates.extend(fields().filter(|field| matches!(field.data_type(), DataType::Struct(_))));
                candidates.into_iter().find_map(image)
            }
            Want::Texts { column, .. } => {
                let text = fields().find(|field| field.name() == column && is_text(field.data_type()));
                text.map(|field| vec![field.name().clone()])
            }
        };
        let columns = || fields().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>().join(", ");
        let content = content.ok_or_else(|| match want {
            Want::Images => format!("none of its columns {} holds images as bytes", columns()),
            Want::Texts { column, .. } => format!("none of its columns {} is a text `{column}`", columns()),
        })?;
        let marked = fields().find(|field| kind(field).as_deref() == Some("ClassLabel"));
        let usual =
            || named(&LABELS).into_iter().find(|field| *field.name() != content[0] && is_class(field.data_type()));
        let label = match want {
            Want::Images => marked.or_else(usual),
            Want::Texts { label: None, .. } => None,
            Want::Texts { label: Some(label), .. } => {
                let found = fields().find(|field| field.name() == label);
                Some(found.ok_or_else(|| format!("none of its columns {} is a class `{label}`", columns()))?)
            }
        };
        let unfit = match (want, label) {
            (Want::Images, None) => named(&LABELS).into_iter().find(|field| *field.name() != content[0]).map(unfit),
            (Want::Texts { .. }, Some(label)) if !is_class(label.data_type()) => Some(unfit(label)),
            (Want::Images | Want::Texts { .. }, _) => None,
        };
        let names = label.and_then(|label| {
            let names = features.as_ref()?.get(label.name())?.get("names")?.as_array()?;
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        });
        let label = label.map(|field| (field.name().clone(), value(field.data_type()).clone()));
        Ok(Columns { content, label, unfit, names })
    }
}

/// The path to the bytes of a column of images.
fn image(field: &Field) -> Option<Vec<String>> {
    match field.data_type() {
        DataType::Binary | DataType::LargeBinary => Some(vec![field.name().clone()]),
        DataType::Struct(children) => {
            let bytes = children.iter().find(|child| child.name() == "bytes")?;
            let is_bytes = matches!(bytes.data_type(), DataType::Binary | DataType::LargeBinary);
            is_bytes.then(|| vec![field.name().clone(), "bytes".into()])
        }
        _ => None,
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(value(kind), DataType::Utf8 | DataType::LargeUtf8)
}

fn is_class(kind: &DataType) -> bool {
    value(kind).is_integer() || is_text(kind)
}

/// The type of a column's values, also where each is written once and named by its number, as pandas' categories are.
fn value(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, value) => value,
        plain => plain,
    }
}

/// Why a column holds no classes.
fn unfit(field: &Field) -> String {
    let (name, kind) = (field.name(), field.data_type());
    let holds = match value(kind) {
        float if float.is_floating() => "numbers with fractions".to_owned(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => "lists".to_owned(),
        other => format!("values of type {other}"),
    };
    format!("its column `{name}` holds {holds}, but a class is an integer or a string")
}

/// What HuggingFace notes about the columns.
fn features(schema: &Schema) -> Option<serde_json::Map<String, serde_json::Value>> {
    let text = schema.metadata().get("huggingface")?;
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("info")?.get("features")?.as_object().cloned()
}
