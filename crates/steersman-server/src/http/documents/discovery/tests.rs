//! Compares the documents with recorded answers of a real server.

use crate::http::documents::discovery::{Discovery, Root};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_kinds::catalog::{
    Catalog, Change, Column, Handling, Resource, ResourceId, ResourceScope, Subresource, Verb, Version,
};
use steersman_kinds::crd;
use steersman_kinds::strategy::{DecodeError, Endpoint, Strategy};
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{GroupResource, GroupVersionKind, field};
use steersman_schema::Schema;
use steersman_schema::decode::{self, Body, Decoded};

#[derive(Debug)]
struct Plain;

impl Strategy for Plain {
    fn decode(&self, _: &Version, body: Body<'_>, budget: &Budget) -> Result<Decoded, DecodeError> {
        Ok(decode::built_in(&Schema::default(), body, budget)?)
    }
    fn default(&self, _: &Version, _: &mut Value, _: &Budget) -> Result<(), budget::Error> {
        Ok(())
    }
    fn prepare_create(&self, _: &Version, _: &mut Value) {}
    fn prepare_update(&self, _: &Version, _: Endpoint, _: &mut Value, _: &Value) {}
    fn validate_create(&self, _: &Version, _: &Value, _: &Budget) -> Vec<field::Error> {
        Vec::new()
    }
    fn validate_update(&self, _: &Version, _: Endpoint, _: &Value, _: &Value, _: &Budget) -> Vec<field::Error> {
        Vec::new()
    }
    fn cells(&self, _: &Version, _: &Value, _: jiff::Timestamp) -> Vec<Value> {
        Vec::new()
    }
}

/// A built-in resource without special properties.
pub(crate) fn built_in(
    group: &str,
    version: &str,
    plural: &str,
    kind: &str,
    subresources: Vec<Subresource>,
) -> Resource {
    Resource {
        id: ResourceId::next(),
        group: group.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: ResourceScope::Namespaced,
        verbs: Verb::ALL.into(),
        versions: vec![Version {
            name: version.into(),
            served: true,
            deprecation: None,
            schema: Arc::new(Schema::default()),
            definition: format!(
                "io.k8s.api.{}.{version}.{kind}",
                group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core")
            )
            .into(),
            has_status: false,
            scale: None,
            subresources,
            columns: Vec::<Column>::new(),
            selectable_fields: Vec::new(),
        }],
        storage_version: 0,
        storage: GroupResource::new(group, plural),
        strategy: Arc::new(Plain),
        origin: steersman_kinds::catalog::Origin::BuiltIn,
    }
}

/// Some built-in kinds, and the definition of the recorded session.
fn catalog() -> Arc<Catalog> {
    let eviction = Subresource {
        name: "eviction".into(),
        kind: GroupVersionKind::new("policy", "v1", "Eviction"),
        verbs: vec![Verb::Create],
        handling: Handling::Connect,
    };
    let log = Subresource {
        name: "log".into(),
        kind: GroupVersionKind::new("", "v1", "Pod"),
        verbs: vec![Verb::Get],
        handling: Handling::Connect,
    };
    let mut pods = built_in("", "v1", "pods", "Pod", vec![log, eviction]);
    pods.short_names = vec!["po".into()];
    pods.versions[0].has_status = true;
    let mut events = built_in("events.k8s.io", "v1", "events", "Event", Vec::new());
    events.storage = GroupResource::new("", "events");
    let gadgets = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [
            {"name": "v1alpha1", "served": true, "storage": false},
            {"name": "v1", "served": true, "storage": true, "subresources": {
                "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            }},
        ]},
        "status": {"acceptedNames": {
            "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList",
            "shortNames": ["gdg"], "categories": ["things"],
        }},
    });
    Arc::new(Catalog::new([
        crd::custom_resources(&gadgets).unwrap(),
        crd::resource(),
        Arc::new(built_in("coordination.k8s.io", "v1", "leases", "Lease", Vec::new())),
        Arc::new(events),
        Arc::new(built_in("apps", "v1", "deployments", "Deployment", Vec::new())),
        Arc::new(pods),
    ]))
}

fn read(bytes: Option<bytes::Bytes>) -> Value {
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

#[test]
fn the_core_group_names_its_versions_and_the_address() {
    let got = Discovery::new(catalog()).core_versions("10.0.0.1:6443");
    assert_eq!(
        std::str::from_utf8(&got).unwrap(),
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#
    );
}

#[test]
fn groups_come_in_the_recorded_order_and_custom_ones_last() {
    let discovery = Discovery::new(catalog());
    let groups = read(Some(discovery.groups()));
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["apps", "events.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "example.com"]);
    let aggregated: Value = serde_json::from_slice(&discovery.aggregated(Root::Groups).bytes).unwrap();
    let items = aggregated["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
}

#[test]
fn a_group_prefers_its_stable_version() {
    let discovery = Discovery::new(catalog());
    assert_eq!(
        read(discovery.group("example.com")),
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "example.com",
            "versions": [
                {"groupVersion": "example.com/v1", "version": "v1"},
                {"groupVersion": "example.com/v1alpha1", "version": "v1alpha1"},
            ],
            "preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"},
        })
    );
    let definitions = read(discovery.group("apiextensions.k8s.io"));
    assert_eq!(definitions["versions"][1]["version"], "v1beta1");
    assert!(discovery.group("nobody.example.com").is_none() && discovery.group("").is_none());
}

#[test]
fn a_built_in_resource_is_listed_as_recorded() {
    assert_eq!(
        read(Discovery::new(catalog()).resources("coordination.k8s.io", "v1")),
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "coordination.k8s.io/v1",
            "resources": [{
                "name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "storageVersionHash": "gqkMMb/YqFM=",
            }],
        })
    );
}

#[test]
fn the_list_of_the_core_group_has_no_version_of_its_own() {
    let list = read(Discovery::new(catalog()).resources("", "v1"));
    assert_eq!((list.get("apiVersion"), &list["groupVersion"]), (None, &json!("v1")));
    let lines: Vec<String> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {} {}", one["name"].as_str().unwrap(), one["kind"].as_str().unwrap(), one["verbs"]))
        .collect();
    assert_eq!(
        lines[1..],
        [
            r#"pods/eviction Eviction ["create"]"#,
            r#"pods/log Pod ["get"]"#,
            r#"pods/status Pod ["get","patch","update"]"#
        ]
    );
    assert_eq!(list["resources"][1]["group"], "policy");
    assert_eq!(list["resources"][2].get("group"), None);
    assert_eq!(list["resources"][0]["storageVersionHash"], "xPOwRZ+Yhw8=");
}

#[test]
fn two_views_of_one_store_have_one_hash() {
    let list = read(Discovery::new(catalog()).resources("events.k8s.io", "v1"));
    assert_eq!(list["resources"][0]["storageVersionHash"], "r2yiGXH7wu8=");
}

#[test]
fn a_custom_resource_is_listed_as_recorded() {
    let mut list = read(Discovery::new(catalog()).resources("example.com", "v1"));
    list["resources"][0].as_object_mut().unwrap().remove("storageVersionHash").unwrap();
    assert_eq!(
        list["resources"],
        json!([
            {
                "name": "gadgets", "singularName": "gadget", "namespaced": true, "kind": "Gadget", "shortNames": ["gdg"],
                "categories": ["things"],
                "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            },
            {"name": "gadgets/status", "singularName": "", "namespaced": true, "kind": "Gadget", "verbs": ["get", "patch", "update"]},
            {
                "name": "gadgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
                "kind": "Scale", "verbs": ["get", "patch", "update"],
            },
        ])
    );
}

#[test]
fn the_aggregated_form_leaves_out_the_own_group_of_built_in_kinds_alone() {
    let discovery = Discovery::new(catalog());
    let core: Value = serde_json::from_slice(&discovery.aggregated(Root::Core).bytes).unwrap();
    assert_eq!((&core["apiVersion"], &core["items"][0]["metadata"]), (&json!("apidiscovery.k8s.io/v2"), &json!({})));
    assert_eq!(
        core["items"][0]["versions"],
        json!([{"version": "v1", "freshness": "Current", "resources": [{
            "resource": "pods", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "scope": "Namespaced",
            "singularResource": "pod", "shortNames": ["po"],
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [
                {"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}, "verbs": ["create"]},
                {"subresource": "log", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "verbs": ["get"]},
                {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "verbs": ["get", "patch", "update"]},
            ],
        }]}])
    );
    let groups: Value = serde_json::from_slice(&discovery.aggregated(Root::Groups).bytes).unwrap();
    let gadgets = &groups["items"][4]["versions"][0]["resources"][0];
    assert_eq!(gadgets["responseKind"], json!({"group": "example.com", "version": "v1", "kind": "Gadget"}));
    assert_eq!(gadgets["subresources"][0]["responseKind"], gadgets["responseKind"]);
    assert_eq!(
        gadgets["subresources"][1]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn the_tag_tells_one_document_from_another() {
    let (one, two) = (Discovery::new(catalog()), Discovery::new(Arc::new(Catalog::new([crd::resource()]))));
    let tag = &one.aggregated(Root::Groups).etag;
    assert_eq!(tag.len(), 130);
    assert!(tag[1..129].bytes().all(|digit| digit.is_ascii_digit() || (b'A'..=b'F').contains(&digit)), "{tag}");
    assert_eq!(*tag, Discovery::new(catalog()).aggregated(Root::Groups).etag);
    assert_ne!(*tag, two.aggregated(Root::Groups).etag);
}

#[test]
fn the_root_names_every_path() {
    let paths = read(Some(Discovery::new(catalog()).root_paths(&["/version", "/healthz"])));
    assert_eq!(
        paths["paths"],
        json!([
            "/api",
            "/api/v1",
            "/apis",
            "/apis/",
            "/apis/apiextensions.k8s.io",
            "/apis/apiextensions.k8s.io/v1",
            "/apis/apiextensions.k8s.io/v1beta1",
            "/apis/apps",
            "/apis/apps/v1",
            "/apis/coordination.k8s.io",
            "/apis/coordination.k8s.io/v1",
            "/apis/events.k8s.io",
            "/apis/events.k8s.io/v1",
            "/apis/example.com",
            "/apis/example.com/v1",
            "/apis/example.com/v1alpha1",
            "/healthz",
            "/version",
        ])
    );
}

#[test]
fn what_changes_in_one_group_is_rendered_of_it_alone() {
    let first = catalog();
    let before = Discovery::new(first.clone());
    before.groups();
    before.aggregated(Root::Groups);
    let gone = Change { name: GroupResource::new("example.com", "gadgets"), resource: None };
    let hats = crd::custom_resources(&json!({
        "metadata": {"name": "hats.hats.example.com"},
        "spec": {"group": "hats.example.com", "scope": "Cluster", "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"acceptedNames": {"plural": "hats", "singular": "hat", "kind": "Hat", "listKind": "HatList"}},
    }));
    let come = Change { name: GroupResource::new("hats.example.com", "hats"), resource: Some(hats.unwrap()) };
    let next = Arc::new(first.after(&[gone, come]));
    let after = before.after(next.clone());
    let rendered = after.entries.iter().map(|(group, entries)| (&*group.name, entries.aggregated.get().is_some()));
    let anew: Vec<&str> = rendered.filter(|(_, is_rendered)| !is_rendered).map(|(name, _)| name).collect();
    // The core group was not visited.
    assert_eq!(anew, ["", "hats.example.com"]);
    let whole = Discovery::new(next);
    assert_eq!(after.groups(), whole.groups());
    assert_eq!(after.aggregated(Root::Groups).etag, whole.aggregated(Root::Groups).etag);
}
