//! The meaning of a server's refusal. The only place where HTTP status codes and Neutron's error names are interpreted.
//!
//! OpenStack refuses in four shapes: Neutron's JSON, Keystone's JSON, HTML of middleware and proxies, and nothing at
//! all. The status decides, the error's name refines, and the text is for people. Both backends use this module: the
//! client with bytes, the simulated cloud with the same names.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::Deserialize;

/// The longest wait that a server may ask for; longer ones are cut to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The longest text of a refusal that is kept, in characters.
const MESSAGE_CHARS_MAX: usize = 1000;

/// A refusal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The meaning of the refusal for the caller.
    pub class: Class,
    /// Neutron's name of the error, such as `OverQuota`; `None` from Keystone and proxies.
    pub kind: Option<String>,
    /// The server's explanation, for people, at most 1000 characters; may be empty.
    pub message: String,
    /// How long the server asked to wait, at most an hour.
    pub retry_after: Option<Duration>,
    /// The id under which the server logged the request.
    pub request: Option<String>,
    /// Printed, never matched on outside this module.
    status: u16,
}

/// The meaning of a refusal for the caller, and the remedy.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// Another resource has the thing asked for, such as a VLAN id: fails until the request changes.
    Conflict,
    /// The cloud has no segment left for another network. Will not pass soon.
    Exhausted,
    /// The credentials lack a role.
    Forbidden,
    /// The gateway lies inside a pool, or a router uses it.
    GatewayConflict,
    /// Ports still use the resource that was to be deleted; the message names them. Passes when they are gone.
    InUse,
    /// The request itself is wrong.
    InvalidInput,
    /// The resource, or the network of a new subnet, does not exist for these credentials.
    NotFound,
    /// The CIDR overlaps another subnet of the network, maybe one that an earlier, unanswered create made.
    Overlap,
    /// The project's quota is used up. Passes when something is deleted or the quota raised.
    OverQuota,
    /// The resource has another revision. Read it again, decide again, try again.
    PreconditionFailed,
    /// Too many requests; see [`Answer::retry_after`].
    RateLimited,
    /// The server failed in the middle. Whether the request had an effect is unknown.
    ServerError,
    /// The request is too large.
    TooLarge,
    /// The credentials are not accepted, not even with a new token.
    Unauthorized,
    /// The server, or Keystone behind it, is not working at present. The request had no effect.
    Unavailable,
    /// An answer that Neutron does not give: the URL probably leads elsewhere.
    Unexpected,
}

impl Answer {
    /// A refusal in Neutron's own words.
    pub(crate) fn refusal(status: u16, kind: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            class: classify(status, Some(kind), &message),
            kind: Some(kind.to_owned()),
            message,
            retry_after: None,
            request: None,
            status,
        }
    }

    /// Parses a refusal from an HTTP answer.
    pub(crate) fn parse(
        status: u16,
        body: &[u8],
        retry_after: Option<&str>,
        request: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let (kind, message) = explain(body);
        Self {
            class: classify(status, kind.as_deref(), &message),
            kind,
            message,
            retry_after: retry_after.and_then(|text| parse_retry_after(text, now)),
            request: request.map(|request| cut(request, 128)),
            status,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(kind) = &self.kind {
            write!(f, " {kind}")?;
        }
        match self.message.as_str() {
            "" => write!(f, ", {}", self.class.hint()),
            message => write!(f, ", {}", message.trim_end_matches('.')),
        }
    }
}

impl Class {
    /// The message where the server gave none.
    fn hint(self) -> &'static str {
        match self {
            Self::Conflict => "something else is in the way",
            Self::Exhausted => "the cloud has no segment left",
            Self::Forbidden => "the credentials lack a role",
            Self::GatewayConflict => "the gateway is taken",
            Self::InUse => "ports still use it",
            Self::InvalidInput => "the request is wrong",
            Self::NotFound => "it is not there, or not visible with these credentials",
            Self::Overlap => "the cidr overlaps another subnet of the network",
            Self::OverQuota => "the project's quota is used up",
            Self::PreconditionFailed => "it was changed meanwhile",
            Self::RateLimited => "too many requests",
            Self::ServerError => "the server failed",
            Self::TooLarge => "the request is too large",
            Self::Unauthorized => "the credentials are not accepted",
            Self::Unavailable => "the server is not working at present",
            Self::Unexpected => "this is not an answer of the service; check its URL",
        }
    }
}

fn classify(status: u16, kind: Option<&str>, message: &str) -> Class {
    match (status, kind.unwrap_or_default()) {
        // Neutron has no error name for an overlap; the phrase is the same in every release.
        (400, "InvalidInput") if message.contains("overlaps with another subnet") => Class::Overlap,
        (400, _) => Class::InvalidInput,
        (401, _) => Class::Unauthorized,
        (403, _) => Class::Forbidden,
        (404, _) => Class::NotFound,
        (409, "OverQuota") => Class::OverQuota,
        (409, "GatewayConflictWithAllocationPools" | "GatewayIpInUse") => Class::GatewayConflict,
        (409, "VlanIdInUse" | "TunnelIdInUse" | "FlatNetworkInUse") => Class::Conflict,
        (409, kind) if kind.ends_with("InUse") => Class::InUse,
        (409, _) => Class::Conflict,
        (412, _) => Class::PreconditionFailed,
        (413 | 414 | 431, _) => Class::TooLarge,
        (429, _) => Class::RateLimited,
        (500 | 502 | 504, _) => Class::ServerError,
        (503, "NoNetworkAvailable") => Class::Exhausted,
        (503, _) => Class::Unavailable,
        (501.., _) => Class::ServerError,
        _ => Class::Unexpected,
    }
}

/// The name and the text of an error body, whatever its shape.
fn explain(body: &[u8]) -> (Option<String>, String) {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "NeutronError")]
        neutron: Option<Neutron>,
        error: Option<Keystone>,
    }
    /// Very old releases, and some proxies that imitate Neutron, put a bare text here.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Neutron {
        Named {
            #[serde(rename = "type")]
            kind: Option<String>,
            message: Option<String>,
            detail: Option<String>,
        },
        Bare(String),
    }
    #[derive(Deserialize)]
    struct Keystone {
        title: Option<String>,
        message: Option<String>,
    }

    let message_of = |parts: [Option<String>; 2]| {
        let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
        cut(&parts.join(": "), MESSAGE_CHARS_MAX)
    };
    match serde_json::from_slice::<Body>(body) {
        Ok(Body { neutron: Some(Neutron::Named { kind, message, detail }), .. }) => {
            (kind.map(|kind| cut(&kind, 128)), message_of([message, detail]))
        }
        Ok(Body { neutron: Some(Neutron::Bare(message)), .. }) => (None, message_of([Some(message), None])),
        Ok(Body { error: Some(Keystone { title, message }), .. }) => (None, message_of([title, message])),
        Ok(Body { neutron: None, error: None }) | Err(_) => (None, plain(&String::from_utf8_lossy(body))),
    }
}

/// The words of a text without its markup: tags, and the contents of `head`, `script` and `style`, are left out.
fn plain(text: &str) -> String {
    let mut words = String::new();
    let mut hidden: Option<String> = None;
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        if hidden.is_none() {
            words.push_str(&rest[..open]);
        }
        let Some(length) = rest[open..].find('>') else {
            rest = "";
            break;
        };
        let tag = rest[open + 1..open + length].to_ascii_lowercase();
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        match &hidden {
            Some(until) if tag.starts_with('/') && name == until => hidden = None,
            None if matches!(name, "head" | "script" | "style") && !tag.starts_with('/') => {
                hidden = Some(name.to_owned());
            }
            Some(_) | None => {}
        }
        words.push(' ');
        rest = &rest[open + length + 1..];
    }
    if hidden.is_none() {
        words.push_str(rest);
    }
    cut(&words.split_whitespace().collect::<Vec<_>>().join(" "), MESSAGE_CHARS_MAX)
}

/// The text, or its beginning, without control characters.
fn cut(text: &str, chars_max: usize) -> String {
    let mut kept: String =
        text.chars().take(chars_max).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if chars_max < text.chars().count() {
        kept.push_str("...");
    }
    kept
}

/// `Retry-After` is a number of seconds or a date.
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(until.duration_since(now)).unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};
    use jiff::Timestamp;
    use proptest::prelude::{any, prop_assert, proptest};

    use super::{Answer, MESSAGE_CHARS_MAX, RETRY_AFTER_MAX};

    fn parse(status: u16, body: &str) -> Answer {
        Answer::parse(status, body.as_bytes(), None, None, Timestamp::UNIX_EPOCH)
    }

    #[track_caller]
    fn check(status: u16, body: &str, expected: Expect) {
        let answer = parse(status, body);
        expected.assert_eq(&format!("{:?}: {answer}", answer.class));
    }

    #[test]
    fn the_four_shapes_are_read() {
        check(
            409,
            r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded for resources: ['network'].","detail":""}}"#,
            expect!["OverQuota: 409 OverQuota, Quota exceeded for resources: ['network']"],
        );
        check(
            401,
            r#"{"error":{"code":401,"title":"Unauthorized","message":"The request you have made requires authentication."}}"#,
            expect!["Unauthorized: 401, Unauthorized: The request you have made requires authentication"],
        );
        check(
            503,
            "<html>\n <head>\n  <title>503 Service Unavailable</title>\n </head>\n <body>\n  <h1>503 Service Unavailable</h1>\n  The Keystone service is temporarily unavailable.<br /><br />\n </body>\n</html>",
            expect!["Unavailable: 503, 503 Service Unavailable The Keystone service is temporarily unavailable"],
        );
        check(404, "", expect!["NotFound: 404, it is not there, or not visible with these credentials"]);
        check(502, "<html", expect!["ServerError: 502, the server failed"]);
        check(409, r#"{"NeutronError":"busy"}"#, expect!["Conflict: 409, busy"]);
    }

    #[test]
    fn names_refine_the_status() {
        let class = |status, kind: &str, message: &str| Answer::refusal(status, kind, message).class;
        let seen = [
            class(400, "InvalidInput", "Requested MTU is too big, maximum is 1450."),
            class(400, "InvalidInput", "Requested subnet with cidr: c for network: n overlaps with another subnet."),
            class(409, "NetworkInUse", ""),
            class(409, "SubnetInUse", ""),
            class(409, "VlanIdInUse", ""),
            class(409, "GatewayIpInUse", ""),
            class(409, "GatewayConflictWithAllocationPools", ""),
            class(412, "RevisionNumberConstraintFailed", ""),
            class(503, "NoNetworkAvailable", ""),
            class(302, "", ""),
            class(599, "", ""),
        ];
        expect![[r#"[InvalidInput, Overlap, InUse, InUse, Conflict, GatewayConflict, GatewayConflict, PreconditionFailed, Exhausted, Unexpected, ServerError]"#]]
            .assert_eq(&format!("{seen:?}"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now: Timestamp = "2026-11-21T02:00:00Z".parse().unwrap();
        let wait = |text| Answer::parse(429, b"", Some(text), None, now).retry_after;
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sat, 21 Nov 2026 02:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("Sat, 21 Nov 2026 01:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("99999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("soon"), None);
    }

    proptest! {
        #[test]
        fn any_body_is_explained_in_bounded_printable_text(status in 100_u16..1000, body in any::<Vec<u8>>()) {
            let answer = Answer::parse(status, &body, None, None, Timestamp::UNIX_EPOCH);
            prop_assert!(answer.message.chars().count() <= MESSAGE_CHARS_MAX + 3);
            prop_assert!(!answer.message.contains(char::is_control));
        }

        #[test]
        fn markup_never_breaks_the_reader(body in "[<>/a-z \u{e9}]{0,200}(<script>)?[<>/a-z]{0,50}") {
            let text = super::plain(&body);
            prop_assert!(!text.contains('<'));
        }
    }
}
