//! Looks at an origin of data that does not answer, and when to tell of it.

use std::time::Duration;

/// An origin that sends nothing for so long, while a rank waits, is told of.
const SILENCE: Duration = Duration::from_secs(10);

/// Time between two looks at it.
const LOOK: Duration = Duration::from_secs(2);

/// Tells of an origin of data that does not answer: once at first, then each time that its silence has doubled.
#[derive(Debug)]
pub struct OriginWatch {
    origin: String,
    next_look: Duration,
    /// The silence that is told next.
    next_told: Duration,
}

impl OriginWatch {
    /// Of data at this address.
    pub fn new(origin: &str) -> OriginWatch {
        OriginWatch { origin: origin.to_owned(), next_look: Duration::ZERO, next_told: SILENCE }
    }

    /// When to look again.
    pub fn due(&self) -> Duration {
        self.next_look
    }

    /// Looks at how long it has sent nothing while a rank waits; returns what to tell.
    pub fn look(&mut self, silence: Option<Duration>, now: Duration) -> Option<String> {
        self.next_look = now + LOOK;
        let Some(silence) = silence.filter(|silence| *silence >= SILENCE) else {
            self.next_told = SILENCE;
            return None;
        };
        if silence < self.next_told {
            return None;
        }
        self.next_told = silence * 2;
        Some(format!("waiting for data: `{}` has not answered for {} s", self.origin, silence.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An outage of 88 s, then another one.
    #[test]
    fn an_origin_that_does_not_answer_is_told_of() {
        let mut watch = OriginWatch::new("s3://bucket/set");
        let mut told = Vec::new();
        let outages = [(100, 188), (300, 312)];
        for second in 1..400_u32 {
            let now = SECOND * second;
            assert!(watch.due() <= now + LOOK);
            let silence = outages.iter().find(|(begin, end)| (*begin..*end).contains(&second));
            let silence = silence.map(|(begin, _)| SECOND * (second - begin));
            // Between them ranks wait for moments, as ever.
            let silence = silence.or((second % 3 == 0).then_some(SECOND / 2));
            told.extend(watch.look(silence, now).map(|text| (second, text)));
        }
        let line = |seconds: u32| format!("waiting for data: `s3://bucket/set` has not answered for {seconds} s");
        let expected = [(110, 10), (120, 20), (140, 40), (180, 80), (310, 10)];
        assert_eq!(told, expected.map(|(second, silence)| (second, line(silence))));
    }
}
