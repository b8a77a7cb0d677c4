//! What a label stands for where it is not one class: any number of labels, or a number.
//!
//! Data names the label of a sample by a text, such as `cat|dog` or `0.73`, and an index numbers the texts that occur
//! as it numbers classes. Here each of these texts becomes a row of targets, so that everything that moves samples
//! around moves the number of a text and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use domain::train::Labels;

use crate::Error;
use crate::error::layout;

/// Divides the labels of a sample.
const BETWEEN: char = '|';

/// The targets of each text that occurs as a label, in the order of the index.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Any number of labels.
    Flags {
        /// Names of the labels, sorted, or in the order of a model.
        names: Vec<String>,
        /// For each text a flag for each name, one text after the other.
        rows: Vec<bool>,
    },
    /// A number each.
    Numbers(Vec<f32>),
}

impl Targets {
    /// The targets of these texts; `None` where a text is the name of a class.
    ///
    /// # Errors
    /// Where a text is no number, or no sample has a label.
    pub(crate) fn of(labels: Labels, path: &Path, texts: &[String]) -> Result<Option<Targets>, Error> {
        match labels {
            Labels::Class => Ok(None),
            Labels::Number => texts
                .iter()
                .map(|text| number(path, text))
                .collect::<Result<_, _>>()
                .map(|all| Some(Self::Numbers(all))),
            Labels::MultiLabel => {
                let names: BTreeSet<&str> = texts.iter().flat_map(|text| each(text)).collect();
                if names.is_empty() {
                    let hint = "name the labels of each sample, such as `cat|dog`, or remove `labels: multi_label`";
                    return Err(layout(path, "no sample has a label", hint));
                }
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                Ok(Some(Targets::flags(names, texts)))
            }
        }
    }

    /// Flags of texts whose labels are all among these names.
    fn flags(names: Vec<String>, texts: &[String]) -> Targets {
        let mut rows = vec![false; names.len() * texts.len()];
        for (text, row) in texts.iter().zip(rows.chunks_exact_mut(names.len())) {
            for label in each(text) {
                if let Some(place) = names.iter().position(|name| name == label) {
                    row[place] = true;
                }
            }
        }
        Targets::Flags { names, rows }
    }

    /// The targets for a model that predicts these labels, in its order.
    ///
    /// # Errors
    /// [`Error::UnknownClasses`] with the labels that the model does not have.
    pub(crate) fn for_model(self, texts: &[String], known: &[String]) -> Result<Targets, Error> {
        match self {
            Targets::Numbers(_) => Ok(self),
            Targets::Flags { names, .. } => {
                let names: Vec<String> = names.into_iter().filter(|name| !known.contains(name)).collect();
                match names.is_empty() {
                    true => Ok(Targets::flags(known.to_vec(), texts)),
                    false => Err(Error::UnknownClasses { names, known: known.to_vec() }),
                }
            }
        }
    }

    /// Names of what is predicted, in the order of the outputs.
    pub fn names(&self) -> Vec<String> {
        match self {
            Targets::Flags { names, .. } => names.clone(),
            Targets::Numbers(_) => vec!["value".to_owned()],
        }
    }
}

/// The labels that a text names.
pub(crate) fn each(text: &str) -> impl Iterator<Item = &str> {
    text.split(BETWEEN).map(str::trim).filter(|label| !label.is_empty())
}

/// Whether a text can be the name of one of several labels: whether [`each`] finds it again.
pub(super) fn is_name(label: &str) -> bool {
    !label.contains(BETWEEN)
}

/// The text of several labels, which are names; [`each`] takes it apart again.
pub(super) fn joined<'a>(labels: impl IntoIterator<Item = &'a str>) -> String {
    let labels: Vec<&str> = labels.into_iter().collect();
    if labels.is_empty() { BETWEEN.to_string() } else { labels.join(&BETWEEN.to_string()) }
}

fn number(path: &Path, text: &str) -> Result<f32, Error> {
    let value = text.trim().parse::<f32>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| {
        let why = format!("the label `{text}` is no number");
        layout(path, why, "write a finite number for each sample, or remove `labels: number`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn of(labels: Labels, each: &[&str]) -> Result<Option<Targets>, String> {
        Targets::of(labels, Path::new("d.csv"), &texts(each)).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_become_rows_of_targets() {
        assert_eq!(of(Labels::Class, &["a", "b"]), Ok(None));
        let numbers = Targets::Numbers(vec![-1.5, 3.0, 0.001]);
        assert_eq!(of(Labels::Number, &["-1.5", "3", " 1e-3 "]), Ok(Some(numbers)));
        let flags = Targets::Flags {
            names: texts(&["bird", "cat", "dog"]),
            rows: vec![false, true, true, false, false, false, true, false, false],
        };
        assert_eq!(of(Labels::MultiLabel, &["dog|cat", "|", "bird | bird"]), Ok(Some(flags.clone())));
        let known = texts(&["dog", "cow", "cat", "bird"]);
        let found = flags.clone().for_model(&texts(&["dog|cat", "|", "bird | bird"]), &known).unwrap();
        let rows = vec![true, false, true, false, false, false, false, false, false, false, false, true];
        assert_eq!(found, Targets::Flags { names: known, rows });
        let unknown = flags.for_model(&texts(&["dog|cat"]), &texts(&["dog", "cat"])).unwrap_err();
        assert!(matches!(unknown, Error::UnknownClasses { names, .. } if names == ["bird"]));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for wrong in ["tall", "nan", "inf", "1e60", ""] {
            assert!(of(Labels::Number, &["1", wrong]).unwrap_err().contains(&format!("`{wrong}` is no number")));
        }
        assert!(of(Labels::MultiLabel, &["|", " "]).unwrap_err().contains("no sample has a label"));
    }

    #[test]
    fn a_name_that_divides_labels_is_none() {
        for label in ["cat", "a b", "cat|dog", "|"] {
            assert_eq!(is_name(label), each(label).eq([label]), "{label}");
        }
    }

    #[test]
    fn joined_labels_come_apart_again() {
        for labels in [&[][..], &["cat"], &["cat", "dog"]] {
            assert_eq!(each(&joined(labels.iter().copied())).collect::<Vec<_>>(), labels);
        }
    }
}
