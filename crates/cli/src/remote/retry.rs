//! Requests that are repeated while a server is away, as it is when it is restarted.

use std::time::{Duration, Instant};

use super::Server;
use crate::error::{Error, exit};

/// How long an unreachable server is retried.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two tries.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

impl Server {
    /// Sends a request until it is answered, where it may be repeated.
    ///
    /// # Errors
    /// Those of the request; [`Error::Code`] if the server is unreachable for longer than two minutes.
    pub fn retry<T>(&self, request: impl Fn(&Server) -> Result<T, Error>) -> Result<T, Error> {
        retried(&|| request(self), &Instant::now, &|| std::thread::sleep(AGAIN))
    }
}

/// Repeats a request that fails, with a pause before each repetition.
fn retried<T>(request: &dyn Fn() -> Result<T, Error>, now: &dyn Fn() -> Instant, pause: &dyn Fn()) -> Result<T, Error> {
    let mut silence = Silence::default();
    loop {
        match request() {
            Err(error) if error.code() == exit::WORLD && !silence.lasts(false, now()) => pause(),
            answered => return answered,
        }
    }
}

/// Since when no connection has brought anything: one that is accepted and lost again is no answer.
#[derive(Debug, Default)]
pub(super) struct Silence(Option<Instant>);

impl Silence {
    /// Notes a connection that was lost, and whether anything came over it: true once nothing has come for too long.
    pub(super) fn lasts(&mut self, is_heard: bool, now: Instant) -> bool {
        if is_heard {
            self.0 = None;
        }
        now.duration_since(*self.0.get_or_insert(now)) > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_server_that_restarts_is_asked_again_for_two_minutes() {
        // Whether a request succeeds that fails with this exit code until a second, and how often it is sent.
        let check = |code: u8, until: u64, expected: (bool, u32)| {
            let (begun, passed, sent) = (Instant::now(), Cell::new(Duration::ZERO), Cell::new(0));
            let request = || {
                sent.set(sent.get() + 1);
                match passed.get() >= Duration::from_secs(until) {
                    true => Ok(()),
                    false => Err(Error::Code { message: "away".to_owned(), hint: None, code }),
                }
            };
            let done = retried(&request, &|| begun + passed.get(), &|| passed.set(passed.get() + AGAIN));
            assert_eq!((done.is_ok(), sent.get()), expected, "exit code {code} until {until} s");
        };
        check(exit::WORLD, 0, (true, 1));
        check(exit::WORLD, 60, (true, 121));
        check(exit::WORLD, 600, (false, 242));
        // It has answered: there is no such pipeline, or the request is refused.
        check(exit::USAGE, 60, (false, 1));
    }
}
