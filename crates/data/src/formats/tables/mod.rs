//! Columnar files: Parquet and Arrow, whose libraries an executable may be built without.

pub(super) mod arrow;
pub(super) mod parquet;

use std::path::Path;

use plugin::TableError;

use crate::Error;
use crate::error::layout;
pub(crate) use crate::files::library;

/// Hint for a column that is not of classes.
const AS_CLASSES: &str = "write the classes as integers or strings, in pandas with `.astype(int)` or `.astype(str)`";

/// The error of a table that cannot be used; `damaged` makes that of a damaged one.
fn refused(path: &Path, damaged: impl Fn(&Path, &str) -> Error) -> impl Fn(TableError) -> Error {
    move |error| match error {
        TableError::Read(source) => Error::Read { name: path.display().to_string(), source },
        TableError::Broken(why) => damaged(path, &why),
        TableError::NoClasses(why) => layout(path, why, AS_CLASSES),
        TableError::TooLarge => layout(
            path,
            "compressed columns are unpacked into memory, and those of this data unpack to more than 4 GiB",
            "write it again, in Python with `pyarrow.feather.write_feather(table, path, compression=\"uncompressed\")`, or \
             as Parquet",
        ),
    }
}
