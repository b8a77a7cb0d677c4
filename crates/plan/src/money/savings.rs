//! What spot machines have saved, and what their interruptions cost.

use domain::{Elapsed, Money, Rate};

use crate::world::Goodput;

/// The rent of one spot machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpotRent {
    pub elapsed: Elapsed,
    pub amount: Money,
    /// The price of the same machine on demand, if it is known.
    pub on_demand: Option<Rate>,
    /// Rented in parallel and given back, or a second machine for one request: it did no work.
    pub is_extra: bool,
}

/// What the spot machines of a run have saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpotSavings {
    /// Paid for spot machines.
    pub paid: Money,
    /// The part of it for machines that did no work: for steps that were made again, for recovering and waiting for other
    /// machines, whatever interrupted the run, and for machines beyond those that it needed.
    pub interruptions: Money,
    /// The cost of the same work on demand, without interruptions.
    pub on_demand: Money,
    /// Paid for machines whose price on demand is not known; the other amounts leave them out.
    pub unknown: Money,
}

impl SpotSavings {
    /// On-demand cost minus what was paid; negative if interruptions cost more than the discount.
    pub fn saved(&self) -> Money {
        self.on_demand - self.paid
    }

    /// The same as a share of the on-demand cost; `None` if that is zero.
    pub fn share(&self) -> Option<f64> {
        let on_demand = self.on_demand.micros();
        (on_demand > 0).then(|| self.saved().micros() as f64 / on_demand as f64)
    }

    /// The sum of two runs.
    #[must_use]
    pub fn and(&self, other: &SpotSavings) -> SpotSavings {
        SpotSavings {
            paid: self.paid + other.paid,
            interruptions: self.interruptions + other.interruptions,
            on_demand: self.on_demand + other.on_demand,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// What the spot machines of one run have saved. While it had all of its machines, the same share of the rent of each went
/// into lost work and recovery, which machines on demand would not have been rented for; so would they not for longer.
pub fn spot_savings(rents: &[SpotRent], goodput: &Goodput) -> SpotSavings {
    let rented = goodput.wall().0.saturating_sub(goodput.waiting.0);
    let again = goodput.lost.0.saturating_add(goodput.recovery.0).min(rented);
    let useful_of = |rent: &SpotRent| match (rented, rent.is_extra) {
        (0, false) => rent.elapsed.0,
        (_, true) => 0,
        (rented, false) => scaled(rent.elapsed.0.min(rented), rented - again, rented),
    };
    let mut sum = SpotSavings::default();
    for rent in rents {
        let Some(rate) = rent.on_demand else {
            sum.unknown += rent.amount;
            continue;
        };
        let (useful, paid) = (useful_of(rent), rent.amount.micros());
        let idle = scaled(paid.unsigned_abs(), rent.elapsed.0 - useful, rent.elapsed.0);
        sum.paid += rent.amount;
        sum.interruptions += Money::from_micros(i64::try_from(idle).unwrap_or(paid));
        sum.on_demand += rate.cost(Elapsed(useful));
    }
    sum
}

/// This share of an amount; 0 of nothing.
fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    u128::from(amount)
        .checked_mul(u128::from(part))
        .and_then(|product| product.checked_div(u128::from(whole)))
        .map_or(0, |share| u64::try_from(share).unwrap_or(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    fn rent(hours: u64, paid: i64, on_demand: Option<i64>) -> SpotRent {
        let dollars = |dollars: i64| Money::from_micros(dollars * 1_000_000);
        let rate = |dollars: i64| Rate::from_micros_per_hour(dollars * 1_000_000);
        SpotRent {
            elapsed: Elapsed(hours * HOUR),
            amount: dollars(paid),
            on_demand: on_demand.map(rate),
            is_extra: false,
        }
    }

    fn time(productive: u64, lost: u64, recovery: u64, waiting: u64) -> Goodput {
        let hours = |hours: u64| Elapsed(hours * HOUR);
        Goodput {
            productive: hours(productive),
            lost: hours(lost),
            recovery: hours(recovery),
            waiting: hours(waiting),
            ..Goodput::default()
        }
    }

    fn dollars(savings: &SpotSavings) -> [i64; 5] {
        let all = [savings.paid, savings.interruptions, savings.on_demand, savings.unknown, savings.saved()];
        all.map(|money| money.micros() / 1_000_000)
    }

    #[test]
    fn without_interruptions_the_difference_of_the_prices_is_saved() {
        let savings = spot_savings(&[rent(10, 10, Some(3))], &time(10, 0, 0, 0));
        assert_eq!(dollars(&savings), [10, 0, 30, 0, 20]);
        assert_eq!(savings.share(), Some(2.0 / 3.0));
    }

    #[test]
    fn machines_on_demand_do_no_work_again() {
        // Of 10 hours with machines, 2 were lost and for recovering; 5 more without a machine cost nothing.
        let savings = spot_savings(&[rent(10, 20, Some(3))], &time(8, 1, 1, 5));
        assert_eq!(dollars(&savings), [20, 4, 24, 0, 4]);
    }

    #[test]
    fn machines_that_did_no_work_save_nothing() {
        // Four machines for 10 hours; one is lost after them, and the others wait 5 hours for another one.
        let four = [rent(10, 10, Some(3)), rent(15, 15, Some(3)), rent(15, 15, Some(3)), rent(15, 15, Some(3))];
        assert_eq!(dollars(&spot_savings(&four, &time(10, 0, 0, 5))), [55, 15, 120, 0, 65]);
        let lost_race = SpotRent { is_extra: true, ..rent(1, 1, Some(3)) };
        assert_eq!(dollars(&spot_savings(&[rent(10, 10, Some(3)), lost_race], &time(10, 0, 0, 0))), [11, 1, 30, 0, 19]);
    }

    #[test]
    fn interruptions_may_cost_more_than_the_discount() {
        let savings = spot_savings(&[rent(10, 20, Some(3))], &time(5, 5, 0, 0));
        assert_eq!(dollars(&savings), [20, 10, 15, 0, -5]);
    }

    #[test]
    fn a_machine_without_a_known_price_is_left_out_and_said() {
        let savings = spot_savings(&[rent(10, 20, None), rent(1, 1, Some(3))], &time(1, 0, 0, 0));
        assert_eq!(dollars(&savings), [1, 0, 3, 20, 2]);
        assert_eq!(spot_savings(&[rent(1, 1, None)], &Goodput::default()).share(), None);
    }

    #[test]
    fn runs_add_up() {
        let one = spot_savings(&[rent(10, 20, Some(3))], &time(8, 1, 1, 5));
        assert_eq!(dollars(&one.and(&one)), [40, 8, 48, 0, 8]);
    }
}
