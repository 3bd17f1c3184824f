//! Parses an AuthorizationConfiguration (`apiserver.config.k8s.io`): the authorizers, their order, and how webhooks are
//! called.
//!
//! Unsupported settings are refused by name: conditions (`matchConditions`), the mode ABAC, and webhooks that are
//! located with the service account of a pod.

use crate::access::authz::modes::{Authorization, Mode};
use crate::access::authz::webhook::{FailurePolicy, ReviewVersion, Settings, Webhook};
use crate::shared::config_file;
use crate::shared::webhook::{Client, EndpointError, read_kubeconfig};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{duration, name};

/// The maximum timeout of a webhook.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A field has an invalid value.
    #[error("{field}: {why}")]
    Field { field: String, why: String },
    /// A webhook cannot be called with its settings.
    #[error("the webhook {name:?} of the file {file} cannot be used", file = .file.display())]
    Webhook {
        name: String,
        file: PathBuf,
        #[source]
        source: EndpointError,
    },
    /// The text is not YAML, or has unknown fields.
    #[error("it is no AuthorizationConfiguration: {0}")]
    Yaml(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<Configured>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    #[serde(default, rename = "type")]
    mode: String,
    #[serde(default)]
    name: String,
    webhook: Option<ConfiguredWebhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfiguredWebhook {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    timeout: Option<String>,
    #[serde(default)]
    subject_access_review_version: String,
    /// Only used by conditions, which are refused.
    #[serde(rename = "matchConditionSubjectAccessReviewVersion")]
    _condition_version: Option<String>,
    #[serde(default)]
    failure_policy: String,
    #[serde(default)]
    connection_info: ConnectionInfo,
    #[serde(default)]
    match_conditions: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConnectionInfo {
    #[serde(default, rename = "type")]
    how: String,
    #[serde(default)]
    kube_config_file: Option<PathBuf>,
}

impl Authorization {
    /// Parses a configuration. Blocks: the files that it names are read.
    ///
    /// # Errors
    /// When it cannot be parsed, or has unsupported settings.
    pub fn read_configuration(text: &str) -> Result<Authorization, ConfigurationError> {
        let configuration: Configuration = config_file::parse(text).map_err(ConfigurationError::Yaml)?;
        let Configuration { api_version, kind, authorizers } = configuration;
        if kind != "AuthorizationConfiguration" {
            return Err(refused("kind", format!("want AuthorizationConfiguration, not {kind:?}")));
        }
        if !VERSIONS.contains(&api_version.as_str()) {
            return Err(refused("apiVersion", format!("want {}, not {api_version:?}", VERSIONS[0])));
        }
        if authorizers.is_empty() {
            return Err(refused("authorizers", "at least one authorization mode must be defined"));
        }
        let (mut modes, mut types, mut names) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (at, authorizer) in authorizers.into_iter().enumerate() {
            let field = |rest: &str| format!("authorizers[{at}].{rest}");
            if authorizer.mode != "Webhook" && !types.insert(authorizer.mode.clone()) {
                return Err(refused(field("type"), format!("{:?} is there twice", authorizer.mode)));
            }
            if !name::dns1123_subdomain(&authorizer.name).is_empty() || !names.insert(authorizer.name.clone()) {
                let why =
                    format!("want a name that no other one has, such as \"my-webhook\", not {:?}", authorizer.name);
                return Err(refused(field("name"), why));
            }
            modes.push(authorizer.mode(&field)?);
        }
        Ok(Authorization::Modes(modes))
    }
}

impl Configured {
    fn mode(self, field: &dyn Fn(&str) -> String) -> Result<Mode, ConfigurationError> {
        let Configured { mode, name, webhook } = self;
        match (mode.as_str(), webhook) {
            ("Webhook", Some(webhook)) => webhook.mode(name, &|rest| field(&format!("webhook.{rest}"))),
            ("Webhook", None) => Err(refused(field("webhook"), "required when type=Webhook")),
            (_, Some(_)) => Err(refused(field("webhook"), "may only be specified when type=Webhook")),
            (other, None) => Mode::named(other).ok_or_else(|| {
                refused(
                    field("type"),
                    format!("{other:?} is not supported: want AlwaysAllow, AlwaysDeny, Node, RBAC or Webhook"),
                )
            }),
        }
    }
}

impl ConfiguredWebhook {
    fn mode(self, name: String, field: &dyn Fn(&str) -> String) -> Result<Mode, ConfigurationError> {
        if !self.match_conditions.is_empty() {
            let why = "conditions are not supported yet: without them the webhook is asked about every request";
            return Err(refused(field("matchConditions"), why));
        }
        let time = |text: &Option<String>, what: &str| match text {
            None => Ok(None),
            Some(text) => match duration::parse_unsigned(text) {
                Some(time) => Ok(Some(time)),
                None => Err(refused(field(what), format!("want a duration such as 30s or 5m, not {text:?}"))),
            },
        };
        let defaults = Settings::default();
        // Zero counts as absent; another field decides whether decisions are cached.
        let ttl = |time: Option<Duration>, is_kept: Option<bool>, default: Duration| match is_kept {
            Some(false) => Duration::ZERO,
            Some(true) | None => time.filter(|time| !time.is_zero()).unwrap_or(default),
        };
        let timeout = time(&self.timeout, "timeout")?.filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| refused(field("timeout"), "required, such as 3s"))?;
        if timeout > TIMEOUT_MAX {
            return Err(refused(field("timeout"), "must be > 0s and <= 30s"));
        }
        let version = match self.subject_access_review_version.as_str() {
            "v1" => ReviewVersion::V1,
            "v1beta1" => ReviewVersion::V1Beta1,
            other => {
                return Err(refused(field("subjectAccessReviewVersion"), format!("want v1 or v1beta1, not {other:?}")));
            }
        };
        let failure_policy = match self.failure_policy.as_str() {
            "Deny" => FailurePolicy::Deny,
            "NoOpinion" => FailurePolicy::NoOpinion,
            other => return Err(refused(field("failurePolicy"), format!("want NoOpinion or Deny, not {other:?}"))),
        };
        let authorized = time(&self.authorized_ttl, "authorizedTTL")?;
        let unauthorized = time(&self.unauthorized_ttl, "unauthorizedTTL")?;
        let settings = Settings {
            authorized_ttl: ttl(authorized, self.cache_authorized_requests, defaults.authorized_ttl),
            unauthorized_ttl: ttl(unauthorized, self.cache_unauthorized_requests, defaults.unauthorized_ttl),
            timeout,
            version,
            failure_policy,
        };
        let file = match (self.connection_info.how.as_str(), self.connection_info.kube_config_file) {
            ("KubeConfigFile", Some(file)) if file.is_absolute() => file,
            ("KubeConfigFile", _) => {
                return Err(refused(field("connectionInfo.kubeConfigFile"), "want the absolute path of a kubeconfig"));
            }
            (other, _) => {
                return Err(refused(field("connectionInfo.type"), format!("want KubeConfigFile, not {other:?}")));
            }
        };
        let client = read_kubeconfig(&file).and_then(Client::new);
        let client = client.map_err(|source| ConfigurationError::Webhook { name, file, source })?;
        Ok(Mode::Other(Arc::new(Webhook::new(client, settings))))
    }
}

fn refused(field: impl Into<String>, why: impl Into<String>) -> ConfigurationError {
    ConfigurationError::Field { field: field.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(authorizers: &str) -> Result<Authorization, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{authorizers}"
        );
        Authorization::read_configuration(&text).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_refused(authorizers: &str, want: &str) {
        let error = with(authorizers).map(|_| ()).unwrap_err();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn authorizers_are_asked_in_the_order_of_the_file() {
        let read = with("- {type: RBAC, name: rbac}\n- {type: AlwaysDeny, name: no}\n").unwrap();
        assert!(matches!(read, Authorization::Modes(modes) if matches!(modes[..], [Mode::Rbac, Mode::AlwaysDeny])));
    }

    #[test]
    fn what_is_wrong_or_not_supported_is_refused_by_name() {
        check_refused("  []\n", "at least one authorization mode");
        check_refused("- {type: ABAC, name: abac}\n", "authorizers[0].type: \"ABAC\" is not supported");
        check_refused("- {type: RBAC, name: a}\n- {type: RBAC, name: b}\n", "authorizers[1].type");
        check_refused("- {type: RBAC, name: a}\n- {type: AlwaysDeny, name: a}\n", "authorizers[1].name");
        check_refused("- {type: RBAC, name: ''}\n", "authorizers[0].name");
        check_refused("- {type: RBAC, name: a, more: b}\n", "more");
        check_refused("- {type: Webhook, name: w}\n", "authorizers[0].webhook: required");
        let webhook = |rest: &str| {
            format!(
                "- type: Webhook\n  name: w\n  webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: /no/such}}{rest}}}\n"
            )
        };
        check_refused(&webhook(""), "the webhook \"w\" of the file /no/such cannot be used");
        check_refused(&webhook(", matchConditions: [{expression: 'true'}]"), "webhook.matchConditions");
        check_refused(&webhook(", authorizedTTL: soon"), "webhook.authorizedTTL");
        check_refused(&webhook("").replace("3s", "31s"), "webhook.timeout");
        check_refused(&webhook("").replace("Deny", "Allow"), "webhook.failurePolicy");
        check_refused(&webhook("").replace("KubeConfigFile,", "InClusterConfig,"), "webhook.connectionInfo.type");
    }
}
