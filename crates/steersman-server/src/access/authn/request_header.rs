//! The headers in which an authenticating proxy names the user. They are only trusted on a connection whose certificate
//! is signed by the proxies' CA and names one of the proxies. Follows apiserver's
//! `pkg/authentication/request/headerrequest`.

use crate::shared::request::query::percent_decode;
use http::{HeaderMap, HeaderName};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_kinds::user::{ANONYMOUS, User};

/// The trusted proxies, and the headers that they use.
#[derive(Clone, Debug, Default)]
pub struct RequestHeader {
    /// The common names of the proxies; empty: any with a certificate of their CA.
    pub allowed_names: Vec<String>,
    /// Headers with the name of the user; the first one present is used.
    pub username_headers: Vec<HeaderName>,
    /// Headers with the uid of the user; the first one present is used.
    pub uid_headers: Vec<HeaderName>,
    /// Headers with groups, one group in each.
    pub group_headers: Vec<HeaderName>,
    /// The prefixes of headers with extra fields, in lower case.
    pub extra_prefixes: Vec<String>,
}

/// The certificates of proxies, and their headers, in the form in which they are published.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    /// The PEM of their CA.
    pub ca: String,
    pub headers: RequestHeader,
}

impl RequestHeader {
    /// The headers of Kubernetes' own proxies, of which the one with this common name is trusted.
    pub fn of_proxy(name: &str) -> RequestHeader {
        RequestHeader {
            allowed_names: vec![name.to_owned()],
            username_headers: vec![HeaderName::from_static("x-remote-user")],
            uid_headers: vec![HeaderName::from_static("x-remote-uid")],
            group_headers: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }

    /// Whether a proxy names a user, or something of him, in a header of this name.
    pub(super) fn is_identity_header(&self, name: &str) -> bool {
        let all = [&self.username_headers, &self.uid_headers, &self.group_headers];
        all.into_iter().flatten().any(|one| one == name)
            || self.extra_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The user of a request from a proxy; `None` if the request names none, or the proxy is not trusted.
    pub(super) fn authenticate(&self, proxy: &str, headers: &HeaderMap) -> Option<Arc<User>> {
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|name| name == proxy) {
            return None;
        }
        let name = first(&self.username_headers, headers)?;
        let groups = self.group_headers.iter().flat_map(|header| headers.get_all(header)).filter_map(|value| {
            let group = std::str::from_utf8(value.as_bytes()).ok()?;
            (!group.is_empty()).then(|| group.to_owned())
        });
        let user = match name.as_str() {
            ANONYMOUS => User { name, groups: groups.collect(), ..User::default() },
            _ => User::authenticated(name, groups),
        };
        let uid = first(&self.uid_headers, headers).unwrap_or_default();
        Some(Arc::new(User { uid, extra: self.extra(headers), ..user }))
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let key = self.extra_prefixes.iter().find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
            if let (Some(key), Ok(value)) = (key, std::str::from_utf8(value.as_bytes())) {
                let key = percent_decode(key).to_ascii_lowercase();
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

/// The value of the first of the headers that is present and not empty.
fn first(names: &[HeaderName], headers: &HeaderMap) -> Option<String> {
    let values = names.iter().filter_map(|name| headers.get(name));
    values
        .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
        .find(|value| !value.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believed() -> RequestHeader {
        RequestHeader {
            allowed_names: vec!["front-proxy-client".to_owned()],
            username_headers: vec![HeaderName::from_static("x-remote-user"), HeaderName::from_static("x-user")],
            uid_headers: vec![HeaderName::from_static("x-remote-uid")],
            group_headers: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_proxy_says_who_the_user_is() {
        let sent = headers(&[
            ("x-user", "jane"),
            ("x-remote-user", ""),
            ("x-remote-uid", "42"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscopes", "view"),
        ]);
        let user = believed().authenticate("front-proxy-client", &sent).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["example.com/scopes"], ["view"]);
    }

    #[test]
    fn another_holder_of_such_a_certificate_is_not_believed() {
        let sent = headers(&[("x-remote-user", "jane")]);
        assert_eq!(believed().authenticate("somebody", &sent), None);
        let anyone = RequestHeader { allowed_names: Vec::new(), ..believed() };
        assert!(anyone.authenticate("somebody", &sent).is_some());
        assert_eq!(anyone.authenticate("somebody", &headers(&[("x-remote-group", "system:masters")])), None);
    }
}
