//! The Pod Security Standards that the labels of a namespace select.

use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

/// The prefix of the labels.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// A level of the Pod Security Standards; each level is stricter than the one before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A level as defined by a version of Kubernetes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

/// A version of Kubernetes, by its minor version.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Version {
    Minor(u32),
    Latest,
}

/// The levels of a namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Policy {
    pub(super) audit: LevelVersion,
    pub(super) enforce: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Policy {
    /// Reads the labels of a namespace. Invalid labels still give a policy: an invalid enforce level becomes the
    /// strictest level.
    pub(super) fn read<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> (Policy, Vec<Error>) {
        const ANYTHING: LevelVersion = LevelVersion { level: Level::Privileged, version: Version::Latest };
        let mut policy = Policy { audit: ANYTHING, enforce: ANYTHING, warn: ANYTHING };
        let (mut is_enforced, mut is_warn_level_said, mut is_warn_version_said) = (false, false, false);
        let mut faults = Vec::new();
        for (key, value) in labels {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            let mut fault = |why: &str| {
                let path = Path::new("metadata.labels").key(key);
                faults.push(Error::invalid(&path, Value::from(value), why));
            };
            let (mode, is_version) = match name.strip_suffix("-version") {
                Some(mode) => (mode, true),
                None => (name, false),
            };
            let (target, level_of_faults) = match mode {
                "audit" => (&mut policy.audit, Level::Privileged),
                "enforce" => (&mut policy.enforce, Level::Restricted),
                "warn" => (&mut policy.warn, Level::Privileged),
                _ => continue,
            };
            if is_version {
                target.version = Version::parse(value).unwrap_or_else(|| {
                    fault("must be \"latest\" or \"v1.x\"");
                    Version::Latest
                });
                is_warn_version_said |= mode == "warn";
                continue;
            }
            let level = Level::parse(value);
            if level.is_none() {
                fault("must be one of privileged, baseline, restricted");
            }
            target.level = level.unwrap_or(level_of_faults);
            is_enforced |= mode == "enforce" && level.is_some();
            is_warn_level_said |= mode == "warn";
        }
        // Warnings are given at the enforced level too, so that pod templates get them.
        if !is_warn_level_said && is_enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !is_warn_version_said {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, faults)
    }

    /// Whether nothing is restricted.
    pub(super) fn is_privileged(&self) -> bool {
        [self.audit, self.enforce, self.warn].iter().all(|one| one.level == Level::Privileged)
    }
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        match text {
            "baseline" => Some(Level::Baseline),
            "privileged" => Some(Level::Privileged),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = minor.bytes().all(|byte| byte.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        minor.parse().ok().filter(|_| is_number).map(Version::Minor)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Baseline => "baseline",
            Level::Privileged => "privileged",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(labels: &[(&str, &str)], want: &str, n_faults: usize) {
        let labels: Vec<(String, &str)> =
            labels.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
        let (policy, faults) = Policy::read(labels.iter().map(|(key, value)| (key.as_str(), *value)));
        assert_eq!(format!("{} {} {}", policy.enforce, policy.audit, policy.warn), want);
        assert_eq!(faults.len(), n_faults, "{faults:?}");
    }

    #[test]
    fn labels_say_level_and_version_of_each_mode() {
        check(&[], "privileged:latest privileged:latest privileged:latest", 0);
        check(&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest", 0);
        check(
            &[("enforce", "restricted"), ("enforce-version", "v1.24"), ("warn", "baseline")],
            "restricted:v1.24 privileged:latest baseline:latest",
            0,
        );
    }

    #[test]
    fn what_is_no_level_is_the_strictest_to_enforce_and_nothing_to_warn_of() {
        check(
            &[("enforce", "strict"), ("warn", "Baseline")],
            "restricted:latest privileged:latest privileged:latest",
            2,
        );
        check(
            &[("audit-version", "1.30"), ("warn-version", "v1.01")],
            "privileged:latest privileged:latest privileged:latest",
            2,
        );
    }
}
