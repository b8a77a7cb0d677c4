//! A YAML document as a tree with line numbers, parsed within a fixed budget.
//!
//! Scalars stay text, because the meaning of `010` or `yes` depends on the key (see [`super::scalar`]). The budget is
//! spent while the events arrive, so a file that expands to billions of nodes by aliases, or nests without end, is
//! refused after a bounded amount of work.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::problem::Problem;

/// Longest file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of lists and mappings, aliases followed.
pub const MAX_DEPTH: usize = 32;
/// Most keys and values, aliases followed.
pub const MAX_NODES: usize = 50_000;

/// One value and the line it starts on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub line: u32,
    pub value: Value,
}

/// A mapping's keys with their values, in the order of the file.
type Entries = Vec<(Key, Node)>;

/// The kind of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Scalar(Raw),
    List(Vec<Node>),
    Map(Entries),
}

/// An unparsed scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Raw {
    pub text: String,
    pub kind: Kind,
}

/// The explicit type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Plain: the text decides.
    Plain,
    /// Quoted, a block or `!!str`: text.
    Text,
}

/// A key of a mapping and the line it stands on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub line: u32,
    pub raw: Raw,
}

impl Node {
    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|(name, _)| name.raw.text == key).map(|(_, node)| node),
            Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&(Key, Node)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(name, _)| name.raw.text == key),
            Value::List(_) | Value::Scalar(_) => None,
        }
    }

    /// The line of a key path such as `train.data.augment[1]`, or of its longest part that stands in the file.
    pub fn line_of(&self, path: &str) -> Option<u32> {
        let (mut node, mut line) = (self, None);
        let mut rest = path;
        while !rest.is_empty() {
            let part = rest.split(['.', '[']).next().unwrap_or_default();
            // A key may itself have points in it; the longest that is there is meant.
            let ends = rest.char_indices().filter(|(_, letter)| *letter == '.').map(|(at, _)| at).chain([rest.len()]);
            let dotted = ends.rev().map(|end| &rest[..end]).find(|key| node.get(key).is_some());
            let part = dotted.unwrap_or(part);
            rest = rest[part.len()..].trim_start_matches(['.', '[']);
            let next = match &node.value {
                Value::Map(_) => node.get(part).map(|(key, value)| (key.line, value)),
                Value::List(items) => {
                    let index = part.trim_end_matches(']').parse::<usize>().ok();
                    index.and_then(|index| items.get(index)).map(|item| (item.line, item))
                }
                Value::Scalar(_) => None,
            };
            let Some((found, value)) = next else { break };
            (line, node) = (Some(found), value);
        }
        line
    }
}

/// Parses the only document of a file; also returns non-fatal problems (duplicate keys).
///
/// # Errors
/// Fatal problems.
pub(super) fn read(text: &str) -> Result<(Node, Vec<Problem>), Vec<Problem>> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; a job file has at most {MAX_BYTES}", text.len());
        return Err(vec![Problem::at("", message)]);
    }
    let mut builder = Builder::new(Parser::new_from_str(text.trim_start_matches('\u{feff}')));
    match builder.document() {
        Ok(Some(node)) => Ok((node, builder.problems)),
        Ok(None) => {
            let empty = Problem::at("", "the file is empty");
            Err(vec![empty.hint("write a `train:` section, or a `run:` program of your own")])
        }
        Err(problem) => {
            let hint = tab_hint(text, problem.line);
            let problem = Problem { hint: problem.hint.or(hint), ..problem };
            Err(builder.problems.into_iter().chain([problem]).collect())
        }
    }
}

/// A tab in the indentation is the one error that the parser's own messages do not name.
fn tab_hint(text: &str, line: Option<u32>) -> Option<String> {
    let last = line?.max(1) as usize;
    let mut near = text.lines().skip(last.saturating_sub(2)).take(2);
    let is_tabbed = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    near.any(is_tabbed).then(|| "indent with spaces, not with tabs".to_owned())
}

/// An anchored node, and the cost of copying it.
struct Anchor {
    node: Node,
    nodes: usize,
    depth: usize,
}

struct Builder<'text> {
    parser: Parser<'text, StrInput<'text>>,
    anchors: HashMap<usize, Anchor>,
    nodes: usize,
    problems: Vec<Problem>,
}

/// A value with its size.
struct Built {
    node: Node,
    nodes: usize,
    depth: usize,
}

impl<'text> Builder<'text> {
    fn new(parser: Parser<'text, StrInput<'text>>) -> Builder<'text> {
        Builder { parser, anchors: HashMap::new(), nodes: 0, problems: Vec::new() }
    }

    fn document(&mut self) -> Result<Option<Node>, Problem> {
        let (mut document, mut next) = (None::<Node>, None);
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return Ok(document),
                Event::DocumentStart(_) => next = document.as_ref().map(|_| span),
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => {
                    let built = self.value(event, span, 0)?;
                    // A file of comments only parses as one empty scalar, and so does nothing behind a last `---`.
                    if matches!(&built.node.value, Value::Scalar(raw) if raw.text.is_empty()) {
                        continue;
                    }
                    if let Some(span) = next {
                        let several = "several documents in one file are a pipeline, and a single job is expected here";
                        return Err(at(span, several).hint("start it with `gradus run FILE`, or keep one document"));
                    }
                    document = Some(built.node);
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'text>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(syntax(&error)),
            None => Err(Problem::at("", "the file ends in the middle of a value")),
        }
    }

    /// Spends `nodes` of the budget.
    fn spend(&mut self, nodes: usize, span: Span) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let message = format!("the file unfolds to more than {MAX_NODES} keys and values");
            return Err(at(span, &message).hint("use fewer aliases"));
        }
        Ok(())
    }

    fn value(&mut self, event: Event<'text>, span: Span, depth: usize) -> Result<Built, Problem> {
        if depth > MAX_DEPTH {
            return Err(at(span, &too_deep()));
        }
        let line = line(span);
        let (anchor, value, nodes, below) = match event {
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            Event::Scalar(text, style, anchor, tag) => {
                self.spend(1, span)?;
                let raw = raw(text.into_owned(), style, tag.as_deref(), span)?;
                (anchor, Value::Scalar(raw), 1, 0)
            }
            Event::SequenceStart(anchor, tag) => {
                self.spend(1, span)?;
                refuse_tag(tag.as_deref(), "seq", span)?;
                let (items, nodes, below) = self.list(depth)?;
                (anchor, Value::List(items), nodes + 1, below + 1)
            }
            Event::MappingStart(anchor, tag) => {
                self.spend(1, span)?;
                refuse_tag(tag.as_deref(), "map", span)?;
                let (entries, nodes, below) = self.map(depth)?;
                (anchor, Value::Map(entries), nodes + 1, below + 1)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(at(span, "a value is missing here")),
        };
        let built = Built { node: Node { line, value }, nodes, depth: below };
        if anchor > 0 {
            self.anchors.insert(anchor, Anchor { node: built.node.clone(), nodes, depth: below });
        }
        Ok(built)
    }

    /// A copy of an anchored node, with the line of the alias, so that a problem points to its use.
    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Result<Built, Problem> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(at(span, "an alias stands inside the value that it names"));
        };
        let (nodes, below) = (target.nodes, target.depth);
        if depth + below > MAX_DEPTH {
            return Err(at(span, &too_deep()));
        }
        self.spend(nodes, span)?;
        let node = Node { line: line(span), value: self.anchors[&anchor].node.value.clone() };
        Ok(Built { node, nodes, depth: below })
    }

    fn list(&mut self, depth: usize) -> Result<(Vec<Node>, usize, usize), Problem> {
        let (mut items, mut nodes, mut below) = (Vec::new(), 0, 0);
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok((items, nodes, below));
            }
            let built = self.value(event, span, depth + 1)?;
            nodes += built.nodes;
            below = below.max(built.depth);
            items.push(built.node);
        }
    }

    fn map(&mut self, depth: usize) -> Result<(Entries, usize, usize), Problem> {
        let (mut entries, mut merged, mut nodes, mut below) = (Vec::new(), Vec::new(), 0, 0);
        let mut names = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.value(event, span, depth + 1)?;
            let (event, value_span) = self.next()?;
            let value = self.value(event, value_span, depth + 1)?;
            nodes += key.nodes + value.nodes;
            below = below.max(key.depth).max(value.depth);
            let line = key.node.line;
            let Value::Scalar(raw) = key.node.value else {
                let wrong = at(span, "a key is a list or a mapping");
                self.problems.push(wrong.hint("write a word as the key; text with `{` or `[` in it needs quotes"));
                continue;
            };
            if raw.text == "<<" && raw.kind == Kind::Plain {
                merged.push((span, value.node));
            } else if names.insert(raw.text.clone()) {
                entries.push((Key { line, raw }, value.node));
            } else {
                let twice = Problem { line: Some(line), ..Problem::at(&raw.text, "the key stands here twice") };
                self.problems.push(twice.hint("keep one of the two"));
            }
        }
        for (span, value) in merged {
            self.merge(&mut entries, &mut names, span, value);
        }
        Ok((entries, nodes, below))
    }

    /// `<<: *anchor` and `<<: [*one, *two]`: merges keys of other mappings that this one does not have.
    fn merge(&mut self, entries: &mut Entries, names: &mut HashSet<String>, span: Span, value: Node) {
        let sources = match value.value {
            Value::Map(_) => vec![value],
            Value::List(items) => items,
            Value::Scalar(_) => Vec::new(),
        };
        let all_maps = !sources.is_empty() && sources.iter().all(|source| matches!(source.value, Value::Map(_)));
        if !all_maps {
            self.problems.push(at(span, "`<<` takes a mapping, or a list of mappings"));
        }
        for source in sources {
            let Value::Map(others) = source.value else { continue };
            for (key, node) in others {
                if names.insert(key.raw.text.clone()) {
                    entries.push((key, node));
                }
            }
        }
    }
}

/// A scalar with what its style and tag say about its type.
fn raw(text: String, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Raw, Problem> {
    let kind = match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Kind::Text,
        Some(tag) if tag.is_yaml_core_schema() && ["int", "float", "bool", "null"].contains(&tag.suffix.as_str()) => {
            Kind::Plain
        }
        Some(tag) => return Err(unknown_tag(tag, span)),
        None if style == ScalarStyle::Plain => Kind::Plain,
        None => Kind::Text,
    };
    Ok(Raw { text, kind })
}

fn refuse_tag(tag: Option<&Tag>, allowed: &str, span: Span) -> Result<(), Problem> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == allowed) => Err(unknown_tag(tag, span)),
        Some(_) | None => Ok(()),
    }
}

fn unknown_tag(tag: &Tag, span: Span) -> Problem {
    let text = clip(&tag.to_string());
    at(span, &format!("the tag `{text}` has no meaning in a job file")).hint("put text that starts with `!` in quotes")
}

fn syntax(error: &ScanError) -> Problem {
    // The parser has a limit of its own and looks ahead, so that it may reject endless nesting first.
    let message = match error.info() {
        "recursion limit exceeded" => too_deep(),
        // Its end says what was expected.
        info => format!("this is not YAML: {}", clip_to(info, 200)),
    };
    let problem = Problem { line: u32::try_from(error.marker().line()).ok(), ..Problem::at("", message) };
    match error.info() {
        info if info.contains("mapping values are not allowed") => {
            problem.hint("put text that has `: ` in it in quotes")
        }
        info if info.contains("flow") || info.contains("expected node content") => {
            problem.hint("close the bracket that is open, or put text that begins with one in quotes")
        }
        _ => problem,
    }
}

fn too_deep() -> String {
    format!("lists and mappings are nested more than {MAX_DEPTH} deep")
}

fn at(span: Span, message: &str) -> Problem {
    Problem { line: Some(line(span)), ..Problem::at("", message) }
}

fn line(span: Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(u32::MAX)
}

/// The start of a text that may be long or hold line ends, fit for a message.
pub(super) fn clip(text: &str) -> String {
    clip_to(text, 60)
}

fn clip_to(text: &str, longest: usize) -> String {
    let mut short: String = text.chars().take(longest).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(longest).is_some() {
        short.push('…');
    }
    short
}
