//! Batches of rows: a function of (texts, seed, epoch, position), as for images.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::train::Sampling;

use super::rows::RowSpan;
use super::{TextDataset, TextObjective};
use crate::sampling::random::{Draws, Purpose, key};
use crate::{Cursor, Error, Part, RankShare, SampleOrder, TrainOrder};

/// Target index that the loss ignores, as in `torch.nn.functional.cross_entropy`.
const IGNORED: i64 = -100;
/// Rows are padded to a multiple of this many tokens, to keep the number of distinct shapes small.
const MULTIPLE: usize = 8;
/// Percentage of the tokens of a row that are selected as targets. Of those, 80 % are replaced by the mask token
/// and 10 % by a random token (Devlin et al. 2018, section 3.1).
const MASKED_PERCENT: u64 = 15;

/// A stream of batches in a fixed order.
#[derive(Debug)]
pub struct TextLoader {
    texts: Arc<TextDataset>,
    part: Part,
    batch: usize,
    seed: u64,
    /// The order of the training rows; `None` for evaluation, which reads rows in the order of the data.
    order: Option<TrainOrder>,
    at: Cursor,
    epochs: u64,
    share: RankShare,
    refused: Option<Error>,
}

/// Rows of the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBatch {
    /// Token ids, `rows` × `length`, row-major.
    pub tokens: Vec<i64>,
    /// `true` at tokens and `false` at padding; `None` if there is no padding.
    pub mask: Option<Vec<bool>>,
    /// Position ids: each token's offset from the start of its document. `None` unless attention is limited to a
    /// document.
    pub places: Option<Vec<i64>>,
    /// Targets: one class per row, or one token id per position, −100 where there is none.
    pub labels: Vec<i64>,
    /// Rows.
    pub rows: usize,
    /// Tokens per row, padding included.
    pub length: usize,
    /// Rows that count in metrics: all, or 0 if this rank has no row of its share and runs another rank's for shape
    /// only.
    pub counted: usize,
    /// Rows of the batch over all ranks.
    pub whole: usize,
    /// Cursor to resume from after this batch.
    pub cursor_after: Cursor,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Time that the caller waited for the batch.
    pub wait: Duration,
}

impl TextLoader {
    /// Shuffled batches of the training rows, from the cursor to the end of epoch `epochs - 1`.
    pub fn train(texts: Arc<TextDataset>, batch: usize, seed: u64, from: Cursor, epochs: u64) -> TextLoader {
        let samples = texts.rows.count(Part::Train);
        let Cursor { epoch, pos } = from;
        let refused = (epoch < epochs && pos >= samples.max(1)).then_some(Error::Position { epoch, pos, samples });
        let order = Some(TrainOrder::Shuffled(SampleOrder::new(samples, seed)));
        let (batch, share) = (batch.max(1), RankShare::ALL);
        TextLoader { texts, part: Part::Train, batch, seed, order, at: from, epochs, share, refused }
    }

    /// Batches of one part as its rows come, once.
    pub fn evaluate(texts: Arc<TextDataset>, part: Part, batch: usize, seed: u64) -> TextLoader {
        TextLoader::evaluate_from(texts, part, batch, seed, 0)
    }

    /// The same, from a position on.
    pub fn evaluate_from(texts: Arc<TextDataset>, part: Part, batch: usize, seed: u64, pos: u64) -> TextLoader {
        let (order, at) = (None, Cursor { epoch: 0, pos });
        TextLoader {
            texts,
            part,
            batch: batch.max(1),
            seed,
            order,
            at,
            epochs: 1,
            share: RankShare::ALL,
            refused: None,
        }
    }

    /// Restricts the loader to this rank's share of each batch. The batch size remains that of all ranks together.
    pub fn shared(self, share: RankShare) -> TextLoader {
        TextLoader { share, ..self }
    }

    /// The same with training rows drawn as `sampling` says; by class where the rows have one.
    pub fn sampled(self, sampling: Sampling) -> TextLoader {
        match sampling {
            Sampling::Shuffle => self,
            Sampling::Balanced => TextLoader { order: Some(self.texts.order(sampling, self.seed)), ..self },
        }
    }

    /// The next batch; `None` after the last one, and after an error.
    #[allow(clippy::should_implement_trait)] // Named as in the loader of images.
    pub fn next(&mut self) -> Option<Result<TextBatch, Error>> {
        if let Some(error) = self.refused.take() {
            self.epochs = 0;
            return Some(Err(error));
        }
        let began = Instant::now();
        let samples = self.texts.rows.count(self.part);
        if self.at.epoch >= self.epochs || samples == 0 {
            return None;
        }
        let Cursor { epoch, pos } = self.at;
        let rows = self.batch.min((samples - pos) as usize);
        let ours = self.share.of(rows as u64);
        let counted = (ours.end - ours.start) as usize;
        // A rank without a row still needs an input for its collective calls; its row does not count.
        let indices = if ours.is_empty() { 0..1 } else { ours };
        let numbers: Vec<u32> = indices.map(|index| self.number(epoch, pos + index)).collect();
        let after = pos + rows as u64;
        self.at = if after < samples { Cursor { epoch, pos: after } } else { Cursor { epoch: epoch + 1, pos: 0 } };
        let mut batch = match self.texts.batch(&numbers, self.order.is_some().then_some(epoch), self.seed) {
            Ok(batch) => batch,
            Err(error) => {
                self.epochs = 0;
                return Some(Err(error));
            }
        };
        (batch.cursor_after, batch.epoch, batch.wait) = (self.at, epoch, began.elapsed());
        (batch.counted, batch.whole) = (counted, rows);
        Some(Ok(batch))
    }

    fn number(&self, epoch: u64, index: u64) -> u32 {
        let index = self.order.as_ref().map_or(index, |order| order.at(epoch, index));
        self.texts.rows.number(self.part, index)
    }
}

impl TextDataset {
    /// Collates the rows with these numbers. `epoch` is `None` for evaluation, whose masks are the same each time.
    ///
    /// # Errors
    /// If tokens cannot be read or do not match their checksums.
    pub(super) fn batch(&self, numbers: &[u32], epoch: Option<u64>, seed: u64) -> Result<TextBatch, Error> {
        let spans = numbers.iter().map(|row| self.rows.span(*row)).collect::<Result<Vec<RowSpan>, Error>>()?;
        let read = spans.iter().map(|span| self.rows.tokens(span)).collect::<Result<Vec<Vec<u32>>, Error>>()?;
        let given = |row: &Vec<u32>| match self.goal {
            // The last token is only a target.
            TextObjective::Next => row.len().saturating_sub(1),
            TextObjective::Class | TextObjective::Masked => row.len(),
        };
        let longest = read.iter().map(given).max().unwrap_or(1);
        let length = match self.goal {
            TextObjective::Next => longest,
            TextObjective::Class | TextObjective::Masked => longest.next_multiple_of(MULTIPLE),
        };
        let size = numbers.len() * length;
        let mut tokens = vec![i64::from(self.special.pad); size];
        let mut mask = vec![false; size];
        // Padding attends to itself only.
        let mut places = if self.apart { vec![0; size] } else { Vec::new() };
        let mut labels = match self.goal {
            TextObjective::Class => numbers.iter().map(|row| i64::from(self.labels[*row as usize])).collect(),
            TextObjective::Masked | TextObjective::Next => vec![IGNORED; size],
        };
        for (index, ((number, span), row)) in numbers.iter().zip(&spans).zip(&read).enumerate() {
            let (start, count) = (index * length, given(row));
            for (slot, token) in tokens[start..].iter_mut().zip(&row[..count]) {
                *slot = i64::from(*token);
            }
            mask[start..start + count].fill(true);
            match self.goal {
                TextObjective::Class => {}
                TextObjective::Next => {
                    for (slot, token) in labels[start..].iter_mut().zip(&row[1..]) {
                        *slot = i64::from(*token);
                    }
                    for border in self.rows.borders(span) {
                        labels[start + border - 1] = IGNORED;
                    }
                    if self.apart {
                        let begins: Vec<usize> = [0].into_iter().chain(self.rows.borders(span)).collect();
                        for (number, begin) in begins.iter().enumerate() {
                            let end = begins.get(number + 1).copied().unwrap_or(count).min(count);
                            for at in *begin..end {
                                places[start + at] = (at - begin) as i64;
                            }
                        }
                    }
                }
                TextObjective::Masked => {
                    let draws = Draws::new(key(Purpose::Mask, seed, &[epoch.unwrap_or(u64::MAX), u64::from(*number)]));
                    let range = start..start + count;
                    self.hide(&mut tokens[range.clone()], &mut labels[range], draws);
                }
            }
        }
        let mask = mask.contains(&false).then_some(mask);
        let (rows, cursor_after, wait) = (numbers.len(), Cursor::START, Duration::ZERO);
        let (counted, whole, epoch) = (rows, rows, 0);
        let places = self.apart.then_some(places);
        Ok(TextBatch { tokens, mask, places, labels, rows, length, counted, whole, cursor_after, epoch, wait })
    }

    /// Masks tokens of a row and stores their ids as targets; at least one, so that every row contributes to the
    /// loss.
    fn hide(&self, tokens: &mut [i64], labels: &mut [i64], mut draws: Draws) {
        let ordinary: Vec<usize> =
            (0..tokens.len()).filter(|at| !self.specials.contains(&(tokens[*at] as u32))).collect();
        if ordinary.is_empty() {
            return;
        }
        let sure = ordinary[draws.below(ordinary.len() as u64) as usize];
        for at in ordinary {
            if draws.below(100) >= MASKED_PERCENT && at != sure {
                continue;
            }
            labels[at] = tokens[at];
            match draws.below(10) {
                0..8 => tokens[at] = i64::from(self.special.mask),
                8 => tokens[at] = draws.below(self.vocabulary as u64) as i64,
                _ => {}
            }
        }
    }
}
