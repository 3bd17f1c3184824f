//! Impersonation: the `Impersonate-` headers, and the permissions that they need.

use crate::authz::{self, Attributes, Authorizer, ResourceAttributes};
use crate::query::percent_decode;
use crate::status::Failure;
use crate::user::{ANONYMOUS, UNAUTHENTICATED, User};
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that a request is carried out as: its sender, or the one that the sender may impersonate.
///
/// # Errors
/// 400 for headers that name no user, 403 if the sender may not impersonate.
pub(super) async fn apply(
    authorizer: &dyn Authorizer,
    headers: &HeaderMap,
    sender: Arc<User>,
) -> Result<Arc<User>, Failure> {
    // Every request passes here, and hardly any impersonates.
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(sender);
    }
    let texts = |name: &'static str| -> Result<Vec<String>, Failure> {
        headers.get_all(name).iter().map(|value| text(name, value)).collect()
    };
    let name = texts("impersonate-user")?.into_iter().next().filter(|name| !name.is_empty());
    let mut groups = texts("impersonate-group")?;
    let uid = texts("impersonate-uid")?.into_iter().next().unwrap_or_default();
    let extra = extra(headers)?;
    let Some(name) = name else {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(sender);
        }
        return Err(Failure::bad_request(
            "groups, a uid or extra fields are to be impersonated without a user: send Impersonate-User too",
        ));
    };
    let allow = async |group: &str, resource: &str, subresource: Option<&str>, namespace: Option<&str>, name: &str| {
        let (verb, version, name) = ("impersonate", "", Some(name));
        let attributes =
            ResourceAttributes { verb, group, version, resource, subresource, namespace, name, ..Default::default() };
        authz::authorize(authorizer, &sender, &Attributes::Resource(attributes)).await
    };
    match name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
        Some((namespace, account)) => {
            allow("", "serviceaccounts", None, Some(namespace), account).await?;
            if groups.is_empty() {
                groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
            }
        }
        None => allow("", "users", None, None, &name).await?,
    }
    for group in texts("impersonate-group")? {
        allow("", "groups", None, None, &group).await?;
    }
    if !uid.is_empty() {
        allow("authentication.k8s.io", "uids", None, None, &uid).await?;
    }
    for (key, values) in &extra {
        for value in values {
            allow("authentication.k8s.io", "userextras", Some(key), None, value).await?;
        }
    }
    if name == ANONYMOUS {
        groups.push(UNAUTHENTICATED.to_owned());
        return Ok(Arc::new(User { name, uid, groups, extra }));
    }
    Ok(Arc::new(User { uid, extra, ..User::authenticated(name, groups) }))
}

/// A header's value. One that is not UTF-8 is refused: if it were ignored, the request would be carried out as its sender.
fn text(name: &str, value: &HeaderValue) -> Result<String, Failure> {
    let text = String::from_utf8(value.as_bytes().to_vec());
    text.map_err(|_| Failure::bad_request(format!("the value of the header {name} is no UTF-8")))
}

fn extra(headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let key = name.as_str().strip_prefix("impersonate-extra-").map(|key| percent_decode(key, false));
        if let Some(key) = key {
            extra.entry(key.to_ascii_lowercase()).or_default().push(text(name.as_str(), value)?);
        }
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Masters;
    use futures::FutureExt as _;

    fn apply_as_master(headers: &HeaderMap) -> Result<Arc<User>, Failure> {
        apply(&Masters, headers, Arc::new(User::master("admin"))).now_or_never().unwrap()
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
        let apply = |headers: &HeaderMap| apply(&Masters, headers, alice.clone()).now_or_never().unwrap();
        assert_eq!(apply(&headers(&[("impersonate-user", "admin")])).unwrap_err().code(), 403);
        assert_eq!(apply(&headers(&[("impersonate-group", "system:masters")])).unwrap_err().code(), 400);
        assert_eq!(apply(&HeaderMap::new()).unwrap(), alice);
    }
}
