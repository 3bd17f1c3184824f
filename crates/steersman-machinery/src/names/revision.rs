//! The store's revision, which clients know as `resourceVersion`.

use std::fmt;

/// A point in the history of a store: every committed write has a greater revision than all writes before it, in all
/// resources.
///
/// Printed as a decimal, the form of `metadata.resourceVersion`. Zero is before the first write.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision(pub u64);

/// Why a text is not a revision.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a resource version: want a decimal number below 2^64")]
pub struct ParseError {
    /// The text.
    pub text: String,
}

impl Revision {
    /// Before the first write.
    pub const ZERO: Revision = Revision(0);

    /// The revision after this one.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// Parses the decimal form.
    ///
    /// # Errors
    /// When the text does not consist of decimal digits, or the number does not fit.
    pub fn parse(text: &str) -> Result<Revision, ParseError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Ok(Revision(number)),
            _ => Err(ParseError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimals_are_revisions() {
        assert_eq!(Revision::parse("42"), Ok(Revision(42)));
        for text in ["", "-1", "+1", "1.0", "abc", "18446744073709551616"] {
            assert!(Revision::parse(text).is_err(), "{text}");
        }
    }
}
