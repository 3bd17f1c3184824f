//! Tests of the groups that catalogs share.

use crate::catalog::{Catalog, Change, Resource};
use crate::crd;
use serde_json::{Value, json};
use std::sync::Arc;

/// A custom resource that serves these versions.
fn custom(group: &str, plural: &str, served: &[&str]) -> Arc<Resource> {
    let versions: Vec<Value> =
        served.iter().map(|name| json!({"name": name, "served": true, "storage": name == &served[0]})).collect();
    crd::custom_resources(&json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": versions},
        "status": {"acceptedNames": {"plural": plural, "singular": "one", "kind": "One", "listKind": "OneList"}},
    }))
    .unwrap()
}

fn change(resource: &Arc<Resource>) -> Change {
    Change { name: resource.group_resource(), resource: Some(resource.clone()) }
}

fn plurals(catalog: &Catalog, group: &str, version: &str) -> Vec<String> {
    catalog.resources(group, version).iter().map(|served| served.resource.plural.to_string()).collect()
}

#[test]
fn what_does_not_change_is_shared() {
    let (kites, hats) = (custom("a.example.com", "kites", &["v1", "v2"]), custom("b.example.com", "hats", &["v1"]));
    let before = Catalog::new([kites, hats]);
    let after = before.after(&[change(&custom("a.example.com", "dragons", &["v2"]))]);
    let group = |catalog: &Catalog, name: &str| catalog.group(name).unwrap().clone();
    assert!(Arc::ptr_eq(&group(&before, "b.example.com"), &group(&after, "b.example.com")));
    let (before, after) = (group(&before, "a.example.com"), group(&after, "a.example.com"));
    assert!(Arc::ptr_eq(before.version("v1").unwrap(), after.version("v1").unwrap()));
    assert!(!Arc::ptr_eq(before.version("v2").unwrap(), after.version("v2").unwrap()));
    assert_eq!(before.version("v2").unwrap().resources.len(), 1, "what was served before stays as it was");
}

#[test]
fn resources_come_change_and_go() {
    let mut catalog = Catalog::new([custom("a.example.com", "kites", &["v1beta1", "v1"])]);
    assert_eq!(catalog.group("a.example.com").unwrap().versions, ["v1", "v1beta1"].map(Box::from));
    catalog = catalog.after(&[change(&custom("a.example.com", "dragons", &["v1"]))]);
    assert_eq!(plurals(&catalog, "a.example.com", "v1"), ["dragons", "kites"]);
    catalog = catalog.after(&[change(&custom("a.example.com", "kites", &["v1"]))]);
    assert_eq!(catalog.group("a.example.com").unwrap().versions, ["v1"].map(Box::from));
    let gone = |plural: &str| Change { resource: None, ..change(&custom("a.example.com", plural, &["v1"])) };
    catalog = catalog.after(&[gone("kites"), gone("dragons")]);
    assert!(catalog.groups().is_empty());
    assert!(catalog.after(&[gone("kites")]).groups().is_empty());
}

#[test]
fn a_built_in_resource_stays() {
    let rival = custom(crd::GROUP, crd::PLURAL, &["v1", "v9"]);
    let gone = Change { name: rival.group_resource(), resource: None };
    for catalog in [
        Catalog::new([crd::resource(), rival.clone()]),
        Catalog::new([rival.clone(), crd::resource()]),
        Catalog::new([crd::resource()]).after(&[change(&rival), gone]),
    ] {
        assert!(!catalog.find(crd::GROUP, "v1", crd::PLURAL).unwrap().resource.is_custom());
        assert!(catalog.find(crd::GROUP, "v9", crd::PLURAL).is_none());
    }
}
