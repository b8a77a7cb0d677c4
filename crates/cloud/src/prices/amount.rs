//! Amounts of money as JSON has them, exactly: text, numbers, or whole units and billionths.

use crate::catalog::amount::micros;

/// A decimal amount in millionths, rounded half up; with a sign, without an exponent.
pub fn signed_micros(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(rest) => micros(rest).ok().map(|micros| -micros),
        None => micros(text).ok(),
    }
}

/// A number of JSON in millionths: the shortest decimal text that means it is what the cloud has written.
pub fn of_number(number: f64) -> Option<i64> {
    number.is_finite().then(|| signed_micros(&format!("{number}"))).flatten()
}

/// An amount that is a number or text, in millionths.
pub fn of_value(value: &serde_json::Value) -> Option<i64> {
    match value.as_str() {
        Some(text) => signed_micros(text),
        None => value.as_f64().and_then(of_number),
    }
}

/// So many parts of an amount, rounded half up.
pub fn divided(micros: i64, parts: i64) -> i64 {
    let (micros, parts) = (i128::from(micros), i128::from(parts.max(1)));
    i64::try_from((2 * micros + parts).div_euclid(2 * parts)).unwrap_or(i64::MAX)
}

/// Billionths as millionths, rounded half up.
pub fn of_nanos(nanos: i128) -> i64 {
    i64::try_from((nanos + 500).div_euclid(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!(signed_micros("32.7726000000"), Some(32_772_600));
        assert_eq!(signed_micros("-0.5"), Some(-500_000));
        assert_eq!(signed_micros(" 7 "), Some(7_000_000));
        assert_eq!(signed_micros("1e3"), None);
        assert_eq!(of_number(3.673), Some(3_673_000));
        assert_eq!(of_number(0.000_000_4), Some(0));
        assert_eq!(of_number(-1.0), Some(-1_000_000));
        assert_eq!(of_number(1e300), None);
        assert_eq!(of_value(&serde_json::json!("11.63")), Some(11_630_000));
        assert_eq!(of_value(&serde_json::json!(11.63)), Some(11_630_000));
        assert_eq!(of_value(&serde_json::Value::Null), None);
        assert_eq!((divided(7, 2), divided(6, 4), divided(5, 4)), (4, 2, 1));
        assert_eq!((of_nanos(1_499), of_nanos(1_500), of_nanos(3_673_385_000)), (1, 2, 3_673_385));
    }
}
