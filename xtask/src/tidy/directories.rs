//! Checks that no directory of a crate's source or tests has so many entries that a reader has to search it.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;

const ENTRIES_MAX: usize = 16;

/// Directories that have more, with their entries: exact in both directions, so that none grows and each that shrinks is taken off.
const KNOWN: &[(&str, usize)] = &[("crates/steersman-storage/src", 21), ("crates/steersman-storage/src/disk", 19)];

/// Counts the entries of the directories below `crates/*/src` and `crates/*/tests`.
pub(crate) fn check(files: &[String]) -> Vec<Finding> {
    check_against(files, KNOWN)
}

fn check_against(files: &[String], known: &[(&str, usize)]) -> Vec<Finding> {
    let mut directories: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        let mut path = file.as_str();
        while let Some((directory, entry)) = path.rsplit_once('/') {
            directories.entry(directory).or_default().insert(entry);
            path = directory;
        }
    }
    let counted = directories.iter().filter(|(directory, _)| is_source(&format!("{directory}/")));
    let mut findings: Vec<Finding> = counted
        .filter(|(directory, entries)| entries.len() > ENTRIES_MAX && !known.contains(&(directory, entries.len())))
        .map(|(directory, entries)| {
            let message = format!("has {} entries, of which {ENTRIES_MAX} are allowed: group them", entries.len());
            Finding::new(*directory, message)
        })
        .collect();
    for (directory, n) in known {
        let now = directories.get(directory).map_or(0, BTreeSet::len);
        if now <= ENTRIES_MAX {
            findings.push(Finding::new(*directory, format!("no longer has {n} entries: take it off the list")));
        }
    }
    findings
}

/// Whether a path is in the source or the tests of a crate.
fn is_source(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && matches!(parts.nth(1), Some("src" | "tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(n: usize) -> Vec<String> {
        let inside = (0..n).map(|index| format!("crates/a/src/b/{index}.rs"));
        inside.chain((0..99).map(|index| format!("crates/a/benches/{index}.rs"))).collect()
    }

    #[track_caller]
    fn check_files(n: usize, known: &[(&str, usize)], expected: &[&str]) {
        let findings: Vec<String> = check_against(&files(n), known).iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn sixteen_entries_are_allowed_and_seventeen_are_not() {
        check_files(16, &[], &[]);
        check_files(17, &[], &["crates/a/src/b: has 17 entries, of which 16 are allowed: group them"]);
    }

    #[test]
    fn directories_of_tests_are_counted() {
        let files: Vec<String> = (0..17).map(|index| format!("crates/a/tests/it/{index}.rs")).collect();
        let findings: Vec<String> = check_against(&files, &[]).iter().map(ToString::to_string).collect();
        assert_eq!(findings, ["crates/a/tests/it: has 17 entries, of which 16 are allowed: group them"]);
    }

    #[test]
    fn list_of_known_directories_is_exact_in_both_directions() {
        check_files(17, &[("crates/a/src/b", 17)], &[]);
        check_files(
            18,
            &[("crates/a/src/b", 17)],
            &["crates/a/src/b: has 18 entries, of which 16 are allowed: group them"],
        );
        check_files(16, &[("crates/a/src/b", 17)], &["crates/a/src/b: no longer has 17 entries: take it off the list"]);
    }
}
