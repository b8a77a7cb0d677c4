//! The kills of a run: drawn from its seed, so that a failing run can be reproduced.

use std::fmt;
use std::time::Duration;

use xtask::draws::Draws;

/// One kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// When.
    pub trigger: Trigger,
    /// Whom.
    pub target: Target,
}

/// When a kill happens, counted from the start of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// When a process reaches this point for the `count`th time.
    Point { name: &'static str, count: u64 },
    /// After some time.
    Time(Duration),
}

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Rank,
    Agent,
    Loop,
    All,
}

/// Points, and roughly how many times an undisturbed run passes each per hundred steps.
const POINTS: [(&str, u64); 19] = [
    ("stage", 1),
    ("step", 100),
    ("snapshot", 20),
    ("rename.before", 40),
    ("rename.after", 40),
    ("manifest.before", 20),
    ("manifest.after", 20),
    ("event.before", 9),
    ("event.after", 9),
    ("export", 1),
    ("bill", 1),
    ("launch.before", 1),
    ("launch.after", 1),
    ("observe.before", 3),
    ("observe.after", 3),
    ("end.before", 1),
    ("end.after", 1),
    ("last_events.before", 1),
    ("last_events.after", 1),
];

/// Names of the points.
pub fn points() -> impl Iterator<Item = &'static str> {
    POINTS.iter().map(|(name, _)| *name)
}

impl Target {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Target::Rank => "rank",
            Target::Agent => "agent",
            Target::Loop => "loop",
            Target::All => "all",
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trigger {
            Trigger::Point { name, count } => write!(f, "{} at {name} #{count}", self.target.word()),
            Trigger::Time(time) => write!(f, "{} after {} ms", self.target.word(), time.as_millis()),
        }
    }
}

/// A source of kills, which follow from a seed.
pub struct Storm(Draws);

impl Storm {
    /// The storms of `seed`.
    pub fn new(seed: u64) -> Storm {
        Storm(Draws::new(seed))
    }

    /// One to three kills for a run of so many steps and seconds.
    pub fn kills(&mut self, steps: u64, seconds: f64) -> Vec<Kill> {
        let count = 1 + self.0.below(3);
        (0..count).map(|_| self.kill(steps, seconds)).collect()
    }

    /// Maximum time before a killed loop is restarted.
    pub fn away(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.0.below(most.as_micros() as u64 + 1))
    }

    fn kill(&mut self, steps: u64, seconds: f64) -> Kill {
        let target = [Target::Rank, Target::Agent, Target::Loop, Target::All][self.0.below(4) as usize];
        let place = self.0.below(POINTS.len() as u64 + 1) as usize;
        let trigger = match POINTS.get(place) {
            Some((name, often)) => {
                Trigger::Point { name, count: 1 + self.0.below((often * steps / 100).max(*often).max(1)) }
            }
            None => Trigger::Time(Duration::from_micros(self.0.below((seconds * 1e6) as u64 + 1))),
        };
        Kill { trigger, target }
    }
}
