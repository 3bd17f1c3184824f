//! Selects the groups, versions and resources that are served, by `--runtime-config`.
//!
//! Follows kubernetes' `pkg/server/resourceconfig`: `api/all`, `api/ga`, `api/beta` and `api/alpha` first, in this
//! order, then `group/version`, then `group/version/resource`. By default stable versions are served and others are
//! not, except for resource metrics where they are available.

use std::collections::BTreeMap;
use std::fmt;
use steersman_schema::Edition;

const GA: &str = "ga";
const BETA: &str = "beta";
const ALPHA: &str = "alpha";
/// The prefix of the keys for many versions, and of the versions of the core group.
const API: &str = "api";
/// Served where initializers are on, although its version is not stable.
const INITIALIZERS: &str = "initializerconfigurations";
/// Served where the usage of nodes is known, although its version is not stable.
const RESOURCE_METRICS: &str = "metrics.k8s.io";

/// The deviations from the default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RuntimeConfig {
    /// Entries by keys such as `api/beta`, `apps/v1` and `networking.k8s.io/v1beta1/servicecidrs`.
    entries: BTreeMap<Box<str>, bool>,
    /// Whether the kind and the field of initializers exist.
    edition: Edition,
}

/// A built-in resource in one of its versions.
#[derive(Clone, Copy, Debug)]
pub struct VersionedResource<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
}

/// The error of a configuration.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    #[error(
        "{0:?} is no key: want api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or GROUP/VERSION/RESOURCE, with =true or =false"
    )]
    Key(Box<str>),
    #[error("nothing of this server is called {0}")]
    Unknown(Box<str>),
    #[error("the value of {key} is {value:?}: want true or false")]
    Value { key: Box<str>, value: Box<str> },
    #[error("api/all=false alone would serve nothing: name what is to be served, such as api/v1=true")]
    Nothing,
}

impl RuntimeConfig {
    /// The same configuration with initializers: the kind InitializerConfiguration, the field `metadata.initializers`
    /// of all kinds, and the server's actions for them.
    #[must_use]
    pub fn with_initializers(self) -> RuntimeConfig {
        RuntimeConfig { edition: Edition::WithInitializers, ..self }
    }

    /// Whether initializers are on.
    pub fn has_initializers(&self) -> bool {
        self.edition == Edition::WithInitializers
    }

    /// The definitions of the kinds that are served.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// Reads entries such as `apps/v1=false`; one without a value is switched on.
    ///
    /// # Errors
    /// When an entry cannot be read, or names nothing that exists.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
        all: &[VersionedResource<'_>],
    ) -> Result<RuntimeConfig, Error> {
        let mut config = RuntimeConfig::default();
        for entry in entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').unwrap_or((entry, "true"));
            let is_on = match value {
                "true" | "1" | "t" | "T" | "TRUE" | "True" | "" => true,
                "false" | "0" | "f" | "F" | "FALSE" | "False" => false,
                _ => return Err(Error::Value { key: key.into(), value: value.into() }),
            };
            // `v1` is the short name of the core group.
            let key = if key == "v1" { "api/v1" } else { key };
            config.entries.insert(key.into(), is_on);
        }
        config.check(all)?;
        Ok(config)
    }

    fn check(&self, all: &[VersionedResource<'_>]) -> Result<(), Error> {
        for key in self.entries.keys().filter(|key| !is_for_many(key)) {
            let parts: Vec<&str> = key.split('/').collect();
            let (group, version, resource) = match parts[..] {
                [group, version] => (group, version, None),
                [group, version, resource] => (group, version, Some(resource)),
                _ => return Err(Error::Key(key.clone())),
            };
            let is_known = all.iter().any(|subject| {
                group_key(subject.group) == group
                    && subject.version == version
                    && resource.is_none_or(|resource| subject.resource == resource)
            });
            if !is_known {
                return Err(Error::Unknown(key.clone()));
            }
        }
        let is_on = |is_on: &bool| *is_on;
        if self.entries.get("api/all") == Some(&false) && !self.entries.values().any(is_on) {
            return Err(Error::Nothing);
        }
        Ok(())
    }

    /// Whether a resource is served in a version.
    pub fn serves(&self, subject: VersionedResource<'_>) -> bool {
        let VersionedResource { group, version, resource } = subject;
        let stability = stability(version);
        let is_initializers = self.has_initializers() && resource == INITIALIZERS;
        let is_usual = stability == GA || is_initializers || group == RESOURCE_METRICS;
        if self.entries.is_empty() {
            return is_usual;
        }
        let version_key = format!("{}/{version}", group_key(group));
        let keys =
            [format!("{version_key}/{resource}"), version_key, format!("{API}/{stability}"), format!("{API}/all")];
        keys.iter().find_map(|key| self.entries.get(key.as_str())).copied().unwrap_or(is_usual)
    }
}

impl fmt::Display for RuntimeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.entries.iter().map(|(key, is_on)| format!("{key}={is_on}")).collect();
        f.write_str(&entries.join(","))
    }
}

fn is_for_many(key: &str) -> bool {
    matches!(key, "api/all" | "api/ga" | "api/beta" | "api/alpha")
}

fn group_key(group: &str) -> &str {
    if group.is_empty() { API } else { group }
}

fn stability(version: &str) -> &'static str {
    match version {
        _ if version.contains(ALPHA) => ALPHA,
        _ if version.contains(BETA) => BETA,
        _ => GA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[&str]) -> Result<RuntimeConfig, Error> {
        let all = [DEPLOYMENTS, RANGES, ADDRESSES, CRON_JOBS, PODS, ("apps", "v1", "daemonsets")];
        let all = all.map(|(group, version, resource)| VersionedResource { group, version, resource });
        RuntimeConfig::parse(entries.iter().copied(), &all)
    }

    #[track_caller]
    fn check(config: &[&str], subject: (&str, &str, &str), want: bool) {
        let (group, version, resource) = subject;
        let config = parse(config).unwrap();
        assert_eq!(config.serves(VersionedResource { group, version, resource }), want, "{config}");
    }

    const PODS: (&str, &str, &str) = ("", "v1", "pods");
    const DEPLOYMENTS: (&str, &str, &str) = ("apps", "v1", "deployments");
    const RANGES: (&str, &str, &str) = ("networking.k8s.io", "v1beta1", "servicecidrs");
    const ADDRESSES: (&str, &str, &str) = ("networking.k8s.io", "v1beta1", "ipaddresses");
    const CRON_JOBS: (&str, &str, &str) = ("batch", "v2alpha1", "cronjobs");

    #[test]
    fn stable_versions_are_served_unless_they_are_switched_off() {
        check(&[], DEPLOYMENTS, true);
        check(&["apps/v1=false"], DEPLOYMENTS, false);
        check(&["apps/v1/daemonsets=false"], DEPLOYMENTS, true);
        check(&["apps/v1=false", "apps/v1/deployments"], DEPLOYMENTS, true);
        check(&["api/ga=false", "apps/v1=true"], DEPLOYMENTS, true);
        check(&["api/all=false", "api/v1=true"], DEPLOYMENTS, false);
        check(&["api/all=false", "v1"], PODS, true);
    }

    #[test]
    fn others_are_served_where_they_are_asked_for() {
        check(&[], RANGES, false);
        check(&["api/beta=true"], RANGES, true);
        check(&["api/all=true", "api/beta=false"], RANGES, false);
        check(&["api/all=true"], CRON_JOBS, true);
        check(&["api/beta=true"], CRON_JOBS, false);
        check(&["batch/v2alpha1=true"], CRON_JOBS, true);
        check(&["networking.k8s.io/v1beta1/servicecidrs=true"], ADDRESSES, false);
        check(&["networking.k8s.io/v1beta1/servicecidrs=true"], RANGES, true);
    }

    #[track_caller]
    fn check_wrong(config: &[&str], want: &str) {
        assert_eq!(parse(config).unwrap_err().to_string(), want);
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        check_wrong(&["apps/v2=true"], "nothing of this server is called apps/v2");
        check_wrong(&["apps/v1/pods=true"], "nothing of this server is called apps/v1/pods");
        check_wrong(&["apps/v1=maybe"], "the value of apps/v1 is \"maybe\": want true or false");
        check_wrong(
            &["apps=true"],
            "\"apps\" is no key: want api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or GROUP/VERSION/RESOURCE, with =true or =false",
        );
        check_wrong(
            &["api/all=false"],
            "api/all=false alone would serve nothing: name what is to be served, such as api/v1=true",
        );
    }
}
