//! Says why a run waits for disk space on the machine of the loop, and when there is some again: of a run of this home, or of one
//! of a server, which is asked.

use std::time::{Duration, Instant};

use domain::RunId;
use server::home::{Shortage, StoredKind};
use server::{Home, clock};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What frees some, on this machine and on that of a server.
const HERE: &str = "`gradus gc` shows what can be deleted";
const THERE: &str = "`gradus gc` on the server's machine shows what can be deleted";

/// What was printed about shortages of disk space.
#[derive(Debug, Default)]
pub struct RefusedNews {
    looked: Option<Instant>,
    reported: Vec<StoredKind>,
    /// What the server of the run has answered since the last look.
    heard: Option<Vec<Shortage>>,
}

impl RefusedNews {
    /// What the server of the run refuses of it now.
    pub fn hear(&mut self, shortages: Vec<Shortage>) {
        self.heard = Some(shortages);
    }

    /// Lines about what is refused of a run since the last call, and about what no longer is. Of a run without a home, its server
    /// has said so.
    pub fn lines(&mut self, home: Option<&Home>, run: &RunId) -> Vec<String> {
        match (home, self.heard.take()) {
            (Some(home), _) => self.look(home, run),
            (None, Some(shortages)) => self.take(shortages, THERE),
            (None, None) => Vec::new(),
        }
    }

    fn look(&mut self, home: &Home, run: &RunId) -> Vec<String> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let shortages = home.shortages(clock::now());
        self.take(shortages.into_iter().filter(|shortage| shortage.concerns(run)).collect(), HERE)
    }

    fn take(&mut self, shortages: Vec<Shortage>, hint: &str) -> Vec<String> {
        let is_new = |shortage: &&Shortage| !self.reported.contains(&shortage.stored);
        let is_over = |stored: &&StoredKind| !shortages.iter().any(|shortage| shortage.stored == **stored);
        let begun = shortages.iter().filter(is_new);
        let begun = begun.map(|shortage| format!("waiting: {shortage}; {hint}"));
        let over = self.reported.iter().filter(is_over).map(|stored| format!("there is disk space for {stored} again"));
        let lines: Vec<String> = begun.chain(over).collect();
        self.reported = shortages.into_iter().map(|shortage| shortage.stored).collect();
        lines
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn shortage(why: &str) -> Shortage {
        let stored = StoredKind::Files(RunId::new("r"));
        let (place, why) = ("checkpoints/a".to_owned(), why.to_owned());
        Shortage { stored, place, why, since: Timestamp(1), last: Timestamp(2) }
    }

    #[test]
    fn a_shortage_is_said_when_it_begins_and_when_it_is_over() {
        let mut news = RefusedNews::default();
        assert!(news.take(Vec::new(), HERE).is_empty());
        let lines = news.take(vec![shortage("0.0 GB are free")], HERE);
        assert_eq!(
            lines,
            ["waiting: no disk space for files of run `r`: 0.0 GB are free; `gradus gc` shows what can be deleted"]
        );
        assert!(news.take(vec![shortage("0.0 GB are free")], HERE).is_empty(), "once");
        assert_eq!(news.take(Vec::new(), HERE), ["there is disk space for files of run `r` again"]);
        assert!(news.take(Vec::new(), HERE).is_empty());
    }

    #[test]
    fn what_a_server_refuses_is_said_once_and_again_when_it_is_over() {
        let (mut news, run) = (RefusedNews::default(), RunId::new("r"));
        assert!(news.lines(None, &run).is_empty(), "it was not asked yet");
        news.hear(vec![shortage("0.2 GB are free")]);
        let lines = news.lines(None, &run);
        assert!(
            lines.len() == 1 && lines[0].starts_with("waiting: no disk space for files of run `r`: 0.2"),
            "{lines:?}"
        );
        assert!(lines[0].ends_with("on the server's machine shows what can be deleted"), "{lines:?}");
        assert!(news.lines(None, &run).is_empty(), "it was not asked again");
        news.hear(vec![shortage("0.1 GB are free")]);
        assert!(news.lines(None, &run).is_empty(), "the same is refused, for a reason that changes");
        news.hear(Vec::new());
        assert_eq!(news.lines(None, &run), ["there is disk space for files of run `r` again"]);
    }
}
