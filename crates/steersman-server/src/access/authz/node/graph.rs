//! The objects that belong to each node: the pods that are bound to it, the objects to which those refer, and the
//! volumes of their claims.
//!
//! A decision takes a few lookups: the number of pods of a node that refer to an object is counted as pods come and go.

use crate::access::pod_references::{self, Referred};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use steersman_machinery::value::str_at;
use steersman_machinery::{ObjectKey, Value};

/// The kinds of objects that can belong to a node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Kind {
    Attachment,
    Claim,
    ConfigMap,
    Pod,
    ResourceClaim,
    Secret,
    ServiceAccount,
    Slice,
    Volume,
}

/// An object: its kind, its namespace, its name.
type Vertex = (Kind, Box<str>, Box<str>);

#[derive(Debug, Default)]
pub(super) struct Graph {
    pods: HashMap<ObjectKey, Pod>,
    /// The number of pods of each node that refer to an object. Every count matches `pods`, and none is zero.
    users: HashMap<Vertex, HashMap<Arc<str>, usize>>,
    volumes: HashMap<Box<str>, Volume>,
    /// The volumes that need a secret; they match `volumes`.
    volumes_of_secrets: HashMap<Vertex, Vec<Box<str>>>,
    /// The node of each attachment and each slice that has one.
    direct: HashMap<(Kind, Box<str>), Box<str>>,
}

#[derive(Debug)]
struct Pod {
    node: Arc<str>,
    references: Vec<Vertex>,
}

#[derive(Debug)]
struct Volume {
    claim: Vertex,
    secrets: Vec<Vertex>,
}

/// The paths in a volume of a secret's name and namespace. Without a namespace, that of the claim is used.
const SECRETS_OF_VOLUMES: [(&[&str], &[&str]); 11] = [
    (&["azureFile", "secretName"], &["azureFile", "secretNamespace"]),
    (&["cephfs", "secretRef", "name"], &["cephfs", "secretRef", "namespace"]),
    (&["cinder", "secretRef", "name"], &["cinder", "secretRef", "namespace"]),
    (&["csi", "nodeExpandSecretRef", "name"], &["csi", "nodeExpandSecretRef", "namespace"]),
    (&["csi", "nodePublishSecretRef", "name"], &["csi", "nodePublishSecretRef", "namespace"]),
    (&["csi", "nodeStageSecretRef", "name"], &["csi", "nodeStageSecretRef", "namespace"]),
    (&["flexVolume", "secretRef", "name"], &["flexVolume", "secretRef", "namespace"]),
    (&["iscsi", "secretRef", "name"], &["iscsi", "secretRef", "namespace"]),
    (&["rbd", "secretRef", "name"], &["rbd", "secretRef", "namespace"]),
    (&["scaleIO", "secretRef", "name"], &["scaleIO", "secretRef", "namespace"]),
    (&["storageos", "secretRef", "name"], &["storageos", "secretRef", "namespace"]),
];

impl Graph {
    /// Whether an object belongs to a node.
    pub(super) fn is_related(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let vertex = || (kind, namespace.into(), name.into());
        match kind {
            Kind::Attachment | Kind::Slice => {
                self.direct.get(&(kind, name.into())).is_some_and(|other| **other == *node)
            }
            Kind::Pod => self.pods.get(&ObjectKey::namespaced(namespace, name)).is_some_and(|pod| *pod.node == *node),
            Kind::Volume => self.is_volume_used(node, name),
            Kind::Secret => {
                let vertex = vertex();
                let volumes = self.volumes_of_secrets.get(&vertex).into_iter().flatten();
                self.is_used(node, &vertex) || volumes.into_iter().any(|volume| self.is_volume_used(node, volume))
            }
            Kind::Claim | Kind::ConfigMap | Kind::ResourceClaim | Kind::ServiceAccount => self.is_used(node, &vertex()),
        }
    }

    fn is_volume_used(&self, node: &str, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| self.is_used(node, &volume.claim))
    }

    fn is_used(&self, node: &str, vertex: &Vertex) -> bool {
        self.users.get(vertex).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Adds or replaces a pod. A pod without a node belongs to none.
    pub(super) fn set_pod(&mut self, key: ObjectKey, pod: &Value) {
        self.remove_pod(&key);
        let Some(node) = str_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty()) else { return };
        let node: Arc<str> = node.into();
        let namespace: Box<str> = key.namespace.as_deref().unwrap_or_default().into();
        // The references of a mirror pod do not count: its node creates it, and could choose what it may read.
        let referred = if pod_references::is_mirror(pod) { Default::default() } else { pod_references::of(pod) };
        let references = referred.into_iter().map(|(kind, name)| (kind.into(), namespace.clone(), name.into()));
        let references: Vec<Vertex> = references.collect();
        for vertex in &references {
            *self.users.entry(vertex.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.pods.insert(key, Pod { node, references });
    }

    pub(super) fn remove_pod(&mut self, key: &ObjectKey) {
        let Some(Pod { node, references }) = self.pods.remove(key) else { return };
        for vertex in references {
            let Entry::Occupied(mut nodes) = self.users.entry(vertex) else { continue };
            if let Entry::Occupied(mut count) = nodes.get_mut().entry(node.clone()) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            if nodes.get().is_empty() {
                nodes.remove();
            }
        }
    }

    /// Adds or replaces a volume. A volume that is bound to no claim belongs to no node.
    pub(super) fn set_volume(&mut self, name: &str, volume: &Value) {
        self.remove_volume(name);
        let claim = |key| str_at(volume, &["spec", "claimRef", key]).unwrap_or_default();
        let (namespace, claimed) = (claim("namespace"), claim("name"));
        if claimed.is_empty() {
            return;
        }
        let of_volume = |path: &[&str]| {
            let path: Vec<&str> = std::iter::once("spec").chain(path.iter().copied()).collect();
            str_at(volume, &path).filter(|text| !text.is_empty())
        };
        let secrets = SECRETS_OF_VOLUMES.iter().filter_map(|(name, of)| {
            Some((Kind::Secret, of_volume(of).unwrap_or(namespace).into(), of_volume(name)?.into()))
        });
        let secrets: Vec<Vertex> = secrets.collect();
        for secret in &secrets {
            self.volumes_of_secrets.entry(secret.clone()).or_default().push(name.into());
        }
        let claim = (Kind::Claim, namespace.into(), claimed.into());
        self.volumes.insert(name.into(), Volume { claim, secrets });
    }

    pub(super) fn remove_volume(&mut self, name: &str) {
        let Some(Volume { secrets, .. }) = self.volumes.remove(name) else { return };
        for secret in secrets {
            let Entry::Occupied(mut volumes) = self.volumes_of_secrets.entry(secret) else { continue };
            volumes.get_mut().retain(|volume| **volume != *name);
            if volumes.get().is_empty() {
                volumes.remove();
            }
        }
    }

    /// Sets the node of an attachment or a slice.
    pub(super) fn set_direct(&mut self, kind: Kind, name: &str, object: &Value) {
        match str_at(object, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
            Some(node) => self.direct.insert((kind, name.into()), node.into()),
            None => self.direct.remove(&(kind, name.into())),
        };
    }

    pub(super) fn remove_direct(&mut self, kind: Kind, name: &str) {
        self.direct.remove(&(kind, name.into()));
    }

    /// Removes all objects of a kind.
    pub(super) fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::Pod => {
                self.pods.clear();
                self.users.clear();
            }
            Kind::Volume => {
                self.volumes.clear();
                self.volumes_of_secrets.clear();
            }
            kind => self.direct.retain(|(other, _), _| *other != kind),
        }
    }
}

impl From<Referred> for Kind {
    fn from(referred: Referred) -> Kind {
        match referred {
            Referred::ConfigMap => Kind::ConfigMap,
            Referred::PersistentVolumeClaim => Kind::Claim,
            Referred::ResourceClaim => Kind::ResourceClaim,
            Referred::Secret => Kind::Secret,
            Referred::ServiceAccount => Kind::ServiceAccount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(node: &str, secret: &str) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "imagePullSecrets": [{"name": secret}]}})
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("n", name)
    }

    #[test]
    fn an_object_belongs_to_a_node_as_long_as_a_pod_there_needs_it() {
        let mut graph = Graph::default();
        let has = |graph: &Graph, node: &str| graph.is_related(node, Kind::Secret, "n", "s");
        graph.set_pod(key("a"), &pod("n1", "s"));
        graph.set_pod(key("b"), &pod("n1", "s"));
        assert!(has(&graph, "n1") && !has(&graph, "n2"));
        graph.remove_pod(&key("a"));
        assert!(has(&graph, "n1"));
        graph.set_pod(key("b"), &pod("n1", "other"));
        assert!(!has(&graph, "n1"));
        graph.remove_pod(&key("b"));
        assert!(graph.users.is_empty() && graph.pods.is_empty());
    }

    #[test]
    fn a_pod_without_a_node_and_one_that_a_node_made_known_give_nothing() {
        let mut graph = Graph::default();
        graph.set_pod(key("a"), &pod("", "s"));
        let mut mirror = pod("n1", "s");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        graph.set_pod(key("b"), &mirror);
        assert!(graph.users.is_empty());
        assert!(graph.is_related("n1", Kind::Pod, "n", "b"));
    }

    #[test]
    fn a_secret_of_a_volume_belongs_to_who_uses_the_claim() {
        let mut graph = Graph::default();
        let volume =
            json!({"spec": {"claimRef": {"namespace": "n", "name": "c"}, "rbd": {"secretRef": {"name": "s"}}}});
        graph.set_volume("v", &volume);
        assert!(!graph.is_related("n1", Kind::Secret, "n", "s"));
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        graph.set_pod(key("p"), &json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "volumes": volumes}}));
        assert!(graph.is_related("n1", Kind::Secret, "n", "s") && graph.is_related("n1", Kind::Volume, "", "v"));
        graph.remove_volume("v");
        assert!(!graph.is_related("n1", Kind::Secret, "n", "s") && graph.volumes_of_secrets.is_empty());
    }

    #[test]
    fn an_attachment_belongs_to_the_node_that_it_names() {
        let mut graph = Graph::default();
        graph.set_direct(Kind::Attachment, "a", &json!({"spec": {"nodeName": "n1"}}));
        assert!(
            graph.is_related("n1", Kind::Attachment, "", "a") && !graph.is_related("n2", Kind::Attachment, "", "a")
        );
        graph.clear(Kind::Attachment);
        assert!(!graph.is_related("n1", Kind::Attachment, "", "a"));
    }
}
