//! The versions of etcd that can be used.

/// The least patch of each minor version of etcd 3 from which linearizable reads are never old. Later minor versions are
/// accepted, earlier ones are not.
const LEAST: [(u64, u64); 2] = [(5, 28), (6, 9)];

/// Why a version of etcd is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "etcd {version} is too old: it may answer reads with old data, so use at least 3.5.28, 3.6.9 or 3.7.0 of its minor version"
)]
pub struct Unsupported {
    /// The version that a member reports.
    pub version: String,
}

/// Checks the version that a member reports.
pub(crate) fn check(version: &str) -> Result<(), Unsupported> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u64>().ok());
    let mut next = || parts.next().flatten();
    let is_supported = match (next(), next(), next()) {
        (Some(3), Some(minor), Some(patch)) => match LEAST.iter().find(|(least, _)| *least == minor) {
            Some((_, least)) => *least <= patch,
            None => LEAST.iter().all(|(least, _)| *least < minor),
        },
        (Some(major), ..) => 3 < major,
        (None, ..) => false,
    };
    if is_supported { Ok(()) } else { Err(Unsupported { version: version.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_old_reads_are_refused() {
        for version in ["3.4.43", "3.5.0", "3.5.27", "3.6.0", "3.6.8", "2.3.8", "", "new"] {
            assert!(check(version).is_err(), "{version}");
        }
        for version in ["3.5.28", "3.5.33", "3.6.9", "3.6.14", "3.7.0", "3.7.0-rc.1", "3.10.0", "4.0.0"] {
            assert_eq!(check(version), Ok(()), "{version}");
        }
    }
}
