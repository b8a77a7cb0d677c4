//! What a cloud itself is told to hold a machine to: the most that it may cost, and when it is of no use any more.

use domain::{Duration, Rate, Timestamp};

use super::CloudFailure;
use crate::aws::wire::times::rfc3339;
use crate::catalog::Catalog;

/// The most that a spot machine may cost an hour, in the currency of the account, with three digits and rounded up. `file` is
/// where the user has named the currency; it is dollars without one.
///
/// # Errors
/// [`CloudFailure::Invalid`] for a currency that the catalog cannot convert.
pub fn price_limit(rate: Rate, currency: Option<&str>, file: &str) -> Result<String, CloudFailure> {
    let dollars = i128::from(rate.micros_per_hour());
    let micros = match currency.unwrap_or("USD") {
        "USD" => dollars,
        code => {
            let catalog = Catalog::embedded().map_err(|error| CloudFailure::Invalid(error.to_string()))?;
            let known = catalog.currencies.iter().find(|currency| currency.code == code);
            let unknown = || format!("`currency` in `{file}` is `{code}`; write `USD` or `CNY`");
            let known = known.ok_or_else(|| CloudFailure::Invalid(unknown()))?;
            dollars * i128::from(known.per_dollar_micros) / 1_000_000
        }
    };
    let micros = u64::try_from(micros).unwrap_or_default();
    Ok(domain::money::decimal(micros.div_ceil(1000).saturating_mul(1000), 0, 3))
}

const MINUTE: i64 = 60_000_000;

/// Three years, and some days less: clouds take no later times.
const LATEST: i64 = 1090 * 24 * 60 * MINUTE;

/// When a cloud itself ends a machine, whatever becomes of us: on the minute, and `soonest` from now at the earliest, as clouds
/// want it. None where that is too far off.
pub fn ends_at(expires: Timestamp, now: Timestamp, soonest: Duration) -> Option<String> {
    let at = expires.0.max(now.0.saturating_add_unsigned(soonest.micros()));
    let minute = at.div_euclid(MINUTE) + i64::from(at.rem_euclid(MINUTE) > 0);
    (at.saturating_sub(now.0) < LATEST).then(|| rfc3339(Timestamp(minute.saturating_mul(MINUTE))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::wire::times;

    #[test]
    fn a_price_limit_is_never_below_the_price() {
        let check = |currency: Option<&str>, micros: i64, expected: &str| {
            assert_eq!(price_limit(Rate::from_micros_per_hour(micros), currency, "x.json").unwrap(), expected);
        };
        check(None, 1_234_001, "1.235");
        check(None, 2_000_000, "2");
        check(Some("USD"), 500, "0.001");
        // At 7.1072, as the catalog has it.
        check(Some("CNY"), 1_000_000, "7.108");
        let refused = price_limit(Rate::from_micros_per_hour(1), Some("EUR"), "x.json");
        let said = "`currency` in `x.json` is `EUR`; write `USD` or `CNY`";
        assert_eq!(refused, Err(CloudFailure::Invalid(said.into())));
    }

    #[test]
    fn a_cloud_ends_a_machine_that_nobody_needs_any_more() {
        let at = |text: &str| times::read(text).unwrap();
        let check = |expires: &str, expected: Option<&str>| {
            let found = ends_at(at(expires), at("2026-11-27T05:00:00Z"), Duration::from_secs(2100));
            assert_eq!(found.as_deref(), expected, "{expires}");
        };
        check("2026-11-28T05:00:00Z", Some("2026-11-28T05:00:00Z"));
        // Rounded down it would be released before its time.
        check("2026-11-28T05:00:01Z", Some("2026-11-28T05:01:00Z"));
        check("2026-11-27T05:10:00Z", Some("2026-11-27T05:35:00Z"));
        check("2030-01-01T00:00:00Z", None);
    }
}
