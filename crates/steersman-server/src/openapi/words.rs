//! What the kinds are, in a sentence each, for `kubectl explain`.

const WORDS: [(&str, &str); 13] = [
    (
        "io.k8s.api.apps.v1.Deployment",
        "Deployment declares a set of equal Pods and how one version of them replaces another.",
    ),
    (
        "io.k8s.api.coordination.v1.Lease",
        "Lease is a claim that somebody holds for a time and renews, such as that of a leader.",
    ),
    ("io.k8s.api.core.v1.ConfigMap", "ConfigMap holds configuration that is no secret, as names with values."),
    ("io.k8s.api.core.v1.Event", "Event tells of something that happened to an object."),
    ("io.k8s.api.core.v1.Namespace", "Namespace is a room for names: most objects live in one."),
    ("io.k8s.api.core.v1.Pod", "Pod is a group of containers that run together on one node."),
    ("io.k8s.api.core.v1.PodTemplate", "PodTemplate is a Pod to be copied."),
    ("io.k8s.api.core.v1.Secret", "Secret holds bytes that few may read, such as passwords and keys."),
    ("io.k8s.api.core.v1.Service", "Service is one stable address for a changing set of Pods."),
    ("io.k8s.api.core.v1.ServiceAccount", "ServiceAccount is an identity for what runs in the cluster."),
    ("io.k8s.api.events.v1.Event", "Event tells of something that happened to an object."),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        "CustomResourceDefinition adds a resource of one's own to the API.",
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "ObjectMeta is what every object has: its name, its place, its labels and its life.",
    ),
];

/// The sentence about a definition.
pub(super) fn of(definition: &str) -> Option<&'static str> {
    WORDS.iter().find(|(name, _)| *name == definition).map(|(_, words)| *words)
}
