//! The one place that prints: data to stdout, messages to stderr.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::error::Error;
use crate::wrap::wrapped;

/// Letters of a quoted value that an error shows.
const QUOTED: usize = 300;

/// Prints for people, or JSON for programs.
#[derive(Debug)]
pub struct Printer {
    json: bool,
    terminal: bool,
    color: bool,
    /// Whether a progress line stands on the terminal, to be overwritten.
    progress: bool,
    /// Values that are masked in all output, longest first.
    masked: Vec<String>,
    /// Whether values of `envs` are printed.
    shows_values: bool,
    /// Whether neither progress nor the output of programs is printed.
    quiet: bool,
    /// Whether no message is printed either.
    silent: bool,
    /// Warnings and notes that a silent printer did not print.
    unsaid: Vec<String>,
    /// The first failure to write data.
    failure: Option<std::io::Error>,
}

impl Printer {
    /// A printer; with `json` for programs.
    pub fn new(json: bool, color: bool) -> Printer {
        let terminal = std::io::stderr().is_terminal();
        Printer {
            json,
            terminal,
            color: color && terminal,
            progress: false,
            masked: Vec::new(),
            shows_values: false,
            quiet: false,
            silent: false,
            unsaid: Vec::new(),
            failure: None,
        }
    }

    /// A printer that suppresses messages, for output that another program reads.
    pub fn silent() -> Printer {
        Printer { quiet: true, silent: true, ..Printer::new(true, false) }
    }

    /// The warnings and notes that a silent printer did not print, for who tells them otherwise.
    pub fn unsaid(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsaid)
    }

    /// Masks these values in everything that is printed from now on, also as JSON writes them.
    pub fn mask(&mut self, values: Vec<String>) {
        for value in values.into_iter().filter(|value| !value.is_empty()) {
            let escaped = serde_json::to_string(&value).unwrap_or_default();
            self.masked.extend([escaped.trim_matches('"').to_owned(), value]);
        }
        self.masked.sort_by_key(|value| std::cmp::Reverse(value.len()));
        self.masked.dedup();
    }

    /// Prints the values of `envs` instead of hiding them; those of secrets stay hidden.
    pub fn show_values(&mut self) {
        self.shows_values = true;
    }

    /// Whether values of `envs` are printed.
    pub fn shows_values(&self) -> bool {
        self.shows_values
    }

    /// Suppresses progress and the output of programs from now on, if `quiet` is set.
    pub fn quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether neither progress nor the output of programs is printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    fn masking(&self, text: &str) -> String {
        self.masked.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), "***"))
    }

    /// Whether output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether stderr is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Width of the terminal of stdout; `None` if it is not a terminal.
    pub fn data_width(&self) -> Option<usize> {
        let stdout = std::io::stdout();
        let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
        Some(usize::from(size.ws_col))
    }

    /// Prints a line to stdout.
    pub fn data(&mut self, line: impl AsRef<str>) {
        self.clear();
        let line = plain(line.as_ref());
        let line = self.data_width().map_or(line.clone(), |width| wrapped(&line, width));
        self.write(&format!("{line}\n"));
    }

    /// Prints many lines to stdout at once, in which the output of a program is shown: as fast as it comes.
    pub fn data_lines(&mut self, text: &str) {
        self.clear();
        let width = self.data_width();
        // Most output is like this, and there may be gigabytes of it.
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if width.is_none() && text.ends_with('\n') && text.bytes().all(is_plain) {
            return self.write(text);
        }
        let mut block = String::with_capacity(text.len() + 1);
        for line in text.lines() {
            let line = plain(line);
            block.push_str(&width.map_or(line.clone(), |width| wrapped(&line, width)));
            block.push('\n');
        }
        self.write(&block);
    }

    /// Prints a JSON value on one line of stdout.
    pub fn json(&mut self, value: &impl Serialize) {
        self.clear();
        let Ok(mut value) = serde_json::to_value(value) else { return };
        server::secrets::hide(&mut value, self.shows_values);
        if let Ok(text) = serde_json::to_string(&value) {
            self.write(&format!("{}\n", escaped(&text)));
        }
    }

    fn write(&mut self, text: &str) {
        let text = if self.masked.is_empty() { text.into() } else { Cow::from(self.masking(text)) };
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            self.failure.get_or_insert(error);
        }
    }

    /// The first failed write to stdout, if any; a closed pipe is none.
    pub fn failure(&mut self) -> Option<Error> {
        let source = self.failure.take()?;
        Some(Error::File { doing: "write to", path: "stdout".into(), source })
    }

    /// Prints a message to stderr.
    pub fn say(&mut self, line: impl AsRef<str>) {
        let line = plain(line.as_ref());
        let line = if self.terminal { wrapped(&line, terminal_width()) } else { line };
        self.painted(&line);
    }

    /// Prints a message with the colours it holds.
    fn painted(&mut self, line: &str) {
        if self.silent {
            if ["warning: ", "note: "].iter().any(|kind| line.starts_with(kind)) {
                self.unsaid.push(self.masking(line));
            }
            return;
        }
        self.clear();
        emit(&mut std::io::stderr().lock(), &self.masking(&format!("{line}\n")));
    }

    /// Prints the progress line: overwritten on a terminal, a separate line in a log.
    pub fn progress(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        if !self.terminal {
            return self.say(line);
        }
        let cut: String = self.masking(line).chars().take(self.message_width()).collect();
        emit(&mut std::io::stderr().lock(), &format!("\r\x1b[2K{cut}"));
        self.progress = true;
    }

    /// Columns of the line that [`Printer::progress`] overwrites; no limit in a log.
    pub fn message_width(&self) -> usize {
        if self.terminal { terminal_width().saturating_sub(1) } else { usize::MAX }
    }

    /// Prints an error, its causes and its hint; with `--json` as one JSON value, to stderr as well.
    pub fn error(&mut self, error: &Error) {
        if self.json {
            let value = of_error(error);
            self.clear();
            let text = escaped(&value.to_string());
            return emit(&mut std::io::stderr().lock(), &self.masking(&format!("{text}\n")));
        }
        let mut text = format!("error: {}", clipped(&plain(&error.to_string())));
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            let told = clipped(&plain(&cause.to_string()));
            // Some errors hold their cause in their own message; it is printed once.
            if !text.contains(&told) {
                text.push_str(&format!("\n  caused by: {told}"));
            }
            source = cause.source();
        }
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\n  hint: {}", clipped(&plain(&hint))));
        }
        if self.terminal {
            text = wrapped(&text, terminal_width());
        }
        // Coloured once it is broken into lines, for colours take no columns.
        let (red, bold, reset) = (self.paint("31;1"), self.paint("1"), self.paint("0"));
        let text = text.replacen("error:", &format!("{red}error:{reset}"), 1);
        let text = text.replacen("\n  hint:", &format!("\n  {bold}hint:{reset}"), 1);
        self.painted(&text);
    }

    /// Asks for confirmation on the terminal; an empty line means yes. Without a terminal the answer is no.
    pub fn confirm(&mut self, question: &str) -> bool {
        if !std::io::stdin().is_terminal() {
            return false;
        }
        self.clear();
        emit(&mut std::io::stderr().lock(), &format!("{question} [Y/n] "));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).unwrap_or(0);
        read > 0 && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes")
    }

    /// Whether there is a terminal for questions.
    pub fn can_ask(&self) -> bool {
        !self.json && std::io::stdin().is_terminal()
    }

    /// Asks for a line on the terminal; an empty one means the proposed value.
    pub fn ask(&mut self, question: &str, proposed: &str) -> String {
        self.clear();
        emit(&mut std::io::stderr().lock(), &plain(&format!("{question} [{proposed}]: ")));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).unwrap_or(0);
        if read == 0 || answer.trim().is_empty() { proposed.to_owned() } else { answer.trim().to_owned() }
    }

    fn paint(&self, code: &str) -> String {
        if self.color { format!("\x1b[{code}m") } else { String::new() }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.progress) {
            emit(&mut std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

/// An error for scripts. Each problem of a job file stands by itself, and the first one's hint is that of the whole.
fn of_error(error: &Error) -> serde_json::Value {
    let problems = error.problems();
    let first = problems.iter().find_map(|problem| problem.hint.clone());
    let mut value = serde_json::json!({
        "event": "error",
        "message": plain(&error.to_string()),
        "causes": causes(error),
        "hint": error.hint().or(first),
        "code": error.code(),
    });
    if !problems.is_empty() {
        value["problems"] = serde_json::json!(problems);
    }
    value
}

/// The causes of an error, nearest first.
fn causes(error: &Error) -> Vec<String> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).map(|cause| plain(&cause.to_string())).collect()
}

/// A message that cannot be written is no reason to stop.
fn emit(stream: &mut impl Write, text: &str) {
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

/// JSON escapes ASCII control characters; C1 control characters can control terminals too.
fn escaped(json: &str) -> String {
    let escape = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    if json.chars().any(char::is_control) { json.chars().map(escape).collect() } else { json.to_owned() }
}

/// Removes control characters: text from data or programs must not control the terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// Shortens text in backticks that is longer than any reasonable path: a value that was pasted by mistake.
fn clipped(text: &str) -> String {
    if !text.matches('`').count().is_multiple_of(2) {
        return text.to_owned();
    }
    let parts = text.split('`').enumerate().map(|(place, part)| match part.char_indices().nth(QUOTED) {
        Some((end, _)) if place % 2 == 1 => format!("{}…", &part[..end]),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col).max(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_printer_keeps_warnings_and_notes() {
        let mut printer = Printer::silent();
        printer.mask(vec!["hunter2".to_owned()]);
        ["warning: `hunter2`", "reading", "note: x"].into_iter().for_each(|line| printer.say(line));
        assert_eq!(printer.unsaid(), ["warning: `***`", "note: x"]);
        assert!(printer.unsaid().is_empty());
    }

    #[test]
    fn a_value_that_was_pasted_by_mistake_is_shortened() {
        let long = "y".repeat(900_000);
        let shown = clipped(&format!("cannot read `/tmp/{long}`: `b`"));
        assert_eq!(shown, format!("cannot read `/tmp/{}…`: `b`", "y".repeat(QUOTED - 5)));
        assert_eq!(clipped("cannot read `a`"), "cannot read `a`");
        let unbalanced = format!("it said ` {long}");
        assert_eq!(clipped(&unbalanced), unbalanced);
    }
}
