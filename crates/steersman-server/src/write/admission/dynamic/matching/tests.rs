//! Tests of rules and selectors.

use crate::access::authn;
use crate::access::authz::Authorization;
use crate::background::definitions;
use crate::shared::operation::{Operation, ResourceAttributes};
use crate::state::State;
use crate::write::admission::dynamic::matching::{Criteria, Index};
use crate::write::admission::plugin::{Action, Phase, Review};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_kinds::catalog::{Catalog, Verb};
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::{Memory, Options, Store};

/// A write of a resource.
#[derive(Clone)]
struct Write {
    action: Action,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    subresource: Option<&'static str>,
    namespace: Option<&'static str>,
    new: Option<Value>,
    old: Option<Value>,
}

const POD: Write = Write {
    action: Action::Create,
    group: "",
    version: "v1",
    plural: "pods",
    subresource: None,
    namespace: Some("a"),
    new: None,
    old: None,
};

async fn state() -> State {
    let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
    let catalog: Catalog = definitions::configured(&RuntimeConfig::default());
    let (authentication, authorization) = (authn::Options::default(), Authorization::default());
    let state = State::new(store, authentication, authorization, Vec::new(), catalog, || Timestamp::UNIX_EPOCH);
    let namespace =
        json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"team": "red"}}});
    let namespaces = GroupResource::new("", "namespaces");
    state.store.create(&namespaces, &ObjectKey::cluster("a"), namespace.to_string().into()).await.unwrap();
    state
}

/// The version in which a policy gets the object, as `group/version`.
async fn found(criteria: &Criteria, write: &Write) -> Result<Option<String>, String> {
    let state = state().await;
    let catalog = state.catalog();
    let served = catalog.find(write.group, write.version, write.plural).unwrap();
    let mut operation = Operation::of_system(served, Verb::Create, Timestamp::UNIX_EPOCH);
    operation.attributes =
        ResourceAttributes { namespace: write.namespace, subresource: write.subresource, ..operation.attributes };
    let review = Review::new(write.action, &state, &mut operation, write.old.as_ref());
    let admitted = review.admitted_write(Phase::Mutate, write.new.as_ref()).await.unwrap();
    let target = criteria.find(&admitted).map_err(|failure| failure.status.message.clone())?;
    Ok(target.map(|served| format!("{}/{}", served.resource.group, served.version().name)))
}

#[track_caller]
fn rule(groups: Value, versions: Value, operations: Value, resources: Value) -> Value {
    json!({"apiGroups": groups, "apiVersions": versions, "operations": operations, "resources": resources})
}

async fn is_about(resources: Value, write: &Write) -> bool {
    let rule = rule(json!([""]), json!(["v1"]), json!(["CREATE"]), resources);
    found(&Criteria::of_resources(Some(&json!({"resourceRules": [rule]}))), write).await.unwrap().is_some()
}

#[tokio::test]
async fn resources_and_subresources_are_named_or_all() {
    let binding = Write { subresource: Some("binding"), ..POD };
    for (resources, pod, bound) in [
        (json!(["pods"]), true, false),
        (json!(["pods/*"]), true, true),
        (json!(["pods/binding"]), false, true),
        (json!(["*"]), true, false),
        (json!(["*/*"]), true, true),
        (json!(["*/binding"]), false, true),
        (json!(["secrets", "pods/status"]), false, false),
    ] {
        assert_eq!(is_about(resources.clone(), &POD).await, pod, "{resources}");
        assert_eq!(is_about(resources.clone(), &binding).await, bound, "{resources} of a subresource");
    }
    assert!(!is_about(json!(["pods"]), &Write { action: Action::Update, ..POD }).await);
}

#[tokio::test]
async fn an_equivalent_version_is_found_unless_the_match_is_exact() {
    let scaler = Write { group: "autoscaling", version: "v1", plural: "horizontalpodautoscalers", ..POD };
    let criteria = |policy: &str, group: &str, version: &str, plural: &str| {
        let rule = rule(json!([group]), json!([version]), json!(["*"]), json!([plural]));
        Criteria::of_resources(Some(&json!({"matchPolicy": policy, "resourceRules": [rule]})))
    };
    let v2 = |policy: &str| criteria(policy, "autoscaling", "v2", "horizontalpodautoscalers");
    assert_eq!(found(&v2("Equivalent"), &scaler).await, Ok(Some("autoscaling/v2".to_owned())));
    assert_eq!(found(&v2("Exact"), &scaler).await, Ok(None));
    // The events of both groups are the same objects.
    let event = Write { group: "", plural: "events", ..POD };
    let of_group = criteria("Equivalent", "events.k8s.io", "v1", "events");
    assert_eq!(found(&of_group, &event).await, Ok(Some("events.k8s.io/v1".to_owned())));
    assert_eq!(found(&criteria("Equivalent", "apps", "v1", "pods"), &POD).await, Ok(None));
}

#[tokio::test]
async fn rules_know_scopes_names_and_exclusions() {
    let all = rule(json!(["*"]), json!(["*"]), json!(["*"]), json!(["*"]));
    let with = |key: &str, value: Value| {
        let mut rule = all.clone();
        rule[key] = value;
        rule
    };
    let listed = |rule: Value| Criteria::of_resources(Some(&json!({"resourceRules": [rule]})));
    let node = Write { plural: "nodes", namespace: None, ..POD };
    let namespace = Write { plural: "namespaces", namespace: Some("a"), ..POD };
    for (scope, pods, nodes, namespaces) in
        [("Cluster", false, true, true), ("Namespaced", true, false, false), ("*", true, true, true)]
    {
        let criteria = listed(with("scope", json!(scope)));
        assert_eq!(found(&criteria, &POD).await.unwrap().is_some(), pods, "{scope}");
        assert_eq!(found(&criteria, &node).await.unwrap().is_some(), nodes, "{scope}");
        assert_eq!(found(&criteria, &namespace).await.unwrap().is_some(), namespaces, "{scope}");
    }
    let named = Write { new: Some(json!({"metadata": {"name": "p"}})), ..POD };
    assert!(found(&listed(with("resourceNames", json!(["p"]))), &named).await.unwrap().is_some());
    assert!(found(&listed(with("resourceNames", json!(["q"]))), &named).await.unwrap().is_none());
    let excluded = json!({"resourceRules": [all], "excludeResourceRules": [with("resourceNames", json!(["p"]))]});
    let criteria = Criteria::of_resources(Some(&excluded));
    assert!(found(&criteria, &named).await.unwrap().is_none());
    assert!(found(&criteria, &POD).await.unwrap().is_some());
}

#[tokio::test]
async fn selectors_look_at_namespaces_and_at_both_objects() {
    let in_team = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
    let red = Criteria::of_resources(Some(&in_team("red")));
    let blue = Criteria::of_resources(Some(&in_team("blue")));
    assert!(found(&red, &POD).await.unwrap().is_some());
    assert!(found(&blue, &POD).await.unwrap().is_none());
    // Cluster-scoped objects are always selected.
    let node = Write { plural: "nodes", namespace: None, ..POD };
    assert!(found(&blue, &node).await.unwrap().is_some());
    // A Namespace is matched with its new labels; when it is deleted, with its stored ones.
    let labels = Some(json!({"metadata": {"name": "a", "labels": {"team": "blue"}}}));
    let namespace = Write { plural: "namespaces", new: labels, ..POD };
    assert!(found(&blue, &namespace).await.unwrap().is_some());
    let deleted = Write { action: Action::Delete, new: None, ..namespace };
    assert!(found(&red, &deleted).await.unwrap().is_some());
    assert_eq!(found(&red, &Write { namespace: Some("b"), ..POD }).await, Err("namespaces \"b\" not found".to_owned()));
    let selected = Criteria::of_resources(Some(&json!({"objectSelector": {"matchLabels": {"x": "1"}}})));
    let labeled = Some(json!({"metadata": {"labels": {"x": "1"}}}));
    assert!(found(&selected, &POD).await.unwrap().is_none());
    assert!(found(&selected, &Write { new: labeled.clone(), ..POD }).await.unwrap().is_some());
    assert!(found(&selected, &Write { old: labeled, new: Some(json!({})), ..POD }).await.unwrap().is_some());
}

#[test]
fn an_index_finds_in_order_and_only_what_may_be_about_a_resource() {
    let entry = |operations: Value, resources: Value| {
        let rule = rule(json!([""]), json!(["v1"]), operations, resources);
        Arc::new(Criteria::of_resources(Some(&json!({"resourceRules": [rule]}))))
    };
    let entries = vec![
        entry(json!(["CREATE"]), json!(["pods"])),
        entry(json!(["UPDATE"]), json!(["*"])),
        entry(json!(["CREATE"]), json!(["secrets", "secrets/status"])),
        entry(json!(["CREATE"]), json!(["pods", "configmaps"])),
    ];
    let index = Index::new(entries.clone(), |criteria| criteria);
    let find = |action, resource| {
        let found = index.find(action, &ResourceAttributes { resource, ..ResourceAttributes::default() }).iter();
        found.map(|one| entries.iter().position(|entry| Arc::ptr_eq(entry, one)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(find(Action::Create, "pods"), [0, 1, 3]);
    assert_eq!(find(Action::Create, "secrets"), [1, 2]);
    assert_eq!(find(Action::Update, "nodes"), [1]);
    assert!(find(Action::Create, "nodes").is_empty());
    assert!(find(Action::Delete, "pods").is_empty());
    assert!(Index::<Criteria>::default().find(Action::Create, &ResourceAttributes::default()).is_empty());
}
