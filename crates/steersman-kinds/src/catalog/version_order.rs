//! The order of API versions: stable before beta before alpha, greater before smaller, and all of these before other names.

use std::cmp::{Ordering, Reverse};

/// Compares two versions; the one that clients should prefer is less. Follows apimachinery's `version` helpers.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The rank of a version: `v2beta3` is (stability 1, major 2, minor 3).
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    let (major, suffix) = rest.split_at(end);
    let number = |text: &str| if text.starts_with('0') { None } else { text.parse().ok() };
    let major = number(major)?;
    if suffix.is_empty() {
        return Some((2, major, 0));
    }
    match (suffix.strip_prefix("beta"), suffix.strip_prefix("alpha")) {
        (Some(minor), _) => Some((1, major, number(minor)?)),
        (_, Some(minor)) => Some((0, major, number(minor)?)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_odd_names_last() {
        let mut versions =
            ["foo10", "v1alpha1", "v10", "v2", "v1", "v12alpha1", "v3beta1", "v11beta2", "v10beta3", "foo1"];
        versions.sort_by(|a, b| compare(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]
        );
    }
}
