//! Golden tables for all kinds: short manifests, and the objects that a real server returned for them.

use super::*;
use crate::catalog::Version;
use crate::strategy::{Endpoint, Strategy};
use serde_json::json;
use steersman_machinery::Budget;
use steersman_machinery::budget::{Interrupt, Limits};
use steersman_machinery::{Value, field};
use steersman_schema::decode::Body;

/// The fields that errors blame, each once and in order.
fn fields(errors: &[field::Error]) -> Vec<String> {
    let mut fields: Vec<String> =
        errors.iter().map(|error| error.to_string().split(": ").next().unwrap_or_default().to_owned()).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// A kind in one of its versions.
struct Subject {
    resource: Arc<Resource>,
}

impl Subject {
    #[track_caller]
    fn of(group: &str, kind: &str) -> Subject {
        let found =
            resources(&RuntimeConfig::default()).into_iter().find(|one| &*one.group == group && &*one.kind == kind);
        Subject { resource: found.unwrap() }
    }

    fn version(&self) -> &Version {
        &self.resource.versions[0]
    }

    fn strategy(&self) -> &dyn Strategy {
        &*self.resource.strategy
    }

    /// A body as the client of this version sees it after decoding and defaulting.
    fn read(&self, body: Value) -> Value {
        let mut value = self.strategy().decode(self.version(), Body::Tree(body), &Budget::unlimited()).unwrap().value;
        self.strategy().default(self.version(), &mut value, &Budget::unlimited()).unwrap();
        value
    }

    /// The created object, and its validation errors.
    fn create(&self, body: Value) -> (Value, Vec<field::Error>) {
        let mut value = self.strategy().internal(self.version(), self.read(body));
        self.strategy().prepare_create(self.version(), &mut value);
        let errors = self.strategy().validate_create(self.version(), &value, &Budget::unlimited());
        (value, errors)
    }

    #[track_caller]
    fn created(&self, body: Value) -> Value {
        let (value, errors) = self.create(body);
        assert_eq!(errors, []);
        value
    }

    #[track_caller]
    fn refused(&self, body: Value, want: &[&str]) {
        assert_errors(self.create(body).1, want);
    }

    /// The object after a change, and the validation errors.
    fn update(&self, endpoint: Endpoint, old: &Value, change: impl FnOnce(&mut Value)) -> (Value, Vec<field::Error>) {
        let mut body = old.clone();
        change(&mut body);
        let mut new = self.strategy().internal(self.version(), self.read(body));
        self.strategy().prepare_update(self.version(), endpoint, &mut new, old);
        let errors = self.strategy().validate_update(self.version(), endpoint, &new, old, &Budget::unlimited());
        (new, errors)
    }
}

/// Upstream returns errors in any order.
#[track_caller]
fn assert_errors(errors: Vec<field::Error>, want: &[&str]) {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts, want);
}

#[test]
fn every_row_becomes_a_resource_with_its_definition() {
    for resource in resources(&RuntimeConfig::default()) {
        assert!(!resource.plural.is_empty() && !resource.versions.is_empty(), "{resource:?}");
        for version in &resource.versions {
            assert!(version.schema.reference().is_some(), "{} has no definition", resource.kind);
            let body = json!({"metadata": {"name": "a"}});
            let mut value = resource.strategy.decode(version, Body::Tree(body), &Budget::unlimited()).unwrap().value;
            resource.strategy.default(version, &mut value, &Budget::unlimited()).unwrap();
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            assert_eq!(resource.strategy.cells(version, &value, now).len(), version.columns.len(), "{}", resource.kind);
        }
    }
}

mod admission;
mod blamed;
mod certificates;
mod core;
mod devices;
mod flow;
mod names;
mod observed;
mod others;
mod rows;
mod storage;
mod stored;
mod volumes;
mod workloads;
