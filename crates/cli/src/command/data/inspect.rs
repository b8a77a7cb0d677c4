//! `gradus data inspect`: the contents of a data set.

use std::io::Read;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use data::{InspectOptions, Inspection, Renamed};

use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data set in any supported format, or its address, such as `s3://bucket/images`
    path: PathBuf,
    /// Read every sample and check its hash, or decode it if it has none
    #[arg(long)]
    verify: bool,
    /// Write a contact sheet as PNG, one row per class
    #[arg(long, value_name = "FILE.png")]
    sheet: Option<PathBuf>,
}

/// Prints the contents of a data set; the exit code is 3 if `--verify` finds damage.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let options = InspectOptions { verify: args.verify, sheet: args.sheet.as_deref(), threads };
    let place = OpenedData::opened(&args.path, settings, printer)?;
    let found = data::inspect(place.path(), &options).map_err(|error| of_texts(error, &place))?;
    let code = if args.verify && !found.damaged.is_empty() { exit::WORLD } else { exit::DONE };
    if printer.is_json() {
        printer.json(&found);
        return Ok(code);
    }
    for line in lines(&found) {
        printer.data(line);
    }
    if let Some(file) = args.sheet.as_ref().filter(|_| !found.sheet.is_empty()) {
        printer.say(format!("wrote a contact sheet of {} classes to `{}`", found.sheet.len(), file.display()));
    }
    for damaged in found.damaged.iter().take(SHOWN) {
        printer.say(format!("damaged: `{}`: {}", damaged.name, damaged.why));
    }
    if found.damaged.len() > SHOWN {
        printer.say(format!("and {} more; list all with `--json`", found.damaged.len() - SHOWN));
    }
    Ok(code)
}

/// The error for text where images or packed tokens are expected.
pub fn of_texts(error: data::Error, place: &OpenedData) -> Error {
    let is_about_form =
        matches!(error, data::Error::Layout { .. } | data::Error::Image { .. } | data::Error::Line { .. });
    // A list of images that cannot be used is no text either.
    if !is_about_form || !holds_texts(place.path()) || data::lists_images(place.path()) {
        return error.into();
    }
    let message = format!("`{}` holds text, which must be packed as tokens first", place.given().display());
    let hint = format!(
        "run `gradus data pack {} OUT --tokenizer bpe:16000` (with `--columns` and `--label` for tables), then `gradus data inspect OUT`",
        place.given().display()
    );
    Error::Usage { message, hint }
}

/// Whether a path is a text file, or a folder of text files only.
fn holds_texts(path: &Path) -> bool {
    let is_text = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // A table of numbers is one of pixels or of features.
        [".txt", ".jsonl"].iter().any(|ending| name.ends_with(ending)) || name.ends_with(".csv") && has_words(path)
    };
    let Ok(entries) = std::fs::read_dir(path) else { return is_text(path) };
    let mut files = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).peekable();
    files.peek().is_some() && files.all(|path| is_text(&path))
}

/// Whether a table seems to hold texts, by its beginning.
pub(super) fn has_words(path: &Path) -> bool {
    let mut begin = [0; 512];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut begin)).unwrap_or(0);
    let begin = &begin[..read];
    begin.iter().any(u8::is_ascii_alphabetic) && !has_features(&String::from_utf8_lossy(begin))
}

/// Whether the line below the header is mostly numbers.
fn has_features(begin: &str) -> bool {
    let fields: Vec<&str> = begin.lines().nth(1).unwrap_or_default().split(',').collect();
    let numbers = fields.iter().filter(|field| field.trim().parse::<f64>().is_ok()).count();
    numbers > 2 && 2 * numbers > fields.len()
}

/// Maximum number of damaged samples, or of classes, that are listed.
const SHOWN: usize = 20;

fn lines(found: &Inspection) -> Vec<String> {
    let mut lines = vec![format!("format    {}", found.form), format!("samples   {}", found.samples)];
    if let Some([train, validation, test]) = found.parts {
        lines.push(format!("splits    {train} training, {validation} validation, {test} test"));
    }
    // Text may have no classes.
    let named = found.classes.iter().any(|(name, _)| !name.is_empty());
    let mut counts: Vec<u64> = found.classes.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable();
    if let (Some(least), Some(most), true) = (counts.first(), counts.last(), named) {
        lines.push(format!("classes   {}, {least} to {most} samples each", counts.len()));
    }
    if found.classes.len() <= SHOWN && named {
        lines.extend(found.classes.iter().map(|(name, count)| format!("          {count:>8}  {name}")));
    }
    let kinds: Vec<String> = found.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if let Some(sizes) = &found.sizes {
        let [w, h, b] = [sizes.width, sizes.height, sizes.bytes];
        lines.push(format!("sampled   {} images: {}", sizes.of, kinds.join(", ")));
        lines.push(format!("width     {} to {}, median {}", w[0], w[2], w[1]));
        lines.push(format!("height    {} to {}, median {}", h[0], h[2], h[1]));
        lines.push(format!("bytes     {} to {}, median {}", b[0], b[2], b[1]));
    }
    if let (Some(count), Some(tokens)) = (found.tokens, found.manifest.as_ref().and_then(|m| m.recipe.tokens.as_ref()))
    {
        lines.push(format!("tokens    {count}, vocabulary {}", tokens.vocabulary));
    }
    let shuffle = &found.shuffle;
    if shuffle.batch > 0 {
        lines.push(format!(
            "shuffle   {:.1} distinct classes per batch of {} in stored order; {:.1} if shuffled",
            shuffle.distinct, shuffle.batch, shuffle.ideal
        ));
    }
    if let Some(manifest) = &found.manifest {
        let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
        let shards = manifest.shards.len();
        let (codec, skipped) = (manifest.recipe.codec.word(), manifest.skipped.len());
        lines.push(format!("shards    {shards}, {:.1} MB, codec {codec}, {skipped} skipped", bytes as f64 / 1e6));
    }
    if let Some(first) = found.replaced.first() {
        let count = found.replaced.len();
        lines.push(format!("replaced  {count} by a later image of the same name in the tar, the first `{first}`"));
    }
    if let Some(Renamed { count, name, read_as }) = &found.renamed {
        lines
            .push(format!("renamed   {count} whose name is absolute or holds `..`, the first `{name}` to `{read_as}`"));
    }
    if let Some(first) = found.unread.first() {
        let count = found.unread.len();
        lines.push(format!("left out  {count} of image formats that are not read, the first `{first}`"));
    }
    if found.verified > 0 {
        lines.push(format!("verified  {} samples, {} damaged", found.verified, found.damaged.len()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::has_features;

    #[test]
    fn tables_of_features_are_no_texts() {
        assert!(has_features("length,width,depth,kind\n5.1,3.5,1.4,setosa\n"));
        assert!(!has_features("text,label\na good one, of its kind,1\n"));
        assert!(!has_features("id,text,label\n7,good,1\n"));
        assert!(!has_features("text\n"));
    }
}
