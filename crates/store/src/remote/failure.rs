//! What `object_store` reports when a request fails: whether another try may succeed, whether the service answered, and
//! its message without secrets.

use object_store::Error as StoreError;

/// The client's error for a server that sends the complete object for a range request.
pub(crate) const NO_RANGES: &str = "Range request not supported";

/// Hint for a web server, which cannot be listed.
pub(crate) const NO_LIST: &str =
    "a web server does not list what it has: name one file, or push in chunks (without `--plain`) what it serves";

/// The error of an upload that was damaged in transit.
pub(crate) const RECEIVED_OTHER: &str = "the store received other bytes than were sent";

/// Services report a missing bucket in the body of a 404, each with its own code.
pub(crate) fn names_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"].iter().any(|word| text.contains(word))
}

/// Whether it is a permanent disk error.
pub(crate) fn is_of_disk(text: &str) -> bool {
    ["No space left on device", "Read-only file system", "Permission denied", "Disk quota exceeded"]
        .iter()
        .any(|word| text.contains(word))
}

/// Whether a file stands where a folder belongs, or the other way round.
pub(crate) fn is_in_the_way(text: &str) -> bool {
    ["Not a directory", "Is a directory", "File exists"].iter().any(|word| text.contains(word))
}

/// Whether a name is longer than a file system takes.
pub(crate) fn is_too_long(text: &str) -> bool {
    text.contains("File name too long")
}

/// Whether an object's key is none that a path can be: it has an empty part, or `.` or `..`.
pub(crate) fn is_no_path(text: &str) -> bool {
    text.contains("empty path segment") || text.contains("whilst parsing path segment")
}

/// Whether credentials were looked for on the machine itself, in vain.
pub(crate) fn names_metadata(text: &str) -> bool {
    text.contains("169.254.169.254") || text.contains("metadata.google.internal")
}

/// Whether another try may succeed.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::Generic { source, .. } => {
            let text = chain(source.as_ref());
            let is_final = match status(&text) {
                // S3's codes for a body that was too slow or damaged.
                Some(400) => !["RequestTimeout", "BadDigest", "IncompleteBody"].iter().any(|word| text.contains(word)),
                Some(408 | 425 | 429) => false,
                Some(300..=499 | 501 | 505) => true,
                Some(_) | None => text.contains("Missing content size") || text.contains("redirect without LOCATION"),
            };
            !is_final
                && !names_bucket(&text)
                && !names_metadata(&text)
                && !is_of_disk(&text)
                && !is_in_the_way(&text)
                && !is_too_long(&text)
                && !is_no_path(&text)
        }
        StoreError::JoinError { .. } => true,
        _ => false,
    }
}

/// The HTTP status in an error, if any.
pub(crate) fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Whether the server has answered, if only to refuse.
pub(crate) fn answered(error: &StoreError) -> bool {
    match error {
        StoreError::Generic { source, .. } => {
            let text = source.to_string();
            status(&text).is_some() || text.contains("Server returned error response")
        }
        StoreError::JoinError { .. } | StoreError::InvalidPath { .. } => false,
        _ => true,
    }
}

pub(crate) fn generic(why: String) -> StoreError {
    StoreError::Generic { store: "gradus", source: why.into() }
}

/// An error and its causes, without repetitions.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        source = cause.source();
    }
    text
}

/// Without the queries of addresses, which hold signatures, and in one line of bearable length.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut kept = String::new();
    let mut in_query = false;
    for c in text.chars() {
        match c {
            '?' => in_query = true,
            c if c.is_whitespace() || matches!(c, ')' | '"') => in_query = false,
            _ => {}
        }
        if !in_query {
            kept.push(if c == '\n' { ' ' } else { c });
        }
    }
    match kept.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &kept[..end]),
        None => kept,
    }
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_not_tried_again() {
        let check = |key: &str| {
            let source = Path::parse(key).expect_err("it is a path");
            let error = StoreError::Generic { store: "S3", source: source.into() };
            assert!(is_no_path(&chain(&error)) && !may_pass(&error), "{error}");
        };
        check("set/a//b.jpg");
        check("set/../b.jpg");
        check("set/./b.jpg");
    }
}
