//! Sizes on the command line, in Kubernetes' notation of quantities: `64Mi`, `2G`.

use steersman_machinery::quantity::Quantity;

/// With less, history would be gone before a client can read the next page of a list.
const HISTORY_MIN: u64 = 1024 * 1024;

/// The size of the history that is kept.
pub(crate) fn history(text: &str) -> Result<u64, String> {
    let parsed = Quantity::parse(text).ok().and_then(|quantity| u64::try_from(quantity.to_whole()).ok());
    match parsed {
        Some(bytes) if HISTORY_MIN <= bytes => Ok(bytes),
        Some(_) | None => Err("want a size of at least 1Mi, such as 64Mi or 2Gi".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_at_least_a_mebibyte() {
        for (text, want) in [
            ("1Mi", Some(1 << 20)),
            ("2G", Some(2_000_000_000)),
            ("1.5Gi", Some(3 << 29)),
            ("1048576", Some(1 << 20)),
            ("1023Ki", None),
            ("0", None),
            ("-2Gi", None),
            ("2GB", None),
            ("much", None),
            ("", None),
        ] {
            assert_eq!(history(text).ok(), want, "{text}");
        }
    }
}
