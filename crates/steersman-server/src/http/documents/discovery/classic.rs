//! The classic documents: `APIVersions`, `APIGroupList`, `APIGroup` and `APIResourceList`.

use crate::http::documents::discovery::order::Version;
use crate::http::documents::discovery::{list, render};
use crate::shared::aggregation::discovered::{Discovered, RemoteVersion};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use steersman_kinds::catalog::{self, Catalog, Resource, ResourceScope, Served, Verb};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiVersions<'a> {
    kind: &'static str,
    versions: &'a [Box<str>],
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    server_address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_version: Option<GroupVersion<'a>>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ApiResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<String>,
}

/// One subresource with the kind of its body, in the order of discovery.
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    /// Empty where the kind is that of the resource.
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) verbs: Vec<&'static str>,
}

pub(super) fn core_versions(catalog: &Catalog, server_address: &str) -> Bytes {
    let versions = catalog.group("").map_or(&[][..], |group| &group.versions);
    let server_addresses = [ServerAddress { client_cidr: "0.0.0.0/0", server_address }];
    render(&ApiVersions { kind: "APIVersions", versions, server_addresses })
}

/// The list of these groups, each rendered by [`group_item`], in the given order.
pub(super) fn groups<'a>(groups: impl Iterator<Item = &'a Bytes>) -> Bytes {
    list(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":["#, groups, "]}")
}

/// A group as an item of the list.
pub(super) fn group_item(name: &str, versions: &[Version<'_>]) -> Bytes {
    render(&api_group(name, versions, None, None))
}

pub(super) fn group(name: &str, versions: &[Version<'_>]) -> Bytes {
    render(&api_group(name, versions, Some("APIGroup"), Some("v1")))
}

fn api_group<'a>(
    name: &'a str,
    versions: &[Version<'a>],
    kind: Option<&'static str>,
    api_version: Option<&'static str>,
) -> ApiGroup<'a> {
    let form = |version: &Version<'a>| {
        let version = version.name();
        GroupVersion { group_version: group_version(name, version), version }
    };
    let versions: Vec<GroupVersion<'a>> = versions.iter().map(form).collect();
    let preferred_version = versions.first().cloned();
    ApiGroup { kind, api_version, name, versions, preferred_version }
}

pub(super) fn resources(version: &catalog::GroupVersion) -> Bytes {
    let group = &*version.group;
    let resources = version.resources.iter().flat_map(api_resources).collect();
    // The list of the core group is the only one without an apiVersion.
    let api_version = (!group.is_empty()).then_some("v1");
    render(&ApiResourceList {
        kind: "APIResourceList",
        api_version,
        group_version: group_version(group, &version.name),
        resources,
    })
}

fn api_resources(served: &Served) -> Vec<ApiResource<'_>> {
    let resource = &*served.resource;
    let namespaced = resource.scope == ResourceScope::Namespaced;
    let mut entries = vec![ApiResource {
        name: resource.plural.to_string(),
        singular_name: &resource.singular,
        namespaced,
        group: "",
        version: "",
        kind: &resource.kind,
        verbs: resource.verbs.iter().map(|verb| verb.as_str()).collect(),
        short_names: &resource.short_names,
        categories: &resource.categories,
        storage_version_hash: storage_version_hash(resource),
    }];
    entries.extend(parts(served).into_iter().map(|part| ApiResource {
        name: format!("{}/{}", resource.plural, part.name),
        singular_name: "",
        namespaced,
        group: part.group,
        version: part.version,
        kind: part.kind,
        verbs: part.verbs,
        short_names: &[],
        categories: &[],
        storage_version_hash: None,
    }));
    entries
}

/// The subresources: of a built-in resource sorted by name, of a custom one in the order of its definition.
pub(super) fn parts(served: &Served) -> Vec<Part<'_>> {
    let (resource, version) = (&*served.resource, served.version());
    let get_patch_update = || vec![Verb::Get.as_str(), Verb::Patch.as_str(), Verb::Update.as_str()];
    let mut parts = Vec::new();
    if version.has_status {
        parts.push(Part { name: "status", group: "", version: "", kind: &resource.kind, verbs: get_patch_update() });
    }
    if version.scale.is_some() {
        parts.push(Part {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: get_patch_update(),
        });
    }
    parts.extend(version.subresources.iter().map(|sub| {
        let is_own = *sub.kind.group == *resource.group && *sub.kind.version == *version.name;
        let (group, version) = if is_own { ("", "") } else { (&*sub.kind.group, &*sub.kind.version) };
        let verbs = sub.verbs.iter().map(|verb| verb.as_str()).collect();
        Part { name: &sub.name, group, version, kind: &sub.kind.kind, verbs }
    }));
    if !resource.is_custom() {
        parts.sort_by_key(|part| part.name);
    }
    parts
}

/// A hash that changes with the stored form, for clients that migrate stored objects. Resources without a store have
/// none.
fn storage_version_hash(resource: &Resource) -> Option<String> {
    let is_stored = resource.verbs.contains(&Verb::Watch);
    is_stored.then(|| {
        let version = &resource.storage_version().name;
        let digest = Sha256::digest(format!("{}/{version}/{}", resource.storage.group, resource.kind));
        STANDARD.encode(&digest[..8])
    })
}

pub(super) fn root_paths(catalog: &Catalog, discovered: &Discovered, others: &[&str]) -> Bytes {
    #[derive(Serialize)]
    struct RootPaths {
        paths: BTreeSet<String>,
    }
    let mut paths: BTreeSet<String> = others.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(["/api", "/apis", "/apis/"].map(str::to_owned));
    for group in catalog.groups() {
        if !group.name.is_empty() {
            paths.insert(format!("/apis/{}", group.name));
        }
        paths.extend(group.versions.iter().map(|version| match &*group.name {
            "" => format!("/api/{version}"),
            name => format!("/apis/{name}/{version}"),
        }));
    }
    for RemoteVersion { group, version, .. } in discovered.versions.iter().map(|version| &**version) {
        paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
    }
    render(&RootPaths { paths })
}

fn group_version(group: &str, version: &str) -> String {
    steersman_machinery::GroupVersion::new(group, version).to_string()
}
