//! Listings of buckets without the keys that no path can be.
//!
//! A bucket takes any text as a key: `a//b`, `../b`. The client fails a whole listing over one of them, so they are taken
//! out of each page of it, and remembered, so that a command can name them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use http_body_util::BodyExt;
use object_store::client::{HttpError, HttpRequest, HttpResponse};
use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;

use super::{Object, Remote};
use crate::Error;

impl Remote {
    /// Everything below the location, sorted by name.
    pub(crate) async fn list(&self) -> Result<Vec<Object>, Error> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let metas: Vec<_> = self.patiently("list", "", || self.store.list(prefix).try_collect::<Vec<_>>()).await?;
        let mut objects = Vec::with_capacity(metas.len());
        for meta in metas {
            let Some(parts) = meta.location.prefix_match(&self.prefix) else { continue };
            let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
            if !name.is_empty() {
                objects.push(Object::of(name, meta));
            }
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }
}

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

/// What is read of an object's element; Google's is that of S3.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "Key", alias = "Name")]
    key: String,
    #[serde(rename = "Size")]
    bytes: Option<u64>,
    /// Azure's.
    #[serde(rename = "Properties")]
    properties: Option<Properties>,
}

#[derive(Deserialize)]
struct Properties {
    #[serde(rename = "Content-Length")]
    bytes: Option<u64>,
}

/// A page without these entries; `None` if it has none, or is no XML, which the client tells. Folder markers, which are
/// empty and end in `/`, are left out without being remembered.
fn without_unreadable(page: &str, unreadable: &UnreadableKeys) -> Option<String> {
    let (mut kept, mut copied) = (String::new(), 0);
    for range in entries(page).ok()? {
        let entry: Entry = quick_xml::de::from_str(page.get(range.clone())?).ok()?;
        if Path::parse(&entry.key).is_ok_and(|path| path.as_ref() == entry.key) {
            continue;
        }
        kept.push_str(page.get(copied..range.start)?);
        copied = range.end;
        let bytes = entry.bytes.or(entry.properties.and_then(|properties| properties.bytes));
        if !(entry.key.ends_with('/') && bytes == Some(0)) {
            unreadable.add(entry.key);
        }
    }
    (copied > 0).then(|| kept + &page[copied..])
}

/// Where the elements of objects are in a page.
fn entries(page: &str) -> Result<Vec<Range<usize>>, quick_xml::Error> {
    let (mut reader, mut found) = (Reader::from_str(page), Vec::new());
    loop {
        let begin = reader.buffer_position() as usize;
        match reader.read_event()? {
            Event::Start(element) if matches!(element.name().as_ref(), b"Contents" | b"Blob") => {
                reader.read_to_end(element.name())?;
                found.push(begin..reader.buffer_position() as usize);
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
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
        let unreadable = UnreadableKeys::default();
        let page = "<?xml version=\"1.0\"?><List xmlns=\"x\"><!-- <Contents> --><Contents a=\"b\"><ETag>&quot;1&quot;</ETag>\
                    <Key><![CDATA[a//b]]></Key></Contents><Contents><Key>a/&#x26;</Key></Contents></List>";
        let rest = "<?xml version=\"1.0\"?><List xmlns=\"x\"><!-- <Contents> --><Contents><Key>a/&#x26;</Key></Contents></List>";
        assert_eq!(without_unreadable(page, &unreadable).as_deref(), Some(rest));
        assert_eq!(unreadable.all(), ["a//b"]);
        assert_eq!(without_unreadable("<List><Contents><Key>a//b</Key>", &unreadable), None);
    }
}
