//! The cost of a run: machines by the microsecond, storage by the GiB and month, egress by the GiB. Every part is
//! rounded up to the next micro-dollar, once.

use domain::{Bytes, Elapsed, Money, Rate};
use serde::{Deserialize, Serialize};

const GIB: i128 = 1 << 30;

/// A month of 730 hours in microseconds, as clouds bill disks.
const MONTH: i128 = 730 * 3_600_000_000;

/// The cost of a run, by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Machines.
    pub compute: Money,
    /// Disks that are rented with the machines, or hold the data meanwhile.
    pub storage: Money,
    /// Storage of checkpoints.
    pub checkpoints: Money,
    /// Bytes that leave a region or a cloud.
    pub egress: Money,
}

impl Cost {
    /// All of it.
    pub fn total(&self) -> Money {
        self.compute + self.storage + self.checkpoints + self.egress
    }
}

/// Stored bytes, and the price per GiB and month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub bytes: Bytes,
    pub price: Money,
}

/// Bytes that are moved, and the price of a GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred {
    pub bytes: Bytes,
    pub price: Money,
}

/// What `nodes` machines cost at `rate` for `paid` each.
pub fn rent(rate: Rate, nodes: u32, paid: Elapsed) -> Money {
    Money::from_micros(rate.cost(paid).micros().saturating_mul(i64::from(nodes)))
}

/// The cost of storing bytes for some time.
pub fn kept(kept: Stored, time: Elapsed) -> Money {
    let product =
        i128::from(kept.price.micros()).saturating_mul(i128::from(kept.bytes.0)).saturating_mul(i128::from(time.0));
    rounded_up(product, GIB * MONTH)
}

/// The cost of transferring bytes.
pub fn moved(moved: Transferred) -> Money {
    rounded_up(i128::from(moved.price.micros()).saturating_mul(i128::from(moved.bytes.0)), GIB)
}

fn rounded_up(product: i128, divisor: i128) -> Money {
    Money::from_micros(i64::try_from((product.saturating_add(divisor - 1)).div_euclid(divisor)).unwrap_or(i64::MAX))
}

/// Converts seconds; negative values become zero, and too large ones the maximum.
pub fn elapsed(seconds: f64) -> Elapsed {
    // A cast from a floating-point number saturates, and makes 0 of what is no number.
    Elapsed((seconds * 1e6).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A whole number as decimal digits, least first: arithmetic as on paper, which has no binary in it.
    #[derive(Clone, Debug, PartialEq)]
    struct Paper(Vec<u8>);

    impl Paper {
        fn of(text: &str) -> Paper {
            Paper(text.bytes().rev().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect())
        }

        fn times(&self, other: &Paper) -> Paper {
            let mut digits = vec![0u32; self.0.len() + other.0.len() + 1];
            for (one_place, one) in self.0.iter().enumerate() {
                for (other_place, digit) in other.0.iter().enumerate() {
                    digits[one_place + other_place] += u32::from(*one) * u32::from(*digit);
                }
            }
            for place in 0..digits.len() - 1 {
                digits[place + 1] += digits[place] / 10;
                digits[place] %= 10;
            }
            Paper(digits.into_iter().map(|digit| digit as u8).collect())
        }

        /// Long division by a number below 2^60, rounded up.
        fn over(&self, divisor: u64) -> i64 {
            let (mut quotient, mut rest) = (0i64, 0u128);
            for digit in self.0.iter().rev() {
                rest = rest * 10 + u128::from(*digit);
                quotient = quotient * 10 + (rest / u128::from(divisor)) as i64;
                rest %= u128::from(divisor);
            }
            if rest > 0 { quotient + 1 } else { quotient }
        }
    }

    proptest! {
        /// A price with six digits after the point, as it stands in a table, times hours, by hand.
        #[test]
        fn rent_is_exact(dollars in 0u32..1000, micros in 0u32..1_000_000, nodes in 1u32..64, time in 0u64..400_000_000_000_000) {
            let text = format!("{dollars}.{micros:06}");
            let rate: Rate = text.parse().unwrap();
            let by_hand = Paper::of(&text).times(&Paper::of(&time.to_string())).over(3_600_000_000);
            prop_assert_eq!(rent(rate, nodes, Elapsed(time)).micros(), by_hand * i64::from(nodes));
        }

        #[test]
        fn bytes_are_exact(price in 0u32..10_000_000, bytes in 0u64..1 << 50, hours in 0u64..10_000) {
            let price_ = Money::from_micros(i64::from(price));
            let moved_ = moved(Transferred { bytes: Bytes(bytes), price: price_ });
            let product = Paper::of(&price.to_string()).times(&Paper::of(&bytes.to_string()));
            prop_assert_eq!(moved_.micros(), product.over(1 << 30));
            // 2^30 · 730 h, with the hours on both sides.
            let kept_ = kept(Stored { bytes: Bytes(bytes), price: price_ }, Elapsed(hours * 3_600_000_000));
            prop_assert_eq!(kept_.micros(), product.times(&Paper::of(&hours.to_string())).over(730 << 30));
        }
    }

    #[test]
    fn parts_add_up() {
        let money = Money::from_micros;
        let cost = Cost { compute: money(1), storage: money(20), checkpoints: money(300), egress: money(4000) };
        assert_eq!(cost.total(), money(4321));
        assert_eq!(elapsed(-1.0), Elapsed(0));
        assert_eq!(elapsed(f64::NAN), Elapsed(0));
        assert_eq!(elapsed(0.0000001), Elapsed(1));
        assert_eq!(rent("3.40/h".parse().unwrap(), 2, elapsed(5400.0)).to_string(), "$10.20");
    }
}
