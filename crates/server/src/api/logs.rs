//! The output of a run's processes: the names of its logs, a range of one, or a stream of all.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use axum::Json;
use axum::extract::{self, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use domain::RunId;
use node::log::{data_end, next_data};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::failure::ApiError;
use super::follow::{self, Message};
use super::reading::{Checked, blocking, known, plain_file, query};

/// Bytes of a log in one answer, at most.
const PAGE: u64 = 1 << 20;

/// Bytes of a log in one message of a stream, at most.
const MESSAGE: u64 = 1 << 18;

/// Which part of which log.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogQuery {
    file: Option<String>,
    offset: u64,
    follow: Option<String>,
}

/// The logs of a run: names and sizes, a range of one from `offset` on, or a stream of what follows.
pub(super) async fn logs(
    State(api): State<Api>,
    extract::Path(run): extract::Path<String>,
    headers: HeaderMap,
    wanted: Checked<LogQuery>,
) -> Result<Response, ApiError> {
    let wanted = query(wanted)?;
    let id = known(&api, &run).await?;
    if let Some(name) = wanted.file.as_ref().filter(|name| !is_name(name)) {
        return Err(ApiError::new(400, format!("`{name}` is no name of a log")));
    }
    if follow::is_wanted(&headers, wanted.follow.as_deref())? {
        let mut read: BTreeMap<String, u64> = match follow::last_id(&headers)? {
            Some(last) => serde_json::from_str(last).map_err(|_| follow::not_an_id(last))?,
            None => BTreeMap::new(),
        };
        if let Some(name) = &wanted.file {
            read.entry(name.clone()).or_insert(wanted.offset);
        }
        return follow::stream(api, id, LogPlace { only: wanted.file, read }, grown);
    }
    let folder = api.home.run(&id).join("logs");
    let answer = blocking(move || {
        let Some(name) = wanted.file else {
            let entry = |(file, bytes): (String, u64)| json!({ "file": file, "bytes": bytes });
            return Ok(json!({ "files": files(&folder, &id).into_iter().map(entry).collect::<Vec<Value>>() }));
        };
        let LogPart { text, next, size } = part(&folder, &name, wanted.offset, PAGE, true)?;
        Ok(json!({ "file": name, "text": text, "next": next, "has_more": next < size }))
    });
    answer.await.map(|answer| Json(answer).into_response())
}

/// A name of a file, and no path.
fn is_name(name: &str) -> bool {
    domain::files::is_safe(name) && !name.contains('/')
}

/// How far each log was read, of all or of one.
struct LogPlace {
    only: Option<String>,
    read: BTreeMap<String, u64>,
}

/// New output of the logs.
fn grown(api: &Api, run: &RunId, mut place: LogPlace, ended: bool) -> Result<(Vec<Message>, LogPlace), ApiError> {
    let folder = api.home.run(run).join("logs");
    let mut messages = Vec::new();
    for (name, size) in files(&folder, run) {
        let offset = place.read.get(&name).copied().unwrap_or(0);
        if size <= offset || place.only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let LogPart { text, next, .. } = part(&folder, &name, offset, MESSAGE, ended)?;
        if next == offset {
            continue;
        }
        place.read.insert(name.clone(), next);
        let data = json!({ "file": name, "offset": offset, "text": text, "next": next });
        messages.push(Message { kind: "log", id: json!(place.read).to_string(), data });
    }
    Ok((messages, place))
}

/// The logs of a run with their sizes: by the number of the attempt, then by name. A link or a pipe is none.
fn files(folder: &Path, run: &RunId) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let about = entry.metadata().ok().filter(Metadata::is_file)?;
        Some((entry.file_name().into_string().ok()?, about.len()))
    });
    let mut files: Vec<(String, u64)> = named.filter(|(name, _)| is_name(name)).collect();
    files.sort_by_cached_key(|(name, _)| (attempt(name, run), name.clone()));
    files
}

/// The number of the attempt that a log is of: `RUN-aN-rank-0.log`.
fn attempt(name: &str, run: &RunId) -> u64 {
    let rest = name.strip_prefix(run.as_str()).and_then(|rest| rest.strip_prefix("-a")).unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(u64::MAX)
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// Its text, or how much of the log was dropped there.
    pub text: String,
    /// Where the next part begins.
    pub next: u64,
    /// The size of the log.
    pub size: u64,
}

/// Reads at most `most` bytes of a log. A character that would be split is returned with the next part, unless
/// `is_last` is set.
///
/// # Errors
/// If the file cannot be read, or is a link, a pipe or anything else but a file.
pub fn log_part(path: &Path, offset: u64, most: u64, is_last: bool) -> std::io::Result<LogPart> {
    let mut file = plain_file(path)?;
    let size = file.metadata()?.len();
    let begin = next_data(&file, offset.min(size))?;
    if begin > offset {
        let text = format!("\n[{} bytes of output were dropped here]\n", begin - offset);
        return Ok(LogPart { text, next: begin, size });
    }
    let end = data_end(&file, begin)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(most.min(end.saturating_sub(begin))).read_to_end(&mut bytes)?;
    let whole = whole_letters(&bytes, is_last);
    Ok(LogPart { text: String::from_utf8_lossy(&bytes[..whole]).into_owned(), next: offset + whole as u64, size })
}

fn part(folder: &Path, name: &str, offset: u64, most: u64, is_last: bool) -> Result<LogPart, ApiError> {
    let missing = |error: std::io::Error| ApiError::new(404, format!("cannot read the log `{name}`: {error}"));
    log_part(&folder.join(name), offset, most, is_last).map_err(missing)
}

/// How many of these bytes are complete characters.
fn whole_letters(bytes: &[u8], is_last: bool) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && (error.valid_up_to() > 0 || !is_last) => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    /// A program that writes where its logs are kept read with the rights of the server what a link led to, for everyone who may
    /// read the run; a pipe held a thread of the server for ever.
    #[test]
    fn a_link_or_a_pipe_among_the_logs_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        fs::create_dir(&logs).unwrap();
        fs::write(folder.path().join("api.token"), "of the owner").unwrap();
        fs::write(logs.join("r-a1-rank-0.log"), "text").unwrap();
        std::os::unix::fs::symlink(folder.path().join("api.token"), logs.join("r-a1-rank-1.log")).unwrap();
        mkfifoat(CWD, logs.join("r-a1-rank-2.log"), Mode::RUSR).unwrap();
        assert_eq!(files(&logs, &RunId::new("r")), [("r-a1-rank-0.log".to_owned(), 4)]);
        for name in ["r-a1-rank-1.log", "r-a1-rank-2.log"] {
            let refused = part(&logs, name, 0, PAGE, true).unwrap_err();
            assert_eq!(refused.status, 404, "{name}: {}", refused.message);
        }
    }

    #[test]
    fn logs_are_in_the_order_of_their_attempts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["r-a10-rank-0.log", "r-a2-rank-1.log", "r-a2-rank-0.log", "other.log"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names: Vec<String> = files(folder.path(), &RunId::new("r")).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["r-a2-rank-0.log", "r-a2-rank-1.log", "r-a10-rank-0.log", "other.log"]);
    }

    #[test]
    fn a_letter_that_is_cut_in_two_comes_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let check = |bytes: &[u8], is_last, text: &str, next| {
            fs::write(&path, bytes).unwrap();
            let part = log_part(&path, 0, 9, is_last).unwrap();
            assert_eq!((part.text.as_str(), part.next), (text, next));
        };
        check("a–".as_bytes(), false, "a–", 4);
        check(b"a\xe2\x80", false, "a", 1);
        check(b"\xe2\x80", false, "", 0);
        check(b"\xe2\x80", true, "\u{fffd}", 2);
        // Invalid UTF-8 is passed on.
        check(b"a\xffb", false, "a\u{fffd}b", 3);
    }

    #[test]
    fn what_was_dropped_is_said_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"begin\n").unwrap();
        file.seek(SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(b"end\n").unwrap();
        let (mut text, mut offset) = (String::new(), 0);
        loop {
            let part = log_part(&path, offset, 1 << 16, true).unwrap();
            if part.next == offset {
                break;
            }
            (text, offset) = (text + &part.text, part.next);
        }
        // The hole begins and ends with a block of the disk.
        let text = text.replace('\0', "");
        assert!(text.starts_with("begin\n\n["), "{text}");
        assert!(text.ends_with(" bytes of output were dropped here]\nend\n"), "{text}");
        assert_eq!(offset, (1 << 20) + 4);
    }
}
