//! ABAC: a file of policies, one JSON object per line, that allow actions to a user or a group. Follows kubernetes'
//! `pkg/auth/authorizer/abac`.

use crate::access::authz::{Authorizer, NonResourceRule, ResourceRule, Rules, Verdict};
use crate::shared::operation::Attributes;
use futures::future::{self, BoxFuture};
use serde::Deserialize;
use serde_json::Value;
use steersman_kinds::user::{AUTHENTICATED, User};

const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const KIND: &str = "Policy";
const ALL: &str = "*";
const READS: [&str; 3] = ["get", "list", "watch"];

/// The policies of a file, in order.
#[derive(Clone, Debug, Default)]
pub struct Abac {
    policies: Vec<Policy>,
    /// The number of lines without a version.
    unversioned: usize,
}

/// Why a file of policies cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {text}: {why}")]
pub struct AbacError {
    /// The number of the line, from 1.
    pub line: usize,
    pub text: String,
    pub why: String,
}

/// A policy of a user or a group. An empty field matches nothing, `*` everything.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

/// A line with a version.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    spec: Policy,
}

/// The fields that distinguish a line with a version from one without.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TypeMeta {
    api_version: String,
    kind: String,
}

// === impl Abac ===

impl Abac {
    /// Parses the text of a file. Empty lines, and those that begin with `#`, are skipped.
    ///
    /// # Errors
    /// With the first line that is not a policy.
    pub fn parse(text: &str) -> Result<Abac, AbacError> {
        let mut abac = Abac::default();
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let refused = |why: String| AbacError { line: index + 1, text: line.to_owned(), why };
            let value: Value = serde_json::from_str(trimmed).map_err(|error| refused(error.to_string()))?;
            let meta = TypeMeta::deserialize(&value).map_err(|error| refused(error.to_string()))?;
            let policy = match (meta.api_version.as_str(), meta.kind.as_str()) {
                (API_VERSION, KIND) => {
                    let read = Versioned::deserialize(&value).map_err(|error| refused(error.to_string()))?;
                    read.spec.with_all_users()
                }
                ("", _) | (_, "") => {
                    abac.unversioned += 1;
                    let read = Policy::deserialize(&value).map_err(|error| refused(error.to_string()))?;
                    read.upgraded()
                }
                (version, kind) => {
                    let why = format!("want a {KIND} of {API_VERSION}, not a {kind:?} of {version:?}");
                    return Err(refused(why));
                }
            };
            abac.policies.push(policy);
        }
        Ok(abac)
    }

    /// The number of lines in the unversioned form, which should be rewritten.
    pub fn unversioned(&self) -> usize {
        self.unversioned
    }

    fn verdict(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let allows = |policy: &&Policy| policy.is_of(user) && policy.allows(attributes);
        match self.policies.iter().find(allows) {
            Some(_) => Verdict::ALLOW,
            None => Verdict { reason: "No policy matched.".into(), ..Verdict::NO_OPINION },
        }
    }
}

impl Authorizer for Abac {
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.verdict(user, attributes))
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.verdict(user, attributes)))
    }

    fn rules_for<'a>(&'a self, user: &'a User, namespace: &'a str) -> BoxFuture<'a, Rules> {
        let mut rules = Rules::default();
        let is_here = |policy: &&Policy| policy.is_of(user) && stands_for(&policy.namespace, namespace);
        for policy in self.policies.iter().filter(is_here) {
            let verbs: Vec<String> = match policy.readonly {
                true => READS.map(str::to_owned).into(),
                false => vec![ALL.to_owned()],
            };
            if !policy.resource.is_empty() {
                rules.resources.push(ResourceRule {
                    verbs: verbs.clone(),
                    api_groups: vec![policy.api_group.clone()],
                    resources: vec![policy.resource.clone()],
                    resource_names: Vec::new(),
                });
            }
            if !policy.non_resource_path.is_empty() {
                rules.non_resources.push(NonResourceRule { verbs, paths: vec![policy.non_resource_path.clone()] });
            }
        }
        Box::pin(future::ready(rules))
    }
}

// === impl Policy ===

impl Policy {
    /// A policy of all users becomes one of all authenticated users.
    fn with_all_users(self) -> Policy {
        if self.user == ALL || self.group == ALL {
            return Policy { user: String::new(), group: AUTHENTICATED.to_owned(), ..self };
        }
        self
    }

    /// The policy of a line without a version, in which an absent field matches everything.
    fn upgraded(self) -> Policy {
        let or_all = |text: &str| if text.is_empty() { ALL.to_owned() } else { text.to_owned() };
        let is_of_all_paths = self.namespace.is_empty() && self.resource.is_empty();
        let group = match self.user.is_empty() && self.group.is_empty() {
            true => AUTHENTICATED.to_owned(),
            false => self.group,
        };
        let upgraded = Policy {
            user: self.user,
            group,
            readonly: self.readonly,
            api_group: ALL.to_owned(),
            resource: or_all(&self.resource),
            namespace: or_all(&self.namespace),
            non_resource_path: if is_of_all_paths { ALL.to_owned() } else { String::new() },
        };
        upgraded.with_all_users()
    }

    /// Whether the policy applies to a user. A policy that names neither a user nor a group applies to none.
    fn is_of(&self, user: &User) -> bool {
        let is_user = self.user.is_empty() || self.user == user.name;
        let is_group = self.group.is_empty() || user.is_in(&self.group);
        is_user && is_group && !(self.user.is_empty() && self.group.is_empty())
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let verb = match attributes {
            Attributes::NonResource { verb, .. } => verb,
            Attributes::Resource(of) => of.verb,
        };
        let is_verb = !self.readonly || READS.contains(&verb);
        is_verb
            && match attributes {
                Attributes::NonResource { path, .. } => self.is_of_path(path),
                Attributes::Resource(of) => {
                    stands_for(&self.namespace, of.namespace.unwrap_or_default())
                        && stands_for(&self.resource, of.resource)
                        && stands_for(&self.api_group, of.group)
                }
            }
    }

    fn is_of_path(&self, path: &str) -> bool {
        let own = &self.non_resource_path;
        own == path || own.ends_with('*') && path.starts_with(own.trim_end_matches('*'))
    }
}

fn stands_for(of_policy: &str, asked: &str) -> bool {
    of_policy == ALL || of_policy == asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::operation::ResourceAttributes;

    const FILE: &str = r##"
# Comments and empty lines are passed over.
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*", "nonResourcePath": "*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "namespace": "projects", "resource": "pods", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "*", "readonly": true, "nonResourcePath": "/version/*"}}
{"user": "old", "resource": "secrets"}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"resource": "*", "namespace": "*", "apiGroup": "*"}}
"##;

    fn resource<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        Attributes::Resource(ResourceAttributes { verb, group, resource, namespace, ..ResourceAttributes::default() })
    }

    #[track_caller]
    fn check(user: &str, attributes: Attributes<'_>, want: bool) {
        let verdict = Abac::parse(FILE).unwrap().verdict(&User::authenticated(user, []), &attributes);
        assert_eq!(verdict.is_allowed(), want, "{user} {attributes:?}");
    }

    #[test]
    fn a_policy_allows_what_all_of_its_fields_say() {
        check("alice", resource("delete", "apps", "deployments", "x"), true);
        check("alice", resource("list", "", "nodes", ""), true);
        check("bob", resource("list", "", "pods", "projects"), true);
        check("bob", resource("delete", "", "pods", "projects"), false);
        check("bob", resource("list", "", "pods", "other"), false);
        check("bob", resource("list", "apps", "pods", "projects"), false);
        check("anybody", Attributes::NonResource { verb: "get", path: "/version/x" }, true);
        check("anybody", Attributes::NonResource { verb: "post", path: "/version/x" }, false);
        check("anybody", resource("get", "", "pods", "x"), false);
    }

    #[test]
    fn a_line_without_a_version_stands_for_every_group_and_namespace() {
        assert_eq!(Abac::parse(FILE).unwrap().unversioned(), 1);
        check("old", resource("delete", "any", "secrets", "x"), true);
        check("old", resource("delete", "", "pods", "x"), false);
        check("old", Attributes::NonResource { verb: "get", path: "/metrics" }, false);
    }

    #[test]
    fn who_is_not_authenticated_is_not_everybody() {
        let nobody = User { name: "system:anonymous".to_owned(), ..User::default() };
        let asked = Attributes::NonResource { verb: "get", path: "/version/x" };
        let verdict = Abac::parse(FILE).unwrap().verdict(&nobody, &asked);
        assert_eq!((verdict.is_allowed(), verdict.reason.to_string().as_str()), (false, "No policy matched."));
    }

    #[test]
    fn a_line_that_is_no_policy_is_refused_by_its_number() {
        let error = Abac::parse("# a comment\n{\"user\": 1}\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: {\"user\": 1}: invalid type"), "{error}");
        let other = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}";
        let error = Abac::parse(other).unwrap_err().to_string();
        let want = "want a Policy of abac.authorization.kubernetes.io/v1beta1, not a \"Pod\" of \"v1\"";
        assert_eq!(error, format!("line 1: {other}: {want}"));
    }
}
