//! The headers of requests that are passed on to other servers, and of their answers.
//!
//! Such a request has the headers of the client's, without those that concern the connection alone, credentials, or
//! anything that says who the user is. Another API server is told who that is, in headers of the front proxy; a node, a Pod
//! or a Service is not. Follows upstream's `handler_proxy.go` and `upgradeaware.go`, and client-go's
//! `transport/round_trippers.go`.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CONNECTION, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt::Write as _;
use std::net::IpAddr;
use steersman_kinds::user::User;

/// The ids of the servers that have proxied a request, so that they refuse one that comes back to them.
pub(crate) const FROM: HeaderName = HeaderName::from_static("steersman-proxied-by");

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";
const IMPERSONATION_PREFIX: &str = "impersonate-";
/// The prefix of a protocol of WebSocket that is a token.
const TOKEN_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The protocols to which clients upgrade connections.
const STREAM_PROTOCOLS: [&str; 2] = ["SPDY/3.1", "websocket"];

/// Headers of one connection, beside those that its header `Connection` names.
const OF_A_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers of answers for browsers, which only this server gives.
const FOR_BROWSERS: [HeaderName; 4] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// The facts about a client's request that the other server is told.
pub(crate) struct Sender<'a> {
    pub(crate) user: &'a User,
    pub(crate) source: Option<IpAddr>,
    pub(crate) audit_id: &'a HeaderValue,
    /// The protocol that the connection is to be upgraded to.
    pub(crate) upgrade: Option<&'a HeaderValue>,
}

/// The user has a name, a group or an extra field that cannot be a header.
#[derive(Debug, thiserror::Error)]
#[error("the {field} {value:?} of the user cannot be sent to another server, since it is no text of one line")]
pub(crate) struct UserError {
    field: &'static str,
    value: String,
}

/// The headers of a request to another API server. `is_identity` recognizes further headers in which a proxy before this
/// server names users.
///
/// # Errors
/// When the user cannot be named in headers.
pub(crate) fn of_request(
    client: &HeaderMap,
    sender: &Sender<'_>,
    is_identity: impl Fn(&str) -> bool,
) -> Result<HeaderMap, UserError> {
    let mut headers = without_user(client, sender.source, sender.upgrade, is_identity);
    identify(&mut headers, sender.user)?;
    headers.insert(AUDIT_ID, sender.audit_id.clone());
    Ok(headers)
}

/// The headers of a request to a server that is not told who the user is, without `Host`. `is_identity` recognizes further
/// headers in which a proxy before this server names users.
pub(crate) fn without_user(
    client: &HeaderMap,
    source: Option<IpAddr>,
    upgrade: Option<&HeaderValue>,
    is_identity: impl Fn(&str) -> bool,
) -> HeaderMap {
    let mut headers = client.clone();
    remove_those_of_the_connection(&mut headers);
    for name in [AUTHORIZATION, EXPECT, HOST] {
        headers.remove(name);
    }
    let removed = |name: &str| name.starts_with(IMPERSONATION_PREFIX) || is_identity(name);
    let names: Vec<HeaderName> = headers.keys().filter(|name| removed(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    remove_user(&mut headers);
    remove_token_protocols(&mut headers);
    forward_source(&mut headers, source);
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    headers
}

/// Names the user in headers, instead of whatever they named before.
///
/// # Errors
/// When the user cannot be named in headers.
pub(crate) fn identify(headers: &mut HeaderMap, user: &User) -> Result<(), UserError> {
    remove_user(headers);
    let value = |field, text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| UserError { field, value: text.to_owned() })
    };
    headers.insert(USER, value("name", &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value("uid", &user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value("group", group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::from_bytes(format!("{EXTRA_PREFIX}{}", escape(key)).as_bytes());
        let name = name.map_err(|_| UserError { field: "extra field", value: key.clone() })?;
        for one in values {
            headers.append(&name, value("extra field", one)?);
        }
    }
    Ok(())
}

/// Removes the headers in which a front proxy names the user.
fn remove_user(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(EXTRA_PREFIX)).cloned().collect();
    for name in [USER, UID, GROUP].into_iter().chain(names) {
        headers.remove(name);
    }
}

/// The headers of an answer to the client. Those of an upgrade stay if the connection is upgraded.
pub(crate) fn of_answer(mut headers: HeaderMap, upgrade: Option<HeaderValue>) -> HeaderMap {
    remove_those_of_the_connection(&mut headers);
    for name in FOR_BROWSERS {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers
}

/// Whether a protocol is one of those that clients upgrade connections to. Over another one, such as HTTP/2, a client could
/// send requests of its own on a connection that is trusted.
pub(crate) fn is_of_streams(protocol: &HeaderValue) -> bool {
    STREAM_PROTOCOLS.iter().any(|known| protocol.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
}

/// The protocol that a request or an answer upgrades its connection to.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut tokens = headers.get_all(CONNECTION).iter().flat_map(tokens);
    let is_upgrade = tokens.any(|token| token.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| is_upgrade).cloned()
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}

fn remove_those_of_the_connection(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().flat_map(tokens);
    let named: Vec<HeaderName> = named.filter_map(|name| name.parse().ok()).collect();
    for name in named.into_iter().chain(OF_A_CONNECTION) {
        headers.remove(name);
    }
}

/// Removes the tokens that browsers send as protocols of WebSocket.
fn remove_token_protocols(headers: &mut HeaderMap) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().flat_map(tokens);
    let kept: Vec<&str> = protocols.filter(|protocol| !protocol.starts_with(TOKEN_PROTOCOL_PREFIX)).collect();
    match HeaderValue::from_str(&kept.join(", ")) {
        Ok(kept) if !kept.is_empty() => {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
        }
        _ => {
            headers.remove(SEC_WEBSOCKET_PROTOCOL);
        }
    }
}

/// Adds the address of the client to those that proxies before have named.
fn forward_source(headers: &mut HeaderMap, source: Option<IpAddr>) {
    let Some(source) = source else { return };
    let mut all = String::new();
    for value in headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()) {
        // Writes to a string cannot fail.
        let _ = write!(all, "{value}, ");
    }
    if let Ok(value) = HeaderValue::from_str(&format!("{all}{source}")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// A key of an extra field as a part of a header's name: what is not allowed there is percent-encoded.
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn sent(client: &HeaderMap, user: &User, upgrade: Option<&HeaderValue>) -> Vec<String> {
        let audit_id = HeaderValue::from_static("7");
        let source = Some(IpAddr::from([10, 0, 0, 9]));
        let sender = Sender { user, source, audit_id: &audit_id, upgrade };
        let headers = of_request(client, &sender, |name| name == "x-sso-user").unwrap();
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        all.sort();
        all
    }

    #[test]
    fn only_the_front_proxy_says_who_the_user_is() {
        let client = headers(&[
            ("authorization", "Bearer secret"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-uid", "0"),
            ("x-remote-extra-scopes", "all"),
            ("x-sso-user", "root"),
            ("impersonate-user", "root"),
            ("impersonate-extra-a", "b"),
            ("accept", "application/json"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("expect", "100-continue"),
            ("te", "trailers"),
        ]);
        let extra = [("example.com/Scopes".to_owned(), vec!["view".to_owned(), "edit".to_owned()])];
        let user = User { extra: extra.into(), uid: "42".to_owned(), ..User::authenticated("jane", []) };
        let want = [
            "accept: application/json",
            "audit-id: 7",
            "x-forwarded-for: 10.0.0.1, 10.0.0.9",
            "x-remote-extra-example.com%2fscopes: edit",
            "x-remote-extra-example.com%2fscopes: view",
            "x-remote-group: system:authenticated",
            "x-remote-uid: 42",
            "x-remote-user: jane",
        ];
        assert_eq!(sent(&client, &user, None), want);
    }

    #[test]
    fn a_server_that_is_not_told_the_user_gets_no_header_that_names_one() {
        let client =
            headers(&[("x-remote-user", "root"), ("x-remote-extra-a", "b"), ("cookie", "c"), ("host", "here")]);
        assert_eq!(without_user(&client, None, None, |_| false), headers(&[("cookie", "c")]));
    }

    #[test]
    fn an_upgrade_is_passed_on_without_a_token_among_its_protocols() {
        let token = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0";
        let mut client = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        client.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(token));
        let protocol = upgrade(&client).unwrap();
        let all = sent(&client, &User { name: "jane".to_owned(), ..User::default() }, Some(&protocol));
        for want in ["connection: Upgrade", "upgrade: websocket", "sec-websocket-protocol: v4.channel.k8s.io"] {
            assert!(all.iter().any(|header| header == want), "{want}: {all:?}");
        }
        client.insert(CONNECTION, HeaderValue::from_static("close"));
        assert_eq!(upgrade(&client), None);
    }

    #[test]
    fn a_user_who_cannot_be_named_is_not_left_out() {
        let user = User { name: "a\r\nx-remote-group: system:masters".to_owned(), ..User::default() };
        let error = identify(&mut HeaderMap::new(), &user).unwrap_err().to_string();
        assert!(error.contains("cannot be sent to another server"), "{error}");
    }

    #[test]
    fn an_answer_says_nothing_to_browsers_or_about_its_connection() {
        let answer = headers(&[
            ("access-control-allow-origin", "*"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("etag", "\"1\""),
        ]);
        assert_eq!(of_answer(answer, None), headers(&[("etag", "\"1\"")]));
    }
}
