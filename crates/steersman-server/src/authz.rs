//! Who may do what.
//!
//! An [`Authorizer`] decides on the attributes of a request alone. [`Masters`] is the one there is: members of
//! `system:masters` may do everything, everyone known may find out what is served and whether it is well.

use crate::request_info::RequestInfo;
use crate::status::Failure;
use crate::user::{MASTERS, User};
use steersman_machinery::GroupResource;

/// Decides whether a user may do what a request asks.
pub trait Authorizer: std::fmt::Debug + Send + Sync {
    /// Whether it is allowed. What is not allowed is refused: there is no abstention.
    fn is_allowed(&self, user: &User, attributes: &Attributes<'_>) -> bool;
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Attributes<'a> {
    /// A path that is no resource.
    Path { verb: &'a str, path: &'a str },
    /// A resource.
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: Option<&'a str>,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    },
}

/// Members of `system:masters` may do everything; everyone known may read discovery, health and version, and may ask who
/// the server takes them for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masters;

const OPEN_PATHS: [&str; 7] = ["/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version"];
const OPEN_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

impl Authorizer for Masters {
    fn is_allowed(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        if user.is_in(MASTERS) {
            return true;
        }
        match attributes {
            Attributes::Path { verb: "get" | "head", path } => OPEN_PATHS
                .iter()
                .any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))),
            Attributes::Path { .. } => false,
            Attributes::Resource { verb, group, resource, .. } => {
                *verb == "create" && OPEN_REVIEWS.contains(&(group, resource))
            }
        }
    }
}

impl<'a> Attributes<'a> {
    /// The attributes of a request.
    pub fn of(info: &'a RequestInfo) -> Attributes<'a> {
        match &info.target {
            None => Attributes::Path { verb: info.verb, path: &info.path },
            Some(target) => Attributes::Resource {
                verb: info.verb,
                group: &target.group,
                resource: &target.resource,
                subresource: target.subresource.as_deref(),
                namespace: target.namespace.as_deref(),
                name: target.name.as_deref(),
            },
        }
    }
}

/// Refuses what the authorizer does not allow, in upstream's words.
///
/// # Errors
/// 403.
pub(crate) fn authorize(authorizer: &dyn Authorizer, user: &User, attributes: &Attributes<'_>) -> Result<(), Failure> {
    if authorizer.is_allowed(user, attributes) {
        return Ok(());
    }
    Err(match attributes {
        Attributes::Path { verb, path } => {
            Failure::forbidden_path(&format!("User {:?} cannot {verb} path {path:?}", user.name))
        }
        Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
            let full = subresource.map_or((*resource).to_owned(), |subresource| format!("{resource}/{subresource}"));
            let place = match namespace {
                Some(namespace) => format!("in the namespace {namespace:?}"),
                None => "at the cluster scope".to_owned(),
            };
            let why = format!("User {:?} cannot {verb} resource {full:?} in API group {group:?} {place}", user.name);
            Failure::forbidden(&GroupResource::new(*group, *resource), name.unwrap_or(""), &why)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use http::Method;

    #[track_caller]
    fn check(user: &User, method: Method, path: &str, want: Option<&str>) {
        let info = RequestInfo::new(&method, path, &Query::default());
        let got = authorize(&Masters, user, &Attributes::of(&info)).err().map(|failure| failure.status.message);
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
}
