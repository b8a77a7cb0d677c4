//! News of a run, and how it comes from a server: its streams are read by threads, and one asks what is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::rank::Ready;
use domain::series::Point;
use domain::{Record, RunId};
use plan::World;
use server::home::Shortage;

use crate::error::Error;
use crate::remote::{Server, StreamMessage};

/// A new event or measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// An event.
    Record(Box<Record>),
    /// A measurement.
    Point(Box<Point>),
    /// Text that a process has written, on a server; here it is read from its log.
    Output {
        /// The name of its log.
        file: String,
        /// The output.
        text: String,
    },
    /// What a server refuses of the run now for want of disk space; of a run here it is read from the home.
    Refused(Vec<Shortage>),
}

/// Between two questions of what is refused.
const ASK: Duration = Duration::from_secs(5);

/// What threads have read of a run's streams.
#[derive(Debug)]
pub struct ServerNews {
    /// The run, according to the events taken so far.
    pub world: World,
    /// Where training of its newest attempt began, from its measurements.
    pub ready: Option<Ready>,
    /// Messages from the threads.
    pub inbox: Receiver<News>,
}

impl ServerNews {
    /// The messages since the last call.
    ///
    /// # Errors
    /// [`server::Error::Illegal`] if an event cannot follow.
    pub fn take(&mut self) -> Result<Vec<News>, plan::Illegal> {
        let news: Vec<News> = self.inbox.try_iter().collect();
        for one in &news {
            let News::Record(record) = one else { continue };
            if record.seq > self.world.last_seq {
                // Events in between are of other runs.
                self.world.last_seq = record.seq - 1;
                self.world.apply(record)?;
            }
        }
        Ok(news)
    }
}

/// Why the streams cannot be read any more.
pub type StreamFailure = Arc<Mutex<Option<Error>>>;

/// Reads the streams of a run after an event and a measurement in threads of their own; sets `ended` once all are at their end, or one has failed.
///
/// # Errors
/// [`Error::Code`] if the server cannot be queried for the ends of its logs.
pub fn read_streams(
    server: &Server,
    id: &RunId,
    (after, point): (u64, u64),
    shows_output: bool,
    news: Sender<News>,
    ended: Arc<AtomicBool>,
) -> Result<StreamFailure, Error> {
    let mut streams: Vec<(String, Option<String>, ReadMessage)> = vec![
        (format!("/v1/runs/{id}/series?follow=true&after={point}"), None, point_of),
        (format!("/v1/runs/{id}/events?follow=true&after={after}"), None, record_of),
    ];
    if shows_output {
        let last = if after > 0 { Some(server.log_ends(id)?) } else { None };
        streams.push((format!("/v1/runs/{id}/logs?follow=true"), last, output_of));
    }
    let failure = StreamFailure::default();
    let threads: Vec<_> = streams
        .into_iter()
        .map(|(path, last, read)| {
            let (server, news, failure, ended) = (server.clone(), news.clone(), failure.clone(), ended.clone());
            std::thread::spawn(move || {
                let mut take = |message| read(message).is_none_or(|one| news.send(one).is_ok());
                if let Err(error) = server.follow(&path, last, &mut take) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    ended.store(true, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let (server, id, is_over) = (server.clone(), id.clone(), ended.clone());
    std::thread::spawn(move || ask_refused(&server, &id, &news, &is_over));
    std::thread::spawn(move || {
        threads.into_iter().for_each(|thread| drop(thread.join()));
        ended.store(true, Ordering::SeqCst);
    });
    Ok(failure)
}

/// Asks a server what it refuses of a run for want of disk space, until that is over or nobody reads it any more.
fn ask_refused(server: &Server, id: &RunId, news: &Sender<News>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        // Where it does not answer, its streams say so.
        if let Ok(known) = server.run(id, 0)
            && news.send(News::Refused(known.shortages)).is_err()
        {
            return;
        }
        std::thread::sleep(ASK);
    }
}

/// Parses a message of a stream; `None` for one of a later version.
type ReadMessage = fn(StreamMessage) -> Option<News>;

fn record_of(message: StreamMessage) -> Option<News> {
    serde_json::from_value::<Record>(message.data).ok().map(|record| News::Record(Box::new(record)))
}

fn point_of(message: StreamMessage) -> Option<News> {
    crate::remote::point(message.data).map(|point| News::Point(Box::new(point)))
}

fn output_of(message: StreamMessage) -> Option<News> {
    let part = |name: &str| message.data[name].as_str().map(str::to_owned);
    Some(News::Output { file: part("file")?, text: part("text")? })
}
