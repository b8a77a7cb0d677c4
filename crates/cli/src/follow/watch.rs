//! Polls for news about a run, from the event log and the measurements, whichever process runs the control loop; or
//! from a server.

use domain::rank::Ready;
use domain::{Record, RunId};
use plan::{RunOrSweep, World};
use server::{Error, Home, Series, State};

use super::news::{News, ServerNews};
use super::progress::ready_of;

/// Since when a run is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Since it was submitted.
    Start,
    /// Only events after this one.
    Event(u64),
}

/// A run being watched.
#[derive(Debug)]
pub struct Watch {
    source: Source,
    run: RunId,
    record: u64,
    point: u64,
}

/// Where the news comes from.
#[derive(Debug)]
enum Source {
    /// The databases of a home.
    Home(Box<(State, Series)>),
    /// The streams of a server.
    Server(Box<ServerNews>),
}

impl Watch {
    /// The run that is watched.
    pub fn id(&self) -> &RunId {
        &self.run
    }

    /// Watches a run.
    ///
    /// # Errors
    /// [`Error`] when the state cannot be opened.
    pub fn open(home: &Home, run: &RunId, since: Since) -> Result<Watch, Error> {
        let (mut state, series) = (State::open_lean(home)?, Series::open(home)?);
        state.recall(&RunOrSweep::Run(run.clone()))?;
        let newest = series.last_number(run)?;
        let (record, point) = match since {
            Since::Start => (0, 0),
            Since::Event(seq) => (seq, newest),
        };
        Ok(Watch { source: Source::Home(Box::new((state, series))), run: run.clone(), record, point })
    }

    /// Watches a run of a server.
    pub fn of_server(run: &RunId, since: Since, news: ServerNews) -> Watch {
        let record = if let Since::Event(seq) = since { seq } else { 0 };
        Watch { source: Source::Server(Box::new(news)), run: run.clone(), record, point: 0 }
    }

    /// News since the last call: events first, then measurements, each oldest first. An attempt's end comes after its
    /// measurements.
    ///
    /// # Errors
    /// [`Error`] if the state cannot be read.
    pub fn news(&mut self) -> Result<Vec<News>, Error> {
        let (state, series) = match &mut self.source {
            Source::Home(home) => (&mut home.0, &home.1),
            Source::Server(server) => return Ok(server.take()?),
        };
        state.refresh()?;
        let records = state.records(&self.run, self.record)?;
        let points = series.points(&self.run, self.point)?;
        let mut news: Vec<News> = records.into_iter().map(|record| News::Record(Box::new(record))).collect();
        if let Some(News::Record(record)) = news.last() {
            self.record = record.seq;
        }
        if let Some((number, _)) = points.last() {
            self.point = *number;
        }
        let ends = news.iter().position(|news| matches!(news, News::Record(record) if is_end(record)));
        let points = points.into_iter().map(|(_, point)| News::Point(Box::new(point)));
        let at = ends.unwrap_or(news.len());
        news.splice(at..at, points);
        Ok(news)
    }

    /// Whether only future news is of interest; true until the first news.
    pub fn is_joining(&self) -> bool {
        self.record > 0
    }

    /// The run.
    ///
    /// # Errors
    /// [`Error::NoRun`] when it is unknown.
    pub fn run(&self) -> Result<&plan::Run, Error> {
        self.world().runs.get(&self.run).ok_or_else(|| Error::NoRun(self.run.to_string()))
    }

    /// Where training of the newest attempt began. That of a user's program is a measurement, and no event.
    pub fn ready(&self) -> Option<Ready> {
        let known = self.run().ok().and_then(|run| run.ready.clone());
        known.or_else(|| match &self.source {
            Source::Home(home) => {
                let (_, point) = home.1.newest_ready(&self.run).ok()??;
                ready_of(&point.report).cloned()
            }
            Source::Server(server) => server.ready.clone(),
        })
    }

    /// The known state of the run, and of others if it is a run of this home.
    pub fn world(&self) -> &World {
        match &self.source {
            Source::Home(home) => home.0.world(),
            Source::Server(server) => &server.world,
        }
    }

    /// The state and the measurements of the run's home.
    pub fn home(&self) -> Option<(&State, &Series)> {
        match &self.source {
            Source::Home(home) => Some((&home.0, &home.1)),
            Source::Server(_) => None,
        }
    }
}

fn is_end(record: &Record) -> bool {
    matches!(record.event, domain::Event::AttemptEnded { .. })
}

#[cfg(test)]
mod tests {
    use domain::rank::Report;
    use domain::wire::{AgentEvent, Entry};
    use domain::{AttemptId, InstanceId, Timestamp};

    use super::*;

    #[test]
    fn where_a_program_began_is_known_after_the_command_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let (run, mut series) = (RunId::new("own-1"), Series::open(&home).unwrap());
        let ready = Ready::of_program(0, 60);
        let event = AgentEvent::Reported { rank: 0, report: Report::Ready(ready.clone()) };
        let entry = Entry { seq: 1, attempt: AttemptId::new("own-1-a1"), event };
        series.keep(Timestamp(1), &run, &InstanceId::new("own-1-i1"), &[entry]).unwrap();
        let source = Source::Home(Box::new((State::open_lean(&home).unwrap(), series)));
        let watch = Watch { source, run, record: 9, point: 1 };
        assert_eq!(watch.ready(), Some(ready));
    }
}
