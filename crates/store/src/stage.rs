//! Data from elsewhere, brought to this machine before training begins.

use std::path::Path;

use data::chunk::ContentHash;

use crate::{Access, Error, Limits, Location, Meter, Options, Pulled, Staged, open, pull};

/// Brings what lies at `uri` into a folder of its own below `cache`, and says where it is. What is there already is
/// verified and not fetched again; a local path stays where it is.
///
/// # Errors
/// [`Error`]. What was fetched stays for the next time.
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

/// A name for what comes from a location.
pub(crate) fn folder_name(location: &Location) -> String {
    // Only letters that are safe in a path; the hash tells two of one name apart.
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let name: String = location.name().chars().take(40).map(safe).collect();
    format!("{name}-{}", &ContentHash::of(location.to_string().as_bytes()).to_string()[..16])
}
