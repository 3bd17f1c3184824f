//! The ConfigMaps and Secrets that a Pod needs to start, and the messages when one is missing.
//!
//! The CA bundle that every Pod with a token mounts is left out: the loop that publishes it may not run.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// The ConfigMap with the CA bundle, which is published to every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

/// The result of a lookup: the keys of each object, or `None` if it does not exist.
pub(crate) type Found = BTreeMap<(Kind, String), Option<BTreeSet<String>>>;

/// A reference to a key of an object, or to the object as a whole.
struct Reference<'a> {
    kind: Kind,
    name: &'a str,
    key: Option<&'a str>,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }

    fn type_name(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
        }
    }
}

/// The references in the environment of a container.
fn of_container(container: &core::Container) -> impl Iterator<Item = Reference<'_>> {
    let sources = container.env_from.iter().flatten().flat_map(|source| {
        let config = source.config_map_ref.as_ref().filter(|one| one.optional != Some(true));
        let secret = source.secret_ref.as_ref().filter(|one| one.optional != Some(true));
        let config = config.map(|one| Reference { kind: Kind::ConfigMap, name: &one.name, key: None });
        config.into_iter().chain(secret.map(|one| Reference { kind: Kind::Secret, name: &one.name, key: None }))
    });
    let single = container.env.iter().flatten().filter_map(|one| one.value_from.as_ref()).flat_map(|source| {
        let config = source.config_map_key_ref.as_ref().filter(|one| one.optional != Some(true));
        let secret = source.secret_key_ref.as_ref().filter(|one| one.optional != Some(true));
        let config = config.map(|one| Reference { kind: Kind::ConfigMap, name: &one.name, key: Some(&one.key) });
        let secret = secret.map(|one| Reference { kind: Kind::Secret, name: &one.name, key: Some(&one.key) });
        config.into_iter().chain(secret)
    });
    sources.chain(single)
}

/// The references of volumes, with the volumes' names.
fn of_volumes(pod: &Pod) -> impl Iterator<Item = (&str, Reference<'_>)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.flat_map(|volume| {
        let config = volume.config_map.as_ref().filter(|one| one.optional != Some(true));
        let secret = volume.secret.as_ref().filter(|one| one.optional != Some(true));
        let config = config.map(|one| Reference { kind: Kind::ConfigMap, name: &one.name, key: None });
        let secret = secret.and_then(|one| one.secret_name.as_deref());
        let secret = secret.map(|name| Reference { kind: Kind::Secret, name, key: None });
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        let projected = sources.flat_map(|source| {
            let config = source.config_map.as_ref().filter(|one| one.optional != Some(true) && one.name != ROOT_CA);
            let secret = source.secret.as_ref().filter(|one| one.optional != Some(true));
            let config = config.map(|one| Reference { kind: Kind::ConfigMap, name: &one.name, key: None });
            config.into_iter().chain(secret.map(|one| Reference { kind: Kind::Secret, name: &one.name, key: None }))
        });
        config.into_iter().chain(secret).chain(projected).map(|reference| (volume.name.as_str(), reference))
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &core::Container> {
    crate::kubelet::pod::container::all(pod).map(|(container, _)| container)
}

/// Whether a Pod has references that may be missing.
pub(crate) fn has_any(pod: &Pod) -> bool {
    of_volumes(pod).next().is_some() || containers(pod).any(|container| of_container(container).next().is_some())
}

/// The objects to look up.
pub(crate) fn wanted(pod: &Pod) -> BTreeSet<(Kind, String)> {
    let volumes = of_volumes(pod).map(|(_, reference)| reference);
    let all = volumes.chain(containers(pod).flat_map(of_container));
    all.map(|reference| (reference.kind, reference.name.to_owned())).collect()
}

fn is_missing(reference: &Reference<'_>, found: &Found) -> bool {
    found.get(&(reference.kind, reference.name.to_owned())).is_some_and(Option::is_none)
}

/// Why a volume cannot be mounted.
pub(crate) fn unmountable(pod: &Pod, found: &Found) -> Option<String> {
    let (volume, missing) = of_volumes(pod).find(|(_, reference)| is_missing(reference, found))?;
    let (word, name) = (missing.kind.word(), missing.name);
    Some(format!("MountVolume.SetUp failed for volume {volume:?} : {word} {name:?} not found"))
}

/// Why a container cannot be created.
pub(crate) fn problem(namespace: &str, container: &core::Container, found: &Found) -> Option<String> {
    of_container(container).find_map(|reference| {
        let Reference { kind, name, key } = reference;
        match (found.get(&(kind, name.to_owned()))?, key) {
            (None, _) => Some(format!("{} {name:?} not found", kind.word())),
            (Some(keys), Some(key)) if !keys.contains(key) => {
                Some(format!("couldn't find key {key} in {} {namespace}/{name}", kind.type_name()))
            }
            (Some(_), _) => None,
        }
    })
}
