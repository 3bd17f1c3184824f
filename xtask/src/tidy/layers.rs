//! Checks that directories of a crate use only those below them, as ARCHITECTURE.md has it.
//!
//! A line `layers of CRATE: a < b < c, d` names directories of `src`, from the lowest to the highest; those between two commas are on
//! one floor and do not use each other. Files beside the directories may use all and be used by all. Tests do not count.

use std::collections::BTreeMap;

use crate::tidy::Finding;
use crate::tidy::circles::modules::Crate;

const FILE: &str = "ARCHITECTURE.md";
const MARK: &str = "layers of ";

/// Compares the crates among `files`, which are texts by path, with the lines of ARCHITECTURE.md.
pub(crate) fn check(architecture: &str, files: &BTreeMap<String, String>) -> Vec<Finding> {
    let lines = architecture.lines().filter_map(|line| line.trim().strip_prefix(MARK)?.split_once(':'));
    lines.flat_map(|(name, order)| check_crate(name, order, files)).collect()
}

fn check_crate(name: &str, order: &str, files: &BTreeMap<String, String>) -> Vec<Finding> {
    let source = format!("crates/{name}/src/");
    let root = format!("{source}lib.rs");
    if !files.contains_key(&root) {
        return vec![Finding::new(FILE, format!("names layers of {name}, which has no {root}"))];
    }
    let mut floors = BTreeMap::new();
    for (floor, names) in order.split('<').enumerate() {
        floors.extend(names.split(',').map(|layer| (layer.trim().to_owned(), floor)));
    }
    let read = Crate::read(&root, files);
    let layer = |file: usize| {
        let inside = read.files[file].strip_prefix(&source)?;
        let layer = inside.split_once('/')?.0;
        floors.get(layer).map(|floor| (layer, *floor))
    };
    let mut findings = Vec::new();
    for (file, needed) in read.edges().iter().enumerate() {
        let Some((from, own)) = layer(file) else { continue };
        for (to, other) in needed.iter().filter_map(|next| layer(*next)).filter(|(to, _)| *to != from) {
            if other >= own {
                let message = format!("uses `{to}`, which is not below `{from}` in the layers of {FILE}");
                findings.push(Finding::new(&*read.files[file], message));
            }
        }
    }
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(order: &str, expected: &[&str]) {
        let files = [
            (
                "lib.rs",
                "mod low { pub(crate) mod a; } mod high { pub(crate) mod b; } mod beside { pub(crate) mod c; } mod root;",
            ),
            ("low/a.rs", "use crate::root::R; pub(crate) struct A;"),
            ("high/b.rs", "use crate::low::a::A; pub(crate) struct B;"),
            ("beside/c.rs", "use crate::high::b::B; pub(crate) struct C;"),
            ("root.rs", "use crate::high::b::B; pub(crate) struct R;"),
        ];
        let files = files.map(|(path, text)| (format!("crates/a/src/{path}"), text.to_owned())).into();
        let findings: Vec<String> = check(order, &files).iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn directories_use_only_those_below_them_and_files_beside_them_are_free() {
        check_files("layers of a: low < high < beside", &[]);
        let upward = "crates/a/src/high/b.rs: uses `low`, which is not below `high` in the layers of ARCHITECTURE.md";
        check_files("layers of a: high < low, beside", &[upward]);
    }

    #[test]
    fn those_of_one_floor_do_not_use_each_other() {
        let sideways =
            "crates/a/src/beside/c.rs: uses `high`, which is not below `beside` in the layers of ARCHITECTURE.md";
        check_files("layers of a: low < high, beside", &[sideways]);
    }

    #[test]
    fn crate_without_source_is_a_finding() {
        check_files("layers of b: low", &["ARCHITECTURE.md: names layers of b, which has no crates/b/src/lib.rs"]);
    }
}
