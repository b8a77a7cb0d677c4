//! Files of a run on the server's machine: its model, checkpoints, logs and traces, for clients that have no other way to them.

pub(super) mod blobs;
mod checkpoints;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::body::Body;
use axum::extract::{self, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use domain::files::{KEPT, is_safe};
use futures_util::stream::try_unfold;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::failure::ApiError;
use super::reading::{Checked, blocking, known, plain_file, query};

pub(super) use checkpoints::checkpoints;

/// Bytes that are read at a time.
const PART: u64 = 1 << 18;

/// Folders within folders, at most.
const DEEPEST: usize = 40;

/// Which file, and from where on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileQuery {
    file: Option<String>,
    offset: u64,
    /// Lists the files after this name.
    after: String,
    /// Files that are listed at most; all without it.
    limit: Option<usize>,
}

/// The files of a run, or the contents of one.
pub(super) async fn files(
    State(api): State<Api>,
    extract::Path(run): extract::Path<String>,
    wanted: Checked<FileQuery>,
) -> Result<Response, ApiError> {
    let FileQuery { file, offset, after, limit } = query(wanted)?;
    let folder = api.home.run(&known(&api, &run).await?);
    let Some(name) = file else {
        let (listed, has_more) = blocking(move || Ok(listed(&folder, &after, limit))).await?;
        return Ok(Json(json!({ "files": listed, "has_more": has_more })).into_response());
    };
    let permit = api.streams.clone().try_acquire_owned().map_err(|_| {
        ApiError::new(503, "as many streams and files are open as there may be").hint("send the request again")
    })?;
    let (file, left) = blocking(move || opened(&folder, &name, offset)).await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, left.to_string())];
    Ok((headers, body(file, left, permit)).into_response())
}

/// A name, size and time for each file after one of them, in the order of names, up to a limit; and whether there are more.
fn listed(run: &Path, after: &str, limit: Option<usize>) -> (Vec<Value>, bool) {
    let mut found = Vec::new();
    // A link in the place of one of them may lead anywhere.
    let is_folder = |kept: &&&str| fs::symlink_metadata(run.join(kept)).is_ok_and(|about| about.is_dir());
    KEPT.iter().filter(is_folder).for_each(|kept| add(&run.join(kept), kept, 0, &mut found));
    found.retain(|(name, _)| name.as_str() > after);
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let has_more = limit.is_some_and(|limit| found.len() > limit);
    found.truncate(limit.unwrap_or(usize::MAX));
    (found.into_iter().map(|(_, value)| value).collect(), has_more)
}

fn add(folder: &Path, below: &str, depth: usize, found: &mut Vec<(String, Value)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (Ok(name), Ok(about)) = (entry.file_name().into_string(), fs::symlink_metadata(entry.path())) else {
            continue;
        };
        let name = format!("{below}/{name}");
        if about.is_dir() && depth < DEEPEST {
            add(&entry.path(), &name, depth + 1, found);
        } else if about.is_file() && is_listed(&name) {
            let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified = modified.and_then(|since| i64::try_from(since.as_micros()).ok());
            let value = json!({ "file": name, "bytes": about.len(), "modified": modified });
            found.push((name, value));
        }
    }
}

/// Whether a file is the run's, and not one by which gradus keeps order there.
fn is_listed(name: &str) -> bool {
    let is_own = matches!(name, "checkpoints/fence" | "checkpoints/lock");
    is_safe(name) && !is_own && !name.rsplit('/').next().is_some_and(|last| last.starts_with('.'))
}

/// A file from an offset on, and how many bytes are left of it.
fn opened(run: &Path, name: &str, offset: u64) -> Result<(File, u64), ApiError> {
    let folder = name.split_once('/').map(|(folder, _)| folder).filter(|folder| KEPT.contains(folder));
    let Some(folder) = folder.filter(|_| is_listed(name)) else {
        let hint = "list them by leaving `file` out";
        return Err(ApiError::new(400, format!("`{name}` is no name of a file of a run")).hint(hint));
    };
    let missing = |error: io::Error| ApiError::new(404, format!("cannot read the file `{name}`: {error}"));
    let path: PathBuf = fs::canonicalize(run.join(name)).map_err(missing)?;
    // A program may have made a link that leads out of the folder, perhaps to what else is kept of the run.
    if !path.starts_with(fs::canonicalize(run).map_err(missing)?.join(folder)) || !path.is_file() {
        return Err(ApiError::new(404, format!("`{name}` is no file of the run")));
    }
    let mut file = plain_file(&path).map_err(missing)?;
    let left = file.metadata().map_err(missing)?.len().saturating_sub(offset);
    if left > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(missing)?;
    }
    Ok((file, left))
}

/// So many bytes of a file, read as the client takes them.
fn body(file: File, left: u64, permit: OwnedSemaphorePermit) -> Body {
    let parts = try_unfold((file, left, permit), |(file, left, permit)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let read = tokio::task::spawn_blocking(move || -> io::Result<(Vec<u8>, File)> {
            let mut part = Vec::new();
            let bytes = (&file).take(PART.min(left)).read_to_end(&mut part)?;
            // A file that has become shorter breaks the connection off: its length was promised.
            if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((part, file)) }
        });
        let (part, file) = read.await.map_err(io::Error::other)??;
        let left = left - part.len() as u64;
        Ok(Some((part, (file, left, permit))))
    });
    Body::from_stream(parts)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_files_of_a_run_are_listed_and_opened_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("r");
        for path in [
            "export/model.safetensors",
            "checkpoints/fence",
            "checkpoints/step-1-a1/x",
            "logs/.a.partial-1",
            "grant.json",
        ] {
            let path = run.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "0123456789").unwrap();
        }
        fs::write(folder.path().join("secret"), "not yours").unwrap();
        symlink("../../secret", run.join("export/out")).unwrap();
        symlink("../grant.json", run.join("export/grant")).unwrap();
        symlink("..", run.join("profile")).unwrap();
        let names = |after: &str, limit: Option<usize>| -> (Vec<String>, bool) {
            let (files, has_more) = listed(&run, after, limit);
            (files.iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect(), has_more)
        };
        let (first, second) = ("checkpoints/step-1-a1/x".to_owned(), "export/model.safetensors".to_owned());
        assert_eq!(names("", None), (vec![first.clone(), second.clone()], false));
        assert_eq!(names("", Some(1)), (vec![first.clone()], true));
        assert_eq!(names(&first, Some(1)), (vec![second.clone()], false));
        assert_eq!(names(&second, Some(1)), (Vec::new(), false));
        assert_eq!(listed(&run, "", None).0[1]["bytes"], 10);
        let (mut file, left) = opened(&run, "export/model.safetensors", 4).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), left), ("456789", 6));
        assert_eq!(opened(&run, "export/model.safetensors", 99).unwrap().1, 0);
        for (name, status) in [
            ("export/none", 404),
            ("export", 400),
            ("export/out", 404),
            ("export/grant", 404),
            ("profile/secret", 404),
            ("checkpoints/step-1-a1", 404),
            ("checkpoints/fence", 400),
            ("logs/.a.partial-1", 400),
            ("grant.json", 400),
            ("export/../grant.json", 400),
            ("/etc/passwd", 400),
            ("export/a\0b", 400),
        ] {
            assert_eq!(opened(&run, name, 0).map(|_| ()).map_err(|error| error.status), Err(status), "{name:?}");
        }
    }
}
