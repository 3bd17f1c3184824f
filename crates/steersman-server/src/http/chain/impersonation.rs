//! Impersonation: the `Impersonate-` headers, and the permissions that they need.
//!
//! There are several modes, and the first that allows a request wins. The constrained ones (KEP-5284) need two
//! permissions: the sender may impersonate the named user (`impersonate:user-info` on `users` of
//! `authentication.k8s.io`), and it may make this request while doing so (`impersonate-on:user-info:list` on the
//! resource of the request). The oldest mode needs only the first, with the verb `impersonate` in the core group. If no
//! mode allows the request, the refusal is that of the first mode that applies.

use crate::access::authz::{self, Attributes, Authorizer, ResourceAttributes};
use crate::shared::request::query::percent_decode;
use crate::shared::status::Failure;
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_kinds::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use steersman_machinery::{GroupResource, name};

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The extra field with the node's name in a pod's token.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The extra field that replaces all others of a sender that acts as its node: it has their keys without their values.
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// From this number of groups or extra values on, one check of all of them precedes a check of each.
const MANY: usize = 4;

/// A mode of impersonation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// As the node on which the sender's pod runs.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// As any user that is neither a node nor a service account.
    UserInfo,
    Legacy,
}

/// The user that the headers name.
type ImpersonatedUser = User;

/// Authorizes impersonation by a sender.
#[derive(Clone, Copy)]
struct Asker<'a> {
    authorizer: &'a dyn Authorizer,
    sender: &'a User,
    mode: Mode,
}

/// The user as which a request is carried out: its sender, or the one that the sender may impersonate. `attributes` are
/// those of the request.
///
/// # Errors
/// 400 for headers that name no user, 403 if the sender may not impersonate.
pub(super) async fn apply(
    authorizer: &dyn Authorizer,
    headers: &HeaderMap,
    sender: Arc<User>,
    attributes: &Attributes<'_>,
) -> Result<Arc<User>, Failure> {
    // Every request passes this, and hardly any impersonates.
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(sender);
    }
    let Some(wanted) = wanted(headers)? else { return Ok(sender) };
    let mut refused = None;
    for mode in Mode::IN_ORDER {
        if !mode.is_for(&wanted, &sender) {
            continue;
        }
        // Boxed, because it is large and hardly any request needs it.
        match Box::pin(check(authorizer, mode, &sender, &wanted, attributes)).await {
            Ok(user) => return Ok(Arc::new(user)),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    // The oldest mode applies to every user, so there is always a refusal.
    Err(refused.unwrap_or_else(|| Failure::forbidden_path("impersonation is not allowed")))
}

/// The user that the headers name; `None` if they name none.
fn wanted(headers: &HeaderMap) -> Result<Option<ImpersonatedUser>, Failure> {
    let texts = |name: &'static str| -> Result<Vec<String>, Failure> {
        headers.get_all(name).iter().map(|value| text(name, value)).collect()
    };
    let wanted = ImpersonatedUser {
        name: texts("impersonate-user")?.into_iter().next().unwrap_or_default(),
        uid: texts("impersonate-uid")?.into_iter().next().unwrap_or_default(),
        groups: texts("impersonate-group")?,
        extra: extra(headers)?,
    };
    match &wanted {
        ImpersonatedUser { name, .. } if !name.is_empty() => Ok(Some(wanted)),
        ImpersonatedUser { uid, groups, extra, .. } if uid.is_empty() && groups.is_empty() && extra.is_empty() => {
            Ok(None)
        }
        _ => Err(Failure::bad_request(
            "groups, a uid or extra fields are to be impersonated without a user: send Impersonate-User too",
        )),
    }
}

/// The user as which a mode allows the request.
///
/// # Errors
/// 403 if the mode does not allow it.
async fn check(
    authorizer: &dyn Authorizer,
    mode: Mode,
    sender: &User,
    wanted: &ImpersonatedUser,
    attributes: &Attributes<'_>,
) -> Result<User, Failure> {
    // A sender that may act as its own node may do so from every pod: the values of its extra fields are not checked.
    let as_node = (mode == Mode::AssociatedNode).then(|| {
        let keys = sender.extra.keys().cloned().collect();
        User { extra: [(NODE_KEYS.to_owned(), keys)].into(), ..sender.clone() }
    });
    let asker = Asker { authorizer, sender: as_node.as_ref().unwrap_or(sender), mode };
    asker.may_do(attributes).await?;
    asker.may_be(wanted).await?;
    let mut user = wanted.clone();
    match service_account(&user.name) {
        Some((namespace, _)) if user.groups.is_empty() => {
            user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        _ => {}
    }
    if matches!(mode, Mode::AssociatedNode | Mode::ArbitraryNode) {
        user.groups = vec![NODES.to_owned()];
    }
    let group = match user.name.as_str() {
        ANONYMOUS => Some(UNAUTHENTICATED),
        _ if user.is_in(UNAUTHENTICATED) => None,
        _ => Some(AUTHENTICATED),
    };
    if let Some(group) = group.filter(|group| !user.is_in(group)) {
        user.groups.push(group.to_owned());
    }
    Ok(user)
}

// === impl Mode ===

impl Mode {
    const IN_ORDER: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    /// The name in the verbs; `None` for the oldest, which has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::AssociatedNode => Some("associated-node"),
            Mode::ArbitraryNode => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    /// Whether the mode applies to a sender and the user that it names.
    fn is_for(self, wanted: &ImpersonatedUser, sender: &User) -> bool {
        let is_name_alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Mode::AssociatedNode => {
                let own = sender.extra.get(NODE_NAME).and_then(|values| match values.as_slice() {
                    [node] => Some(node.as_str()),
                    _ => None,
                });
                is_name_alone
                    && service_account(&sender.name).is_some()
                    && node(&wanted.name).is_some_and(|node| own == Some(node))
            }
            Mode::ArbitraryNode => is_name_alone && node(&wanted.name).is_some(),
            Mode::ServiceAccount => is_name_alone && service_account(&wanted.name).is_some(),
            Mode::UserInfo => node(&wanted.name).is_none() && service_account(&wanted.name).is_none(),
            Mode::Legacy => true,
        }
    }

    /// The verb of the permission on the named user.
    fn verb(self) -> String {
        self.name().map_or("impersonate".to_owned(), |name| format!("impersonate:{name}"))
    }

    /// The API group of users and groups in permissions.
    fn group(self) -> &'static str {
        if self == Mode::Legacy { "" } else { AUTHENTICATION }
    }
}

// === impl Asker ===

impl Asker<'_> {
    /// Checks whether the sender may make this request while it impersonates.
    async fn may_do(&self, attributes: &Attributes<'_>) -> Result<(), Failure> {
        let Some(mode) = self.mode.name() else { return Ok(()) };
        match attributes {
            Attributes::NonResource { verb, path } => {
                let verb = format!("impersonate-on:{mode}:{verb}");
                authz::authorize(self.authorizer, self.sender, &Attributes::NonResource { verb: &verb, path }).await
            }
            Attributes::Resource(of) => {
                let verb = format!("impersonate-on:{mode}:{}", of.verb);
                let attributes = ResourceAttributes { verb: &verb, ..*of };
                authz::authorize(self.authorizer, self.sender, &Attributes::Resource(attributes)).await
            }
        }
    }

    /// Checks whether the sender may impersonate this user.
    async fn may_be(&self, wanted: &ImpersonatedUser) -> Result<(), Failure> {
        let (group, is_constrained) = (self.mode.group(), self.mode != Mode::Legacy);
        match (service_account(&wanted.name), node(&wanted.name)) {
            (Some((namespace, name)), _) => {
                self.ask(group, "serviceaccounts", None, Some(namespace), name).await?;
            }
            (None, Some(node)) if is_constrained => {
                let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
                self.ask(group, "nodes", None, None, name).await?;
            }
            (None, _) => self.ask(group, "users", None, None, &wanted.name).await?,
        }
        if !wanted.uid.is_empty() {
            self.ask(AUTHENTICATION, "uids", None, None, &wanted.uid).await?;
        }
        self.may_be_in(&wanted.groups).await?;
        self.may_have(&wanted.extra).await
    }

    async fn may_be_in(&self, groups: &[String]) -> Result<(), Failure> {
        let (group, is_constrained) = (self.mode.group(), self.mode != Mode::Legacy);
        if is_constrained {
            let never = [("", "impersonating the empty string group is not allowed")];
            let masters = [(MASTERS, "impersonating the system:masters group is not allowed")];
            let refused = never.into_iter().chain(masters).find(|(name, _)| groups.iter().any(|group| group == name));
            if let Some((name, why)) = refused {
                return Err(Failure::forbidden(&GroupResource::new(group, "groups"), name, why));
            }
            if groups.len() >= MANY && self.ask(group, "groups", None, None, "*").await.is_ok() {
                return Ok(());
            }
        }
        for name in groups {
            self.ask(group, "groups", None, None, name).await?;
        }
        Ok(())
    }

    async fn may_have(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Failure> {
        if self.mode != Mode::Legacy {
            let is_bad = |key: &String, values: &Vec<String>| {
                key.is_empty() || values.is_empty() || values.iter().any(String::is_empty)
            };
            if extra.iter().any(|(key, values)| is_bad(key, values)) {
                let why = "impersonating an empty key or value in extra is not allowed";
                return Err(Failure::forbidden(&GroupResource::new(AUTHENTICATION, "userextras"), "", why));
            }
            let is_large = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if is_large && self.ask(AUTHENTICATION, "userextras", Some("*"), None, "*").await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.ask(AUTHENTICATION, "userextras", Some(key), None, value).await?;
            }
        }
        Ok(())
    }

    async fn ask(
        &self,
        group: &str,
        resource: &str,
        subresource: Option<&str>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<(), Failure> {
        let (verb, version) = (self.mode.verb(), if group.is_empty() { "" } else { "v1" });
        let named = ResourceAttributes { namespace, name: Some(name), ..ResourceAttributes::default() };
        let attributes = ResourceAttributes { verb: &verb, group, version, resource, subresource, ..named };
        authz::authorize(self.authorizer, self.sender, &Attributes::Resource(attributes)).await
    }
}

/// The namespace and the name of a service account, if the user is one.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (name::dns1123_label(namespace).is_empty() && name::dns1123_subdomain(name).is_empty()).then_some((namespace, name))
}

/// The name of a node, if the user is one.
fn node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| name::dns1123_subdomain(name).is_empty())
}

/// The value of a header. One that is not UTF-8 is refused: if it were ignored, the request would be carried out as its
/// sender.
fn text(name: &str, value: &HeaderValue) -> Result<String, Failure> {
    let text = String::from_utf8(value.as_bytes().to_vec());
    text.map_err(|_| Failure::bad_request(format!("the value of the header {name} is no UTF-8")))
}

fn extra(headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let key = name.as_str().strip_prefix("impersonate-extra-").map(percent_decode);
        if let Some(key) = key {
            extra.entry(key.to_ascii_lowercase()).or_default().push(text(name.as_str(), value)?);
        }
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authz::{Rules, SystemMasters, Verdict};
    use futures::FutureExt as _;
    use futures::future::{self, BoxFuture};

    /// A list of all Pods.
    fn pods() -> Attributes<'static> {
        let (verb, version, resource) = ("list", "v1", "pods");
        Attributes::Resource(ResourceAttributes { verb, version, resource, ..ResourceAttributes::default() })
    }

    /// Allows the requests on its lines, each as `verb group/resource/subresource namespace/name`.
    #[derive(Debug)]
    struct Lines(&'static [&'static str]);

    impl Authorizer for Lines {
        fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
            let Attributes::Resource(of) = attributes else { return Box::pin(future::ready(Verdict::NO_OPINION)) };
            let part = |part: Option<&str>| part.map(|part| format!("/{part}")).unwrap_or_default();
            let keys = user.extra.get(NODE_KEYS).map(|keys| format!(" with {}", keys.join(","))).unwrap_or_default();
            let line = format!(
                "{} {}/{}{} {}{}{keys}",
                of.verb,
                of.group,
                of.resource,
                part(of.subresource),
                of.namespace.unwrap_or_default(),
                part(of.name)
            );
            let is_allowed = self.0.contains(&line.trim_end());
            Box::pin(future::ready(if is_allowed { Verdict::ALLOW } else { Verdict::NO_OPINION }))
        }

        fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
            Box::pin(future::ready(Rules::default()))
        }
    }

    fn agent() -> User {
        let extra = [(NODE_NAME.to_owned(), vec!["n1".to_owned()])].into();
        User { extra, ..User::authenticated("system:serviceaccount:a:agent", []) }
    }

    /// The groups of the user that a sender becomes, or the refusal.
    fn groups(
        lines: &'static [&'static str],
        sender: User,
        sent: &[(&'static str, &str)],
    ) -> Result<Vec<String>, String> {
        let user = apply(&Lines(lines), &headers(sent), Arc::new(sender), &pods()).now_or_never().unwrap();
        user.map(|user| user.groups.clone()).map_err(|failure| failure.status.message.clone())
    }

    #[test]
    fn the_constrained_modes_ask_for_the_person_and_for_the_deed() {
        let alice = || User::authenticated("alice", []);
        let bob = [("impersonate-user", "bob"), ("impersonate-group", "team")];
        let grants = &[
            "impersonate-on:user-info:list /pods",
            "impersonate:user-info authentication.k8s.io/users /bob",
            "impersonate:user-info authentication.k8s.io/groups /team",
        ];
        assert_eq!(groups(grants, alice(), &bob).unwrap(), ["team", "system:authenticated"]);
        // The refusal is that of the first mode.
        let refused = "pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at the cluster scope";
        assert_eq!(groups(&[], alice(), &bob).unwrap_err(), refused);
        assert!(groups(&grants[..2], alice(), &bob).is_err());
        let masters = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
        let grants = &[
            "impersonate-on:user-info:list /pods",
            "impersonate:user-info authentication.k8s.io/users /bob",
            "impersonate:user-info authentication.k8s.io/groups /system:masters",
        ];
        assert!(groups(grants, alice(), &masters).unwrap_err().ends_with("the system:masters group is not allowed"));
        // This mode is for users who are neither.
        let grants = &[
            "impersonate-on:user-info:list /pods",
            "impersonate:user-info authentication.k8s.io/users /system:node:n1",
            "impersonate:user-info authentication.k8s.io/users /system:serviceaccount:a:b",
        ];
        for name in ["system:node:n1", "system:serviceaccount:a:b"] {
            assert!(groups(grants, alice(), &[("impersonate-user", name)]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_node_and_an_account_have_the_groups_that_they_have() {
        let alice = || User::authenticated("alice", []);
        let account = &[
            "impersonate-on:serviceaccount:list /pods",
            "impersonate:serviceaccount authentication.k8s.io/serviceaccounts b/sa",
        ];
        let sent = [("impersonate-user", "system:serviceaccount:b:sa")];
        let want = ["system:serviceaccounts", "system:serviceaccounts:b", "system:authenticated"];
        assert_eq!(groups(account, alice(), &sent).unwrap(), want);
        let node =
            &["impersonate-on:arbitrary-node:list /pods", "impersonate:arbitrary-node authentication.k8s.io/nodes /n2"];
        let sent = [("impersonate-user", "system:node:n2")];
        assert_eq!(groups(node, alice(), &sent).unwrap(), ["system:nodes", "system:authenticated"]);
        // A request that names groups as well needs the oldest mode.
        let sent = [("impersonate-user", "system:node:n2"), ("impersonate-group", "x")];
        assert!(groups(node, alice(), &sent).is_err());
        let old = &["impersonate /users /system:node:n2", "impersonate /groups /x"];
        assert_eq!(groups(old, alice(), &sent).unwrap(), ["x", "system:authenticated"]);
    }

    #[test]
    fn a_pod_may_be_let_act_as_its_own_node_alone() {
        let grants = &[
            "impersonate-on:associated-node:list /pods  with authentication.kubernetes.io/node-name",
            "impersonate:associated-node authentication.k8s.io/nodes /* with authentication.kubernetes.io/node-name",
        ];
        let as_node = |node: &str| groups(grants, agent(), &[("impersonate-user", node)]);
        assert_eq!(as_node("system:node:n1").unwrap(), ["system:nodes", "system:authenticated"]);
        assert!(as_node("system:node:n2").is_err());
        let stranger = User { extra: agent().extra, ..User::authenticated("alice", []) };
        assert!(groups(grants, stranger, &[("impersonate-user", "system:node:n1")]).is_err());
    }

    #[test]
    fn whoever_says_to_be_unauthenticated_is() {
        let sent = [("impersonate-user", "jane"), ("impersonate-group", "system:unauthenticated")];
        assert_eq!(apply_as_master(&headers(&sent)).unwrap().groups, ["system:unauthenticated"]);
        let sent = [("impersonate-user", "system:anonymous")];
        assert_eq!(apply_as_master(&headers(&sent)).unwrap().groups, ["system:unauthenticated"]);
    }

    fn apply_as_master(headers: &HeaderMap) -> Result<Arc<User>, Failure> {
        apply(&SystemMasters, headers, Arc::new(User::master("admin")), &pods()).now_or_never().unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_master_may_be_anyone() {
        let sent = headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "team"),
            ("impersonate-uid", "42"),
            ("impersonate-extra-example.com%2fkey", "v"),
        ]);
        let user = apply_as_master(&sent).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["team", "system:authenticated"]);
        assert_eq!(user.extra.get("example.com/key"), Some(&vec!["v".to_owned()]));
    }

    #[test]
    fn a_name_that_is_no_ascii_is_that_name_and_one_that_is_no_text_is_refused() {
        let with = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.append("impersonate-user", HeaderValue::from_bytes(bytes).unwrap());
            apply_as_master(&headers)
        };
        assert_eq!(with("jürgen".as_bytes()).unwrap().name, "jürgen");
        assert_eq!(with(b"j\xfcrgen").unwrap_err().code(), 400);
    }

    #[test]
    fn others_may_not_and_groups_need_a_user() {
        let alice = Arc::new(User::authenticated("alice", []));
        let apply =
            |headers: &HeaderMap| apply(&SystemMasters, headers, alice.clone(), &pods()).now_or_never().unwrap();
        assert_eq!(apply(&headers(&[("impersonate-user", "admin")])).unwrap_err().code(), 403);
        assert_eq!(apply(&headers(&[("impersonate-group", "system:masters")])).unwrap_err().code(), 400);
        assert_eq!(apply(&HeaderMap::new()).unwrap(), alice);
    }
}
