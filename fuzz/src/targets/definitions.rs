//! CustomResourceDefinitions: a valid one is compiled, and its objects are read, defaulted, validated and printed.
//!
//! A document with the definition, one with an object.

use steersman_machinery::budget::Budget;
use crate::input::{self, Draw};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use steersman_machinery::value::set_at;
use steersman_schema::decode::Body;
use steersman_server::catalog::{Catalog, Resource};
use steersman_server::crd::{self, NameIndex};
use steersman_server::discovery::Discovery;
use steersman_server::openapi::OpenApi;

static DEFINITIONS: LazyLock<Arc<Resource>> = LazyLock::new(crd::resource);

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(definition) = parts.first().and_then(|json| input::tree(json)) else { return };
    let (resource, strategy) = (&*DEFINITIONS, &DEFINITIONS.strategy);
    let version = &resource.versions[usize::from(definition["apiVersion"] == "apiextensions.k8s.io/v1beta1")];
    let Ok(decoded) = strategy.decode(version, Body::Tree(definition), &Budget::unlimited()) else { return };
    let mut definition = decoded.value;
    strategy.default(version, &mut definition, &Budget::unlimited()).expect("no budget");
    let mut definition = strategy.internal(version, definition);
    strategy.prepare_create(version, &mut definition);
    let _ = strategy.warnings(version, &definition, &Value::Null);
    if !strategy.validate_create(version, &definition, &Budget::unlimited()).is_empty() {
        return;
    }
    if let Some(status) = crd::reconcile(&definition, &NameIndex::default(), Timestamp::UNIX_EPOCH) {
        set_at(&mut definition, &["status"], status);
    }
    let Ok(custom) = crd::custom_resources(&definition) else { return };
    let catalog = Arc::new(Catalog::new([custom.clone()]));
    let discovery = Discovery::new(catalog.clone());
    assert!(!discovery.groups().is_empty());
    assert!(OpenApi::new(&catalog).v2().etag().len() > 2);
    for version in &custom.versions {
        let object = match parts.get(1) {
            Some(bytes) => match Draw::of(bytes) {
                Some(mut draw) => draw.fitting(&version.schema, 0),
                None => input::tree(bytes).unwrap_or_else(|| json!({})),
            },
            None => Draw::of(&[255, 7, 3, 9, 1, 0, 2, 4, 6, 8, 5, 11, 13]).map_or(Value::Null, |mut draw| draw.fitting(&version.schema, 0)),
        };
        read(&custom, version, object);
    }
}

fn read(custom: &Resource, version: &steersman_server::catalog::Version, mut object: Value) {
    let strategy = &custom.strategy;
    set_at(&mut object, &["apiVersion"], json!(format!("{}/{}", custom.group, version.name)));
    set_at(&mut object, &["kind"], json!(&*custom.kind));
    let Ok(decoded) = strategy.decode(version, Body::Tree(object), &Budget::unlimited()) else { return };
    let mut object = decoded.value;
    strategy.default(version, &mut object, &Budget::unlimited()).expect("no budget");
    let once = object.clone();
    strategy.default(version, &mut object, &Budget::unlimited()).expect("no budget");
    assert_eq!(object, once, "defaults are set once");
    let mut object = strategy.internal(version, object);
    strategy.prepare_create(version, &mut object);
    let mut faults = strategy.validate_create(version, &object, &Budget::unlimited());
    let is_valid = faults.is_empty();
    let _ = strategy.judge(version, &object, None, &mut faults, steersman_server::strategy::Effort::Whole);
    if is_valid {
        let faults = strategy.validate_update(version, steersman_server::strategy::Endpoint::Main, &object, &object, &Budget::unlimited());
        assert!(faults.is_empty(), "what is valid may stay: {faults:?}");
    }
    let cells = strategy.cells(version, &strategy.present(version, object), Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), version.columns.len(), "every column has a cell");
}
