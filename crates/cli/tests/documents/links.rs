//! Links between documents, and the headings that they lead to.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A sentence for each link of a document that leads nowhere.
pub fn broken(root: &Path, document: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join(document)).unwrap();
    let folder = root.join(document).parent().unwrap().to_owned();
    let mut found = Vec::new();
    for target in targets(&text) {
        let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let file = if path.is_empty() { root.join(document) } else { folder.join(path) };
        if !file.exists() {
            found.push(format!("{document}: `{target}` is not there"));
        } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&file).unwrap()).contains(anchor) {
            found.push(format!("{document}: `{target}` has no such heading"));
        }
    }
    found
}

/// What `[…](target)` names, other than addresses.
fn targets(text: &str) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// The anchors that GitHub gives to headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

#[test]
fn headings_have_the_anchors_of_github() {
    let anchors = anchors("# A, b\n## `train.data`: SkyPilot's keys\n```\n# no heading\n```\n### 安装 x\n");
    assert_eq!(anchors.into_iter().collect::<Vec<_>>(), ["a-b", "traindata-skypilots-keys", "安装-x"]);
}
