//! When a reservation pays: the utilization above which a reservation is cheaper than paying by the hour, and the cost
//! of both over a horizon.

use domain::{Elapsed, Money, Rate};
use serde::Serialize;

use super::rent;

/// Hours in a year, as clouds count them.
const YEAR_HOURS: u64 = 8760;

/// A term that machines are reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    OneYear,
    ThreeYears,
}

impl Term {
    fn years(self) -> u64 {
        match self {
            Term::OneYear => 1,
            Term::ThreeYears => 3,
        }
    }
}

/// A reservation compared with renting by the hour.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReservationComparison {
    pub term: Term,
    /// Utilization above which the reservation is cheaper; above 1 it never is.
    pub breaks_even_at: f64,
    /// Hours of work in the horizon.
    pub hours: f64,
    /// What those cost by the hour.
    pub by_the_hour: Money,
    /// The cost of as many complete terms as the horizon needs.
    pub reserved: Money,
}

/// Compares, for `nodes` machines that work `hours` within `horizon_hours`.
pub fn compare(
    term: Term,
    on_demand: Rate,
    reserved: Rate,
    nodes: u32,
    hours: f64,
    horizon_hours: u64,
) -> ReservationComparison {
    let terms = horizon_hours.div_ceil(YEAR_HOURS * term.years()).max(1);
    let whole = Elapsed(terms * term.years() * YEAR_HOURS * 3_600_000_000);
    ReservationComparison {
        term,
        breaks_even_at: reserved.micros_per_hour() as f64 / (on_demand.micros_per_hour() as f64).max(1.0),
        hours,
        by_the_hour: rent(on_demand, nodes, super::cost::elapsed(hours * 3600.0)),
        reserved: rent(reserved, nodes, whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work of `hours` in `years` on one machine of $10 by the hour and $6 reserved.
    #[track_caller]
    fn check(term: Term, hours: f64, years: u64, by_the_hour: &str, reserved: &str) {
        let found = compare(term, "10/h".parse().unwrap(), "6/h".parse().unwrap(), 1, hours, years * YEAR_HOURS);
        assert_eq!((found.by_the_hour.to_string(), found.reserved.to_string()), (by_the_hour.into(), reserved.into()));
        assert_eq!(found.breaks_even_at, 0.6);
    }

    #[test]
    fn whole_terms_are_paid() {
        check(Term::OneYear, 5256.0, 1, "$52560.00", "$52560.00");
        check(Term::OneYear, 100.0, 2, "$1000.00", "$105120.00");
        check(Term::ThreeYears, 100.0, 1, "$1000.00", "$157680.00");
        check(Term::ThreeYears, 100.0, 4, "$1000.00", "$315360.00");
    }
}
