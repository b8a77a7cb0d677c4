//! Whether a script trains once it is started, by its text: a pure function.
//!
//! A module that is meant to be imported only defines functions and classes. A script that is meant to be started has,
//! if not `__main__`, statements outside of them that train, or that call a function of the file that does.

/// Calls that train.
const TRAINING: [&str; 4] = ["backward(", ".fit(", ".train()", "Trainer("];

/// Quotes of strings over several lines.
const QUOTES: [&str; 2] = ["\"\"\"", "'''"];

/// Whether a text has a call that trains.
pub(super) fn trains(text: &str) -> bool {
    TRAINING.iter().any(|call| text.contains(call))
}

/// Whether a statement outside of functions and classes trains, or calls a function above it that does.
pub(super) fn trains_when_started(text: &str) -> bool {
    let mut training: Vec<&str> = Vec::new();
    // The definition that a line belongs to, and the indent of its head.
    let mut definition: Option<(usize, Definition<'_>)> = None;
    for line in code_lines(text) {
        let code = line.trim_start();
        if code.is_empty() {
            continue;
        }
        let indent = line.len() - code.len();
        // A bracket that closes a definition's arguments does not end the definition.
        let closes = code.starts_with([')', ']', '}']);
        definition = definition
            .filter(|(head, _)| indent > *head || closes)
            .or_else(|| defined(code).map(|defined| (indent, defined)));
        let does_train = trains(code) || training.iter().any(|function| calls(code, function));
        match definition {
            None if does_train => return true,
            Some((_, Definition::Function(function))) if does_train => training.push(function),
            None | Some(_) => {}
        }
    }
    false
}

/// What is defined: a function by its name, or a class, which trains nothing by being made.
#[derive(Debug, Clone, Copy)]
enum Definition<'text> {
    Function(&'text str),
    Class,
}

/// What a line begins to define.
fn defined(code: &str) -> Option<Definition<'_>> {
    if code.starts_with("class ") {
        return Some(Definition::Class);
    }
    let head = code.strip_prefix("async ").unwrap_or(code).strip_prefix("def ")?;
    head.split(['(', '[', ' ']).next().map(Definition::Function)
}

/// Whether code calls a function, and not a method or another function whose name ends alike.
fn calls(code: &str, function: &str) -> bool {
    code.match_indices(function).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let is_whole = before.is_none_or(|letter| !letter.is_alphanumeric() && !matches!(letter, '_' | '.'));
        is_whole && code[at + function.len()..].starts_with('(')
    })
}

/// The lines of a script without comments, and without strings over several lines.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut string: Option<&str> = None;
    text.lines().filter_map(move |line| {
        if let Some(quote) = string {
            string = string.filter(|_| !line.contains(quote));
            return None;
        }
        let comment = line.find('#').unwrap_or(line.len());
        let first = QUOTES.into_iter().filter_map(|quote| Some((line.find(quote)?, quote))).min();
        let Some((at, quote)) = first.filter(|(at, _)| *at < comment) else { return Some(&line[..comment]) };
        string = (line.matches(quote).count() % 2 == 1).then_some(quote);
        Some(&line[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_outside_of_definitions_train() {
        for text in [
            "loss.backward()\noptimizer.step()\n",
            "for batch in batches:\n    with autocast():\n        loss.backward()\n",
            "def load():\n    return 1\n\nmodel.fit(load())\n",
            "class Net:\n    def forward(self): ...\n\ntry:\n    Trainer(Net())\nexcept KeyboardInterrupt: pass\n",
            "if True:\n    def load():\n        return 1\n    loss.backward()\n",
            "def step(batch):\n    loss.backward()\n\ndef main():\n    step(1)\n\nmain()\n",
            "\"\"\"A docstring\nof two lines.\n\"\"\"\nloss.backward()\n",
            "x = 1  # \"\"\"\nloss.backward()\n",
        ] {
            assert!(trains_when_started(text), "{text}");
        }
    }

    #[test]
    fn definitions_alone_do_not_train() {
        for text in [
            "import torch\n",
            "def step(batch):\n    loss.backward()\n",
            "async def step(batch):\n\n    # A blank line ends nothing.\n    loss.backward()\n",
            "def step(\n    batch,\n):\n    loss.backward()\n",
            "def step(batch):\n    \"\"\"A step\nof training.\"\"\"\n    loss.backward()\n",
            "class Net(Base):\n    def step(self):\n        self.loss.backward()\n\nnet = Net()\nnet.step()\n",
            "def step():\n    loss.backward()\n\ndef last_step():\n    return 1\n\nlast_step()\nmodel.step()\n",
            "# loss.backward()\nx = 1  # loss.backward()\n",
            "\"\"\"Calls loss.backward().\"\"\"\n'''\nloss.backward()\n'''\n",
        ] {
            assert!(!trains_when_started(text), "{text}");
        }
    }
}
