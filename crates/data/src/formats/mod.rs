//! Formats of data: each is read into the same [`Index`].
//!
//! Image files (in a folder, members of tars, records and rows of tables) stay encoded and are read one at a time by
//! position; raw pixels (CIFAR, idx, the CSV) are read completely. Read on in `labels`, which turns paths into classes,
//! and in `spans`, on which most formats build.

pub(crate) mod annotations;
mod archives;
mod class_names;
pub(crate) mod coco;
mod encoded;
mod index;
mod labels;
mod list;
mod listed;
mod pixels;
mod tables;
pub(crate) mod targets;
mod text_rows;
mod tree;

pub(crate) use self::encoded::Encoded;
pub(crate) use self::encoded::loaded::Loaded;
pub use self::encoded::loaded::preloading;
pub(crate) use self::index::{ByFolders, Content, Decoded, Index, Reading};
pub use self::index::{Renamed, Skipped};
pub use self::labels::EXTENSIONS;
pub(crate) use self::labels::is_image;
pub(crate) use self::list::{index, list, unlabelled};
pub use self::listed::lists_images;
pub use self::targets::Targets;
pub(crate) use self::text_rows::{Record, texts_of_tables};
