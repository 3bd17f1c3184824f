//! The expiration of a bootstrap token, from the key `expiration` of its Secret.
//!
//! The server uses it to authenticate a token, and the controllers `bootstrapsigner` and `tokencleaner` to sign with or
//! delete it. Follows `GetExpiration` of kubernetes' cluster-bootstrap.

use jiff::Timestamp;
use jiff::civil::date;
use jiff::fmt::temporal::Pieces;

/// The expiration of a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiration {
    /// It expires at this time.
    At(Timestamp),
    /// It does not expire: the key is absent.
    Never,
    /// The key is not a valid time, so the token is no longer valid.
    Unreadable,
}

// === impl Expiration ===

impl Expiration {
    /// Parses the key of a Secret; empty if absent.
    pub fn parse(text: &str) -> Expiration {
        match text {
            "" => Expiration::Never,
            text => rfc3339(text).map_or(Expiration::Unreadable, Expiration::At),
        }
    }

    /// Whether the token has expired.
    pub fn is_past(self, now: Timestamp) -> bool {
        match self {
            Expiration::At(time) => time <= now,
            Expiration::Never => false,
            Expiration::Unreadable => true,
        }
    }
}

/// Parses a time like Go, which requires seconds and an offset, and accepts no other form of ISO 8601.
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
    // `9999-12-31T23:59:59Z`, which means never, exceeds the largest timestamp.
    let is_last = || Pieces::parse(text).is_ok_and(|read| read.date() >= date(9999, 12, 30));
    let last = || is_last().then_some(Timestamp::MAX);
    if is_time { text.parse().ok().or_else(last) } else { None }
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

    #[test]
    fn a_token_ends_at_its_time_and_one_that_cannot_be_read_has_ended() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let is_past = |text| Expiration::parse(text).is_past(now);
        assert!(is_past("2026-01-01T00:00:00Z") && is_past("tomorrow"));
        assert!(!is_past("2026-01-01T00:00:01Z") && !is_past("") && !is_past("9999-12-31T23:59:59Z"));
    }
}
