//! COCO's JSON (Lin et al. 2014): `images`, `categories`, and `annotations` whose `bbox` is left, top, width and height
//! in pixels. Other keys are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::error::layout;
use crate::files::plain_file;

/// The keys that are read.
#[derive(Debug, Deserialize)]
pub(crate) struct Coco {
    pub images: Vec<CocoImage>,
    #[serde(default)]
    pub categories: Vec<CocoCategory>,
    #[serde(default)]
    pub annotations: Vec<CocoAnnotation>,
}

/// An image, by its path below one of the usual folders.
#[derive(Debug, Deserialize)]
pub(crate) struct CocoImage {
    pub id: i64,
    pub file_name: String,
    pub width: Option<f64>,
    pub height: Option<f64>,
}

/// A class.
#[derive(Debug, Deserialize)]
pub(crate) struct CocoCategory {
    pub id: i64,
    pub name: String,
}

/// An object in an image, or a region of many where `iscrowd` is not 0.
#[derive(Debug, Deserialize)]
pub(crate) struct CocoAnnotation {
    pub image_id: i64,
    pub category_id: i64,
    pub bbox: Vec<f64>,
    pub area: Option<f64>,
    #[serde(default)]
    pub iscrowd: i64,
}

impl Coco {
    /// Reads a file.
    ///
    /// # Errors
    /// That it cannot be read, or is not a COCO JSON.
    pub fn read(file: &Path) -> Result<Coco, Error> {
        let refused = |source| Error::Read { name: file.display().to_string(), source };
        let bytes = plain_file::bytes(file).map_err(refused)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let hint = "write `images` (id, file_name), `categories` (id, name) and `annotations` (image_id, \
                        category_id, bbox), or give a folder of images";
            layout(file, format!("it is not a COCO JSON: {error}"), hint)
        })
    }

    /// Names of the categories by id; labels follow the order of the ids.
    pub fn names(&self) -> BTreeMap<i64, String> {
        self.categories.iter().map(|category| (category.id, category.name.clone())).collect()
    }
}
