//! Every stage of a write of a built-in kind, definitions included: decoding, defaults, preparation, validation, conversion,
//! warnings and the cells of a table.

use steersman_machinery::budget::Budget;
use crate::input::{self, Draw};
use crate::kinds;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use steersman_machinery::value::str_at;
use steersman_schema::decode::Body;
use steersman_server::catalog::{Resource, Version};
use steersman_server::strategy::{Effort, Endpoint};
use steersman_server::{RuntimeConfig, builtin, crd};

static RESOURCES: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
    let mut resources = builtin::resources(&RuntimeConfig::default());
    resources.push(crd::resource());
    resources
});

pub fn run(data: &[u8]) {
    if let Some(mut draw) = Draw::of(data) {
        let resource = &RESOURCES[draw.below(RESOURCES.len())];
        let version = &resource.versions[draw.below(resource.versions.len())];
        let mut objects = [draw.fitting(&version.schema, 0), draw.fitting(&version.schema, 0)];
        for object in &mut objects {
            kinds::name(&kind_of(resource, version), object);
        }
        let [old, new] = objects;
        write(resource, version, old, Some(new));
        return;
    }
    let mut trees = input::documents(data).into_iter().filter_map(input::tree);
    let Some(object) = trees.next() else { return };
    let find = |resource: &'static Arc<Resource>| {
        let version = resource.versions.iter().find(|version| {
            let gvk = kind_of(resource, version);
            str_at(&object, &["kind"]) == Some(&gvk.kind) && str_at(&object, &["apiVersion"]) == Some(&gvk.api_version())
        })?;
        Some((resource, version))
    };
    if let Some((resource, version)) = RESOURCES.iter().find_map(find) {
        write(resource, version, object, trees.next());
    }
}

fn kind_of(resource: &Resource, version: &Version) -> steersman_machinery::GroupVersionKind {
    steersman_machinery::GroupVersionKind::new(&*resource.group, &*version.name, &*resource.kind)
}

/// Creates an object, and updates it to another.
fn write(resource: &Resource, version: &Version, object: Value, new: Option<Value>) {
    let Some(old) = requested(resource, version, object) else { return };
    let strategy = &resource.strategy;
    let mut created = strategy.internal(version, old);
    strategy.prepare_create(version, &mut created);
    strategy.set_times(&mut created, &Value::Null, "2020-02-29T01:02:03Z");
    let faults = strategy.validate_create(version, &created, &Budget::unlimited());
    let mut judged = faults.clone();
    let _ = strategy.judge(version, &created, None, &mut judged, Effort::Whole);
    let _ = strategy.warnings(version, &created, &Value::Null);
    show(resource, version, &created);
    if !faults.is_empty() {
        return;
    }
    let mut same = created.clone();
    strategy.prepare_update(version, Endpoint::Main, &mut same, &created);
    let of_update = strategy.validate_update(version, Endpoint::Main, &same, &created, &Budget::unlimited());
    assert!(of_update.is_empty(), "what was created may stay as it is: {of_update:?}\n{created}");
    let Some(new) = new.and_then(|new| requested(resource, version, new)) else { return };
    let new = strategy.internal(version, new);
    for endpoint in [Endpoint::Main, Endpoint::Status, Endpoint::Resize, Endpoint::Other] {
        let mut new = new.clone();
        strategy.prepare_update(version, endpoint, &mut new, &created);
        strategy.set_times(&mut new, &created, "2020-02-29T01:02:03Z");
        let _ = strategy.validate_update(version, endpoint, &new, &created, &Budget::unlimited());
        show(resource, version, &new);
    }
    let mut deleted = created;
    strategy.prepare_delete(version, &mut deleted, "2020-02-29T01:02:03Z");
}

/// The object after decoding and defaulting.
fn requested(resource: &Resource, version: &Version, object: Value) -> Option<Value> {
    let strategy = &resource.strategy;
    let mut object = strategy.decode(version, Body::Tree(object), &Budget::unlimited()).ok()?.value;
    strategy.default(version, &mut object, &Budget::unlimited()).expect("no budget");
    let once = object.clone();
    strategy.default(version, &mut object, &Budget::unlimited()).expect("no budget");
    assert_eq!(object, once, "defaults are set once");
    Some(object)
}

/// Stores the object, reads it again, and makes its table row.
fn show(resource: &Resource, version: &Version, internal: &Value) {
    let strategy = &resource.strategy;
    let stored = strategy.store(resource, version, internal.clone()).expect("no budget");
    let loaded = strategy.load(resource, version, stored).expect("no budget");
    assert_eq!(&loaded, internal, "what is stored is read again");
    let presented = strategy.present(version, loaded);
    let cells = strategy.cells(version, &presented, Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), version.columns.len(), "every column has a cell");
    let json = presented.to_string();
    let projected = strategy.cells_read(version).read(json.as_bytes()).expect("it is JSON");
    assert_eq!(strategy.cells(version, &projected, Timestamp::UNIX_EPOCH), cells, "the cells need no other fields: {json}");
}
