//! What is new about a run, read from the event log and the measurements, whichever process runs the control loop.

use domain::series::Point;
use domain::{Record, RunId};
use plan::RunOrSweep;
use server::{Error, Home, Series, State};

/// A new event or measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// An event.
    Record(Box<Record>),
    /// A measurement.
    Point(Box<Point>),
}

/// Since when a run is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Since it was submitted.
    Start,
    /// Only what comes after this event.
    Event(u64),
}

/// A run being watched.
#[derive(Debug)]
pub struct Watch {
    state: State,
    series: Series,
    run: RunId,
    record: u64,
    point: u64,
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
        let newest = series.newest(run, 1)?.last().map_or(0, |(number, _)| *number);
        let (record, point) = match since {
            Since::Start => (0, 0),
            Since::Event(seq) => (seq, newest),
        };
        Ok(Watch { state, series, run: run.clone(), record, point })
    }

    /// What is new since the last call: events first, then measurements, each oldest first. An attempt's end comes
    /// after its measurements.
    ///
    /// # Errors
    /// [`Error`] when the state cannot be read.
    pub fn news(&mut self) -> Result<Vec<News>, Error> {
        self.state.refresh()?;
        let records = self.state.records(&self.run, self.record)?;
        let points = self.series.points(&self.run, self.point)?;
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

    /// Whether only what comes from now on is of interest; true until the first news.
    pub fn is_joining(&self) -> bool {
        self.record > 0
    }

    /// The run.
    ///
    /// # Errors
    /// [`Error::NoRun`] when it is unknown.
    pub fn run(&self) -> Result<&plan::Run, Error> {
        self.state.world().runs.get(&self.run).ok_or_else(|| Error::NoRun(self.run.to_string()))
    }

    /// The state of the home.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The measurements.
    pub fn series(&self) -> &Series {
        &self.series
    }
}

fn is_end(record: &Record) -> bool {
    matches!(record.event, domain::Event::AttemptEnded { .. })
}
