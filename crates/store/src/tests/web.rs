//! A minimal web server that fails as networks do: it truncates bodies, answers 503 and stalls.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[derive(Debug, Clone, Copy)]
enum Answer {
    Whole,
    /// The connection ends in the middle of the body.
    Cut,
    /// 503, to be tried again.
    Busy,
    /// Half of the body, then nothing for longer than any timeout.
    Silent,
    /// The complete file, whatever range was requested.
    NoRanges,
    /// The same, with the connection ending in its middle.
    NoRangesCut,
    /// A little at a time.
    Slow,
    /// A page, which is what such a server makes of a folder.
    Page,
}

/// Serves a folder; the answers are used in turn.
fn serve(root: PathBuf, answers: &'static [Answer]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let turn = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (root, turn) = (root.clone(), turn.clone());
            std::thread::spawn(move || {
                let answer = answers[turn.fetch_add(1, Ordering::Relaxed) % answers.len()];
                let _ = respond(stream, &root, answer);
            });
        }
    });
    origin
}

fn respond(mut stream: TcpStream, root: &Path, answer: Answer) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let mut range = None;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(expected) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (begin, end) = expected.split_once('-').unwrap();
            range = Some((begin.parse::<u64>().unwrap(), end.parse::<u64>().unwrap()));
        }
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Ok(mut file) = fs::File::open(root.join(path.trim_start_matches('/'))) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    if let Answer::Busy = answer {
        return stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let length = file.metadata()?.len();
    let range = range.filter(|_| !matches!(answer, Answer::NoRanges | Answer::NoRangesCut | Answer::Page));
    let kind = if matches!(answer, Answer::Page) { "text/html; charset=utf-8" } else { "application/x-tar" };
    let (begin, end) = range.map_or((0, length), |(begin, end)| (begin, (end + 1).min(length)));
    let head = match range {
        Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {begin}-{}/{length}", end - 1),
        None => "200 OK".to_owned(),
    };
    let head = format!(
        "HTTP/1.1 {head}\r\nETag: \"{length}\"\r\nContent-Length: {}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n",
        end - begin
    );
    stream.write_all(head.as_bytes())?;
    if method == "HEAD" {
        return Ok(());
    }
    let mut body = vec![0; (end - begin) as usize];
    file.seek(SeekFrom::Start(begin))?;
    file.read_exact(&mut body)?;
    match answer {
        Answer::Whole | Answer::Busy | Answer::NoRanges | Answer::Page => stream.write_all(&body),
        Answer::Slow => body.chunks(64 << 10).try_for_each(|piece| {
            std::thread::sleep(Duration::from_millis(15));
            stream.write_all(piece)
        }),
        Answer::Cut | Answer::NoRangesCut => stream.write_all(&body[..body.len() / 2]),
        Answer::Silent => {
            stream.write_all(&body[..body.len() / 2])?;
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        }
    }
}

fn web(origin: &str, path: &str, limits: Limits) -> Remote {
    let location = format!("{origin}/{path}").parse().unwrap();
    open(&location, &Access::default(), limits).unwrap()
}

#[test]
fn data_comes_whole_from_a_server_that_fails_again_and_again() {
    use Answer::{Busy, Cut, Silent, Whole};
    for answers in [&[Whole][..], &[Whole, Cut, Whole], &[Busy, Whole, Whole], &[Whole, Whole, Whole, Whole, Silent]] {
        let scene = Scene::new();
        let tree = data_set(20);
        write(&scene.path("here"), &tree);
        push_(&scene, &scene.folder("served/set"), StoreFormat::Chunks);
        let origin = serve(scene.path("served"), answers);
        let patient = Limits { patience: Duration::from_secs(60), ..limits() };
        pull_(&scene, &web(&origin, "set", patient), "there");
        assert_eq!(read(&scene.path("there")), tree, "{answers:?}");
    }
}

#[test]
fn one_plain_file_comes_from_a_web_server() {
    let scene = Scene::new();
    let bytes = Draws::new(21).bytes(350_000);
    fs::create_dir_all(scene.path("served")).unwrap();
    fs::write(scene.path("served/x.tar"), &bytes).unwrap();
    let origin = serve(scene.path("served"), &[Answer::Whole, Answer::Whole, Answer::Cut]);
    let patient = Limits { patience: Duration::from_secs(60), ..limits() };
    let pulled = pull_(&scene, &web(&origin, "x.tar", patient), "there");
    assert_eq!(pulled.single.as_deref(), Some("x.tar"));
    assert_eq!(fs::read(scene.path("there/x.tar")).unwrap(), bytes);
    let staged =
        stage(&format!("{origin}/x.tar"), &scene.path("cache"), &Access::default(), patient, &Meter::default())
            .unwrap();
    assert_eq!(fs::read(staged.path).unwrap(), bytes);
}

#[test]
fn what_never_works_is_told_in_time() {
    let scene = Scene::new();
    write(&scene.path("served"), &Tree::from([("a".into(), vec![1; 1000])]));
    let (short, patient) = (Duration::from_millis(800), Duration::from_secs(60));
    let told = |origin: &str, path: &str, patience: Duration| {
        let error = pull(
            &web(origin, path, Limits { patience, ..limits() }),
            &scene.path("there"),
            &scene.options(StoreFormat::Chunks),
            &Meter::default(),
        );
        let error = error.unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let (message, hint) = told(&serve(scene.path("served"), &[Answer::Busy]), "a", short);
    assert!(message.contains("cannot look for") && hint.contains("it goes on where it was"), "{message}; {hint}");
    let (message, hint) = told(&serve(scene.path("served"), &[Answer::Whole]), "missing", patient);
    assert!(message.contains("there is nothing at") && hint.contains("does not list"), "{message}; {hint}");
    // Nothing listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (message, hint) = told(&format!("http://{closed}"), "a", short);
    assert!(message.contains(&format!("cannot reach `{closed}`")) && message.contains("nothing listens"), "{message}");
    assert!(hint.contains("host and port"), "{hint}");
    // A folder, of which such a server makes a page.
    let (message, hint) = told(&serve(scene.path("served"), &[Answer::Page]), "a", patient);
    assert!(message.contains("there is nothing at") && hint.contains("does not list"), "{message}; {hint}");
}

#[test]
fn a_server_without_ranges_serves_whole_files_and_no_chunks() {
    let scene = Scene::new();
    let bytes = Draws::new(22).bytes(350_000);
    fs::create_dir_all(scene.path("served")).unwrap();
    fs::write(scene.path("served/x.tar"), &bytes).unwrap();
    // The first requests are for a head, a length, and four parts.
    let origin = serve(scene.path("served"), &[Answer::NoRanges, Answer::NoRanges, Answer::NoRangesCut]);
    let pulled = pull_(&scene, &web(&origin, "x.tar", limits()), "there");
    assert_eq!((pulled.single.as_deref(), pulled.bytes), (Some("x.tar"), 350_000));
    assert_eq!(fs::read(scene.path("there/x.tar")).unwrap(), bytes);
    write(&scene.path("here"), &data_set(23));
    push_(&scene, &scene.folder("served/set"), StoreFormat::Chunks);
    let remote = web(&serve(scene.path("served"), &[Answer::NoRanges]), "set", limits());
    let error =
        pull(&remote, &scene.path("chunks"), &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(error.to_string().contains("does not support range requests") && hint.contains("nginx"), "{error}; {hint}");
}

#[test]
fn an_object_store_that_is_none_is_told_with_the_variable_that_names_it() {
    let scene = Scene::new();
    write(&scene.path("here"), &Tree::from([("a".into(), vec![1; 1000])]));
    let told = |endpoint: &str| {
        let access = Access::gather(|name| match name {
            "AWS_ENDPOINT_URL" => Some(endpoint.to_owned()),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("hush".to_owned()),
            _ => None,
        });
        let remote = open(&"s3://bucket/set".parse().unwrap(), &access, limits()).unwrap();
        let error =
            push(&scene.path("here"), &remote, &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap_err();
        format!("{error}; {}", error.hint().unwrap_or_default())
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let message = told(&format!("http://{closed}"));
    assert!(message.contains(&format!("cannot reach `{closed}` for `s3://bucket/set/gradus.json`")), "{message}");
    assert!(message.contains("`AWS_ENDPOINT_URL` names that host"), "{message}");
}

/// Progress is seen inside of a part, which may take minutes on a slow network.
#[test]
fn progress_is_seen_before_a_part_is_whole() {
    let scene = Scene::new();
    let bytes = Draws::new(24).bytes(4 << 20);
    fs::create_dir_all(scene.path("served")).unwrap();
    fs::write(scene.path("served/x.tar"), &bytes).unwrap();
    let origin = serve(scene.path("served"), &[Answer::Slow]);
    let slow = Limits { part: 8 << 20, request: Duration::from_secs(60), ..limits() };
    let (remote, meter) = (web(&origin, "x.tar", slow), Meter::default());
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        let (there, options, meter) = (scene.path("there"), scene.options(StoreFormat::Chunks), &meter);
        let pulling = scope.spawn(move || pull(&remote, &there, &options, meter).unwrap());
        while !pulling.is_finished() {
            seen.insert(meter.read().done);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let inside = seen.iter().filter(|done| (1..4 << 20).contains(*done)).count();
    assert!(inside >= 3, "{seen:?}");
    assert_eq!((meter.read().done, meter.read().received), (4 << 20, 4 << 20));
    assert_eq!(fs::read(scene.path("there/x.tar")).unwrap(), bytes);
}

/// A service of S3 with an empty bucket, which takes the first mebibyte of each object that is put, and the rest of it
/// only when it is told to.
fn hesitant(go: std::sync::mpsc::Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (mut lines, mut stream) = (BufReader::new(stream.try_clone().unwrap()), stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
            let mut answer = |text: &str| {
                let head = format!("HTTP/1.1 {text}");
                stream.write_all(head.as_bytes()).unwrap();
            };
            if !head.starts_with("PUT") {
                let is_listing = head.contains("list-type=2");
                let body = if is_listing { "<ListBucketResult />" } else { "<Error><Code>NoSuchKey</Code></Error>" };
                let status = if is_listing { "200 OK" } else { "404 Not Found" };
                answer(&format!("{status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()));
                continue;
            }
            let length = head.to_ascii_lowercase();
            let length =
                length.split_once("content-length: ").unwrap().1.lines().next().unwrap().parse::<u64>().unwrap();
            let first = std::io::copy(&mut lines.by_ref().take(1 << 20), &mut std::io::sink()).unwrap();
            if go.recv().is_err() {
                return;
            }
            std::io::copy(&mut lines.by_ref().take(length - first), &mut std::io::sink()).unwrap();
            answer("200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    endpoint
}

/// Of an object of 64 MiB of which the service has taken 1, some are on the way, the rest is not sent.
#[test]
fn progress_is_seen_before_an_object_is_sent() {
    const WHOLE: u64 = 64 << 20;
    let scene = Scene::new();
    write(&scene.path("here"), &Tree::from([("x.bin".into(), Draws::new(25).bytes(WHOLE as usize))]));
    let (go, wait) = std::sync::mpsc::channel();
    let endpoint = hesitant(wait);
    let access = Access::gather(|name| match name {
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("hush".to_owned()),
        _ => None,
    });
    let patient = Limits { part: WHOLE, request: Duration::from_secs(60), ..limits() };
    let remote = open(&"s3://bucket/set".parse().unwrap(), &access, patient).unwrap();
    let meter = Meter::default();
    let (began, mut seen) = (std::time::Instant::now(), 0);
    std::thread::scope(|scope| {
        let (here, options, meter) = (scene.path("here"), scene.options(StoreFormat::Plain), &meter);
        let pushing = scope.spawn(move || push(&here, &remote, &options, meter).unwrap());
        while seen < 1 << 20 && began.elapsed() < Duration::from_secs(20) && !pushing.is_finished() {
            seen = meter.read().done;
            std::thread::sleep(Duration::from_millis(2));
        }
        go.send(()).unwrap();
        assert_eq!(pushing.join().unwrap().sent, WHOLE);
    });
    assert!((1 << 20..WHOLE).contains(&seen), "{seen} bytes were seen before the object was sent");
    assert_eq!((meter.read().done, meter.read().sent), (WHOLE, WHOLE));
}
