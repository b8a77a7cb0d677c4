//! Listings of buckets without the keys that no path can be.
//!
//! A bucket takes any text as a key: `a//b`, `../b`. The client fails a whole listing over one of them, so they are taken
//! out of each page of it, and remembered, so that a command can name them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt;
use object_store::client::{HttpError, HttpRequest, HttpResponse};
use object_store::path::Path;

/// Keys that were left out of listings, by all clones.
#[derive(Debug, Clone, Default)]
pub(super) struct UnreadableKeys(Arc<Mutex<BTreeSet<String>>>);

impl UnreadableKeys {
    /// All of them, sorted.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn add(&self, key: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }
}

/// Whether a page of a listing is requested, of S3, Google or Azure.
pub(super) fn is_listing(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method().as_str() == "GET" && query.split('&').any(|part| matches!(part, "list-type=2" | "comp=list"))
}

/// The answer to such a request, without the keys that no path can be.
pub(super) async fn readable(response: HttpResponse, unreadable: &UnreadableKeys) -> Result<HttpResponse, HttpError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let kept = std::str::from_utf8(&bytes).ok().and_then(|page| without_unreadable(page, unreadable));
    Ok(HttpResponse::from_parts(parts, kept.map_or_else(|| bytes.into(), Into::into)))
}

/// A page without these entries; `None` if it has none. Folder markers, which are empty and end in `/`, are left out
/// without being remembered.
fn without_unreadable(page: &str, unreadable: &UnreadableKeys) -> Option<String> {
    let mut kept = String::new();
    let (mut rest, mut is_changed) = (page, false);
    while let Some((before, entry, after)) = next_entry(rest) {
        kept.push_str(before);
        let key = text_of(entry, "Key").or_else(|| text_of(entry, "Name")).map(unescaped).unwrap_or_default();
        match Path::parse(&key) {
            Ok(path) if path.as_ref() == key => kept.push_str(entry),
            _ => {
                is_changed = true;
                let bytes = text_of(entry, "Size").or_else(|| text_of(entry, "Content-Length"));
                if !(key.ends_with('/') && bytes == Some("0")) {
                    unreadable.add(key);
                }
            }
        }
        rest = after;
    }
    is_changed.then(|| kept + rest)
}

/// What stands before the next object's element, the element, and what stands behind it.
fn next_entry(page: &str) -> Option<(&str, &str, &str)> {
    let (begin, close) = [("<Contents>", "</Contents>"), ("<Blob>", "</Blob>")]
        .into_iter()
        .find_map(|(open, close)| Some((page.find(open)?, close)))?;
    let end = begin + page[begin..].find(close)? + close.len();
    Some((&page[..begin], &page[begin..end], &page[end..]))
}

/// The text of the first element of that name, as it is written.
fn text_of<'a>(entry: &'a str, name: &str) -> Option<&'a str> {
    let (_, from) = entry.split_once(&format!("<{name}>"))?;
    from.split_once('<').map(|(text, _)| text)
}

/// A text of XML without its escapes.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, after) = after.split_once(';').unwrap_or((after, ""));
        plain.extend(match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            number => number.strip_prefix('#').and_then(|number| {
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => number.parse(),
                };
                code.ok().and_then(char::from_u32)
            }),
        });
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_do_not_end_a_listing() {
        let s3 = |key: &str, size: u64| format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>");
        let az = |key: &str, size: u64| {
            format!("<Blob><Name>{key}</Name><Properties><Content-Length>{size}</Content-Length></Properties></Blob>")
        };
        let check = |entry: &dyn Fn(&str, u64) -> String| {
            let page = |keys: &[&str]| {
                let entries: String = keys.iter().map(|key| entry(key, u64::from(!key.ends_with("marker/")))).collect();
                format!("<List><Name>bucket</Name>{entries}<Next>token</Next></List>")
            };
            let unreadable = UnreadableKeys::default();
            let good = ["set/a/b.jpg", "set/a&amp;b.jpg", "set/&#233;.jpg", "set/..b"];
            assert_eq!(without_unreadable(&page(&good), &unreadable), None);
            let bad = ["set/a//b.jpg", "set/../b.jpg", "set/./b.jpg", "/b.jpg", "set/x&amp;y//b", "set/full/"];
            let mixed = [&bad[..3], &good[..], &bad[3..], &["set/marker/"]].concat();
            assert_eq!(without_unreadable(&page(&mixed), &unreadable), Some(page(&good)));
            let mut expected = bad.map(|key| key.replace("&amp;", "&"));
            expected.sort();
            assert_eq!(unreadable.all(), expected);
        };
        check(&s3);
        check(&az);
    }
}
