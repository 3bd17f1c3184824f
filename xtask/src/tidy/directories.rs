//! Checks that no directory of a crate's source or tests has so many entries that a reader has to search it.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;

const ENTRIES_MAX: usize = 16;

/// Counts the entries of the directories below `crates/*/src` and `crates/*/tests`.
pub(crate) fn check(files: &[String]) -> Vec<Finding> {
    let mut directories: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        let mut path = file.as_str();
        while let Some((directory, entry)) = path.rsplit_once('/') {
            directories.entry(directory).or_default().insert(entry);
            path = directory;
        }
    }
    let counted = directories.iter().filter(|(directory, _)| is_source(&format!("{directory}/")));
    counted
        .filter(|(_, entries)| entries.len() > ENTRIES_MAX)
        .map(|(directory, entries)| {
            let message = format!("has {} entries, of which {ENTRIES_MAX} are allowed: group them", entries.len());
            Finding::new(*directory, message)
        })
        .collect()
}

/// Whether a path is in the source or the tests of a crate.
fn is_source(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && matches!(parts.nth(1), Some("src" | "tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(n: usize, directory: &str, expected: &[&str]) {
        let files: Vec<String> = (0..n).map(|index| format!("{directory}/{index}.rs")).collect();
        let findings: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn sixteen_entries_are_allowed_and_seventeen_are_not() {
        let message = |directory: &str| format!("{directory}: has 17 entries, of which 16 are allowed: group them");
        for directory in ["crates/a/src/b", "crates/a/tests/it"] {
            check_files(16, directory, &[]);
            check_files(17, directory, &[&message(directory)]);
        }
        check_files(17, "crates/a/benches", &[]);
    }
}
