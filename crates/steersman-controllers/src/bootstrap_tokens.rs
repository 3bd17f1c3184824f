//! Bootstrap tokens, with which nodes join: Secrets of the type `bootstrap.kubernetes.io/token` in `kube-system`.
//!
//! [`signer`] signs what nodes read before they trust the cluster, [`cleaner`] deletes tokens that have expired. Both are off by
//! default, as upstream. Follows `pkg/controller/bootstrap`; this file reads the Secrets.

pub(crate) mod cleaner;
pub(crate) mod signer;

use jiff::Timestamp;
use jiff::civil::date;
use jiff::fmt::temporal::Pieces;
use k8s_openapi::api::core::v1::Secret;
use steersman::Scope;
use steersman::cache::Selection;

const NAMESPACE: &str = "kube-system";
const NAME_PREFIX: &str = "bootstrap-token-";
const ID_BYTES: usize = 6;

/// How long a token is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expiration {
    At(Timestamp),
    Never,
    /// What it says is not a time, so it is good no more.
    Unreadable,
}

/// The Secrets that are bootstrap tokens.
fn selection() -> Selection {
    Selection::new(Scope::Namespace(NAMESPACE.to_owned())).fields("type=bootstrap.kubernetes.io/token")
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.and_then(|value| std::str::from_utf8(&value.0).ok()).unwrap_or_default()
}

fn expiration(secret: &Secret) -> Expiration {
    match text(secret, "expiration") {
        "" => Expiration::Never,
        text => rfc3339(text).map_or(Expiration::Unreadable, Expiration::At),
    }
}

/// Reads a time as Go does, which wants seconds and an offset, and no other form that ISO 8601 has.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let (day, time) = text.split_at_checked(10)?;
    let shape = |text: &str, form: &[u8]| {
        text.len() == form.len()
            && text
                .bytes()
                .zip(form)
                .all(|(byte, want)| if *want == b'0' { byte.is_ascii_digit() } else { byte == *want })
    };
    let (seconds, rest) = time.split_at_checked(9)?;
    let end = rest.find(['Z', '+', '-'])?;
    let (fraction, offset) = rest.split_at(end);
    let is_fraction = fraction.is_empty()
        || fraction
            .strip_prefix('.')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let is_offset = offset == "Z" || shape(offset, b"+00:00") || shape(offset, b"-00:00");
    let is_time = shape(day, b"0000-00-00") && shape(seconds, b"T00:00:00") && is_fraction && is_offset;
    // `9999-12-31T23:59:59Z`, which means never, is later than a timestamp can be.
    let is_last = || Pieces::parse(text).is_ok_and(|read| read.date() >= date(9999, 12, 30));
    let last = || is_last().then_some(Timestamp::MAX);
    if is_time { text.parse().ok().or_else(last) } else { None }
}

impl Expiration {
    fn is_past(self, now: Timestamp) -> bool {
        match self {
            Expiration::At(time) => time <= now,
            Expiration::Never => false,
            Expiration::Unreadable => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_the_form_that_go_reads() {
        for good in
            ["9999-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T01:00:00+01:00"]
        {
            assert!(rfc3339(good).is_some(), "{good}");
        }
        let bad = [
            "tomorrow",
            "2026-01-01",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00Z[UTC]",
            "2026-01-01T00:00:00é",
            "",
        ];
        for bad in bad {
            assert!(rfc3339(bad).is_none(), "{bad}");
        }
    }
}
