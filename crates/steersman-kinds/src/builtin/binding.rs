//! Binding: gives a pod its node, once. It is sent to the pod it names and never kept.

use crate::builtin::kind::{Kind, Version};
use crate::catalog::{Handling, Verb};

pub const KIND: Kind = Kind {
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    verbs: &[Verb::Create],
    handling: Handling::Connect,
    versions: &[Version { definition: "io.k8s.api.core.v1.Binding", ..Version::V1 }],
    ..Kind::NAMESPACED
};
