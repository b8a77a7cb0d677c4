//! A connection that is closed in time: soon where its client shows no right token, else once it is silent for long, as after
//! a power failure of the client.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::visitor::Visitor;

/// Time limit for the first request with a right token.
const UNKNOWN: Duration = Duration::from_secs(30);

/// How long a client with a right token may be silent. Streams say something every 10 s.
const SILENT: Duration = Duration::from_secs(600);

/// A stream with a time limit.
pub struct WatchedStream<S> {
    stream: S,
    visitor: Visitor,
    limits: Limits,
    begun: Instant,
    /// When bytes went in or out last.
    moved: Instant,
    timer: Pin<Box<Sleep>>,
}

/// Both time limits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    unknown: Duration,
    silent: Duration,
}

impl<S> WatchedStream<S> {
    /// A new connection, with its place among those of unknown clients.
    pub fn new(stream: S, place: OwnedSemaphorePermit) -> WatchedStream<S> {
        WatchedStream::within(stream, place, Limits { unknown: UNKNOWN, silent: SILENT })
    }

    fn within(stream: S, place: OwnedSemaphorePermit, limits: Limits) -> WatchedStream<S> {
        let visitor = Visitor { place: Arc::new(Mutex::new(Some(place))) };
        let (begun, timer) = (Instant::now(), Box::pin(sleep(limits.unknown)));
        WatchedStream { stream, visitor, limits, begun, moved: begun, timer }
    }

    /// Its client.
    pub fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    /// Fails once its time is over; until then the task is woken at the limit.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.timer.as_mut().poll(context).is_ready() {
            let is_unknown = self.visitor.place.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            let until = match is_unknown {
                true => self.begun + self.limits.unknown,
                false => self.moved + self.limits.silent,
            };
            if until <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.timer.as_mut().reset(until);
        }
        Ok(())
    }

    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(bytes)) if *bytes > 0) {
            self.moved = Instant::now();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Err(late) = this.check(context) {
            return Poll::Ready(Err(late));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.moved = Instant::now();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Err(late) = this.check(context) {
            return Poll::Ready(Err(late));
        }
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Err(late) = this.check(context) {
            return Poll::Ready(Err(late));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use tokio::sync::Semaphore;

    use super::*;

    /// Reads a byte from a client, which is trusted before or not; what comes, and whether its place is free while it is open.
    fn read(sent: &[u8], is_trusted: bool, limits: Limits) -> (Result<u8, ErrorKind>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        client.write_all(sent).unwrap();
        server.set_nonblocking(true).unwrap();
        let places = Arc::new(Semaphore::new(1));
        let found = runtime.block_on(async {
            let place = places.clone().acquire_owned().await.unwrap();
            let stream = tokio::net::UnixStream::from_std(server).unwrap();
            let mut watched = WatchedStream::within(stream, place, limits);
            if is_trusted {
                watched.visitor().place.lock().unwrap().take();
            }
            let mut bytes = [0_u8];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = std::future::poll_fn(|context| Pin::new(&mut watched).poll_read(context, &mut buffer)).await;
            let is_free = places.available_permits() == 1;
            (read.map(|()| buffer.filled()[0]).map_err(|error| error.kind()), is_free)
        });
        assert_eq!(places.available_permits(), 1, "its place is free once it is closed");
        let _ = client.read(&mut [0]);
        found
    }

    #[test]
    fn an_unknown_client_has_a_place_for_a_while_and_a_trusted_one_until_it_is_silent() {
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let (soon, late) = (Limits { unknown: short, silent: long }, Limits { unknown: long, silent: short });
        assert_eq!(read(b"", false, soon), (Err(ErrorKind::TimedOut), false));
        assert_eq!(read(b"x", false, late), (Ok(b'x'), false));
        let both = Limits { unknown: short, silent: short };
        assert_eq!(read(b"", true, both), (Err(ErrorKind::TimedOut), true));
        assert_eq!(read(b"x", true, soon), (Ok(b'x'), true));
    }
}
