//! Money in integer micro-dollars. A price is money per hour; dollars are never floating-point numbers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use crate::time::Elapsed;

const MICROS: i64 = 1_000_000;
const MICROSECONDS_PER_HOUR: u64 = 3_600_000_000;

/// An amount in micro-dollars. In a job file: `$120`, `0.35`, `$1.5k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Money(i64);

/// A price: micro-dollars an hour. In a job file and on the command line: `0.35/h`, `$2.10/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rate(i64);

impl Money {
    /// Whether it is no money at all.
    pub fn is_zero(&self) -> bool {
        *self == Money::default()
    }

    /// An amount in micro-dollars.
    pub fn from_micros(micros: i64) -> Money {
        Money(micros)
    }

    /// The amount in micro-dollars.
    pub fn micros(self) -> i64 {
        self.0
    }
}

impl Rate {
    /// A price in micro-dollars an hour.
    pub fn from_micros_per_hour(micros: i64) -> Rate {
        Rate(micros)
    }

    /// The price of so many of the same.
    pub fn times(self, count: u32) -> Rate {
        Rate(self.0.saturating_mul(i64::from(count)))
    }

    /// Both prices together.
    pub fn plus(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }

    /// The price in micro-dollars an hour.
    pub fn micros_per_hour(self) -> i64 {
        self.0
    }

    /// The cost of `elapsed` at this price, rounded up to the next micro-dollar.
    pub fn cost(self, elapsed: Elapsed) -> Money {
        // Decisions compute it for each machine again and again, and numbers of 128 bits are slow to divide.
        if let Some(product) = u64::try_from(self.0).ok().and_then(|rate| rate.checked_mul(elapsed.0)) {
            return Money(i64::try_from(product.div_ceil(MICROSECONDS_PER_HOUR)).unwrap_or(i64::MAX));
        }
        let hour = i128::from(MICROSECONDS_PER_HOUR);
        let product = i128::from(self.0) * i128::from(elapsed.0);
        Money(i64::try_from((product + hour - 1).div_euclid(hour)).unwrap_or(i64::MAX))
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money(self.0.saturating_add(other.0))
    }
}

impl Sub for Money {
    type Output = Money;
    fn sub(self, other: Money) -> Money {
        Money(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Money>>(iter: I) -> Money {
        iter.fold(Money::default(), Add::add)
    }
}

/// Millionths as decimal text, exact or rounded half up: at most `most` digits after the point (6 is exact), without
/// trailing zeros beyond `least`.
pub fn decimal(micros: u64, least: usize, most: usize) -> String {
    let unit = 10_u64.pow(6_u32.saturating_sub(most as u32));
    let rounded = micros.saturating_add(unit / 2) / unit * unit;
    let mut fraction = format!("{:06}", rounded % MICROS as u64);
    while fraction.len() > most || (fraction.len() > least && fraction.ends_with('0')) {
        fraction.pop();
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}", rounded / MICROS as u64)
}

/// `$1.234567`, with two digits after the point at least and six at most.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}${}", decimal(self.0.unsigned_abs(), 2, 6))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/h", Money(self.0))
    }
}

impl FromStr for Money {
    type Err = String;

    fn from_str(text: &str) -> Result<Money, String> {
        let wrong = || format!("`{text}` is no amount of money; write for example `$120` or `0.35`");
        if text.trim_start().starts_with('-') {
            return Err(format!("`{text}` is below zero; write for example `$120` or `0.35`"));
        }
        let bare = text.trim().trim_start_matches('$').trim();
        let (digits, scale) = match bare.strip_suffix(['k', 'K']) {
            Some(digits) => (digits.trim(), 1_000),
            None => (bare, 1),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
            return Err(wrong());
        }
        if fraction.len() > 6 {
            return Err(format!("`{text}` is finer than a micro-dollar"));
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
        let fraction: i64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
        let micros = whole.checked_mul(MICROS).and_then(|micros| micros.checked_add(fraction));
        micros.and_then(|micros| micros.checked_mul(scale)).map(Money).ok_or_else(wrong)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let amount = text.trim().trim_end_matches("/hour").trim_end_matches("/h");
        if amount.starts_with('-') {
            return Err(format!("`{text}` is below zero; the least price is `0/h`"));
        }
        let money: Money = amount.parse().map_err(|_| format!("`{text}` is no price; write for example `0.35/h`"))?;
        Ok(Rate(money.0))
    }
}

crate::units::human_text!(Money, "money", "An amount in US dollars, such as `$120` or `0.35`.");
crate::units::human_text!(Rate, "rate", "A price in US dollars an hour, such as `0.35/h`.");

/// Amounts of the event log that may be below zero, such as `-$0.25`. Nobody enters one: as [`Money`] it is refused.
pub(crate) mod signed {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::Money;

    /// Writes the amount with its sign.
    pub fn serialize<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(money)
    }

    /// Reads an amount that may have a sign.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
        let text = crate::units::scalar_text(deserializer)?;
        let positive = text.strip_prefix('-');
        let money: Money = positive.unwrap_or(&text).parse().map_err(D::Error::custom)?;
        Ok(if positive.is_some() { Money(-money.0) } else { money })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_reads_and_prints() {
        let check = |text: &str, printed: &str| assert_eq!(text.parse::<Money>().unwrap().to_string(), printed);
        check("$120", "$120.00");
        check("0.35", "$0.35");
        check("$1.5k", "$1500.00");
        check(".000001", "$0.000001");
        for wrong in ["", "$", "a", "1.0000001", "-5", "1e9", "99999999999999999999"] {
            assert!(wrong.parse::<Money>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cost_is_rounded_up_and_as_large_as_it_gets() {
        let check = |rate: i64, elapsed: u64, micros: i64| {
            let cost = Rate::from_micros_per_hour(rate).cost(Elapsed(elapsed));
            assert_eq!(cost.micros(), micros, "{elapsed} us at {rate}");
        };
        check(2_000_000, 0, 0);
        check(2_000_000, 1, 1);
        check(2_000_000, 1_800, 1);
        check(2_000_000, 1_801, 2);
        check(2_000_000, 3_600_000_000, 2_000_000);
        // The last product of 64 bits, and the first one beyond.
        check(1 << 32, (1 << 32) - 1, 5_124_095_575);
        check(1 << 32, 1 << 32, 5_124_095_577);
        check(1_000_000_000, 3_600_000_000_000, 1_000_000_000_000);
        check(-2_000_000, 3_600_000_000, -2_000_000);
        check(i64::MAX, u64::MAX, i64::MAX);
    }

    #[test]
    fn decimals_are_exact_or_rounded_half_up() {
        let check = |micros: u64, least: usize, most: usize, expected: &str| {
            assert_eq!(decimal(micros, least, most), expected, "{micros} {least} {most}");
        };
        check(2_100_000, 2, 6, "2.10");
        check(2_100_001, 2, 6, "2.100001");
        check(2_100_000, 6, 6, "2.100000");
        check(2_100_050, 4, 4, "2.1001");
        check(2_100_049, 4, 4, "2.1000");
        check(999_950, 4, 4, "1.0000");
        check(8_000_000, 0, 6, "8");
        check(7_120_000, 0, 6, "7.12");
        check(1_499_999, 0, 0, "1");
        // A floating-point number has not so many digits.
        check(9_007_199_254_740_993, 2, 6, "9007199254.740993");
        check(u64::MAX, 6, 6, "18446744073709.551615");
    }

    #[test]
    fn cost_is_exact_and_rounded_up() {
        let rate: Rate = "0.35/h".parse().unwrap();
        assert_eq!(rate.cost(Elapsed(3_600_000_000)).micros(), 350_000);
        assert_eq!(rate.cost(Elapsed(1)).micros(), 1);
        assert_eq!(rate.cost(Elapsed(0)).micros(), 0);
        assert_eq!(rate.cost(Elapsed(36_000_000_000_000)).to_string(), "$3500.00");
    }
}
