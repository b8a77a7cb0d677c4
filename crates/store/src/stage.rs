//! Stages remote data on this machine before training.

use std::path::Path;

use data::chunk::ContentHash;

use crate::{Access, Error, Limits, Location, Meter, Options, Pulled, Staged, open, pull};

/// Fetches the data at `uri` into its own folder below `cache`, and returns the path. Data that is there already is
/// verified and not fetched again; a local path is returned unchanged.
///
/// # Errors
/// [`Error`]. Fetched data is retained for the next attempt.
pub fn stage(uri: &str, cache: &Path, access: &Access, limits: Limits, meter: &Meter) -> Result<Staged, Error> {
    let location: Location = uri.parse()?;
    if let Some(path) = location.local() {
        return Ok(Staged { path: path.to_owned(), pulled: Pulled::default() });
    }
    let remote = open(&location, access, limits)?;
    let folder = cache.join(folder_name(&location));
    let threads = std::thread::available_parallelism().unwrap_or(std::num::NonZero::<usize>::MIN);
    let options = Options {
        form: crate::StoreFormat::Chunks,
        dry_run: false,
        verify: false,
        // An image that was removed there must not be trained on here.
        delete: true,
        grace: crate::GRACE,
        threads,
        journals: cache.to_owned(),
    };
    let pulled = pull(&remote, &folder, &options, meter)?;
    let path = match &pulled.single {
        Some(name) => folder.join(name),
        None => folder,
    };
    Ok(Staged { path, pulled })
}

/// A folder name for a location.
pub(crate) fn folder_name(location: &Location) -> String {
    // Only characters that are safe in a path; the hash distinguishes equal names.
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let name: String = location.name().chars().take(40).map(safe).collect();
    format!("{name}-{}", &ContentHash::of(location.to_string().as_bytes()).to_string()[..16])
}
