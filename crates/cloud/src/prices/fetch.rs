//! Asking a price API: bounded in bytes and tries, and read as it comes.
//!
//! No answer, 429, 5xx and an answer that ends early are asked for again after a pause, at least as long as the cloud
//! asks for. Everything else is final: the same request would have the same answer.

use std::io::{BufReader, Read};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::aws::wire::HttpRequest;
use crate::rented::CloudFailure;

/// Bytes of a page that are read at most.
pub const LONGEST_PAGE: u64 = 64 << 20;

/// How often one request is sent at most.
const TRIES: u32 = 4;

/// The first pause; each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A cloud that asks for a longer pause than this is not waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(90);

/// Bytes of a refusal that are read for its message.
const REFUSAL: u64 = 2000;

/// Asks an API that signs its requests, again where there were too many of them or no answer. None where it has no answer to
/// this request.
///
/// # Errors
/// [`CloudFailure`] where it refuses everything, or has not answered.
pub fn patient<T>(
    pause: &dyn Fn(Duration),
    ask: impl Fn() -> Result<T, CloudFailure>,
) -> Result<Option<T>, CloudFailure> {
    let mut wait = FIRST_PAUSE;
    let mut answer = ask();
    for _ in 1..TRIES {
        if !matches!(answer, Err(CloudFailure::Throttled(_) | CloudFailure::Doubt(_))) {
            break;
        }
        pause(wait);
        wait *= 2;
        answer = ask();
    }
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(
            failure @ (CloudFailure::Throttled(_)
            | CloudFailure::Doubt(_)
            | CloudFailure::Denied(_)
            | CloudFailure::Quota(_)),
        ) => Err(failure),
        // It says something of the machine or the region.
        Err(
            CloudFailure::Capacity(_) | CloudFailure::Exists(_) | CloudFailure::NotFound(_) | CloudFailure::Invalid(_),
        ) => Ok(None),
    }
}

/// A client for HTTP whose answers are read as they come.
pub trait PriceTransport: Send + Sync {
    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self, request: &HttpRequest) -> Result<PriceReply, String>;
}

/// The head of an answer, and its body.
pub struct PriceReply {
    pub status: u16,
    /// The header `Retry-After`, if there is one.
    pub retry_after: Option<String>,
    pub body: Box<dyn Read + Send>,
}

/// Why prices could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceFailure {
    /// Nothing was answered.
    #[error("no answer from {from}: {why}")]
    NoAnswer { from: String, why: String },
    /// The cloud refuses.
    #[error("{from} answers with HTTP status {status}{said}")]
    Refused {
        from: String,
        status: u16,
        /// With a colon before it, where anything is said.
        said: String,
    },
    /// The answer is not what the cloud documents.
    #[error("the answer of {from} cannot be read: {why}")]
    Unreadable { from: String, why: String },
    /// There is more than could be meant.
    #[error("{from} sends more than {most}")]
    TooLong { from: String, most: String },
}

impl PriceFailure {
    /// Whether the credentials are the reason.
    pub fn is_denied(&self) -> bool {
        matches!(self, PriceFailure::Refused { status: 401 | 403, .. })
    }
}

/// What sends requests, and pauses between them.
#[derive(Clone, Copy)]
pub struct PriceFetcher<'a> {
    pub transport: &'a dyn PriceTransport,
    pub pause: &'a dyn Fn(Duration),
}

/// A failed try, and after how long another may help.
struct FailedTry {
    failure: PriceFailure,
    again: Option<Duration>,
}

impl PriceFetcher<'_> {
    /// Gets JSON of one page from `from`, the name of the API for people.
    ///
    /// # Errors
    /// [`PriceFailure`].
    pub fn page<T: DeserializeOwned>(&self, from: &str, request: &HttpRequest) -> Result<T, PriceFailure> {
        self.get(from, request, LONGEST_PAGE, |reader| serde_json::from_reader(BufReader::new(reader)))
    }

    /// Sends a request until it is answered, and reads the answer, of at most `most` bytes, with `read`. That is called
    /// for each answer from its beginning.
    ///
    /// # Errors
    /// [`PriceFailure`].
    pub fn get<T>(
        &self,
        from: &str,
        request: &HttpRequest,
        most: u64,
        read: impl Fn(&mut dyn Read) -> Result<T, serde_json::Error>,
    ) -> Result<T, PriceFailure> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let FailedTry { failure, again } = match self.once(from, request, most, &read) {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            let wait = again.map(|asked| asked.max(pause)).filter(|wait| *wait <= LONGEST_PAUSE);
            let Some(wait) = wait.filter(|_| tries < TRIES) else { return Err(failure) };
            (self.pause)(wait);
            pause *= 2;
            tries += 1;
        }
    }

    fn once<T>(
        &self,
        from: &str,
        request: &HttpRequest,
        most: u64,
        read: &dyn Fn(&mut dyn Read) -> Result<T, serde_json::Error>,
    ) -> Result<T, FailedTry> {
        let from = from.to_owned();
        let reply = match self.transport.open(request) {
            Ok(reply) => reply,
            Err(why) => {
                let failure = PriceFailure::NoAnswer { from, why };
                return Err(FailedTry { failure, again: Some(Duration::ZERO) });
            }
        };
        if reply.status != 200 {
            return Err(refused(from, reply));
        }
        let mut body = BoundedRead { inner: reply.body, left: most, is_over: false };
        let why = match read(&mut body) {
            Ok(value) => return Ok(value),
            Err(_) if body.is_over => {
                let most = format!("{} MB", most / 1_000_000);
                return Err(FailedTry { failure: PriceFailure::TooLong { from, most }, again: None });
            }
            Err(why) => why,
        };
        // What ends early may be whole the next time; what is wrong in itself stays so.
        let again = (why.is_io() || why.is_eof()).then_some(Duration::ZERO);
        Err(FailedTry { failure: PriceFailure::Unreadable { from, why: why.to_string() }, again })
    }
}

fn refused(from: String, reply: PriceReply) -> FailedTry {
    let PriceReply { status, retry_after, body } = reply;
    let mut text = Vec::new();
    // The status says enough where the message cannot be read.
    let _ = body.take(REFUSAL).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
    let said = if line.is_empty() { String::new() } else { format!(": {line}") };
    let asked = retry_after.and_then(|text| text.trim().parse().ok()).map_or(Duration::ZERO, Duration::from_secs);
    let again = matches!(status, 408 | 429 | 500..).then_some(asked);
    FailedTry { failure: PriceFailure::Refused { from, status, said }, again }
}

/// A body of which only so much is read.
struct BoundedRead {
    inner: Box<dyn Read + Send>,
    left: u64,
    is_over: bool,
}

impl Read for BoundedRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            self.is_over = true;
            std::io::Error::other("it is too long")
        })?;
        Ok(read)
    }
}

#[cfg(test)]
pub mod scripted {
    //! Answers in this process.

    use std::sync::Mutex;

    use super::*;

    /// An answer: status, the header `Retry-After`, and the body.
    pub type Answer = (u16, Option<&'static str>, String);

    /// Answers by the URL, and remembers what was asked for.
    pub struct PriceScript<F: Fn(&str, usize) -> Answer + Send + Sync> {
        pub answer: F,
        pub asked: Mutex<Vec<String>>,
    }

    impl<F: Fn(&str, usize) -> Answer + Send + Sync> PriceScript<F> {
        /// Answers with the result of this function, of the URL and how many requests there were before.
        pub fn new(answer: F) -> PriceScript<F> {
            PriceScript { answer, asked: Mutex::default() }
        }
    }

    impl<F: Fn(&str, usize) -> Answer + Send + Sync> PriceTransport for PriceScript<F> {
        fn open(&self, request: &HttpRequest) -> Result<PriceReply, String> {
            let mut asked = self.asked.lock().unwrap();
            let (status, retry_after, body) = (self.answer)(&request.url, asked.len());
            asked.push(request.url.clone());
            match status {
                0 => Err("connection refused".to_owned()),
                status => Ok(PriceReply {
                    status,
                    retry_after: retry_after.map(str::to_owned),
                    body: Box::new(std::io::Cursor::new(body.into_bytes())),
                }),
            }
        }
    }

    /// A request for a page.
    pub fn request(url: &str) -> HttpRequest {
        HttpRequest { method: "GET", url: url.to_owned(), headers: Vec::new(), body: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::scripted::{Answer, PriceScript, request};
    use super::*;

    /// What comes of some answers in order, the last one for ever, and the pauses in milliseconds.
    fn check(answers: &[(u16, Option<&'static str>, &str)], expected: &str, pauses: &[u128]) {
        let answers: Vec<Answer> =
            answers.iter().map(|(status, after, body)| (*status, *after, (*body).into())).collect();
        let script = PriceScript::new(move |_, number| answers[number.min(answers.len() - 1)].clone());
        let paused = RefCell::new(Vec::new());
        let pause = |wait: Duration| paused.borrow_mut().push(wait.as_millis());
        let fetcher = PriceFetcher { transport: &script, pause: &pause };
        let said = match fetcher.page::<Vec<u32>>("the list", &request("http://x/")) {
            Ok(numbers) => format!("{numbers:?}"),
            Err(failure) => failure.to_string(),
        };
        assert!(said.starts_with(expected), "{said}\n  is not\n{expected}");
        assert_eq!(*paused.borrow(), pauses, "{expected}");
    }

    #[test]
    fn what_may_help_is_tried_again_and_nothing_else() {
        check(&[(200, None, "[1]")], "[1]", &[]);
        check(&[(0, None, ""), (200, None, "[1]")], "[1]", &[500]);
        check(&[(503, None, "busy"), (200, None, "[1]")], "[1]", &[500]);
        check(&[(429, Some("7"), ""), (429, None, ""), (200, None, "[1]")], "[1]", &[7000, 1000]);
        check(&[(200, None, "[1, 2"), (200, None, "[1]")], "[1]", &[500]);
        check(&[(0, None, "")], "no answer from the list: connection refused", &[500, 1000, 2000]);
        check(&[(500, None, "oh\n no")], "the list answers with HTTP status 500: oh no", &[500, 1000, 2000]);
        check(&[(200, None, "[1, 2")], "the answer of the list cannot be read: EOF", &[500, 1000, 2000]);
        check(&[(429, Some("3600"), "slow")], "the list answers with HTTP status 429: slow", &[]);
        check(&[(403, None, "")], "the list answers with HTTP status 403", &[]);
        check(&[(302, None, "")], "the list answers with HTTP status 302", &[]);
        check(&[(200, None, "<html>")], "the answer of the list cannot be read: expected value", &[]);
        check(&[(200, None, "{}")], "the answer of the list cannot be read: invalid type", &[]);
    }

    #[test]
    fn no_more_is_read_than_could_be_meant() {
        let script = PriceScript::new(|_, _| (200, None, format!("[{}1]", "1,".repeat(1_000_000))));
        let fetcher = PriceFetcher { transport: &script, pause: &|_| panic!("it would be as long again") };
        let read = |reader: &mut dyn Read| serde_json::from_reader::<_, Vec<u32>>(BufReader::new(reader));
        let failure = fetcher.get("the list", &request("http://x/"), 1_000_000, read).unwrap_err();
        assert_eq!(failure.to_string(), "the list sends more than 1 MB");
    }
}
