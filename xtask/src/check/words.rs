//! Vocabulary: `docs/vocabulary.tsv` lists retired words, which no text may use.
//!
//! A row is the retired word, its replacement, and where it is banned: `code` (names), `help` (strings and doc
//! comments, from which help pages, errors and reports are made) or `docs` (documents and all other comments). A word
//! that ends in `*` matches as a prefix. A name with a capital letter is compared as it is. A fourth column lists
//! exempt paths. Tests are exempt, and so are lines with serde's `alias` and `rename`, for files that were written with
//! them must stay readable.

use super::ratchet::Offence;
use super::source::{Piece, Source};

/// Path of the table.
pub const TABLE: &str = "docs/vocabulary.tsv";

/// One row of the table.
struct Retired {
    words: Vec<String>,
    text: String,
    instead: String,
    places: Vec<String>,
    except: Vec<String>,
}

/// Returns an offence for each file and each retired word in it, with the first line that has it.
pub fn check(sources: &[Source]) -> Result<Vec<Offence>, String> {
    let Some(table) = sources.iter().find(|source| source.path == TABLE) else {
        return Ok(Vec::new());
    };
    let rows = table.lines.iter().zip(1..).filter(|(line, _)| !line.starts_with('#') && !line.is_empty());
    let rows: Vec<Retired> = rows.map(|(line, number)| row(line, number)).collect::<Result<_, _>>()?;
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| source.path != TABLE && !source.is_test()) {
        let texts = Texts::of(source);
        for retired in rows.iter().filter(|row| !row.except.iter().any(|start| source.path.starts_with(start))) {
            let lines = retired.places.iter().filter_map(|place| retired.first_line(texts.at(place)));
            if let Some(line) = lines.min() {
                let (path, text, instead) = (&source.path, &retired.text, &retired.instead);
                let sentence = format!("{path}:{line}: `{text}` is retired; say `{instead}`");
                offences.push(Offence { sentence });
            }
        }
    }
    Ok(offences)
}

fn row(line: &str, number: usize) -> Result<Retired, String> {
    let cells: Vec<&str> = line.split('\t').collect();
    let list = |cell: &str, mark: char| {
        cell.split(mark).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let wrong = || {
        format!("{TABLE}:{number}: a row is a word, what to say instead, and `code`, `help` or `docs`, between tabs")
    };
    let (text, instead, places, except) = match cells.as_slice() {
        [text, instead, places] => (text, instead, places, ""),
        [text, instead, places, except] => (text, instead, places, *except),
        _ => return Err(wrong()),
    };
    let places: Vec<String> = list(places, ',');
    if places.is_empty() || !places.iter().all(|place| ["code", "help", "docs"].contains(&place.as_str())) {
        return Err(wrong());
    }
    let words = list(text, ' ');
    let [text, instead] = [text, instead].map(|text| (*text).to_owned());
    Ok(Retired { words, text, instead, places, except: list(except, ' ') })
}

impl Retired {
    /// The first line that has it.
    fn first_line(&self, pieces: &[(usize, Vec<String>)]) -> Option<usize> {
        let says = |words: &[String]| words.windows(self.words.len()).any(|found| self.is_said_by(found));
        pieces.iter().find(|(_, words)| says(words)).map(|(line, _)| *line)
    }

    fn is_said_by(&self, found: &[String]) -> bool {
        self.words.iter().zip(found).all(|(retired, found)| {
            let is_name = retired.chars().any(char::is_uppercase) || retired.contains('_');
            let found = if is_name { found.clone() } else { found.to_lowercase() };
            match retired.strip_suffix('*') {
                Some(start) => found.starts_with(start),
                None => found == *retired,
            }
        })
    }
}

/// The text of a file by kind: lines, and their words.
struct Texts {
    code: Vec<(usize, Vec<String>)>,
    help: Vec<(usize, Vec<String>)>,
    docs: Vec<(usize, Vec<String>)>,
}

impl Texts {
    fn of(source: &Source) -> Texts {
        let mut texts = Texts { code: Vec::new(), help: Vec::new(), docs: Vec::new() };
        if source.path.ends_with(".md") {
            texts.docs = source.lines.iter().zip(1..).map(|(line, number)| (number, words(line))).collect();
        }
        if !source.is_rust() {
            return texts;
        }
        let is_promise = |line: usize| ["alias", "rename"].iter().any(|word| source.lines[line - 1].contains(word));
        let ships = |line: usize| !source.tests[line - 1] && !is_promise(line);
        let prose = |pieces: &[Piece]| {
            let shipped = pieces.iter().filter(|(line, _)| ships(*line));
            shipped.map(|(line, text)| (*line, words(text))).collect::<Vec<_>>()
        };
        texts.help = [prose(&source.docs), prose(&source.strings)].concat();
        texts.docs = prose(&source.comments);
        texts.code = source.shipped().map(|(number, line)| (number, names(line))).collect();
        texts
    }

    fn at(&self, place: &str) -> &[(usize, Vec<String>)] {
        match place {
            "code" => &self.code,
            "help" => &self.help,
            _ => &self.docs,
        }
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The names in a line of code, each in full and, if it has several words, split into them.
fn names(line: &str) -> Vec<String> {
    let mut names = Vec::new();
    for name in words(line) {
        let mut parts: Vec<String> = Vec::new();
        let mut before = '_';
        for symbol in name.chars() {
            match parts.last_mut() {
                Some(part) if symbol != '_' && before != '_' && !(symbol.is_uppercase() && before.is_lowercase()) => {
                    part.push(symbol.to_ascii_lowercase());
                }
                _ if symbol != '_' => parts.push(symbol.to_lowercase().collect()),
                _ => {}
            }
            before = symbol;
        }
        // A row of several words is for prose: names are separate.
        names.extend([name, ";".to_owned()]);
        names.extend(parts.into_iter().flat_map(|part| [part, ";".to_owned()]));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "# retired\tinstead\twhere\tmay\n\
        picture*\timage\tcode,help,docs\tcrates/old/ docs/history.md\n\
        way back\tbackward pass\thelp,docs\n\
        Weather\tSpotAvailability\tcode\n\
        hand_out\tscatter\tcode\n";

    fn check(path: &str, text: &str, expected: &[&str]) {
        let found = super::check(&[Source::new(TABLE, ROWS), Source::new(path, text)]).unwrap();
        assert_eq!(found.iter().map(|offence| offence.sentence.as_str()).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn words_are_found_where_they_must_not_stand() {
        let image = "crates/a/src/a.rs:1: `picture*` is retired; say `image`";
        check("crates/a/src/a.rs", "fn decode_picture() {}\n", &[image]);
        check("crates/a/src/a.rs", "struct PicturesRead;\n", &[image]);
        check("crates/a/src/a.rs", "// Pictures.\n", &[image]);
        check("crates/a/src/a.rs", "f(\"the picture\");\n", &[image]);
        check(
            "crates/a/src/a.rs",
            "#[serde(alias = \"picture\")]\nstruct Picturesque;\n",
            &[&image.replace(":1:", ":2:")],
        );
        check("crates/a/src/a.rs", "#[serde(alias = \"picture\")]\n#[cfg(test)]\nfn picture() {}\n", &[]);
        check("crates/old/src/a.rs", "fn picture() {}\n", &[]);
        check("crates/a/tests/a.rs", "fn picture() {}\n", &[]);
        check("docs/a.md", "one\nthe Way back\n", &["docs/a.md:2: `way back` is retired; say `backward pass`"]);
        check("docs/history.md", "a picture\n", &[]);
    }

    #[test]
    fn names_are_compared_as_they_are() {
        let weather = "crates/a/src/a.rs:1: `Weather` is retired; say `SpotAvailability`";
        check("crates/a/src/a.rs", "use a::Weather;\n", &[weather]);
        check("crates/a/src/a.rs", "let weather = WeatherReport; // The Weather.\n", &[]);
        check("crates/a/src/a.rs", "hand_out();\n", &["crates/a/src/a.rs:1: `hand_out` is retired; say `scatter`"]);
        check("crates/a/src/a.rs", "way(back); way_back();\n", &[]);
    }

    #[test]
    fn a_wrong_row_is_told() {
        for wrong in ["a\tb\n", "a\tb\tanywhere\n", "a\tb\t\n"] {
            let error = super::check(&[Source::new(TABLE, wrong)]).unwrap_err();
            assert!(error.starts_with("docs/vocabulary.tsv:1: a row is"), "{error}");
        }
    }
}
