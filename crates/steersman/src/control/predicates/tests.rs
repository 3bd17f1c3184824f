//! Every predicate by example, and the rules that all of them follow.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;
use crate::cache::handler::{Deleted, Previous};
use crate::cache::outcome::Arrival;
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;

fn object(meta: Value) -> Arc<ConfigMap> {
    Arc::new(serde_json::from_value(json!({ "metadata": meta })).expect("a test writes metadata as it is defined"))
}

/// Checks whether an update of the metadata passes.
#[track_caller]
fn check(passes: &impl Combine<ConfigMap>, old: Value, new: Value, expected: bool) {
    let (old, new) = (object(old), object(new));
    assert_eq!(passes(&Change::Updated { old: &(&old).into(), new: &new }), expected, "{old:?} -> {new:?}");
}

fn passes_new(passes: &impl Combine<ConfigMap>, meta: Value) -> bool {
    passes(&Change::Added(&object(meta), Arrival::Later))
}

#[track_caller]
fn check_loses_no_deletion(passes: &impl Combine<ConfigMap>) {
    let alive = object(json!({"name": "x"}));
    let dying = object(json!({"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let tombstone = Deleted::Tombstone { key: ObjectKey::cluster("x"), last_known: None };
    let broken = Arc::new(DecodeError {
        resource: "configmaps".to_owned(),
        key: Some(ObjectKey::cluster("x")),
        resource_version: String::new(),
        source: serde_json::from_str::<u8>("x").expect_err("this is no number"),
    });
    assert!(passes(&Change::Deleted(&Deleted::Final(Arc::clone(&alive)))));
    assert!(passes(&Change::Deleted(&tombstone)));
    assert!(passes(&Change::Updated { old: &(&alive).into(), new: &dying }));
    assert!(passes(&Change::Undecodable(&broken)));
}

#[test]
fn each_predicate_sees_what_it_is_named_after() {
    let p = generation_changed();
    check(&p, json!({"generation": 1}), json!({"generation": 2}), true);
    check(&p, json!({"generation": 1}), json!({"generation": 1, "labels": {"a": "b"}}), false);
    check(&p, json!({}), json!({}), true);
    let p = resource_version_changed();
    check(&p, json!({"resourceVersion": "1"}), json!({"resourceVersion": "2"}), true);
    check(&p, json!({"resourceVersion": "1"}), json!({"resourceVersion": "1"}), false);
    let p = labels_changed();
    check(&p, json!({"labels": {"a": "1"}}), json!({"labels": {"a": "2"}}), true);
    check(&p, json!({"labels": {"a": "1"}}), json!({"labels": {"b": "1"}}), true);
    check(&p, json!({"labels": {}}), json!({"annotations": {"a": "1"}}), false);
    let p = annotations_changed();
    check(&p, json!({}), json!({"annotations": {"a": "1"}}), true);
    check(&p, json!({"annotations": {"a": "1"}}), json!({"annotations": {"a": "1"}, "labels": {"a": "1"}}), false);
    let p = updated(|old: &ConfigMap, new: &ConfigMap| old.metadata.finalizers != new.metadata.finalizers);
    check(&p, json!({}), json!({"finalizers": ["a"]}), true);
    check(&p, json!({}), json!({"labels": {"a": "1"}}), false);
    assert!(passes_new(&labels_changed(), json!({})));
}

#[test]
fn an_object_that_no_longer_matches_passes_once_more() {
    let p = labels_match(Selector::from_iter([("app", "web")]));
    let (web, db) = (json!({"labels": {"app": "web"}}), json!({"labels": {"app": "db"}}));
    check(&p, db.clone(), web.clone(), true);
    check(&p, web.clone(), db.clone(), true);
    check(&p, db.clone(), db.clone(), false);
    assert_eq!((passes_new(&p, web), passes_new(&p, db)), (true, false));
}

#[test]
fn a_resync_runs_only_where_it_is_asked_for() {
    let same = object(json!({"generation": 1, "resourceVersion": "1"}));
    let old = Previous::from(&same);
    let resync = Change::Updated { old: &old, new: &same };
    assert!(!generation_changed()(&resync) && !resource_version_changed()(&resync));
    assert!(generation_changed().or(is_resync())(&resync));
}

#[test]
fn combinations_judge_as_they_read() {
    let (relabelled, both) = (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "1"}, "annotations": {"a": "1"}}));
    check(&labels_changed().and(annotations_changed()), json!({}), relabelled.clone(), false);
    check(&labels_changed().and(annotations_changed()), json!({}), both.clone(), true);
    check(&labels_changed().or(annotations_changed()), json!({}), relabelled.clone(), true);
    check(&labels_changed().or(annotations_changed()), json!({}), json!({"finalizers": ["a"]}), false);
    check(&labels_changed().not(), json!({}), relabelled, false);
    check(&labels_changed().not(), json!({}), json!({"finalizers": ["a"]}), true);
    let own = |change: &Change<'_, ConfigMap>| matches!(change, Change::Added(..));
    assert!(!own.not()(&Change::Added(&object(json!({})), Arrival::Initial)));
}

#[test]
fn no_predicate_and_no_combination_loses_a_deletion() {
    let no = || |_: &Change<'_, ConfigMap>| false;
    check_loses_no_deletion(&generation_changed());
    check_loses_no_deletion(&resource_version_changed());
    check_loses_no_deletion(&labels_changed());
    check_loses_no_deletion(&annotations_changed());
    check_loses_no_deletion(&labels_match(kube::core::Expression::Exists("a".to_owned()).into()));
    check_loses_no_deletion(&is_resync());
    check_loses_no_deletion(&generation_changed().not());
    check_loses_no_deletion(&labels_changed().and(no()));
    check_loses_no_deletion(&no().or(no()));
}
