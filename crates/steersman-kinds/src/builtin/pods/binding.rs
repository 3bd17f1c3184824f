//! Binding: assigns a pod to a node, once. It is sent to the pod that it names and never stored.

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
