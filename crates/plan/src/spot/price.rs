//! Spot prices that move: a price for each hour, as a share of the on-demand price.
//!
//! Clouds publish availability traces without prices, so replays draw prices: the logarithm returns to its mean
//! (Ornstein–Uhlenbeck process, Uhlenbeck and Ornstein 1930), the price stays below that of a machine on demand.

use domain::random::Draws;

use super::bootstrap::normal;

const HOUR: f64 = 3600.0;

/// Standard deviation of the logarithm of a drawn price. Assumed, as no history of prices is at hand.
pub const MOVES: f64 = 0.2;

/// Hours after which a drawn price has returned to its mean by a factor of e. Assumed.
const RETURNS: f64 = 48.0;

/// Hourly prices from a trace's start on; the last one stays.
#[derive(Debug, Clone, PartialEq)]
pub struct SpotPriceSeries(Vec<f64>);

impl SpotPriceSeries {
    /// Draws prices for `seconds` whose mean is `share` of the on-demand price.
    pub fn drawn(share: f64, seconds: f64, draws: &mut Draws) -> SpotPriceSeries {
        let stays = (-1.0 / RETURNS).exp();
        let mut off = MOVES * normal(draws);
        let hours = (seconds / HOUR).ceil().max(1.0) as usize;
        let price = |_| {
            let price = share * (off - MOVES * MOVES / 2.0).exp();
            off = off * stays + MOVES * (1.0 - stays * stays).sqrt() * normal(draws);
            price.min(1.0)
        };
        SpotPriceSeries((0..hours).map(price).collect())
    }

    /// The price at a moment.
    pub fn at(&self, second: f64) -> f64 {
        self.0[((second / HOUR).max(0.0) as usize).min(self.0.len() - 1)]
    }

    /// The price over a stretch of time, in seconds of a machine on demand.
    pub fn spent(&self, from: f64, seconds: f64) -> f64 {
        let (mut at, end, mut spent) = (from.max(0.0), from.max(0.0) + seconds, 0.0);
        while at < end {
            let next = ((at / HOUR).floor() + 1.0) * HOUR;
            let until = if at / HOUR >= (self.0.len() - 1) as f64 { end } else { next.min(end) };
            spent += self.at(at) * (until - at);
            at = until;
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_costs_what_its_hours_cost() {
        let prices = SpotPriceSeries(vec![0.2, 0.4, 0.8]);
        assert!((prices.spent(0.5 * HOUR, HOUR) - 0.3 * HOUR).abs() < 1e-9);
        assert!((prices.spent(0.0, 3.0 * HOUR) - 1.4 * HOUR).abs() < 1e-9);
        // Beyond the last hour its price stays.
        assert!((prices.spent(2.5 * HOUR, 10.0 * HOUR) - 8.0 * HOUR).abs() < 1e-9);
        assert_eq!((prices.at(-1.0), prices.at(HOUR), prices.at(1e9)), (0.2, 0.4, 0.8));
        assert_eq!(prices.spent(HOUR, 0.0), 0.0);
    }

    #[test]
    fn drawn_prices_move_about_their_mean() {
        let draw = |seed: u64| SpotPriceSeries::drawn(0.4, 2000.0 * 24.0 * HOUR, &mut Draws::new(seed));
        let (one, other) = (draw(1), draw(2));
        assert_eq!(one, draw(1));
        assert_ne!(one, other);
        let mean = one.0.iter().sum::<f64>() / one.0.len() as f64;
        assert!((mean / 0.4 - 1.0).abs() < 0.05, "{mean}");
        let day_apart = one.0.windows(25).map(|hours| (hours[24] / hours[0]).ln().powi(2)).sum::<f64>();
        let day_apart = (day_apart / (one.0.len() - 24) as f64).sqrt();
        assert!((0.12..0.23).contains(&day_apart), "{day_apart}");
    }
}
