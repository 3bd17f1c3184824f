//! The requests to extenders and their answers: the types of `k8s.io/kube-scheduler/extender/v1` in JSON.
//!
//! Go's types have no JSON tags. So a request has Go's names of fields (`NodeNames`), and an answer may write its fields in
//! any case (`nodenames`), as Go reads them. Fields that the scheduler does not use are skipped, and bytes after the first
//! JSON value are not read, as in Go.

use k8s_openapi::api::core::v1::Pod;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Texts in JSON that are part of a larger one.
pub(crate) type RawJson = Box<serde_json::value::RawValue>;

/// `ExtenderArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodesRequest<'a> {
    pub(super) pod: &'a Pod,
    pub(super) nodes: Option<NodeList>,
    pub(super) node_names: Option<&'a [Arc<str>]>,
}

/// A NodeList, whose items are in JSON already.
#[derive(Serialize)]
pub(super) struct NodeList {
    pub(super) items: Vec<RawJson>,
}

/// `ExtenderPreemptionArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VictimsRequest<'a> {
    pub(super) pod: &'a Pod,
    pub(super) node_name_to_victims: Option<BTreeMap<&'a str, VictimsOf<RawJson>>>,
    pub(super) node_name_to_meta_victims: Option<BTreeMap<&'a str, VictimsOf<Uid<'a>>>>,
}

/// `Victims` and `MetaVictims`.
#[derive(Serialize)]
pub(super) struct VictimsOf<P> {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<P>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) n_violations: i64,
}

/// `MetaPod`.
pub(super) struct Uid<'a>(pub(super) &'a str);

/// `ExtenderBindingArgs`.
#[derive(Serialize)]
pub(super) struct BindRequest<'a> {
    #[serde(rename = "PodName")]
    pub(super) name: &'a str,
    #[serde(rename = "PodNamespace")]
    pub(super) namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub(super) uid: &'a str,
    #[serde(rename = "Node")]
    pub(super) node: &'a str,
}

/// Defines a struct that is read from a JSON object whose keys may be in any case. A field that is absent or null keeps
/// its default.
macro_rules! read_in_any_case {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $key:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name {
            $(pub(super) $field: $kind,)+
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Fields;

                impl<'de> Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_unit<E>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut read = $name::default();
                        while let Some(key) = map.next_key::<String>()? {
                            $(if key.eq_ignore_ascii_case($key) {
                                if let Some(value) = map.next_value::<Option<$kind>>()? {
                                    read.$field = value;
                                }
                                continue;
                            })+
                            map.next_value::<IgnoredAny>()?;
                        }
                        Ok(read)
                    }
                }

                deserializer.deserialize_any(Fields)
            }
        }
    )+};
}

read_in_any_case! {
    /// `ExtenderFilterResult`.
    FilterAnswer {
        nodes: Option<NodesAnswer> = "Nodes",
        node_names: Option<Vec<String>> = "NodeNames",
        failed: BTreeMap<String, Option<String>> = "FailedNodes",
        unresolvable: BTreeMap<String, Option<String>> = "FailedAndUnresolvableNodes",
        error: String = "Error",
    }

    /// A NodeList.
    NodesAnswer {
        items: Vec<NodeAnswer> = "items",
    }

    /// A Node.
    NodeAnswer {
        metadata: MetadataAnswer = "metadata",
    }

    /// The metadata of a Node.
    MetadataAnswer {
        name: String = "name",
    }

    /// `HostPriority`.
    ScoreAnswer {
        host: String = "Host",
        score: i64 = "Score",
    }

    /// `ExtenderPreemptionResult`.
    VictimsAnswer {
        nodes: BTreeMap<String, VictimsOfNode> = "NodeNameToMetaVictims",
    }

    /// `MetaVictims`.
    VictimsOfNode {
        pods: Vec<VictimAnswer> = "Pods",
        n_violations: i64 = "NumPDBViolations",
    }

    /// `MetaPod`.
    VictimAnswer {
        uid: String = "UID",
    }

    /// `ExtenderBindingResult`.
    BindAnswer {
        error: String = "Error",
    }
}

/// Reads the first JSON value of an answer.
pub(super) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, serde_json::Error> {
    T::deserialize(&mut serde_json::Deserializer::from_slice(body))
}

impl Serialize for Uid<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BTreeMap::from([("UID", self.0)]).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_in_any_case_up_to_the_end_of_the_first_value() {
        let text = r#"{"nodes":{"Kind":"NodeList","items":[{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{}},null]},
            "nodenames":["a"],"failednodes":{"b":"full","c":null},"FailedAndUnresolvableNodes":null,"other":[1]} rest"#;
        let answer: FilterAnswer = read(text.as_bytes()).unwrap();
        let names: Vec<&str> =
            answer.nodes.as_ref().unwrap().items.iter().map(|node| node.metadata.name.as_str()).collect();
        assert_eq!(names, ["a", ""]);
        assert_eq!(answer.node_names.unwrap(), ["a"]);
        assert_eq!(answer.failed, BTreeMap::from([("b".to_owned(), Some("full".to_owned())), ("c".to_owned(), None)]));
        assert!(answer.unresolvable.is_empty() && answer.error.is_empty());
        let answer: FilterAnswer = read(b"null").unwrap();
        assert!(answer.nodes.is_none() && answer.node_names.is_none());
        let scores: Option<Vec<ScoreAnswer>> = read(br#"[{"host":"a","score":-3}]"#).unwrap();
        let scores: Vec<(String, i64)> =
            scores.into_iter().flatten().map(|answer| (answer.host, answer.score)).collect();
        assert_eq!(scores, [("a".to_owned(), -3)]);
        let text = br#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"}],"NumPDBViolations":2},"m":null}}"#;
        let victims: VictimsAnswer = read(text).unwrap();
        assert_eq!((victims.nodes["n"].pods[0].uid.as_str(), victims.nodes["n"].n_violations), ("u", 2));
        assert!(victims.nodes["m"].pods.is_empty());
        assert!(read::<FilterAnswer>(b"").is_err());
        assert!(read::<FilterAnswer>(br#"{"NodeNames":"a"}"#).is_err());
        assert!(read::<Option<Vec<ScoreAnswer>>>(br#"[{"Host":"a","Score":1.5}]"#).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>(), text in "[\\[\\]{}:,\"a-zA-Z0-9 ]{0,60}") {
            for body in [bytes.as_slice(), text.as_bytes()] {
                drop(read::<FilterAnswer>(body));
                drop(read::<Option<Vec<ScoreAnswer>>>(body));
                drop(read::<VictimsAnswer>(body));
                drop(read::<BindAnswer>(body));
            }
        }
    }
}
