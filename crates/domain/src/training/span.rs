//! Durations in a run: a number of epochs, of steps, or a time.

use crate::units::Duration;

/// A stretch of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    /// A number of epochs.
    Epochs(f64),
    /// A number of optimizer steps.
    Steps(u64),
}

/// How often the state is saved.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Every {
    /// From the measured stall and the stated failure rate.
    #[default]
    Auto,
    /// After so many optimiser steps.
    Steps(u64),
    /// After so much time.
    Time(Duration),
}

/// `5 epochs`, `0.5 epochs`, `200 steps`.
impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("`{text}` is no stretch of training; write for example `5 epochs` or `200 steps`");
        let (number, unit) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        match unit.trim() {
            "epoch" | "epochs" => match number.parse() {
                Ok(epochs) if (0.0..1e9).contains(&epochs) => Ok(Span::Epochs(epochs)),
                _ => Err(wrong()),
            },
            "step" | "steps" => number.parse().map(Span::Steps).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

/// `auto`, `500 steps`, `10m`.
impl std::str::FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Every, String> {
        let wrong = || format!("`{text}` is no interval; write for example `auto`, `500 steps` or `10m`");
        if text.trim() == "auto" {
            return Ok(Every::Auto);
        }
        match text.parse::<Span>() {
            Ok(Span::Steps(0)) => Err(wrong()),
            Ok(Span::Steps(steps)) => Ok(Every::Steps(steps)),
            Ok(Span::Epochs(_)) => Err(wrong()),
            Err(_) => match text.parse::<Duration>() {
                Ok(duration) if duration.micros() > 0 => Ok(Every::Time(duration)),
                _ => Err(wrong()),
            },
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Span::Epochs(epochs) => write!(f, "{epochs} epochs"),
            Span::Steps(steps) => write!(f, "{steps} steps"),
        }
    }
}

impl std::fmt::Display for Every {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Every::Auto => f.write_str("auto"),
            Every::Steps(steps) => write!(f, "{steps} steps"),
            Every::Time(duration) => write!(f, "{duration}"),
        }
    }
}

crate::units::human_text!(Span, "span", "A stretch of training, such as `5 epochs` or `200 steps`.");
crate::units::human_text!(Every, "every", "`auto`, a number of steps such as `500 steps`, or a time such as `10m`.");
