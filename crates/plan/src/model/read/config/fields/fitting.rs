//! Figures of a `config.json` that must fit each other, or what is asked for: heads and widths, lengths of sequences and
//! positions, images.

use domain::problem::Problem;

use super::typed::{ConfigFields, LARGEST, MOST_LAYERS};

/// Longest sequence, where none is asked for.
const USUAL: u64 = 512;

impl ConfigFields<'_> {
    /// Heads that divide the width.
    pub fn heads(&self, keys: &[&str], hidden: u64) -> Result<u64, Problem> {
        let heads = self.number(keys)?;
        self.divides(keys[0], heads, hidden).map(|()| heads)
    }

    /// Heads whose width the file tells apart, so that they need not divide that of the blocks.
    pub fn free_heads(&self, keys: &[&str]) -> Result<u64, Problem> {
        match self.number(keys)? {
            heads if heads <= MOST_LAYERS => Ok(heads),
            heads => Err(Problem::at(keys[0], format!("{heads} heads are more than any network has"))
                .hint(format!("at most {MOST_LAYERS}"))),
        }
    }

    /// Refuses heads that do not divide the width.
    pub fn divides(&self, key: &str, heads: u64, hidden: u64) -> Result<(), Problem> {
        if heads > hidden || heads > MOST_LAYERS {
            return Err(Problem::at(key, format!("{heads} heads are too many for a width of {hidden}"))
                .hint("a number that divides the width"));
        }
        match hidden % heads.max(1) {
            0 => Ok(()),
            _ => Err(Problem::at(key, format!("{heads} heads do not divide a width of {hidden}"))
                .hint(format!("a number that divides {hidden}, such as {}", nearest_divisor(hidden, heads)))),
        }
    }

    /// Heads of keys and values, which divide the heads of queries; as many where the file says nothing.
    pub fn key_heads(&self, keys: &[&str], heads: u64) -> Result<u64, Problem> {
        match self.or(keys, heads)? {
            some if some <= heads && heads.is_multiple_of(some) => Ok(some),
            some => Err(Problem::at(keys[0], format!("{some} heads of keys do not divide {heads} of queries"))
                .hint(format!("write `\"{}\": {}`", keys[0], nearest_divisor(heads, some.min(heads))))),
        }
    }

    /// Tokens of one sample: what is asked for, else the most that the file allows, at most 512.
    pub fn sequence(&self, keys: &[&str]) -> Result<u64, Problem> {
        let most = self.said(keys)?;
        let sequence = self.sequence_of(most)?;
        if let Some(most) = most.filter(|most| sequence > *most) {
            self.say(format!("a sample of {sequence} tokens is longer than the {most} of `{}`", keys[0]));
        }
        Ok(sequence)
    }

    /// The same, of a network that has an embedding for each of so many positions and can see no more.
    pub fn sequence_within(&self, positions: u64) -> Result<u64, Problem> {
        let sequence = self.sequence_of(Some(positions))?;
        match sequence <= positions {
            true => Ok(sequence),
            false => Err(Problem::at(
                "sequence",
                format!("{sequence} tokens are more than the {positions} positions of this network"),
            )
            .hint(format!("ask for a sequence of {positions} or fewer"))),
        }
    }

    fn sequence_of(&self, most: Option<u64>) -> Result<u64, Problem> {
        let usual = most.unwrap_or(USUAL).min(USUAL);
        let asked = self.shape.sequence.unwrap_or(usual);
        if let (None, Some(most)) = (self.shape.sequence, most.filter(|most| *most > usual)) {
            self.say(format!(
                "a sample is {usual} tokens; the network takes up to {most}, and `sequence` says how many"
            ));
        }
        match (1..=LARGEST).contains(&asked) {
            true => Ok(asked),
            false => Err(Problem::at("sequence", format!("a sequence of {asked} tokens cannot be")).hint("from 1 on")),
        }
    }

    /// Channels, height and width of an image.
    pub fn image(&self) -> Result<[u64; 3], Problem> {
        if let Some(image) = self.shape.image {
            return match image.iter().all(|side| (1..=1 << 16).contains(side)) {
                true => Ok(image),
                false => Err(Problem::at("image", format!("`{image:?}` is no image")).hint("such as 3 × 224 × 224")),
            };
        }
        let channels = self.or(&["num_channels"], 3)?;
        let sides = match self.list("image_size") {
            Ok(Some(sides)) if sides.len() == 2 => [sides[0], sides[1]],
            Err(_) if self.part("image_size").is_some_and(|sides| sides.has("height")) => {
                let sides = self.part_or_usual("image_size", "");
                [sides.number(&["height"])?, sides.or(&["width"], 224)?]
            }
            Ok(_) | Err(_) => [self.or(&["image_size"], 224)?; 2],
        };
        match channels <= 4096 && sides.iter().all(|side| *side <= 1 << 16) {
            true => Ok([channels, sides[0], sides[1]]),
            false => Err(Problem::at("image_size", "no image is so large").hint("at most 65536 pixels a side")),
        }
    }
}

/// The largest divisor of `of` up to `most`.
fn nearest_divisor(of: u64, most: u64) -> u64 {
    (1..=most.min(MOST_LAYERS)).rev().find(|divisor| of.is_multiple_of(*divisor)).unwrap_or(1)
}
