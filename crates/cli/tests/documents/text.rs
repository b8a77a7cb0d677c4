//! A document's blocks of code, read from its text, and output made comparable.

/// What a test does with a block of code.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// A file that the commands below use.
    File { name: String, text: String },
    /// Commands and what they print.
    Console { commands: Vec<Command>, figures_vary: bool },
}

impl Block {
    pub fn is_console(&self) -> bool {
        matches!(self, Block::Console { .. })
    }
}

/// A line after `$ `, and the lines up to the next.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub line: String,
    pub output: String,
}

impl Command {
    /// As it stands in a document, with this output.
    pub fn text(&self, output: &str) -> String {
        format!("$ {}\n{output}", self.line)
    }
}

/// The blocks of a document that a test does something with.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = document.lines();
    while let Some(fence) = lines.next() {
        let Some(info) = fence.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        if info.starts_with("console") {
            found.push(Block::Console { commands: commands(&inside), figures_vary: info.contains("figures vary") });
        } else if let Some(name) = file_name(info, &inside) {
            found.push(Block::File { name, text: inside.join("\n") + "\n" });
        }
    }
    found
}

/// `train.yaml` of a YAML block that starts with the comment `# train.yaml`; the same for a script in Python.
fn file_name(info: &str, lines: &[&str]) -> Option<String> {
    let name = lines.first()?.strip_prefix("# ")?;
    let is_file = info == "yaml" && name.ends_with(".yaml") || info == "python" && name.ends_with(".py");
    (is_file && !name.contains(' ')).then(|| name.to_owned())
}

fn commands(lines: &[&str]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in lines {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(line), _) => commands.push(Command { line: line.to_owned(), output: String::new() }),
            (None, Some(command)) => command.output.push_str(&format!("{line}\n")),
            (None, None) => panic!("a console block starts with a command, not with `{line}`"),
        }
    }
    commands
}

/// Output in which any number is `0`, any run's name ends alike, and columns are one space apart.
pub fn without_figures(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line_without_figures(line))).collect()
}

/// The same for one line. A line of progress has an accuracy only if an epoch was over when it was printed.
pub fn line_without_figures(line: &str) -> String {
    let of_progress = |part: &&str| !(line.starts_with("epoch ") && part.starts_with("accuracy "));
    let line = line.split(" · ").filter(of_progress).collect::<Vec<_>>().join(" · ");
    let words = line.split_whitespace().map(|word| {
        let parts: Vec<String> = word.split_inclusive(['/', '-', '·']).map(part_without_figures).collect();
        parts.concat()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn part_without_figures(part: &str) -> String {
    let name: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
    // The end of a run's name is ten hexadecimal digits.
    if name.len() == 10 && name.chars().all(|c| c.is_ascii_hexdigit()) {
        return format!("ID{}", &part[10..]);
    }
    let mut text = String::new();
    let mut characters = part.chars().peekable();
    while let Some(c) = characters.next() {
        text.push(if c.is_ascii_digit() { '0' } else { c });
        if c.is_ascii_digit() {
            let mut rest = characters.clone();
            while let Some(c) = rest.next() {
                let goes_on = matches!(c, '.' | ',' | ':') && rest.peek().is_some_and(char::is_ascii_digit);
                if !c.is_ascii_digit() && !goes_on {
                    break;
                }
                characters.next();
            }
        }
    }
    text
}

#[test]
fn blocks_are_read() {
    let document =
        "```yaml\n# a.yaml\nrun: x\n```\n```sh\nrm x\n```\n```console figures vary\n$ gradus a\nb\n\n$ gradus c\n```\n";
    let command = |line: &str, output: &str| Command { line: line.to_owned(), output: output.to_owned() };
    let commands = vec![command("gradus a", "b\n\n"), command("gradus c", "")];
    let file = Block::File { name: "a.yaml".to_owned(), text: "# a.yaml\nrun: x\n".to_owned() };
    assert_eq!(blocks(document), [file, Block::Console { commands, figures_vary: true }]);
}

#[test]
fn figures_and_names_of_runs_are_alike() {
    let check = |a: &str, b: &str| assert_eq!(without_figures(a), without_figures(b));
    check("step 329/600 · 0:03 left · 6,390 samples/s", "step 1/600 · 10:03 left · 639 samples/s");
    check("bill  $0.000763 for 7.8 s", "bill $1 for 17 s");
    check("~/runs/digits-6bab9cb966/export", "~/runs/digits-0123456789/export");
    check("epoch 1/3 · loss 2.3 · 9 samples/s", "epoch 2/3 · loss 0.7 · accuracy 79.94 % · 5,138 samples/s");
    assert_ne!(without_figures("98.33 % on test"), without_figures("98.33 % on train"));
    assert_ne!(without_figures("digits-6bab9cb966 x"), without_figures("digits-unknown x"));
}
