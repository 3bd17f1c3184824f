//! No circle of more than three files in any crate: files that need each other can only be read, tested and moved
//! together.
//!
//! A file needs another if a path in it leads to an item that is defined there, whether the path is in a `use` or in
//! the code, and through any number of re-exports. Declaring a module, or re-exporting from it without using the name,
//! is not a need. Tests do not count. Paths are followed by name, as far as possible without a compiler: an item that a
//! macro generates is assumed to be in the module that the path names.
//!
//! `foo.rs` and `foo/` are a whole and its parts: parts that use what the whole defines, while it calls them, are not a
//! circle as long as no other file is in it.

mod graph;
pub(crate) mod modules;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;
use crate::tidy::circles::graph::Edges;
use crate::tidy::circles::modules::Crate;

const FILES_MAX: usize = 3;

/// Circles that are still to be removed: the first file of each, and its number of files. Exact in both directions, and
/// to be empty.
const KNOWN: &[(&str, usize)] = &[];

/// Checks the crates among `files`, which are texts by path.
pub(crate) fn check(files: &BTreeMap<String, String>) -> Vec<Finding> {
    check_against(files, KNOWN)
}

fn check_against(files: &BTreeMap<String, String>, known: &[(&str, usize)]) -> Vec<Finding> {
    let is_root = |path: &&String| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    let mut findings = Vec::new();
    let mut n_known = vec![0; known.len()];
    for root in files.keys().filter(is_root) {
        let read = Crate::read(root, files);
        let edges = read.edges();
        for circle in circles(&read, edges.clone()) {
            let first = &read.files[circle[0]];
            let index = known.iter().position(|(file, _)| file == first);
            if let Some(index) = index {
                n_known[index] = circle.len();
                if known[index].1 == circle.len() {
                    continue;
                }
            }
            let round: Vec<&str> =
                graph::shortest_round(&edges, &circle).into_iter().map(|file| &*read.files[file]).collect();
            let names: Vec<&str> = circle.iter().map(|file| &*read.files[*file]).collect();
            let message = format!(
                "is in a circle of {} files that need each other, of which {FILES_MAX} are allowed: {}; the shortest way round: {}",
                circle.len(),
                names.join(", "),
                round.join(" -> ")
            );
            findings.push(Finding::new(first, message));
        }
    }
    for ((file, n), found) in known.iter().zip(n_known) {
        if found == 0 {
            findings.push(Finding::new(*file, format!("no longer begins a circle of {n} files: take it off the list")));
        }
    }
    findings
}

/// The circles of more than [`FILES_MAX`] files.
fn circles(read: &Crate, edges: Edges) -> Vec<Vec<usize>> {
    let mut large = Vec::new();
    for circle in graph::circles(&edges).into_iter().filter(|circle| circle.len() > FILES_MAX) {
        let is_whole = |whole: &&usize| circle.iter().all(|file| read.is_part_of(*file, **whole));
        match circle.iter().find(is_whole) {
            // The circles that are left when the whole no longer leads to its parts.
            Some(whole) => {
                let mut inner = vec![BTreeSet::new(); edges.len()];
                for file in circle.iter().filter(|file| *file != whole) {
                    inner[*file].extend(edges[*file].iter().filter(|next| circle.contains(next)));
                }
                large.extend(circles(read, inner));
            }
            None => large.push(circle),
        }
    }
    large
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a crate of files under `a/src/`, given as path and text.
    #[track_caller]
    fn check_crate(files: &[(&str, &str)], known: &[(&str, usize)], expected: &[&str]) {
        let files = files.iter().map(|(path, text)| (format!("a/src/{path}"), (*text).to_owned())).collect();
        let findings: Vec<String> = check_against(&files, known).iter().map(ToString::to_string).collect();
        let starts = findings.iter().zip(expected).all(|(found, start)| found.starts_with(start));
        assert!(findings.len() == expected.len() && starts, "{findings:#?} not {expected:#?}");
    }

    const RING: &[(&str, &str)] = &[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::a::A; pub struct D;"),
    ];

    #[test]
    fn circle_of_four_is_a_finding_and_one_of_three_is_not() {
        check_crate(RING, &[], &["a/src/a.rs: is in a circle of 4 files that need each other"]);
        let mut three = RING.to_vec();
        three[3].1 = "use crate::a::A; pub struct C;";
        check_crate(&three, &[], &[]);
    }

    #[test]
    fn list_of_known_circles_is_exact_in_both_directions() {
        check_crate(RING, &[("a/src/a.rs", 4)], &[]);
        check_crate(RING, &[("a/src/a.rs", 5)], &["a/src/a.rs: is in a circle of 4 files"]);
        check_crate(&RING[..4], &[("a/src/a.rs", 4)], &["a/src/a.rs: no longer begins a circle"]);
    }

    #[test]
    fn whole_may_call_parts_that_use_what_it_defines() {
        let whole = "mod b; mod c; mod d; pub struct A; fn f() { b::f(); c::f(); d::f() }";
        let part = "use crate::a::A; pub fn f() {}";
        let mut files =
            vec![("lib.rs", "mod a;"), ("a.rs", whole), ("a/b.rs", part), ("a/c.rs", part), ("a/d.rs", part)];
        check_crate(&files, &[], &[]);
        // With another file in it, it is a circle.
        files[0].1 = "mod a; mod e;";
        files[2].1 = "use crate::e::E; pub fn f() {}";
        files.push(("e.rs", "use crate::a::A; pub struct E;"));
        check_crate(&files, &[], &["a/src/a.rs: is in a circle of 5 files"]);
        // Parts that need each other are a circle too.
        let ring = [
            ("lib.rs", "mod a; mod b; mod c; mod d; fn f() { a::A; }"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::d::D; pub struct C;"),
            ("d.rs", "use crate::a::A; pub struct D; fn f() { crate::f() }"),
        ];
        check_crate(&ring, &[], &["a/src/a.rs: is in a circle of 4 files"]);
    }

    #[test]
    fn shortest_way_round_is_told() {
        let mut files = RING.to_vec();
        files[2].1 = "use crate::{a::A, c::C}; pub struct B;";
        let files = files.iter().map(|(path, text)| (format!("a/src/{path}"), (*text).to_owned())).collect();
        let findings = check_against(&files, &[]);
        let expected = "the shortest way round: a/src/a.rs -> a/src/b.rs -> a/src/a.rs";
        assert!(findings[0].message.ends_with(expected), "{findings:?}");
    }
}
