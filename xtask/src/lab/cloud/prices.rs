//! What spot machines cost in the lab's cloud: a series that moves every minute, in each zone by itself, and follows from the seed.

use crate::draws::Draws;

/// The machine types that have a series, with what they cost on demand, in micro-dollars an hour. Of others moto answers.
const ON_DEMAND: [(&str, u64); 1] = [("g4dn.xlarge", 526_000)];

/// The zones of the lab's region.
const ZONES: [&str; 6] = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1e", "us-east-1f"];

/// The price of a machine type in a zone, or in the cheapest one, in micro-dollars an hour: from 30 to 95 % of that on demand.
pub fn price(seed: u64, machine: &str, zone: Option<&str>, now: f64) -> Option<u64> {
    let (_, on_demand) = ON_DEMAND.iter().find(|(name, _)| *name == machine)?;
    let minute = (now / 60.0) as u64;
    let in_zone = |at: usize| {
        let mut draws = Draws::new(seed ^ minute.wrapping_mul(0x9E37_79B9) ^ (at as u64) << 48);
        on_demand * (30 + draws.below(66)) / 100
    };
    match zone {
        Some(zone) => ZONES.iter().position(|known| *known == zone).map(in_zone),
        None => (0..ZONES.len()).map(in_zone).min(),
    }
}

/// The answer to `DescribeSpotPriceHistory`, where every machine type that is asked for has a series.
pub fn history(seed: u64, machines: &[&str], now: f64) -> Option<String> {
    let mut items = String::new();
    for machine in machines {
        for zone in ZONES {
            let dollars = price(seed, machine, Some(zone), now)? as f64 / 1e6;
            items += &format!(
                "<item><instanceType>{machine}</instanceType><productDescription>Linux/UNIX</productDescription>\
                 <spotPrice>{dollars:.6}</spotPrice><timestamp>2026-01-01T00:00:00.000Z</timestamp>\
                 <availabilityZone>{zone}</availabilityZone></item>"
            );
        }
    }
    let set = format!("<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken/>");
    (!machines.is_empty())
        .then(|| format!("<DescribeSpotPriceHistoryResponse>{set}</DescribeSpotPriceHistoryResponse>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_moves_every_minute_and_in_each_zone_by_itself() {
        let in_zone =
            |zone: &str, minute: u64| price(7, "g4dn.xlarge", Some(zone), minute as f64 * 60.0 + 5.0).unwrap();
        let series: Vec<u64> = (0..60).map(|minute| in_zone("us-east-1a", minute)).collect();
        assert!(series.iter().all(|price| (157_800..=499_700).contains(price)), "{series:?}");
        assert!(series.iter().max() > series.iter().min());
        assert!((0..60).any(|minute| in_zone("us-east-1a", minute) != in_zone("us-east-1b", minute)));
        assert_eq!(price(7, "g4dn.xlarge", Some("us-east-1a"), 5.0), price(7, "g4dn.xlarge", Some("us-east-1a"), 59.0));
        let cheapest = price(7, "g4dn.xlarge", None, 5.0).unwrap();
        assert!(ZONES.iter().all(|zone| in_zone(zone, 0) >= cheapest));
        assert_eq!((price(7, "p5.48xlarge", None, 5.0), price(7, "g4dn.xlarge", Some("x"), 5.0)), (None, None));
    }

    #[test]
    fn a_history_has_each_zone_and_only_types_with_a_series() {
        let text = history(7, &["g4dn.xlarge"], 5.0).unwrap();
        let first = price(7, "g4dn.xlarge", Some("us-east-1a"), 5.0).unwrap() as f64 / 1e6;
        assert!(text.matches("<item>").count() == 6 && text.contains(&format!("<spotPrice>{first:.6}<")), "{text}");
        assert_eq!((history(7, &["g4dn.xlarge", "p5.48xlarge"], 5.0), history(7, &[], 5.0)), (None, None));
    }
}
