//! Identifiers and revisions as distinct types, so that a network's id cannot be passed for a subnet's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// A text that is not an id of Neutron.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a UUID")]
pub struct InvalidId {
    /// The text given, cut at 64 characters.
    pub text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, drawn at random (version 4), as Neutron draws its own.
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                match Uuid::try_parse(text) {
                    Ok(uuid) => Ok(Self(uuid)),
                    Err(_) => Err(InvalidId { text: text.chars().take(64).collect() }),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

id! {
    /// Neutron's id of a network: a UUID, lower case with hyphens when printed.
    ///
    /// The server chooses it; it never changes and is never used again.
    NetworkId
}

id! {
    /// Neutron's id of a subnet: a UUID, lower case with hyphens when printed.
    SubnetId
}

/// A resource's `revision_number`: it only rises.
///
/// Not every change raises it: a subnet's stays when only its pools, name servers or routes change, so equal revisions do
/// not prove equal objects. A network's also rises when a subnet of it is created, deleted or changed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidId, NetworkId};

    #[test]
    fn id_prints_as_it_was_read() {
        let text = "82d23501-0d4b-4b2a-9a3e-0a4d3a4c9a10";
        assert_eq!(text.parse::<NetworkId>().unwrap().to_string(), text);
    }

    #[test]
    fn text_that_could_climb_out_of_a_path_is_no_id() {
        for text in ["", "..", "%2e%2e", "networks/x", "00000000", "e\u{301}"] {
            assert_eq!(text.parse::<NetworkId>(), Err(InvalidId { text: text.to_owned() }));
        }
    }
}
