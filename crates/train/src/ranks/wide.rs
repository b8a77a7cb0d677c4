//! What a unit that is gathered in 16 bits keeps in 32: its normalisations, biases and whatever else autocast does not cast.
//!
//! These values are few. So each rank has all of them, renewed after each update, and what is gathered around each block
//! has one format. Casting rounds each value by itself, so it does not matter whether values are cast before or after they
//! are gathered.

use tch::{Kind, Tensor};

use super::unit::{Flat, aligned, common};
use crate::torch::Result;

/// A tensor of a unit: where it begins in the unit's buffer, how many values it has, and whether all that reads it casts
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub start: i64,
    pub length: i64,
    pub is_cast: bool,
}

/// Whether a unit is gathered in 16 bits: if most of its values are cast. Otherwise, as with tables of embeddings, the
/// others would be too many to be on every rank.
pub(super) fn is_narrow(tensors: &[Placed]) -> bool {
    let values = |is_cast: bool| -> i64 {
        tensors.iter().filter(|tensor| tensor.is_cast == is_cast).map(|tensor| tensor.length).sum()
    };
    values(true) > values(false)
}

/// The values of a unit that stay in 32 bits.
pub(super) struct Wide {
    /// All of them, of which the layers' tensors are views.
    values: Tensor,
    /// Where each tensor of the unit begins among them; `None` for one that is cast.
    starts: Vec<Option<i64>>,
    /// Which values of this rank's shard are among them, int64; as many on each rank.
    own: Tensor,
    /// The position of each among those of all ranks, int64.
    order: Tensor,
}

impl Wide {
    /// Those of a unit whose buffer `flat`, of 32 bits, is complete; this is rank `rank` of `ranks`, each of which has a
    /// shard of it.
    pub(super) fn of(tensors: &[Flat], placed: &[Placed], flat: &Tensor, [ranks, rank]: [i64; 2]) -> Result<Wide> {
        let device = flat.device();
        let WideLayout { starts, own, order } = WideLayout::of(placed, flat.numel() as i64 / ranks, [ranks, rank]);
        let values = Tensor::f_zeros([order.len() as i64], (Kind::Float, device))?;
        for (Flat { size, strides, start, .. }, to) in tensors.iter().zip(&starts) {
            if let Some(to) = to {
                let whole = flat.f_as_strided(size, strides, *start)?;
                values.f_as_strided(size, strides, *to)?.f_copy_(&whole)?;
            }
        }
        let index = |places: &[i64]| Tensor::f_from_slice(places).and_then(|index| index.f_to_device(device));
        Ok(Wide { values, starts, own: index(&own)?, order: index(&order)? })
    }

    /// The values of the unit's tensor number `place` if they stay in 32 bits.
    pub(super) fn view(&self, place: usize, size: &[i64], strides: &[i64]) -> Result<Option<Tensor>> {
        match self.starts[place] {
            Some(start) => Ok(Some(self.values.f_as_strided(size, strides, start)?)),
            None => Ok(None),
        }
    }

    /// What this rank sends of its shard `part`: as many values as every other rank.
    pub(super) fn sent(&self, part: &Tensor) -> Result<Tensor> {
        Ok(part.f_index_select(0, &self.own)?)
    }

    /// How many values each rank sends.
    pub(super) fn sent_length(&self) -> i64 {
        self.own.numel() as i64
    }

    /// Takes over what all ranks have sent, one after another.
    pub(super) fn renew(&self, all: &Tensor) -> Result<()> {
        Ok(self.values.shallow_clone().f_copy_(&all.f_index_select(0, &self.order)?)?)
    }
}

/// Where values that stay in 32 bits lie, in a rank's shard and among all. Pure arithmetic.
#[derive(Debug, PartialEq, Eq)]
struct WideLayout {
    starts: Vec<Option<i64>>,
    own: Vec<i64>,
    order: Vec<i64>,
}

/// Values of one tensor that one rank has.
struct Stretch {
    rank: i64,
    /// Where they begin in that rank's shard, among what it sends, and among all.
    at: i64,
    sent: i64,
    to: i64,
    length: i64,
}

impl WideLayout {
    /// For a buffer that is divided into shards of `part` values.
    fn of(tensors: &[Placed], part: i64, [ranks, rank]: [i64; 2]) -> WideLayout {
        let (mut starts, mut stretches) = (Vec::new(), Vec::new());
        let (mut counts, mut end) = (vec![0; ranks as usize], 0);
        for Placed { start, length, is_cast } in tensors {
            starts.push((!is_cast).then_some(end));
            if *is_cast {
                continue;
            }
            for place in 0..ranks {
                let Some([from, at, some]) = common([*start, *length], [place * part, part]) else { continue };
                let sent = &mut counts[place as usize];
                stretches.push(Stretch { rank: place, at, sent: *sent, to: end + from, length: some });
                *sent += some;
            }
            end += aligned(*length);
        }
        // Ranks with fewer of them repeat their first value.
        let most = counts.iter().copied().max().unwrap_or(0);
        let (mut own, mut order) = (vec![0; most as usize], vec![0; end as usize]);
        for stretch in &stretches {
            for step in 0..stretch.length {
                order[(stretch.to + step) as usize] = stretch.rank * most + stretch.sent + step;
                if stretch.rank == rank {
                    own[(stretch.sent + step) as usize] = stretch.at + step;
                }
            }
        }
        WideLayout { starts, own, order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_narrow_if_most_of_it_is_cast() {
        let check = |cast: i64, others: i64, expected: bool| {
            let placed = |length, is_cast| Placed { start: 0, length, is_cast };
            assert_eq!(is_narrow(&[placed(others, false), placed(cast, true)]), expected, "{cast} {others}");
        };
        check(100, 3, true);
        check(0, 3, false);
        check(10, 10, false);
        check(0, 0, false);
        // A table of embeddings beside a small head.
        check(1_000, 100_000, false);
    }

    /// Sends the values of every rank's shard, numbered as in the buffer, and looks where each arrives.
    #[test]
    fn each_value_that_stays_wide_arrives() {
        let check = |lengths: &[(i64, bool)], part: i64, ranks: i64| {
            let mut start = 0;
            let mut placed = Vec::new();
            for (length, is_cast) in lengths {
                placed.push(Placed { start, length: *length, is_cast: *is_cast });
                start += aligned(*length);
            }
            assert!(start <= part * ranks, "{lengths:?} does not fit");
            let layouts: Vec<WideLayout> =
                (0..ranks).map(|rank| WideLayout::of(&placed, part, [ranks, rank])).collect();
            let sent: Vec<i64> = layouts
                .iter()
                .zip(0..)
                .flat_map(|(layout, rank)| layout.own.iter().map(move |at| rank * part + at))
                .collect();
            for layout in &layouts {
                assert_eq!((&layout.order, &layout.starts), (&layouts[0].order, &layouts[0].starts));
                assert_eq!(layout.own.len(), layouts[0].own.len());
            }
            for (Placed { start, length, is_cast }, to) in placed.iter().zip(&layouts[0].starts) {
                assert_eq!(to.is_none(), *is_cast);
                for step in 0..to.map_or(0, |_| *length) {
                    let place = layouts[0].order[(to.unwrap() + step) as usize];
                    assert_eq!(sent[place as usize], start + step, "{lengths:?} {part} {ranks}");
                }
            }
        };
        check(&[(16, false)], 16, 2);
        check(&[(40, true), (3, false), (20, false), (100, true)], 112, 2);
        check(&[(40, true), (3, false), (20, false), (100, true)], 80, 3);
        // One that two ranks share, and none at all.
        check(&[(10, true), (50, false), (7, true)], 48, 2);
        check(&[(64, true)], 32, 2);
        check(&[(1, false), (1, false), (200, true), (33, false)], 80, 4);
    }
}
