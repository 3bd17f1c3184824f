//! The aggregated document: `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`.

use crate::http::documents::discovery::order::Version;
use crate::http::documents::discovery::{Aggregated, classic, list, render};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha512};
use std::fmt::Write;
use steersman_kinds::catalog::{ResourceScope, Served};

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct GroupItem<'a> {
    metadata: Metadata<'a>,
    versions: Vec<VersionEntry<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum VersionEntry<'a> {
    Own(VersionItem<'a>),
    /// As the other server has described it.
    Other(&'a Value),
}

#[derive(Serialize)]
struct VersionItem<'a> {
    version: &'a str,
    resources: Vec<ResourceItem<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceItem<'a> {
    resource: &'a str,
    response_kind: Kind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceItem<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceItem<'a> {
    subresource: &'a str,
    response_kind: Kind<'a>,
    verbs: Vec<&'static str>,
}

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// The document of these groups, each rendered by [`group`], in the given order.
pub(super) fn document<'a>(groups: impl Iterator<Item = &'a Bytes>) -> Aggregated {
    let head = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":["#;
    let bytes = list(head, groups, "]}");
    Aggregated { etag: format!("\"{}\"", upper_hex(&Sha512::digest(&bytes))).into(), bytes }
}

/// A group as an item of the document.
pub(super) fn group<'a>(name: &'a str, versions: &[Version<'a>]) -> Bytes {
    let entry = |version: &Version<'a>| match *version {
        Version::Local(version) => VersionEntry::Own(VersionItem {
            version: &version.name,
            resources: version.resources.iter().map(resource_item).collect(),
            freshness: "Current",
        }),
        Version::Remote(version) => VersionEntry::Other(&version.entry),
    };
    render(&GroupItem { metadata: Metadata { name }, versions: versions.iter().map(entry).collect() })
}

fn resource_item(served: &Served) -> ResourceItem<'_> {
    let resource = &*served.resource;
    // Built-in kinds leave their own group and version out; custom ones are written in full.
    let (own_group, own_version) = match resource.is_custom() {
        true => (&*resource.group, &*served.version().name),
        false => ("", ""),
    };
    let subresources = classic::parts(served).into_iter().map(|part| {
        let is_own = part.version.is_empty();
        let (group, version) = if is_own { (own_group, own_version) } else { (part.group, part.version) };
        SubresourceItem {
            subresource: part.name,
            response_kind: Kind { group, version, kind: part.kind },
            verbs: part.verbs,
        }
    });
    ResourceItem {
        resource: &resource.plural,
        response_kind: Kind { group: own_group, version: own_version, kind: &resource.kind },
        scope: match resource.scope {
            ResourceScope::Cluster => "Cluster",
            ResourceScope::Namespaced => "Namespaced",
        },
        singular_resource: &resource.singular,
        verbs: resource.verbs.iter().map(|verb| verb.as_str()).collect(),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: subresources.collect(),
    }
}

/// Upper-case hexadecimal digits, the form of Kubernetes' entity tags.
pub(crate) fn upper_hex(digest: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * digest.len());
    for byte in digest {
        // Writes to a string cannot fail.
        let _ = write!(hex, "{byte:02X}");
    }
    hex
}
