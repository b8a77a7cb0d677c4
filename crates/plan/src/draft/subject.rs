//! What a job trains and on what samples, as far as that is known before the data is opened.

use domain::rank::Sample;
use domain::train::{Task, Train};

use super::Facts;
use super::network::{Network, transformer};

/// What the network is given, where it is known or assumed before the data is opened.
pub(super) fn sample(train: &Train, facts: &Facts, assumptions: &mut Vec<String>) -> Option<Sample> {
    match (train.task(), &train.data.text) {
        (Task::Pictures, _) => picture(train, facts, assumptions).map(|[channels, height, width]| Sample::Picture {
            channels,
            height,
            width,
        }),
        (Task::Texts | Task::MaskedWords | Task::NextWord, Some(text)) => {
            let vocabulary = text.vocabulary;
            assumptions.push(match &text.tokenizer {
                None => format!("a vocabulary of {vocabulary} words, the most that is learnt, is assumed"),
                Some(file) => format!("a vocabulary of {vocabulary} words is assumed, for `{file}` is not opened yet"),
            });
            Some(Sample::Text { vocabulary, length: text.length })
        }
        (Task::Boxes, _) | (Task::Texts | Task::MaskedWords | Task::NextWord, None) => {
            assumptions.push(not_counted(train, facts));
            None
        }
    }
}

/// The network for such samples; none, and that is said, where it is not counted.
pub(super) fn count(train: &Train, sample: Sample, facts: &Facts, assumptions: &mut Vec<String>) -> Option<Network> {
    let says_words = matches!(train.task(), Task::MaskedWords | Task::NextWord);
    let known = if says_words { Some(0) } else { facts.classes.or(train.data.classes) };
    let classes = known.unwrap_or(10);
    let network = transformer(train, sample, classes).or_else(|| match sample {
        Sample::Picture { channels, height, width } => {
            Network::count(train.model.named()?, [channels, height, width], classes)
        }
        Sample::Text { .. } => None,
    });
    match (network, known) {
        (Some(_), None) => assumptions.push("10 classes are assumed until the data is opened".to_owned()),
        (None, _) => assumptions.push(not_counted(train, facts)),
        (Some(_), Some(_)) => {}
    }
    network
}

/// That of this model nothing is known before it runs.
fn not_counted(train: &Train, facts: &Facts) -> String {
    let unknown = match facts.measured_step {
        Some(_) => "its memory is not known",
        None => "its memory, time and cost are not known",
    };
    format!("what `{}` takes is not counted yet: {unknown} before it runs", train.model.name())
}

/// Channels, height and width that the network sees, where they are known before the data is opened.
fn picture(train: &Train, facts: &Facts, assumptions: &mut Vec<String>) -> Option<[u32; 3]> {
    if let Some([channels, height, width]) = facts.input_shape {
        return Some(train.data.size.map_or([channels, height, width], |size| [channels, size, size]));
    }
    let path = train.data.path.to_lowercase();
    if path.ends_with(".csv") || path.ends_with(".csv.gz") {
        // That form of data has 64 pixels a sample.
        let side = train.data.size.unwrap_or(8);
        return Some([1, side, side]);
    }
    if let Some(size) = train.data.size {
        assumptions.push(format!("pictures of {size}×{size} in 3 colours are assumed until the data is opened"));
        return Some([3, size, size]);
    }
    let unknown =
        "the size of the pictures is not known before the data is opened, so neither are memory, time and cost";
    assumptions.push(unknown.to_owned());
    None
}
