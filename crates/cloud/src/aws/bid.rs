//! What AWS may charge for a spot machine at most: a pure function. AWS charges its price, which moves, and refuses or takes back
//! a machine whose price is higher than this.

use domain::Rate;
use domain::terms::SPOT_CAP;

/// The bid: 80 % of the price on demand, as plans say it, or what the job allows where that is less. Never less than the price
/// of the offer, which is that of its zone: a lower one would be refused there.
pub fn bid(price: Rate, on_demand: Option<Rate>, allowed: Option<Rate>) -> Rate {
    let saves = on_demand.map(|rate| Rate::from_micros_per_hour((rate.micros_per_hour() as f64 * SPOT_CAP) as i64));
    let most = saves.into_iter().chain(allowed).min();
    most.unwrap_or(price).max(price)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bid_is_what_the_plan_promised_and_never_below_the_price_of_the_zone() {
        let check = |price: &str, on_demand: Option<&str>, allowed: Option<&str>, expected: &str| {
            let rate = |text: &str| text.parse::<Rate>().unwrap();
            let found = bid(rate(price), on_demand.map(rate), allowed.map(rate));
            assert_eq!(found.to_string(), rate(expected).to_string(), "{price} {on_demand:?} {allowed:?}");
        };
        check("3/h", Some("10/h"), None, "8/h");
        check("3/h", Some("10/h"), Some("5/h"), "5/h");
        check("3/h", Some("10/h"), Some("9/h"), "8/h");
        // With a budget no more than is counted is allowed: the price of the zone.
        check("3.7/h", Some("10/h"), Some("3.7/h"), "3.7/h");
        // A zone whose price is above the rule was chosen all the same, such as with `use_spot: true`.
        check("9/h", Some("10/h"), None, "9/h");
        check("9/h", Some("10/h"), Some("5/h"), "9/h");
        // Nothing says what it costs on demand.
        check("3/h", None, None, "3/h");
        check("3/h", None, Some("5/h"), "5/h");
    }
}
