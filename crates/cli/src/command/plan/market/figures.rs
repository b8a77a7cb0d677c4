//! Figures in the digits that an estimate has.

use domain::{Duration, Money};

use crate::figures::grouped;

/// A time with the digits that an estimate has: `3h10m`, `2d4h`, `45s`.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = |unit: f64| (seconds / unit).round() as u64;
    match seconds {
        few if few < 100.0 => format!("{few:.0}s"),
        minutes if minutes < 6000.0 => format!("{}m", whole(60.0)),
        hours if hours < 4.0 * 86400.0 => {
            let minutes = whole(60.0);
            match minutes % 60 {
                0 => format!("{}h", minutes / 60),
                rest if minutes < 600 => format!("{}h{rest:02}m", minutes / 60),
                _ => format!("{}h", whole(3600.0)),
            }
        }
        _ => {
            let hours = whole(3600.0);
            match hours % 24 {
                0 => format!("{}d", hours / 24),
                rest if hours < 24 * 20 => format!("{}d{rest}h", hours / 24),
                _ => format!("{}d", whole(86400.0)),
            }
        }
    }
}

/// Seconds of a step.
pub(super) fn step(seconds: f64) -> String {
    match seconds {
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        long => format!("{long:.1} s"),
    }
}

/// Money to the cent, half a cent up.
pub fn cents(money: Money) -> String {
    let cents = (money.micros() + 5_000).div_euclid(10_000);
    format!("${}.{:02}", grouped((cents / 100).unsigned_abs()), cents % 100)
}

/// A limit of emissions in kg CO₂ that holds so much, as one would write it: rounded up, to whole kilograms from one on.
pub(super) fn emissions(kilograms: f64) -> String {
    let unit = match kilograms {
        few if few < 0.1 => 1000.0,
        some if some < 1.0 => 100.0,
        _ => 1.0,
    };
    format!("{}", (kilograms * unit).ceil().max(1.0) / unit)
}

/// A large number with three digits: `25.6 M`.
pub(super) fn short(number: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let scale = scales.iter().find(|(scale, _)| number >= *scale);
    scale.map_or(format!("{number:.0}"), |(scale, name)| {
        let digits = number / scale;
        if digits < 100.0 { format!("{digits:.1} {name}") } else { format!("{digits:.0} {name}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_emissions_are_rounded_up() {
        let check = |kilograms: f64, text: &str| assert_eq!(emissions(kilograms), text);
        check(0.0, "0.001");
        check(0.0264, "0.027");
        check(0.341, "0.35");
        check(3.2, "4");
    }

    #[test]
    fn figures_have_the_digits_that_an_estimate_has() {
        let check = |text: &str, shown: &str| assert_eq!(time(text.parse().unwrap()), shown, "{text}");
        check("45s", "45s");
        check("99m", "99m");
        check("3h10m", "3h10m");
        check("3h", "3h");
        check("10h20m", "10h");
        check("5d4h", "5d4h");
        check("30d4h", "30d");
        let money = |text: &str| cents(text.parse().unwrap());
        assert_eq!([money("1234.565"), money("0.004999"), money("0.005")], ["$1,234.57", "$0.00", "$0.01"]);
        assert_eq!([short(25.56e6), short(999.0), short(4.1e9), short(340e6)], ["25.6 M", "999", "4.1 G", "340 M"]);
        assert_eq!([step(0.0312), step(2.34)], ["31 ms", "2.3 s"]);
    }
}
