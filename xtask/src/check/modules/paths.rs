//! Paths in code, followed to the file that defines what they name.

use std::collections::{BTreeMap, BTreeSet};

use super::Imports;
use crate::check::source::{Source, tokens};

/// A path of modules within its crate; the root is empty.
type Module = Vec<String>;

/// One file as a module.
#[derive(Default)]
struct File {
    path: String,
    /// Names that it defines.
    defines: BTreeSet<String>,
    /// Names that it imports, and whence.
    imports: BTreeMap<String, Vec<String>>,
    /// Whence it imports everything.
    globs: Vec<Vec<String>>,
    /// Every path that it mentions.
    mentions: Vec<Vec<String>>,
}

/// The files of one crate.
pub struct Crate {
    files: BTreeMap<Module, File>,
}

const DEFINING: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

impl Crate {
    /// Reads the files of one crate.
    pub fn new(sources: &[&Source]) -> Crate {
        let has_library = sources.iter().any(|source| source.path.ends_with("/src/lib.rs"));
        let ours = |source: &&&Source| !(has_library && source.path.ends_with("/src/main.rs"));
        Crate { files: sources.iter().filter(ours).map(|source| (module(&source.path), File::read(source))).collect() }
    }

    /// The imports of each file, except between a module and its ancestors.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, file) in &self.files {
            let mut found = BTreeSet::new();
            for mention in &file.mentions {
                let Some(target) = self.resolve(module, mention, 0) else { continue };
                if !target.starts_with(module) && !module.starts_with(&target) {
                    found.insert(self.files[&target].path.clone());
                }
            }
            imports.insert(file.path.clone(), found);
        }
        imports
    }

    /// The module that defines what `path` names in `module`; none when that is another crate's.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        const DEEPEST: usize = 16;
        let mut at = module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => at.clear(),
            "super" => {
                at.pop()?;
            }
            "self" => {}
            _ => {
                let first = self.step(&at, rest.first()?, depth)?;
                return self.walk(first, &rest[1..], depth);
            }
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|name| name == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        (depth < DEEPEST).then(|| self.walk(at, rest, depth))?
    }

    fn walk(&self, start: Module, rest: &[String], depth: usize) -> Option<Module> {
        let mut at = start;
        for name in rest {
            match self.step(&at, name, depth) {
                Some(next) => at = next,
                None => break,
            }
        }
        self.files.contains_key(&at).then_some(at)
    }

    /// The file that defines `name` of `module`.
    fn step(&self, module: &Module, name: &str, depth: usize) -> Option<Module> {
        let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        if self.files.contains_key(&child) {
            return Some(child);
        }
        let file = self.files.get(module)?;
        if file.defines.contains(name) || depth > 8 {
            return Some(module.clone());
        }
        if let Some(path) = file.imports.get(name) {
            return self.resolve(module, path, depth + 1);
        }
        let mut globs = file.globs.iter().filter_map(|path| self.resolve(module, path, depth + 1));
        globs.find(|target| target != module && self.files[target].defines.contains(name))
    }
}

/// The module that a file is.
fn module(path: &str) -> Module {
    let (_, within) = path.split_once("/src/").unwrap_or(("", path));
    let mut parts: Module = within.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

impl File {
    fn read(source: &Source) -> File {
        let mut file = File { path: source.path.clone(), ..File::default() };
        let code: Vec<&str> = source.shipped().map(|(_, code)| code).collect();
        for line in &code {
            let tokens = tokens(line);
            let defined = tokens.windows(2).find(|pair| DEFINING.contains(&pair[0]));
            file.defines.extend(defined.map(|pair| pair[1].to_owned()));
        }
        let text = code.join("\n");
        let tokens = tokens(&text);
        let mut at = 0;
        while at < tokens.len() {
            at = match tokens[at] {
                "use" => file.read_use(&tokens, at + 1, &[]) + 1,
                "crate" | "super" | "self" => file.read_mention(&tokens, at),
                _ => at + 1,
            };
        }
        file
    }

    /// Reads one tree of `use` that begins at `at`, below `prefix`; returns where it ends.
    fn read_use(&mut self, tokens: &[&str], mut at: usize, prefix: &[String]) -> usize {
        let mut path = prefix.to_vec();
        while let Some(&token) = tokens.get(at) {
            match token {
                "{" => {
                    while tokens.get(at).is_some_and(|token| *token != "}") {
                        at = self.read_use(tokens, at + 1, &path);
                    }
                    return at + 1;
                }
                "*" => {
                    self.globs.push(path.clone());
                    self.mentions.push(path);
                    return at + 1;
                }
                "as" => {
                    self.import(tokens.get(at + 1).unwrap_or(&"_"), path);
                    return at + 2;
                }
                ";" | "," | "}" => break,
                ":" => {}
                name => path.push(name.to_owned()),
            }
            at += 1;
        }
        if path.len() > prefix.len() {
            if path.last().is_some_and(|name| name == "self") {
                path.pop();
            }
            let name = path.last().cloned().unwrap_or_default();
            self.import(&name, path);
        }
        at
    }

    fn import(&mut self, name: &str, path: Vec<String>) {
        self.mentions.push(path.clone());
        self.imports.insert(name.to_owned(), path);
    }

    /// Reads a path in the midst of code; returns where it ends.
    fn read_mention(&mut self, tokens: &[&str], start: usize) -> usize {
        let mut path = vec![tokens[start].to_owned()];
        let mut at = start + 1;
        while let [":", ":", name, ..] = tokens[at..] {
            path.push(name.to_owned());
            at += 3;
        }
        if path.len() > 1 {
            self.mentions.push(path);
        }
        at
    }
}
