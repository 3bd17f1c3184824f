//! Durations of Go and of schemas, and the ends of bootstrap tokens.

use jiff::Timestamp;
use steersman_machinery::bootstrap_token::Expiration;
use steersman_machinery::duration;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let strict = duration::parse(text).ok();
    assert!(strict.is_none() || duration::parse_lenient(text) == strict, "{text:?}: what Go reads, schemas read the same");
    let unsigned = duration::parse_unsigned(text).map(|duration| duration.as_nanos());
    assert_eq!(unsigned, strict.and_then(|nanos| u128::try_from(nanos).ok()), "{text:?}");
    if let Some(nanos) = strict {
        assert_eq!(duration::parse(&format!("{nanos}ns")), Ok(nanos), "{text:?}: as nanoseconds it is the same");
    }
    let _ = Expiration::parse(text).is_past(Timestamp::UNIX_EPOCH);
}
