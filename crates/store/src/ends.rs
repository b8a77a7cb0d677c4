//! Checks that the two ends of a transfer are compatible: data pushed into itself, or a pushed data set used as plain
//! files, is refused before anything is written.

use std::path::{Path, PathBuf};

use crate::terms::HEAD;
use crate::{Error, Location};

/// Whether `source` may be pushed to `target`.
///
/// # Errors
/// [`Error::File`] if there is nothing, [`Error::Usage`] with what to type instead.
pub fn may_push(source: &Path, target: &Location) -> Result<(), Error> {
    std::fs::metadata(source).map_err(Error::file("open", source))?;
    let here = source.display();
    if is_pushed(source) {
        let message = format!("`{here}` holds a data set that was pushed: chunks, and not its files");
        let hint = format!(
            "`gradus data pull {here} FOLDER` makes files of it, which can be pushed; to copy it as it is: `cp -r {here} {target}`"
        );
        return Err(Error::Usage { message, hint });
    }
    match target.local() {
        Some(path) => {
            apart(source, path, "each push would send what earlier ones have stored")?;
            match absolute(source).starts_with(absolute(path)) {
                true => {
                    let message = format!("`{here}` lies in `{target}`: what is stored would lie among other files");
                    Err(Error::Usage { message, hint: beside(&absolute(path)) })
                }
                false => Ok(()),
            }
        }
        None => Ok(()),
    }
}

/// Whether the data at `source` may be pulled into the folder `target`.
///
/// # Errors
/// [`Error::Missing`] if there is nothing, [`Error::Usage`] with what to type instead.
pub fn may_pull(source: &Location, target: &Path) -> Result<(), Error> {
    if let Some(path) = source.local() {
        if !path.exists() {
            let hint = "check the path: `ls` shows what is there".to_owned();
            return Err(Error::Missing { location: source.to_string(), hint });
        }
        if is_empty(path) {
            let hint = "nothing was pushed there: send data with `gradus data push`, or correct the path".to_owned();
            return Err(Error::Usage { message: format!("the folder `{source}` is empty"), hint });
        }
        apart(path, target, "its files would lie among those that they are made of")?;
    }
    if is_pushed(target) {
        let there = target.display();
        let message =
            format!("`{there}` holds a data set that was pushed, and other files must not lie among its chunks");
        let hint =
            format!("name another folder; what `{source}` holds goes there by `gradus data push {source} {there}`");
        return Err(Error::Usage { message, hint });
    }
    Ok(())
}

/// Whether the data at `source` may be packed into the folder `target`.
///
/// # Errors
/// [`Error::Usage`] with what to type instead.
pub fn may_pack(source: &Path, target: &Path) -> Result<(), Error> {
    apart(source, target, "the shards would lie among the files that they are made of")
}

/// Whether this is a folder with nothing in it.
fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether a folder was created by a push in chunks.
fn is_pushed(folder: &Path) -> bool {
    folder.join(HEAD).is_file() && folder.join("manifests").is_dir()
}

/// Refuses a target that is the source or inside it.
fn apart(source: &Path, target: &Path, why: &str) -> Result<(), Error> {
    let (from, to) = (absolute(source), absolute(target));
    let (source, target) = (source.display(), target.display());
    let message = match () {
        () if from == to => format!("`{source}` and `{target}` are the same: {why}"),
        () if to.starts_with(&from) => format!("`{target}` lies in `{source}`: {why}"),
        () => return Ok(()),
    };
    Err(Error::Usage { message, hint: beside(&from) })
}

/// A hint that names a folder next to the outer one.
fn beside(outer: &Path) -> String {
    match (outer.parent(), outer.file_name()) {
        (Some(above), Some(name)) => {
            let beside = above.join(format!("{}-copy", name.to_string_lossy()));
            format!("name a folder outside of both, such as `{}`", beside.display())
        }
        (_, _) => "name a folder outside of both".to_owned(),
    }
}

/// A path without links and relative parts, as far as it is there.
fn absolute(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = whole.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    match there {
        Some((above, real)) => match whole.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            Ok(_) | Err(_) => real,
        },
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_not_carried_into_itself() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        std::fs::create_dir_all(at("here/inner")).unwrap();
        std::fs::write(at("here/inner/file"), "").unwrap();
        std::fs::create_dir_all(at("store/manifests")).unwrap();
        std::fs::write(at("store/gradus.json"), "{}").unwrap();
        std::os::unix::fs::symlink(at("here"), at("link")).unwrap();
        let told = |result: Result<(), Error>| {
            result.map_or_else(|error| format!("{error}; {}", error.hint().unwrap_or_default()), |()| "ok".to_owned())
        };
        let push = |from: &str, to: &str| told(may_push(&at(from), &Location::Local(at(to))));
        let pull = |from: &str, to: &str| told(may_pull(&Location::Local(at(from)), &at(to)));
        assert_eq!([push("here", "there"), push("here", "here-2"), pull("store", "there")], ["ok"; 3]);
        let check = |found: String, part: &str| assert!(found.contains(part), "{found}");
        check(push("here", "here"), "are the same: each push");
        check(push("here", "here/new/deep"), "new/deep` lies in `");
        check(push("here", "link/new"), "new` lies in `");
        check(push("here/inner", "here"), "would lie among other files; name a folder outside of both");
        check(push("here/inner", "here"), "here-copy`");
        check(pull("here/inner", "here"), "ok");
        check(pull("here", "here/inner"), "inner` lies in `");
        check(push("store", "there"), "`gradus data pull ");
        check(push("gone", "there"), "cannot open `");
        check(pull("store", "store"), "are the same");
        check(pull("here", "store"), "goes there by `gradus data push ");
        check(pull("gone", "there"), "there is nothing at `");
        std::fs::create_dir(at("bare")).unwrap();
        check(pull("bare", "there"), "bare` is empty; nothing was pushed there");
        let pack = |from: &str, to: &str| told(may_pack(&at(from), &at(to)));
        assert_eq!([pack("here", "there"), pack("here/inner", "here")], ["ok"; 2]);
        check(pack("here", "here"), "are the same: the shards");
        check(pack("here", "here/out"), "out` lies in `");
    }
}
