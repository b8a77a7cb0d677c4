//! Says why a run waits for disk space on the machine of the loop, and when there is some again.

use std::time::{Duration, Instant};

use domain::RunId;
use server::home::{Shortage, StoredKind};
use server::{Home, clock};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What was said of shortages of disk space.
#[derive(Debug, Default)]
pub struct RefusedNews {
    looked: Option<Instant>,
    said: Vec<StoredKind>,
}

impl RefusedNews {
    /// Lines about what is refused of a run since the last look, and about what no longer is.
    pub fn look(&mut self, home: &Home, run: &RunId) -> Vec<String> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let shortages = home.shortages(clock::now());
        self.take(shortages.into_iter().filter(|shortage| shortage.concerns(run)).collect())
    }

    fn take(&mut self, shortages: Vec<Shortage>) -> Vec<String> {
        let is_new = |shortage: &&Shortage| !self.said.contains(&shortage.stored);
        let is_over = |stored: &&StoredKind| !shortages.iter().any(|shortage| shortage.stored == **stored);
        let begun = shortages.iter().filter(is_new);
        let begun = begun.map(|shortage| format!("waiting: {shortage}; `gradus gc` shows what can be deleted"));
        let over = self.said.iter().filter(is_over).map(|stored| format!("there is disk space for {stored} again"));
        let lines: Vec<String> = begun.chain(over).collect();
        self.said = shortages.into_iter().map(|shortage| shortage.stored).collect();
        lines
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    #[test]
    fn a_shortage_is_said_when_it_begins_and_when_it_is_over() {
        let (since, last) = (Timestamp(1), Timestamp(2));
        let stored = StoredKind::Files(RunId::new("r"));
        let (place, why) = ("checkpoints/a".to_owned(), "0.0 GB are free".to_owned());
        let shortage = Shortage { stored, place, why, since, last };
        let mut news = RefusedNews::default();
        assert!(news.take(Vec::new()).is_empty());
        let said = news.take(vec![shortage.clone()]);
        assert_eq!(
            said,
            ["waiting: no disk space for files of run `r`: 0.0 GB are free; `gradus gc` shows what can be deleted"]
        );
        assert!(news.take(vec![shortage]).is_empty(), "once");
        assert_eq!(news.take(Vec::new()), ["there is disk space for files of run `r` again"]);
        assert!(news.take(Vec::new()).is_empty());
    }
}
