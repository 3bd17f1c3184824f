//! Serialization of Neutron's JSON where it differs from the types of this crate.
//!
//! It handles two habits of OpenStack: any key may be absent or null, and addresses are strings. Callers are the
//! `serde(with)` attributes of the resources.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A missing or null value becomes the type's default.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A value that is a string in JSON: an address, a network in CIDR notation.
pub(crate) fn parse<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|error| de::Error::custom(format_args!("{text:?}: {error}")))
}

/// The writing side of [`parse`].
pub(crate) fn print<S: Serializer, T: Display>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// An informational value: one that cannot be parsed becomes `None` instead of making the whole object unreadable.
pub(crate) fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any {
        Text(String),
        Other(de::IgnoredAny),
    }
    match Option::<Any>::deserialize(deserializer)? {
        Some(Any::Text(text)) => Ok(text.parse().ok()),
        Some(Any::Other(_)) | None => Ok(None),
    }
}

/// The writing side of [`lenient`].
pub(crate) fn print_option<S: Serializer, T: Display>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}
