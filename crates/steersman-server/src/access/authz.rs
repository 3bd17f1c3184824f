//! Authorization.
//!
//! An [`Authorizer`] decides on the attributes of a request: allow, deny or no opinion, with a reason. It also lists
//! the permissions of a user. The authorizers of a server and their order are its [`Authorization`]: usually the roles
//! and bindings in its store (`rbac`), before them the node authorizer (`node`) where there are nodes, and policies in
//! a file (`abac`). An embedder can pass its own authorizer, such as [`SystemMasters`].

mod abac;
mod configuration;
mod modes;
pub(crate) mod node;
pub(crate) mod rbac;
pub(crate) mod webhook;

pub use self::abac::{Abac, AbacError};
pub use self::configuration::ConfigurationError;
pub use self::modes::{Authorization, Mode};
pub use self::rbac::binding::Grant;
pub use self::webhook::{FailurePolicy, ReviewVersion, Settings as WebhookSettings, Webhook};

use crate::shared::status::Failure;
use futures::future::{self, BoxFuture};
use std::borrow::Cow;
use std::fmt;
use steersman_kinds::user::{MASTERS, User};
use steersman_machinery::GroupResource;

pub use crate::shared::operation::{Attributes, ResourceAttributes};

/// Decides whether a user may make a request.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// The verdict, if it needs no waiting. An authorizer that never waits answers here, which saves a boxed future.
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        let _ = (user, attributes);
        None
    }

    /// The verdict. Called where [`Authorizer::authorize_now`] returned none.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict>;

    /// The permissions of a user in a namespace, and on non-resource paths.
    fn rules_for<'a>(&'a self, user: &'a User, namespace: &'a str) -> BoxFuture<'a, Rules>;
}

/// An authorizer's answer on a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// Whether the request is allowed.
    pub decision: Decision,
    /// The reason for the client; empty if there is none.
    pub reason: Reason,
    /// Why the authorizer could not evaluate all of its rules.
    pub error: Option<String>,
}

/// Why a request is allowed or not. Formatted only when it is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reason {
    /// A binding allows it.
    Granted(Grant),
    /// A reason given as text.
    Text(Cow<'static, str>),
}

/// The reason of a denial, in the extensions of the response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Denied(pub String);

/// Whether a request is allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Allowed, whatever other authorizers say.
    Allow,
    /// Denied, whatever other authorizers say.
    Deny,
    /// Left to other authorizers; denied if none of them allows it.
    NoOpinion,
}

/// When a watch is authorized.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WatchAuthorization {
    /// When it begins, as in kube-apiserver: a watch goes on when its user loses the permission.
    #[default]
    AtStart,
    /// When it begins, and again while it is open: it ends with a 403 when its user has lost the permission.
    WhileOpen,
}

/// The permissions of a user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Permissions on resources.
    pub resources: Vec<ResourceRule>,
    /// Permissions on non-resource paths.
    pub non_resources: Vec<NonResourceRule>,
    /// Whether the list may be incomplete.
    pub is_incomplete: bool,
    /// Why the list may be incomplete.
    pub error: Option<String>,
}

/// Verbs that are allowed on resources. `*` matches all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    /// The names to which the rule is limited; empty: all names.
    pub resource_names: Vec<String>,
}

/// Verbs that are allowed on paths. `*` at the end of a path matches the rest.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NonResourceRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// Members of `system:masters` may do everything. Every authenticated user may read discovery, health and version, and
/// may post reviews about themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMasters;

const OPEN_PATHS: [&str; 7] = ["/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version"];
const OPEN_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

// === impl Verdict ===

impl Verdict {
    /// Allowed, without a reason.
    pub const ALLOW: Verdict = Verdict { decision: Decision::Allow, reason: Reason::NONE, error: None };
    /// No opinion, without a reason.
    pub const NO_OPINION: Verdict = Verdict { decision: Decision::NoOpinion, reason: Reason::NONE, error: None };

    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

// === impl Reason ===

impl Reason {
    /// No reason.
    pub const NONE: Reason = Reason::Text(Cow::Borrowed(""));

    /// Whether there is no reason.
    pub fn is_empty(&self) -> bool {
        matches!(self, Reason::Text(text) if text.is_empty())
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Reason {
        Reason::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason::Text(Cow::Owned(text))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Granted(grant) => write!(f, "RBAC: allowed by {grant}"),
            Reason::Text(text) => f.write_str(text),
        }
    }
}

// === impl SystemMasters ===

impl Authorizer for SystemMasters {
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        let is_allowed = user.is_in(MASTERS)
            || match attributes {
                Attributes::NonResource { verb: "get" | "head", path } => OPEN_PATHS
                    .iter()
                    .any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))),
                Attributes::NonResource { .. } => false,
                Attributes::Resource(of) => of.verb == "create" && OPEN_REVIEWS.contains(&(of.group, of.resource)),
            };
        Some(if is_allowed { Verdict::ALLOW } else { Verdict::NO_OPINION })
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.authorize_now(user, attributes).unwrap_or(Verdict::NO_OPINION)))
    }

    fn rules_for<'a>(&'a self, user: &'a User, _namespace: &'a str) -> BoxFuture<'a, Rules> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mut rules = Rules::default();
        if user.is_in(MASTERS) {
            let all = || texts(&["*"]);
            rules.resources.push(ResourceRule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..ResourceRule::default()
            });
            rules.non_resources.push(NonResourceRule { verbs: all(), paths: all() });
        }
        for (group, resource) in OPEN_REVIEWS {
            let (verbs, api_groups, resources) = (texts(&["create"]), texts(&[group]), texts(&[resource]));
            rules.resources.push(ResourceRule { verbs, api_groups, resources, ..ResourceRule::default() });
        }
        let open = OPEN_PATHS.iter().flat_map(|path| [(*path).to_owned(), format!("{path}/*")]).collect();
        rules.non_resources.push(NonResourceRule { verbs: texts(&["get"]), paths: open });
        Box::pin(future::ready(rules))
    }
}

/// The verdict on a request, without waiting if the authorizer can decide at once.
pub(crate) async fn verdict(authorizer: &dyn Authorizer, user: &User, attributes: &Attributes<'_>) -> Verdict {
    match authorizer.authorize_now(user, attributes) {
        Some(verdict) => verdict,
        None => authorizer.authorize(user, attributes).await,
    }
}

/// Refuses a request that the authorizer does not allow, with upstream's message.
///
/// # Errors
/// 403; 500 if the authorizer could not evaluate all of its rules.
pub(crate) async fn authorize(
    authorizer: &dyn Authorizer,
    user: &User,
    attributes: &Attributes<'_>,
) -> Result<(), Failure> {
    enforce(user, attributes, verdict(authorizer, user, attributes).await)
}

/// The error of a request whose verdict does not allow it.
///
/// # Errors
/// Like [`authorize`].
pub(crate) fn enforce(user: &User, attributes: &Attributes<'_>, verdict: Verdict) -> Result<(), Failure> {
    if verdict.is_allowed() {
        return Ok(());
    }
    if let Some(error) = verdict.error {
        return Err(Failure::internal(format!("the authorization of the request failed: {error}")));
    }
    Err(Failure { is_denial: true, ..refusal(user, attributes, &verdict.reason) })
}

fn refusal(user: &User, attributes: &Attributes<'_>, reason: &Reason) -> Failure {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match attributes {
        Attributes::NonResource { verb, path } => {
            Failure::forbidden_path(&format!("User {:?} cannot {verb} path {path:?}{because}", user.name))
        }
        Attributes::Resource(ResourceAttributes { verb, group, resource, subresource, namespace, name, .. }) => {
            let full = subresource.map_or((*resource).to_owned(), |subresource| format!("{resource}/{subresource}"));
            let place = match namespace {
                Some(namespace) => format!("in the namespace {namespace:?}"),
                None => "at the cluster scope".to_owned(),
            };
            let why =
                format!("User {:?} cannot {verb} resource {full:?} in API group {group:?} {place}{because}", user.name);
            Failure::forbidden(&GroupResource::new(*group, *resource), name.unwrap_or(""), &why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::request::query::Query;
    use crate::shared::request::request_info::RequestInfo;
    use futures::FutureExt as _;
    use http::Method;

    #[track_caller]
    fn check(user: &User, method: Method, path: &str, want: Option<&str>) {
        let info = RequestInfo::new(&method, path, &Query::default());
        let verdict = authorize(&SystemMasters, user, &info.attributes()).now_or_never().unwrap();
        let got = verdict.err().map(|failure| failure.status.message);
        assert_eq!(got.as_deref(), want);
    }

    #[test]
    fn masters_may_do_everything_and_others_only_look_around() {
        let master = User::master("admin");
        let alice = User::authenticated("alice", []);
        check(&master, Method::DELETE, "/api/v1/namespaces/a/pods/p", None);
        for path in ["/api", "/api/v1", "/apis/apps/v1", "/healthz", "/readyz/ping", "/version", "/openapi/v3"] {
            check(&alice, Method::GET, path, None);
        }
        check(&alice, Method::GET, "/metrics", Some("forbidden: User \"alice\" cannot get path \"/metrics\""));
        check(&alice, Method::GET, "/apiary", Some("forbidden: User \"alice\" cannot get path \"/apiary\""));
        check(
            &alice,
            Method::GET,
            "/apis/apps/v1/namespaces/n/deployments/d",
            Some(
                "deployments.apps \"d\" is forbidden: User \"alice\" cannot get resource \"deployments\" in API group \"apps\" in the namespace \"n\"",
            ),
        );
        check(
            &alice,
            Method::GET,
            "/api/v1/pods",
            Some(
                "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
            ),
        );
    }

    /// An authorizer that waits before it decides.
    #[derive(Debug)]
    struct Slow(Verdict);

    impl Authorizer for Slow {
        fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
            Box::pin(async {
                tokio::task::yield_now().await;
                self.0.clone()
            })
        }

        fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
            Box::pin(future::ready(Rules::default()))
        }
    }

    #[tokio::test]
    async fn a_verdict_may_take_its_time_and_gives_its_reason() {
        let attributes = Attributes::NonResource { verb: "get", path: "/metrics" };
        let user = User::authenticated("alice", []);
        let ask = async |verdict: Verdict| {
            let refused = authorize(&Slow(verdict), &user, &attributes).await;
            refused.err().map(|failure| (failure.code(), failure.status.message))
        };
        assert_eq!(ask(Verdict::ALLOW).await, None);
        let denied = Verdict { decision: Decision::Deny, reason: "not on Sundays".into(), error: None };
        let text = "forbidden: User \"alice\" cannot get path \"/metrics\": not on Sundays";
        assert_eq!(ask(denied).await, Some((403, text.to_owned())));
        let broken = Verdict { error: Some("no roles".to_owned()), ..Verdict::NO_OPINION };
        assert_eq!(ask(broken).await.map(|(code, _)| code), Some(500));
    }
}
