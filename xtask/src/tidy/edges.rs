//! Checks which crate may depend on which: the table in ARCHITECTURE.md against `cargo metadata`.
//!
//! The table is the fenced block whose first line begins with `machinery ->`. A cell is `crate -> crate, crate`; cells
//! are separated by two or more spaces. `-` means none of ours, `all but x` means all except `x`, a `?` after a name
//! allows the edge without requiring it, and text in parentheses is a remark.

use std::collections::{BTreeMap, BTreeSet};

use crate::shared::metadata::Metadata;
use crate::tidy::Finding;

const FILE: &str = "ARCHITECTURE.md";

/// The edges that one row allows and requires.
#[derive(Debug, Eq, PartialEq)]
enum Row {
    AllBut(BTreeSet<String>),
    These { allowed: BTreeSet<String>, asked: BTreeSet<String> },
}

type Table = BTreeMap<String, Row>;

pub(crate) fn check(architecture: &str, metadata: &Metadata) -> anyhow::Result<Vec<Finding>> {
    let table = parse(architecture)?;
    let members: BTreeSet<&str> = metadata.members().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for member in metadata.members() {
        findings.extend(compare(&table, &member.name, &metadata.edges(member), &members));
    }
    Ok(findings)
}

fn compare(table: &Table, name: &str, edges: &BTreeSet<String>, members: &BTreeSet<&str>) -> Vec<Finding> {
    let finding = |message: String| Finding::new(name, message);
    match table.get(name) {
        None => vec![finding(format!("the table of crates in {FILE} does not name this crate: add its row"))],
        Some(Row::AllBut(banned)) => edges
            .intersection(banned)
            .map(|edge| finding(format!("depends on {edge}, which the table in {FILE} rules out")))
            .collect(),
        Some(Row::These { allowed, asked }) => {
            let extra = edges
                .difference(allowed)
                .map(|edge| finding(format!("depends on {edge}, which the table in {FILE} does not allow")));
            // A crate that does not exist yet cannot be a dependency.
            let missing = asked
                .difference(edges)
                .filter(|edge| members.contains(edge.as_str()))
                .map(|edge| finding(format!("does not depend on {edge} although the table in {FILE} says so")));
            extra.chain(missing).collect()
        }
    }
}

fn parse(architecture: &str) -> anyhow::Result<Table> {
    let block =
        architecture.split("```").find(|block| block.trim_start().starts_with("machinery ->")).ok_or_else(|| {
            anyhow::anyhow!("no table of crates in {FILE}: a fenced block that begins with `machinery ->`")
        })?;
    let mut table = Table::new();
    for line in block.lines() {
        for (name, targets) in cells(line) {
            let row = row(&targets);
            anyhow::ensure!(
                table.insert(package(&name), row).is_none(),
                "the table of crates in {FILE} names {name} twice"
            );
        }
    }
    Ok(table)
}

/// The cells of a line: `a -> b, c`, with any padding of the columns.
fn cells(line: &str) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::new();
    let mut name = "";
    for part in line.split("  ").map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once("->") {
            Some(("", targets)) => cells.push((name.to_owned(), targets.trim().to_owned())),
            Some((name, targets)) => cells.push((name.trim().to_owned(), targets.trim().to_owned())),
            None => name = part,
        }
    }
    cells
}

fn row(targets: &str) -> Row {
    let targets = targets.split('(').next().unwrap_or_default().trim();
    if let Some(banned) = targets.strip_prefix("all but ") {
        return Row::AllBut(banned.split(',').map(|name| package(name.trim())).collect());
    }
    let mut allowed = BTreeSet::new();
    let mut asked = BTreeSet::new();
    if targets != "-" && targets != "none of ours" {
        for name in targets.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name.strip_suffix('?') {
                Some(name) => allowed.insert(package(name)),
                None => allowed.insert(package(name)) & asked.insert(package(name)),
            };
        }
    }
    Row::These { allowed, asked }
}

/// The package for a short name in the table.
fn package(name: &str) -> String {
    match name {
        "steersman" | "xtask" => name.to_owned(),
        _ => format!("steersman-{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "words\n```\n\
        machinery -> -                    schema -> machinery\n\
        storage   -> machinery            steersman -> machinery?   (if it earns it; otherwise none)\n\
        server    -> machinery, schema\n\
        cli       -> all but testkit      xtask -> none of ours\n```\nmore words\n";

    #[track_caller]
    fn check(name: &str, edges: &[&str], expected: &[&str]) {
        let members = ["steersman-machinery", "steersman-schema", "steersman-server", "steersman-testkit"].into();
        let edges = edges.iter().map(|edge| (*edge).to_owned()).collect();
        let findings = compare(&parse(TABLE).unwrap(), name, &edges, &members);
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn edges_of_the_table_pass() {
        check("steersman-machinery", &[], &[]);
        check("steersman-server", &["steersman-machinery", "steersman-schema"], &[]);
        check("steersman-storage", &["steersman-machinery"], &[]);
        check("steersman-cli", &["steersman-server"], &[]);
        check("xtask", &[], &[]);
    }

    #[test]
    fn optional_edge_may_be_there_or_not() {
        check("steersman", &[], &[]);
        check("steersman", &["steersman-machinery"], &[]);
    }

    #[test]
    fn edge_outside_the_table_is_a_finding() {
        let message = "depends on steersman-server, which the table in ARCHITECTURE.md does not allow";
        check("steersman-schema", &["steersman-machinery", "steersman-server"], &[message]);
        check("xtask", &["steersman-server"], &[message]);
        check(
            "steersman-cli",
            &["steersman-testkit"],
            &["depends on steersman-testkit, which the table in ARCHITECTURE.md rules out"],
        );
    }

    #[test]
    fn stale_row_and_unknown_crate_are_findings() {
        check(
            "steersman-schema",
            &[],
            &["does not depend on steersman-machinery although the table in ARCHITECTURE.md says so"],
        );
        check("steersman-new", &[], &["the table of crates in ARCHITECTURE.md does not name this crate: add its row"]);
    }

    #[test]
    fn missing_table_is_an_error() {
        assert!(parse("no table here").is_err());
    }
}
