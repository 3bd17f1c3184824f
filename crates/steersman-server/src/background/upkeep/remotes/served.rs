//! Asks a server behind an APIService for its resources, by the aggregated or the classic discovery document, and for the
//! documents of OpenAPI that it lists.

use crate::background::upkeep::remotes::availability::checker;
use crate::shared::aggregation::discovered::RemoteVersion;
use crate::shared::aggregation::remote::Remote;
use crate::shared::aggregation::remotes::{Fetch, Fetched};
use crate::state::State;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_kinds::user::User;
use steersman_machinery::value::{at, str_at};

const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a document. It is kept, and a part of what all clients read.
const BYTES_MAX: usize = 1 << 20;
/// The most values of a discovery document that is about one version, from fields of resources to verbs: those of about 300 resources. It
/// becomes a part of what all clients read.
const VALUES_MAX: usize = 20_000;
/// The aggregated document, in this version or in the one before, which have the same form.
const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Asks a server for its documents; `None` if it does not say which resources the version has.
pub(super) async fn fetch(state: &State, remote: &Remote) -> Option<RemoteVersion> {
    let ask = async |path: &str, accept: &'static str, user: &User| {
        let fetch = Fetch { path, accept, user, timeout: TIMEOUT, bytes_max: BYTES_MAX };
        state.remotes.fetch(remote, &fetch).await.ok().filter(|answer| answer.status.is_success())
    };
    let user = checker();
    let found = ask("/apis", ACCEPT_AGGREGATED, &user).await.and_then(|answer| aggregated(&answer, remote));
    let entry = match found {
        Some(entry) => entry,
        None => {
            let answer = ask(&remote.path(), "application/json", &user).await?;
            classic(&bounded(serde_json::from_slice(&answer.body).ok()?, remote)?, remote)
        }
    };
    let entry = well_formed(&entry, remote)?;
    let reader = User { name: "system:aggregator".to_owned(), ..User::default() };
    let openapi = ask("/openapi/v3", "application/json", &reader).await;
    let openapi = openapi.and_then(|answer| serde_json::from_slice(&answer.body).ok());
    Some(RemoteVersion {
        group: remote.group.clone(),
        version: remote.version.clone(),
        priority: remote.priority,
        entry,
        openapi: openapi.map(|index: Value| documents(&index, remote)).unwrap_or_default(),
    })
}

/// The fields of an entry that discovery has, each of its type; `None` if one has another. Clients decode the document of all
/// groups as a whole, so that one wrong value would keep it from all of them.
fn well_formed(entry: &Value, remote: &Remote) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in list(entry, "resources")? {
        let mut well = json!({
            "resource": text(resource, "resource")?, "responseKind": kind_of(resource)?,
            "scope": match text(resource, "scope")? { "Namespaced" => "Namespaced", "Cluster" => "Cluster", _ => return None },
            "singularResource": text(resource, "singularResource")?, "verbs": texts(resource, "verbs")?,
        });
        for field in ["shortNames", "categories"] {
            let texts = texts(resource, field)?;
            if !texts.is_empty() {
                well[field] = texts.into();
            }
        }
        let mut subresources = Vec::new();
        for part in list(resource, "subresources")? {
            let mut accepted = Vec::new();
            for kind in list(part, "acceptedTypes")? {
                accepted.push(json!({
                    "group": text(kind, "group")?, "version": text(kind, "version")?, "kind": text(kind, "kind")?,
                }));
            }
            let mut well = json!({
                "subresource": text(part, "subresource")?, "responseKind": kind_of(part)?, "verbs": texts(part, "verbs")?,
            });
            if !accepted.is_empty() {
                well["acceptedTypes"] = accepted.into();
            }
            subresources.push(well);
        }
        if !subresources.is_empty() {
            well["subresources"] = subresources.into();
        }
        resources.push(well);
    }
    Some(json!({"version": remote.version, "resources": resources, "freshness": "Current"}))
}

/// A document about one version; `None` if it is too large. A short text can stand for many times its size in memory.
fn bounded(document: Value, remote: &Remote) -> Option<Value> {
    if VALUES_MAX < count(&document) {
        tracing::warn!(
            name = remote.name,
            "the server behind an APIService lists more than {VALUES_MAX} values in its discovery: it is listed without resources"
        );
        return None;
    }
    Some(document)
}

/// The number of values in a document.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// A text, empty if it is absent; `None` if it is something else.
fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    match value.get(field) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    }
}

/// A list, empty if it is absent; `None` if it is something else.
fn list<'v>(value: &'v Value, field: &str) -> Option<&'v [Value]> {
    match value.get(field) {
        None | Some(Value::Null) => Some(&[]),
        Some(value) => value.as_array().map(Vec::as_slice),
    }
}

fn texts(value: &Value, field: &str) -> Option<Vec<String>> {
    list(value, field)?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn kind_of(value: &Value) -> Option<Value> {
    let kind = value.get("responseKind").unwrap_or(&Value::Null);
    Some(json!({"group": text(kind, "group")?, "version": text(kind, "version")?, "kind": text(kind, "kind")?}))
}

/// The entry of the version in an aggregated document; `None` if the answer is no such document.
fn aggregated(answer: &Fetched, remote: &Remote) -> Option<Value> {
    if !answer.content_type.contains("as=APIGroupDiscoveryList") {
        return None;
    }
    let document: Value = serde_json::from_slice(&answer.body).ok()?;
    let mut groups =
        items(&document, "items").filter(|group| str_at(group, &["metadata", "name"]) == Some(&remote.group));
    let found = groups
        .find_map(|group| items(group, "versions").find(|version| version["version"] == *remote.version))
        .cloned();
    // A server may answer without having the version.
    let mut entry = bounded(found.unwrap_or_else(|| json!({"version": remote.version})), remote)?;
    let resources = entry.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten();
    for resource in resources {
        // Some clients (client-go 0.26.0 to 0.26.3) panic where it is missing.
        set_kind_if_missing(resource);
        for part in resource.get_mut("subresources").and_then(Value::as_array_mut).into_iter().flatten() {
            set_kind_if_missing(part);
        }
    }
    let entry_fields = entry.as_object_mut()?;
    entry_fields.insert("freshness".to_owned(), "Current".into());
    Some(entry)
}

fn items<'v>(value: &'v Value, field: &'static str) -> impl Iterator<Item = &'v Value> {
    at(value, &[field]).and_then(Value::as_array).into_iter().flatten()
}

fn set_kind_if_missing(resource: &mut Value) {
    if let Some(fields) = resource.as_object_mut()
        && fields.get("responseKind").is_none_or(Value::is_null)
    {
        fields.insert("responseKind".to_owned(), json!({"group": "", "version": "", "kind": ""}));
    }
}

/// The entry of the version, from an `APIResourceList`.
fn classic(list: &Value, remote: &Remote) -> Value {
    let listed = at(list, &["resources"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |resource: &Value, field: &str| str_at(resource, &[field]).unwrap_or_default().to_owned();
    let kind = |resource: &Value| json!({"group": text(resource, "group"), "version": text(resource, "version"), "kind": text(resource, "kind")});
    let verbs = |resource: &Value| at(resource, &["verbs"]).cloned().unwrap_or_else(|| json!([]));
    let mut resources: Vec<(String, Value)> = Vec::new();
    for resource in listed.iter().filter(|resource| !text(resource, "name").contains('/')) {
        let is_namespaced = at(resource, &["namespaced"]).and_then(Value::as_bool).unwrap_or(false);
        let mut entry = json!({
            "resource": text(resource, "name"), "responseKind": kind(resource),
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": text(resource, "singularName"), "verbs": verbs(resource),
        });
        for field in ["shortNames", "categories"] {
            if let Some(list) = at(resource, &[field]) {
                entry[field] = list.clone();
            }
        }
        resources.push((text(resource, "name"), entry));
    }
    for part in listed {
        let name = text(part, "name");
        let Some((whole, subresource)) = name.split_once('/') else { continue };
        let Some((_, entry)) = resources.iter_mut().find(|(name, _)| name == whole) else { continue };
        let part = json!({"subresource": subresource, "responseKind": kind(part), "verbs": verbs(part)});
        match entry.get_mut("subresources").and_then(Value::as_array_mut) {
            Some(parts) => parts.push(part),
            None => entry["subresources"] = json!([part]),
        }
    }
    let resources: Vec<Value> = resources.into_iter().map(|(_, entry)| entry).collect();
    json!({"version": remote.version, "resources": resources, "freshness": "Current"})
}

/// The documents of an index of OpenAPI version 3 that are about the group or the version. A server cannot say anything
/// about those of others.
fn documents(index: &Value, remote: &Remote) -> BTreeMap<String, Value> {
    let (of_group, of_version) = (format!("apis/{}", remote.group), remote.path()[1..].to_owned());
    let listed = at(index, &["paths"]).and_then(Value::as_object).into_iter().flatten();
    let own = listed.filter(|(path, _)| **path == of_group || **path == of_version);
    let is_own_url = |path: &str, entry: &Value| {
        let url = str_at(entry, &["serverRelativeURL"]).unwrap_or_default();
        let rest = url.strip_prefix("/openapi/v3/").and_then(|url| url.strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
    };
    own.filter(|(path, entry)| is_own_url(path, entry)).map(|(path, entry)| (path.clone(), entry.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::aggregation::remote::{ServiceReference, Verification};

    fn remote() -> Remote {
        Remote {
            name: "v1.a.example.com".to_owned(),
            group: "a.example.com".to_owned(),
            version: "v1".to_owned(),
            service: ServiceReference { namespace: "default".to_owned(), name: "far".to_owned(), port: 443 },
            verification: Verification::Skipped,
            priority: (1000, 15),
            is_available: true,
            written: [0; 32],
        }
    }

    #[test]
    fn a_classic_list_becomes_an_entry_with_subresources() {
        let list = json!({"resources": [
            {"name": "hats/status", "namespaced": true, "kind": "Hat", "verbs": ["get"]},
            {"name": "hats", "singularName": "hat", "namespaced": true, "kind": "Hat", "verbs": ["list"], "shortNames": ["h"]},
            {"name": "gone/scale", "kind": "Scale", "verbs": []},
        ]});
        let kind = json!({"group": "", "version": "", "kind": "Hat"});
        let want = json!({"version": "v1", "freshness": "Current", "resources": [{
            "resource": "hats", "responseKind": kind, "scope": "Namespaced", "singularResource": "hat", "verbs": ["list"],
            "shortNames": ["h"], "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
        }]});
        assert_eq!(classic(&list, &remote()), want);
    }

    #[test]
    fn an_entry_with_a_value_of_another_type_is_none() {
        let list = json!({"resources": [{"name": "hats", "namespaced": true, "kind": "Hat", "verbs": ["list"]}]});
        let entry = classic(&list, &remote());
        assert_eq!(well_formed(&entry, &remote()), Some(entry.clone()));
        for (pointer, wrong) in [
            ("/resources/0/verbs/0", json!([])),
            ("/resources/0/verbs", json!("list")),
            ("/resources/0/scope", json!("Galaxy")),
            ("/resources/0/responseKind/kind", json!(1)),
            ("/resources/0/singularResource", json!({})),
            ("/resources/0", json!(null)),
            ("/resources", json!({})),
        ] {
            let mut entry = entry.clone();
            *entry.pointer_mut(pointer).unwrap() = wrong;
            let found = well_formed(&entry, &remote());
            assert!(found.is_none(), "{pointer}: {found:?}");
        }
    }

    #[test]
    fn a_document_of_very_many_values_is_none() {
        let parts = |n: usize| json!({"resources": [{"name": "hats", "subresources": vec![json!({}); n]}]});
        assert!(bounded(parts(1_000), &remote()).is_some());
        assert!(bounded(parts(VALUES_MAX), &remote()).is_none());
        let body = json!({"items": [{"metadata": {"name": "a.example.com"}, "versions": [
            {"version": "v1", "resources": vec![json!({}); VALUES_MAX]},
        ]}]});
        let content_type = "application/json;as=APIGroupDiscoveryList".to_owned();
        let answer = Fetched { status: http::StatusCode::OK, content_type, body: body.to_string().into() };
        assert!(aggregated(&answer, &remote()).is_none());
    }

    #[test]
    fn a_server_lists_only_documents_of_its_own_version() {
        let index = json!({"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=1"},
            "apis/a.example.com": {"serverRelativeURL": "/openapi/v3/apis/a.example.com?hash=2"},
            "apis/a.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/a.example.com/v1"},
            "apis/a.example.com/v2": {"serverRelativeURL": "/openapi/v3/apis/a.example.com/v2"},
        }});
        let listed = |index: &Value| documents(index, &remote()).into_keys().collect::<Vec<_>>();
        assert_eq!(listed(&index), ["apis/a.example.com", "apis/a.example.com/v1"]);
        let elsewhere = json!({"paths": {"apis/a.example.com/v1": {"serverRelativeURL": "https://evil.example.com/"}}});
        assert!(listed(&elsewhere).is_empty());
        let longer =
            json!({"paths": {"apis/a.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/a.example.com/v10"}}});
        assert!(listed(&longer).is_empty());
    }
}
