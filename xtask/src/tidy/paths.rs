//! Checks that the paths that ARCHITECTURE.md names are in the tree.

use std::collections::BTreeSet;

use crate::tidy::Finding;

const FILE: &str = "ARCHITECTURE.md";
/// Texts of the same form that are no paths.
const OTHERS: &[&str] = &["foo/", "pods/log"];

/// Compares each text in backticks that has a slash with the ends of all paths, with `.rs` and without.
pub(crate) fn check(architecture: &str, files: &[String]) -> Vec<Finding> {
    let mut known = BTreeSet::new();
    for file in files {
        let mut path = file.strip_suffix(".rs").unwrap_or(file);
        loop {
            known.extend(suffixes(path));
            let Some((directory, _)) = path.rsplit_once('/') else { break };
            path = directory;
        }
    }
    let mut findings = Vec::new();
    for (index, line) in architecture.lines().enumerate() {
        for text in line.split('`').skip(1).step_by(2).filter(|text| is_path(text)) {
            let path = text.strip_suffix('/').unwrap_or(text);
            let path = path.strip_suffix(".rs").unwrap_or(path);
            if !known.contains(path) {
                findings.push(Finding::new(
                    format!("{FILE}:{}", index + 1),
                    format!("names {text}, which is not in the tree"),
                ));
            }
        }
    }
    findings
}

/// A path and what is left of it when directories are taken off its start.
fn suffixes(path: &str) -> impl Iterator<Item = &str> {
    let starts = path.match_indices('/').map(|(at, _)| at + 1);
    [0].into_iter().chain(starts).map(|start| &path[start..])
}

fn is_path(text: &str) -> bool {
    let is_name = |part: &str| part.chars().all(|char| char.is_ascii_lowercase() || matches!(char, '_' | '.' | '-'));
    let is_plain = text.contains('/') && !text.starts_with('/') && text.split('/').all(is_name);
    is_plain && !OTHERS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, expected: &[&str]) {
        let files = ["crates/a/src/b/c.rs".to_owned(), "crates/a/README.md".to_owned()];
        let findings: Vec<String> = check(text, &files).iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn paths_end_paths_of_the_tree() {
        check_text("see `b/c`, `b/c.rs`, `src/b/`, `crates/a` and `a/README.md`", &[]);
        check_text("see\n`b/d`", &["ARCHITECTURE.md:2: names b/d, which is not in the tree"]);
    }

    #[test]
    fn other_texts_are_no_paths() {
        check_text("`pods/log`, `/scale`, `N/A`, `b`, `a / b` and b/d", &[]);
    }
}
