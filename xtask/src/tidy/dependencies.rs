//! Checks the licences, bans and sources of deny.toml against `cargo metadata`.
//!
//! cargo-deny reads the same file and checks more (advisories, exceptions); this check needs nothing installed, so it
//! always runs. It parses the three lists that it needs, and nothing else of TOML.

use std::collections::BTreeSet;

use crate::shared::metadata::{Metadata, Package};
use crate::tidy::Finding;
use crate::tidy::spdx;

const FILE: &str = "deny.toml";
const REGISTRY: &str = "registry+";

/// The rules of deny.toml.
#[derive(Debug, Eq, PartialEq)]
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
}

pub(crate) fn check(deny: &str, metadata: &Metadata) -> anyhow::Result<Vec<Finding>> {
    let rules = parse(deny)?;
    let ours = metadata.members().filter_map(|package| licence(&rules, package));
    let theirs = metadata.foreign().flat_map(|package| {
        let all = [licence(&rules, package), ban(&rules, package), source(package)];
        all.into_iter().flatten()
    });
    Ok(ours.chain(theirs).collect())
}

fn place(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn licence(rules: &Rules, package: &Package) -> Option<Finding> {
    let message = match package.license.as_deref() {
        None => "has no licence expression".to_owned(),
        Some(expression) => match spdx::is_satisfied(expression, &rules.licences) {
            Ok(true) => return None,
            Ok(false) => format!("its licence, {expression}, is not allowed in {FILE}"),
            Err(error) => format!("{error:#}"),
        },
    };
    Some(Finding::new(place(package), message))
}

fn ban(rules: &Rules, package: &Package) -> Option<Finding> {
    rules.banned.contains(&package.name).then(|| {
        Finding::new(
            place(package),
            format!("is banned in {FILE}; `cargo tree -i {}` says who brings it", package.name),
        )
    })
}

fn source(package: &Package) -> Option<Finding> {
    match package.source.as_deref() {
        Some(source) if source.starts_with(REGISTRY) => None,
        Some(source) => Some(Finding::new(place(package), format!("comes from {source}; only registries are allowed"))),
        None => Some(Finding::new(place(package), "comes from a path outside this workspace")),
    }
}

fn parse(deny: &str) -> anyhow::Result<Rules> {
    let licences = quoted(&list(deny, "licenses", "allow")?).into_iter().collect();
    let bans = list(deny, "bans", "deny")?;
    let banned = bans.split("crate").skip(1).filter_map(|rest| quoted(rest).into_iter().next()).collect();
    Ok(Rules { licences, banned })
}

/// The text between the brackets of `key = [ .. ]` in `[section]`, without comments.
fn list(toml: &str, section: &str, key: &str) -> anyhow::Result<String> {
    let mut inside_section = false;
    let mut found: Option<String> = None;
    for line in toml.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match &mut found {
            None if line.starts_with('[') => inside_section = line == format!("[{section}]"),
            None if inside_section => {
                if let Some((name, value)) = line.split_once('=')
                    && name.trim() == key
                {
                    found = Some(value.trim().to_owned());
                }
            }
            None => {}
            Some(text) => text.push_str(line),
        }
        if let Some(text) =
            found.as_deref().and_then(|text| text.strip_prefix('[')).and_then(|text| text.strip_suffix(']'))
        {
            return Ok(text.to_owned());
        }
    }
    anyhow::bail!("{FILE} has no list `{key}` in [{section}]")
}

/// The texts between double quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
[licenses]
# accepted
allow = [
    "Apache-2.0", # ours
    "MIT",
]
[bans]
multiple-versions = "allow"
deny = [
    { crate = "openssl-sys", reason = "rustls" },
    { crate = "native-tls", reason = "rustls" },
]
"#;

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        }
    }

    #[track_caller]
    fn check_package(package: Package, expected: &[&str]) {
        let metadata = Metadata {
            packages: vec![package],
            workspace_members: Vec::new(),
            workspace_root: "/w".into(),
            target_directory: "/w/target".into(),
        };
        let findings: Vec<String> = check(DENY, &metadata).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn lists_are_read_without_comments() {
        let rules = parse(DENY).unwrap();
        assert_eq!(rules.licences, ["Apache-2.0", "MIT"].map(str::to_owned).into());
        assert_eq!(rules.banned, ["native-tls", "openssl-sys"].map(str::to_owned).into());
        assert!(parse("[licenses]\n").is_err());
    }

    #[test]
    fn licence_ban_and_source_are_each_a_finding() {
        let registry = Some("registry+https://example.org/index");
        check_package(package("a", Some("MIT OR Apache-2.0"), registry), &[]);
        check_package(
            package("a", Some("GPL-3.0-only"), registry),
            &["a 1.0.0: its licence, GPL-3.0-only, is not allowed in deny.toml"],
        );
        check_package(package("a", None, registry), &["a 1.0.0: has no licence expression"]);
        check_package(
            package("openssl-sys", Some("MIT"), registry),
            &["openssl-sys 1.0.0: is banned in deny.toml; `cargo tree -i openssl-sys` says who brings it"],
        );
        check_package(
            package("a", Some("MIT"), Some("git+https://example.org/a")),
            &["a 1.0.0: comes from git+https://example.org/a; only registries are allowed"],
        );
    }
}
