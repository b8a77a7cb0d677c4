//! The S3 client against moto, a stand-in for AWS that is written by others; `cargo xtask test` provides it.

mod s3;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use domain::random::Draws;
use store::{Access, Error, Limits, Meter, Options, Remote, StoreFormat, open, pull, push};

use self::s3::Moto;

fn access(port: u16, key: Option<&str>) -> Access {
    Access::gather(|name| match name {
        "AWS_ENDPOINT_URL" => Some(format!("http://127.0.0.1:{port}")),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => key.map(str::to_owned),
        _ => None,
    })
}

fn remote(port: u16, uri: &str) -> Remote {
    let limits = Limits { streams: 4, part: 5 << 20, patience: Duration::from_secs(60), ..Limits::default() };
    open(&uri.parse().unwrap(), &access(port, Some("key")), limits).unwrap()
}

fn options(folder: &Path, form: StoreFormat) -> Options {
    let threads = NonZero::new(2).unwrap();
    Options {
        form,
        dry_run: false,
        delete: false,
        grace: store::GRACE,
        verify: false,
        threads,
        journals: folder.join("journals"),
    }
}

fn write(folder: &Path) {
    std::fs::create_dir_all(folder.join("a b")).unwrap();
    std::fs::write(folder.join("large"), Draws::new(1).bytes(12 << 20)).unwrap();
    std::fs::write(folder.join("text"), "some words that compress ".repeat(90_000)).unwrap();
    for number in 0..40 {
        std::fs::write(folder.join(format!("a b/ü+{number}%.jpg")), Draws::new(number + 2).bytes(3000)).unwrap();
    }
}

fn read(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".gradus")
        {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
                    found.insert(name, std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

/// Pushes and pulls through `port`, and holds the result against the source.
fn round_trip(port: u16, form: StoreFormat, uri: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let (here, there) = (temporary.path().join("here"), temporary.path().join("there"));
    write(&here);
    let remote = remote(port, uri);
    let options = options(temporary.path(), form);
    push(&here, &remote, &options, &Meter::default()).unwrap();
    let again = push(&here, &remote, &options, &Meter::default()).unwrap();
    assert_eq!(again.sent, 0, "what is there was sent again");
    pull(&remote, &there, &options, &Meter::default()).unwrap();
    assert_eq!(read(&there), read(&here));
    assert_eq!(pull(&remote, &there, &options, &Meter::default()).unwrap().new_bytes, 0);
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn data_goes_to_a_bucket_and_comes_back() {
    let moto = Moto::start();
    round_trip(moto.port, StoreFormat::Chunks, "s3://bucket/chunks/x");
    round_trip(moto.port, StoreFormat::Plain, "s3://bucket/plain");
    round_trip(proxy(moto.port), StoreFormat::Chunks, "s3://bucket/proxied");
    mistakes(moto.port);
}

/// Keys that no file can have, which anybody can put into a bucket, are left out of its listing and named.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn keys_that_are_no_paths_are_left_out() {
    let moto = Moto::start();
    for key in ["odd/a.jpg", "odd/b&c.jpg", "odd/../5.jpg", "odd/./6.jpg", "odd//7.jpg"] {
        assert_eq!(moto.request("PUT", &format!("/bucket/{key}")), Some(200), "{key}");
    }
    let temporary = tempfile::tempdir().unwrap();
    let there = temporary.path().join("there");
    let options = options(temporary.path(), StoreFormat::Plain);
    let pulled = pull(&remote(moto.port, "s3://bucket/odd"), &there, &options, &Meter::default()).unwrap();
    assert_eq!(
        (pulled.files, pulled.unreadable),
        (2, ["odd/../5.jpg", "odd/./6.jpg", "odd//7.jpg"].map(String::from).into())
    );
    assert_eq!(read(&there).into_keys().collect::<Vec<_>>(), ["a.jpg", "b&c.jpg"]);
}

/// Every form of upload (a bundle in parts, a plain file in parts, an object in one request) with some of its bytes
/// changed in transit: the reported checksum shows it, it is sent again, and arrives intact.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn uploads_that_are_damaged_on_the_way_are_sent_again() {
    let moto = Moto::start();
    for (form, name) in [(StoreFormat::Chunks, "chunks"), (StoreFormat::Plain, "plain")] {
        let temporary = tempfile::tempdir().unwrap();
        let (here, there) = (temporary.path().join("here"), temporary.path().join("there"));
        write(&here);
        let (options, uri) = (options(temporary.path(), form), format!("s3://bucket/damaged/{name}"));
        let (port, damaged) = damaging_proxy(moto.port);
        push(&here, &remote(port, &uri), &options, &Meter::default()).unwrap();
        assert_eq!(damaged.load(Ordering::Relaxed), DAMAGES.len(), "{name}: too little was damaged");
        pull(&remote(moto.port, &uri), &there, &options, &Meter::default()).unwrap();
        assert_eq!(read(&there), read(&here), "{name}");
    }
}

/// A relay that flips a bit of the first body that it carries after each of these many bytes.
fn damaging_proxy(port: u16) -> (u16, Arc<AtomicUsize>) {
    let (carried, damaged) = (AtomicU64::new(0), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&damaged);
    let damage = move |bytes: &mut [u8]| {
        let carried = carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let is_head = bytes.windows(REQUEST_LINE.len()).any(|window| window == REQUEST_LINE);
        let is_due = |damaged| DAMAGES.get(damaged).is_some_and(|after| !is_head && carried >= *after);
        let next = |damaged| is_due(damaged).then_some(damaged + 1);
        if count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            bytes[bytes.len() / 2] ^= 1;
        }
        true
    };
    (relay(port, Arc::new(damage)), damaged)
}

/// The end of a request's first line.
const REQUEST_LINE: &[u8] = b" HTTP/1.1\r\n";

/// Fewer than any push of [`write()`]'s files sends, so that each is reached.
const DAMAGES: [u64; 3] = [2_000_000, 6_000_000, 10_000_000];

/// A relay that cuts the connection after about every 7 MB, in the middle of any message.
fn proxy(port: u16) -> u16 {
    let carried = AtomicU64::new(0);
    let cut = move |bytes: &mut [u8]| {
        let before = carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        before / 7_000_000 == (before + bytes.len() as u64) / 7_000_000
    };
    relay(port, Arc::new(cut))
}

/// Bytes that a relay carries at a time.
const BUFFER: usize = 16 << 10;

/// What a relay does to bytes; returns whether the connection stays open.
type Harm = Arc<dyn Fn(&mut [u8]) -> bool + Send + Sync>;

/// A relay to `port`.
fn relay(port: u16, harm: Harm) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (from, to, is_upload) in [(&client, &server, true), (&server, &client, false)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let harm: Harm = if is_upload { harm.clone() } else { Arc::new(|_| true) };
                std::thread::spawn(move || {
                    let mut buffer = [0; BUFFER];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        if !harm(&mut buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
                });
            }
        }
    });
    own
}

fn mistakes(port: u16) {
    let temporary = tempfile::tempdir().unwrap();
    let told = |uri: &str| {
        let options = options(temporary.path(), StoreFormat::Chunks);
        let error = pull(&remote(port, uri), &temporary.path().join("x"), &options, &Meter::default()).unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let (message, hint) = told("s3://nobucket/x");
    assert!(message.contains("there is no bucket `nobucket`") && hint.contains("create it"), "{message}; {hint}");
    let (message, hint) = told("s3://bucket/nothing");
    assert!(message == "there is nothing at `s3://bucket/nothing`" && !hint.is_empty(), "{message}; {hint}");
    let uri = "s3://bucket/x".parse().unwrap();
    let error = open(&uri, &access(port, None), Limits::default()).unwrap_err();
    assert!(matches!(error, Error::NoCredentials { .. }) && error.hint().unwrap().contains("AWS_ACCESS_KEY_ID"));
}
