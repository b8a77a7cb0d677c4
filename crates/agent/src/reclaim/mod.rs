//! The thread that polls the cloud's metadata service for a reclaim notice, which only the machine itself can read,
//! between 30 s and 5 min ahead.

mod notice;

use std::fs;
use std::sync::mpsc::Sender;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::event::Wakeup;
use notice::{MetadataKind, MetadataRequest};

/// Polling interval, as AWS recommends for its notices of 2 min.
const EVERY: Duration = Duration::from_secs(5);

/// Polling interval if the notice period is short.
const OFTEN: Duration = Duration::from_secs(1);

/// For one answer; the service is on the machine's own host.
const WITHIN: Duration = Duration::from_secs(2);

/// A metadata service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataService {
    cloud: MetadataKind,
    /// Host and port.
    address: String,
}

impl MetadataService {
    /// Reads `CLOUD=http://HOST:PORT`, for a stand-in.
    pub fn parse(text: &str) -> Option<MetadataService> {
        let (name, url) = text.split_once('=')?;
        let cloud = MetadataKind::ALL.into_iter().find(|cloud| cloud.name() == name)?;
        let address = url.strip_prefix("http://")?.trim_end_matches('/');
        (address.contains(':') && !address.contains('/'))
            .then(|| MetadataService { cloud, address: address.to_owned() })
    }

    /// That of the cloud which this machine is of, if it is of one.
    pub fn detect() -> Option<MetadataService> {
        let read = |name: &str| fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
        let cloud = MetadataKind::of(&read("sys_vendor"), &read("chassis_asset_tag"))?;
        Some(MetadataService { cloud, address: format!("{}:80", cloud.host()) })
    }
}

/// Polls until there is a notice, which wakes the agent once. The thread ends with the agent.
pub fn watch(service: MetadataService, events: Sender<Wakeup>) {
    std::thread::spawn(move || {
        let every = if service.cloud.documented() <= Duration::from_secs(30) { OFTEN } else { EVERY };
        loop {
            // Without an answer there is no notice: the next poll comes soon.
            if let Ok(Some(left)) = ask(&service) {
                let _ = events.send(Wakeup::ReclaimNotice(left));
                return;
            }
            std::thread::sleep(every);
        }
    });
}

/// The remaining time, if there is a reclaim notice.
fn ask(service: &MetadataService) -> Result<Option<Duration>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut token = None;
        if let Some((request, name)) = service.cloud.token() {
            let (status, text) = exchange(service, request, None).await?;
            token = (status == 200).then_some((name, text));
        }
        let (status, text) = exchange(service, service.cloud.question(), token.as_ref()).await?;
        Ok(service.cloud.notice(status, &text, jiff::Timestamp::now()))
    })
}

async fn exchange(
    service: &MetadataService,
    asked: MetadataRequest,
    token: Option<&(&str, String)>,
) -> Result<(u16, String), String> {
    let answer = timeout(WITHIN, async {
        let stream = TcpStream::connect(&service.address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        tokio::spawn(connection);
        let method = if asked.method == "PUT" { Method::PUT } else { Method::GET };
        let mut request = Request::builder().method(method).uri(asked.path).header(HOST, &service.address);
        if let Some((name, value)) = asked.header {
            request = request.header(name, value);
        }
        if let Some((name, value)) = token {
            request = request.header(*name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(text)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(text)?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    });
    answer.await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

fn text(error: hyper::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    /// A stand-in that answers each request by its first line and its headers.
    fn service(cloud: &str, answer: fn(&str) -> (u16, &'static str)) -> MetadataService {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = Vec::new();
                let mut buffer = [0; 1024];
                while !request.ends_with(b"\r\n\r\n") {
                    let count = stream.read(&mut buffer).unwrap();
                    request.extend_from_slice(&buffer[..count]);
                }
                let (status, body) = answer(&String::from_utf8(request).unwrap());
                let length = body.len();
                let text =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        MetadataService::parse(&format!("{cloud}=http://{address}")).unwrap()
    }

    fn noticed(service: MetadataService) -> Duration {
        let (events, inbox) = mpsc::channel();
        watch(service, events);
        match inbox.recv().unwrap() {
            Wakeup::ReclaimNotice(left) => left,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn aws_is_asked_with_a_token() {
        let service = service("aws", |request| match request.lines().next().unwrap() {
            "PUT /latest/api/token HTTP/1.1" if request.contains("x-aws-ec2-metadata-token-ttl-seconds: 300") => {
                (200, "secret-token")
            }
            "GET /latest/meta-data/spot/instance-action HTTP/1.1"
                if request.contains("x-aws-ec2-metadata-token: secret-token") =>
            {
                (200, r#"{"action":"terminate","time":"later"}"#)
            }
            _ => (401, ""),
        });
        assert_eq!(noticed(service), Duration::from_secs(120));
    }

    #[test]
    fn gcp_is_asked_with_its_header() {
        let service = service("gcp", |request| {
            let is_right = request.starts_with("GET /computeMetadata/v1/instance/preempted HTTP/1.1")
                && request.contains("metadata-flavor: Google");
            if is_right { (200, "TRUE") } else { (403, "") }
        });
        assert_eq!(noticed(service), Duration::from_secs(30));
    }

    #[test]
    fn a_service_that_is_not_there_says_nothing() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let service = MetadataService::parse(&format!("azure=http://{free}")).unwrap();
        assert!(ask(&service).is_err());
        for wrong in ["", "aws", "ibm=http://h:1", "aws=https://h:1", "aws=http://h", "aws=http://h:1/path"] {
            assert_eq!(MetadataService::parse(wrong), None, "{wrong}");
        }
    }
}
