//! The audit policy: a file in the format of `audit.k8s.io/v1` `Policy`, and the rules that apply to a request.
//!
//! The first rule that matches decides. A request that no rule matches is not logged. Follows apiserver's
//! `audit/policy`.

use crate::access::audit::{Level, Stage};
use crate::shared::config_file;
use crate::shared::operation::{Attributes, ResourceAttributes};
use serde::Deserialize;
use steersman_kinds::user::User;

/// The newest version of the format, and the only one supported.
const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";
const ANY: &str = "*";

/// Decides which requests are logged, and how.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// A policy file that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// A field has an invalid value.
    #[error("{field} is {value}: want {want}")]
    Field {
        /// The field path.
        field: String,
        /// The value.
        value: String,
        /// The valid values.
        want: &'static str,
    },
    /// It does not have the form of a policy; the text names the line.
    #[error("it is no audit policy: {0}")]
    Form(String),
}

/// The level of a request, and the stages and fields that are left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RequestAuditConfig {
    pub(crate) level: Level,
    omitted: [bool; 4],
    pub(crate) omits_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    /// Overrides the policy's value.
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

// === impl Policy ===

impl Policy {
    /// Parses a policy, in YAML or JSON.
    ///
    /// # Errors
    /// With the line or the field that is invalid.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let file: File = config_file::parse(text).map_err(PolicyError::Form)?;
        let wrong = |field: &str, value: &str, want| {
            Err(PolicyError::Field { field: field.to_owned(), value: format!("{value:?}"), want })
        };
        if file.api_version != API_VERSION {
            return wrong("apiVersion", &file.api_version, "\"audit.k8s.io/v1\"");
        }
        if file.kind != KIND {
            return wrong("kind", &file.kind, "\"Policy\"");
        }
        let mut rules = file.rules;
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.check(index)?;
            rule.omit_stages.extend(&file.omit_stages);
            rule.omit_managed_fields.get_or_insert(file.omit_managed_fields);
        }
        Ok(Policy { rules })
    }

    /// The level of a request, and what its events leave out. Without a user, rules that name users or groups do not match.
    pub(crate) fn evaluate(&self, user: Option<&User>, attributes: &Attributes<'_>) -> RequestAuditConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(user, attributes));
        let Some(rule) = rule else {
            return RequestAuditConfig { level: Level::None, omitted: [false; 4], omits_managed_fields: false };
        };
        let mut omitted = [false; 4];
        rule.omit_stages.iter().for_each(|stage| omitted[*stage as usize] = true);
        RequestAuditConfig { level: rule.level, omitted, omits_managed_fields: rule.omit_managed_fields == Some(true) }
    }
}

impl RequestAuditConfig {
    pub(crate) fn omits(&self, stage: Stage) -> bool {
        self.omitted[stage as usize]
    }
}

// === impl Rule ===

impl Rule {
    fn check(&self, index: usize) -> Result<(), PolicyError> {
        let at = |field: &str| format!("rules[{index}].{field}");
        let wrong =
            |field: String, value: &str, want| Err(PolicyError::Field { field, value: format!("{value:?}"), want });
        let names_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if names_resources && !self.non_resource_urls.is_empty() {
            let want = "no paths beside resources or namespaces: one rule cannot be for both";
            return wrong(at("nonResourceURLs"), &self.non_resource_urls.join(", "), want);
        }
        for (number, url) in self.non_resource_urls.iter().enumerate() {
            let is_path = url == ANY || url.starts_with('/') && !url.trim_end_matches('*').contains('*');
            if !is_path {
                let want = "\"*\", or a path that begins with a slash and has a * at its end only";
                return wrong(at(&format!("nonResourceURLs[{number}]")), url, want);
            }
        }
        for (number, Resources { group, resources, resource_names }) in self.resources.iter().enumerate() {
            let at = |field: &str| at(&format!("resources[{number}].{field}"));
            if group.contains('/') {
                return wrong(at("group"), group, "the name of a group without a version");
            }
            if resources.is_empty() && !resource_names.is_empty() {
                let want = "names of resources, since resourceNames are given";
                return wrong(at("resources"), "", want);
            }
        }
        Ok(())
    }

    fn matches(&self, user: Option<&User>, attributes: &Attributes<'_>) -> bool {
        let is_user = self.users.is_empty() || user.is_some_and(|user| self.users.contains(&user.name));
        let is_group = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| self.user_groups.contains(group)));
        let verb = match attributes {
            Attributes::NonResource { verb, .. } => verb,
            Attributes::Resource(of) => of.verb,
        };
        let is_verb = self.verbs.is_empty() || self.verbs.iter().any(|one| one == verb);
        is_user && is_group && is_verb && self.is_about(attributes)
    }

    fn is_about(&self, attributes: &Attributes<'_>) -> bool {
        let is_for_resources = !(self.namespaces.is_empty() && self.resources.is_empty());
        let is_for_paths = !self.non_resource_urls.is_empty();
        match attributes {
            _ if !is_for_resources && !is_for_paths => true,
            Attributes::NonResource { path, .. } => self.non_resource_urls.iter().any(|url| covers(url, path)),
            Attributes::Resource(of) => {
                let namespace = of.namespace.unwrap_or("");
                let is_namespace = self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace);
                let is_resource = self.resources.is_empty() || self.resources.iter().any(|one| one.has(of));
                is_for_resources && is_namespace && is_resource
            }
        }
    }
}

impl Resources {
    fn has(&self, of: &ResourceAttributes<'_>) -> bool {
        if self.group != of.group {
            return false;
        }
        let names = &self.resource_names;
        let is_name = names.is_empty() || names.iter().any(|name| name == of.name.unwrap_or(""));
        self.resources.is_empty() || is_name && self.resources.iter().any(|wanted| is_resource(wanted, of))
    }
}

/// Whether `pods`, `pods/log`, `pods/*`, `*/scale` or `*` matches the resource of a request.
fn is_resource(wanted: &str, of: &ResourceAttributes<'_>) -> bool {
    match (wanted.split_once('/'), of.subresource) {
        _ if wanted == ANY => true,
        (None, subresource) => wanted == of.resource && subresource.is_none(),
        (Some(_), None) => false,
        (Some((resource, part)), Some(subresource)) => {
            (resource == ANY || resource == of.resource) && (part == ANY || part == subresource)
        }
    }
}

fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::request::query::Query;
    use crate::shared::request::request_info::RequestInfo;
    use http::Method;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", /version]
- level: Request
  resources: [{group: "", resources: [configmaps], resourceNames: [leader]}]
  namespaces: [kube-system]
  omitManagedFields: false
- level: Metadata
  resources: [{group: "", resources: [secrets, "pods/*", "*/scale"]}]
  omitStages: [ResponseStarted]
- level: RequestResponse
  resources: [{group: apps}]
"#;

    fn config_for(user: &str, method: &Method, path: &str) -> RequestAuditConfig {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let info = RequestInfo::new(method, path, &Query::parse(query));
        let policy = Policy::parse(POLICY).unwrap();
        policy.evaluate(Some(&User::authenticated(user, [])), &info.attributes())
    }

    #[track_caller]
    fn check(user: &str, path: &str, want: Level) {
        assert_eq!(config_for(user, &Method::GET, path).level, want, "{path}");
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check("system:kube-proxy", "/api/v1/services?watch=1", Level::None);
        check("alice", "/api/v1/services?watch=1", Level::None);
        check("alice", "/apis/apps", Level::None);
        check("alice", "/version", Level::None);
        check("alice", "/api/v1/namespaces/kube-system/configmaps/leader", Level::Request);
        check("alice", "/api/v1/namespaces/kube-system/configmaps/other", Level::None);
        check("alice", "/api/v1/namespaces/default/configmaps/leader", Level::None);
        check("alice", "/api/v1/secrets", Level::Metadata);
        check("alice", "/api/v1/namespaces/a/pods/p", Level::None);
        check("alice", "/api/v1/namespaces/a/pods/p/log", Level::Metadata);
        check("alice", "/api/v1/namespaces/a/replicationcontrollers/r/scale", Level::Metadata);
        check("alice", "/apis/apps/v1/namespaces/a/deployments/d/scale", Level::RequestResponse);
        check("alice", "/apis/batch/v1/jobs", Level::None);
    }

    #[test]
    fn stages_and_managed_fields_are_left_out_as_the_policy_or_its_rule_says() {
        let secrets = config_for("alice", &Method::GET, "/api/v1/secrets");
        assert!(secrets.omits(Stage::RequestReceived) && secrets.omits(Stage::ResponseStarted));
        assert!(!secrets.omits(Stage::ResponseComplete) && secrets.omits_managed_fields);
        let leader = config_for("alice", &Method::GET, "/api/v1/namespaces/kube-system/configmaps/leader");
        assert!(!leader.omits(Stage::ResponseStarted) && !leader.omits_managed_fields);
    }

    #[track_caller]
    fn refused(rest: &str) -> String {
        Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}")).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named() {
        let version = Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy").unwrap_err();
        assert_eq!(version.to_string(), "apiVersion is \"audit.k8s.io/v1beta1\": want \"audit.k8s.io/v1\"");
        let both = refused("rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]");
        assert!(both.starts_with("rules[0].nonResourceURLs is \"/a\": want no paths beside"), "{both}");
        let path = refused("rules: [{level: None}, {level: None, nonResourceURLs: [/x, '/a*b']}]");
        assert!(path.starts_with("rules[1].nonResourceURLs[1] is \"/a*b\": want"), "{path}");
        let group = refused("rules: [{level: None, resources: [{group: apps/v1}]}]");
        assert!(group.starts_with("rules[0].resources[0].group is \"apps/v1\""), "{group}");
        let names = refused("rules: [{level: None, resources: [{resourceNames: [x]}]}]");
        assert!(names.starts_with("rules[0].resources[0].resources is \"\""), "{names}");
        for (text, word) in [
            ("rules: [{level: Everything}]", "Everything"),
            ("rules: [{users: [a]}]", "level"),
            ("rule: []", "rule"),
            ("omitStages: [Later]", "Later"),
        ] {
            let message = refused(text);
            assert!(message.starts_with("it is no audit policy: ") && message.contains(word), "{message}");
            assert!(message.contains("line"), "{message}");
        }
    }
}
