//! Generated from Rust types: a definition that the server enforces, and clients for its objects.

#[expect(unreachable_pub, reason = "as in a library")]
mod api;
#[expect(dead_code, unreachable_pub, reason = "as in a library, which others use more of")]
#[rustfmt::skip]
mod client;

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, Patch, WatchEvent, WatchParams};
use kube::{CustomResourceExt, Resource};
use serde_json::{Value, json};
use steersman::patch::Force;
use steersman::typed::ApplyConfiguration;
use steersman::{InformerFactory, LookupError};
use steersman_codegen::manifest;
use steersman_codegen::output::{self, Files};
use steersman_testkit::ControlPlane;

use crate::codegen::api::v1::{Fleet, FleetSpec};
use crate::codegen::api::{Ship, v1, v1beta1};
use crate::codegen::client::sea_v1::{FleetLister, apply};
use crate::codegen::client::{Clientset, Informers};

const DEFINITION: &str = include_str!("codegen/crd.yaml");

fn definition() -> String {
    let merged = manifest::merge(&[Fleet::crd(), v1beta1::Fleet::crd()], "v1").unwrap();
    manifest::definition(&merged).unwrap()
}

#[test]
fn the_definition_is_that_of_the_types() {
    let mut files = Files::default().below("generated");
    files.insert("crd.yaml", definition());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/codegen");
    if output::is_to_update("UPDATE_MANIFESTS") {
        files.write(&directory).unwrap();
    } else {
        files.verify(&directory, "UPDATE_MANIFESTS=1 cargo test -p steersman-testkit codegen").unwrap();
    }
}

async fn plane() -> ControlPlane {
    let plane = ControlPlane::start().await;
    plane.apply(DEFINITION).await;
    plane
}

fn fleet(name: &str, harbor: &str) -> Fleet {
    let spec = FleetSpec {
        harbor: harbor.to_owned(),
        replicas: 1,
        rate: None,
        ports: Vec::new(),
        ships: Vec::new(),
        orders: Default::default(),
    };
    Fleet::new(name, spec)
}

#[tokio::test]
async fn the_server_enforces_the_rules_of_the_type() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default");
    let made = fleets.create(&fleet("a", "Cadiz")).await.unwrap();
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));

    let mut moved = made.clone();
    moved.spec.harbor = "Brest".to_owned();
    let refused = fleets.update(&moved).await.unwrap_err();
    assert_eq!(refused.status_code(), Some(422));
    assert!(refused.source.to_string().contains("a fleet keeps its harbor"), "{}", refused.source);

    let mut large = made.clone();
    large.spec.replicas = 4;
    let refused = fleets.update(&large).await.unwrap_err();
    assert!(refused.source.to_string().contains("a large fleet has a rate"), "{}", refused.source);
    large.spec.rate = Some(7);
    let large = fleets.update(&large).await.unwrap();
    assert_eq!(large.spec.rate, Some(7));

    // Unsigned and short integers have bounds.
    let patch = Patch::Merge(json!({"spec": {"rate": 65_536}}));
    let refused = fleets.patch("a", &patch).await.unwrap_err();
    assert!(refused.source.to_string().contains("65535"), "{}", refused.source);
    // A set has no entry twice.
    let patch = Patch::Merge(json!({"spec": {"ports": ["Lisbon", "Lisbon"]}}));
    let refused = fleets.patch("a", &patch).await.unwrap_err();
    assert!(refused.source.to_string().contains("Duplicate"), "{}", refused.source);
    plane.stop().await;
}

#[tokio::test]
async fn columns_and_selectable_fields_are_those_of_the_type() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default");
    fleets.create(&fleet("a", "Cadiz")).await.unwrap();
    fleets.create(&fleet("b", "Brest")).await.unwrap();

    let selected = fleets.list(&ListParams::default().fields("spec.harbor=Brest")).await.unwrap();
    assert_eq!(selected.items.len(), 1);
    assert_eq!(selected.items[0].metadata.name.as_deref(), Some("b"));

    let request = http::Request::get("/apis/sea.example.com/v1/namespaces/default/fleets")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = plane.client().request(request).await.unwrap();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "Harbor", "Ships", "Rate", "Age"]);
    assert_eq!(table["rows"][1]["cells"][1], "Brest");

    // The other version of the same object.
    let beta = plane.client().sea_v1beta1().fleets("default").get("a").await.unwrap();
    assert_eq!((beta.spec.harbor.as_str(), beta.spec.replicas), ("Cadiz", 1));
    plane.stop().await;
}

#[tokio::test]
async fn status_and_scale_are_written_on_their_own() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default").field_manager("admiral");
    let mut made = fleets.create(&fleet("a", "Cadiz")).await.unwrap();
    assert_eq!(made.metadata.managed_fields.as_ref().unwrap()[0].manager.as_deref(), Some("admiral"));

    made.status = Some(v1::FleetStatus { replicas: 1, selector: Some("fleet=a".to_owned()) });
    made.spec.replicas = 9;
    let updated = fleets.update_status(&made).await.unwrap();
    assert_eq!((updated.spec.replicas, updated.status.as_ref().unwrap().replicas), (1, 1));

    let mut scale = fleets.get_scale("a").await.unwrap();
    assert_eq!(scale.status.as_ref().unwrap().selector.as_deref(), Some("fleet=a"));
    scale.spec.get_or_insert_default().replicas = Some(2);
    fleets.update_scale("a", &scale).await.unwrap();
    assert_eq!(fleets.get("a").await.unwrap().spec.replicas, 2);

    let refused = fleets.update_status(&fleet("gone", "Cadiz")).await.unwrap_err();
    assert!(refused.is_not_found());
    assert!(fleets.get_opt("gone").await.unwrap().is_none());
    assert_eq!(fleets.get_opt("a").await.unwrap().unwrap().spec.replicas, 2);
    assert_eq!(refused.to_string(), r#"cannot update the status of fleets.sea.example.com "default/gone""#);
    plane.stop().await;
}

#[tokio::test]
async fn objects_are_watched_and_deleted_by_one_or_all() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default");
    let empty = fleets.list(&ListParams::default()).await.unwrap();
    let version = empty.metadata.resource_version.unwrap();
    let mut events = fleets.watch(&WatchParams::default(), &version).await.unwrap();
    // A dry run stores nothing.
    plane.client().sea_v1().fleets("default").dry_run().create(&fleet("z", "Cadiz")).await.unwrap();
    for name in ["a", "b", "c"] {
        fleets.create(&fleet(name, "Cadiz")).await.unwrap();
    }
    fleets.delete("a", &DeleteParams::default()).await.unwrap();
    fleets.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(fleets.delete("a", &DeleteParams::default()).await.unwrap_err().is_not_found());

    let mut seen = Vec::new();
    while seen.len() < 6 {
        let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await.unwrap().unwrap().unwrap();
        let (what, object) = match &event {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            other => panic!("{other:?}"),
        };
        seen.push(format!("{what} {}", object.meta().name.as_deref().unwrap()));
    }
    seen[4..].sort();
    assert_eq!(seen, ["added a", "added b", "added c", "deleted a", "deleted b", "deleted c"]);

    fleets.create(&fleet("d", "Cadiz")).await.unwrap();
    // In all namespaces, an object goes to the namespace that it names.
    let everywhere = plane.client().sea_v1().fleets("");
    let mut elsewhere = fleet("e", "Cadiz");
    elsewhere.metadata.namespace = Some("kube-system".to_owned());
    everywhere.create(&elsewhere).await.unwrap();
    assert_eq!(everywhere.list(&ListParams::default()).await.unwrap().items.len(), 2);
    assert_eq!(fleets.list(&ListParams::default()).await.unwrap().items.len(), 1);
    plane.stop().await;
}

#[tokio::test]
async fn a_manager_extracts_what_it_applied_and_no_more() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default");
    let ship = |name: &str| apply::FleetSpecShip::new().with_name(name);
    let wanted = apply::Fleet::new("a", "default").with_label("sea", "north").with_spec(
        apply::FleetSpec::new()
            .with_harbor("Cadiz")
            .with_replicas(2)
            .with_ports(["Lisbon", "Vigo"])
            .with_orders([("wind".to_owned(), "west".to_owned())])
            .with_ships([ship("Victory").with_guns(104), ship("Neptune")]),
    );
    fleets.apply(&wanted, "admiral", Force::No).await.unwrap();

    // Somebody else adds a label, a port, a captain and a ship.
    let theirs = apply::Fleet::new("a", "default").with_label("age", "old").with_spec(
        apply::FleetSpec::new()
            .with_ports(["Porto"])
            .with_ships([ship("Victory").with_captain("Hardy"), ship("Orion")]),
    );
    let object = fleets.apply(&theirs, "captain", Force::No).await.unwrap();
    assert_eq!(object.spec.ships.len(), 3);
    assert_eq!(object.spec.ships[0], Ship { name: "Victory".to_owned(), guns: 104, captain: Some("Hardy".to_owned()) });
    let conflicting = apply::Fleet::new("a", "default").with_spec(apply::FleetSpec::new().with_replicas(7));
    assert!(fleets.apply(&conflicting, "captain", Force::No).await.unwrap_err().is_conflict());

    let extracted = apply::Fleet::extract(&object, "admiral").unwrap();
    assert_eq!(extracted, wanted);
    assert_eq!(apply::Fleet::extract(&object, "captain").unwrap(), theirs);
    assert_eq!(apply::Fleet::extract(&object, "nobody").unwrap(), apply::Fleet::new("a", "default"));

    // Fields that are left out of the next apply are removed, and those of other managers stay.
    let mut less = extracted;
    less.spec.as_mut().unwrap().ships.as_mut().unwrap().retain(|ship| ship.name.as_deref() == Some("Victory"));
    let object = fleets.apply(&less, "admiral", Force::No).await.unwrap();
    let names: Vec<&str> = object.spec.ships.iter().map(|ship| ship.name.as_str()).collect();
    assert_eq!(names, ["Victory", "Orion"]);
    assert_eq!(object.spec.ports, ["Lisbon", "Vigo", "Porto"]);

    let status = apply::Fleet::new("a", "default").with_status(apply::FleetStatus::new().with_replicas(1));
    let object = fleets.apply_status(&status, "admiral", Force::No).await.unwrap();
    assert_eq!(object.status.as_ref().unwrap().replicas, 1);
    assert_eq!(apply::Fleet::extract_status(&object, "admiral").unwrap(), status);
    assert_eq!(apply::Fleet::extract(&object, "admiral").unwrap(), less, "the status is no part of it");
    plane.stop().await;
}

#[tokio::test]
async fn informers_and_listers_are_shared_and_read_by_namespace() {
    let plane = plane().await;
    let fleets = plane.client().sea_v1().fleets("default");
    fleets.create(&fleet("a", "Cadiz")).await.unwrap();
    let factory = InformerFactory::new(plane.client());
    let networks = factory.sea_v1().fleets();
    let (informer, lister) = (networks.informer(), networks.lister());
    let running = factory.start();
    informer.wait_synced(Duration::from_secs(30)).await.unwrap();
    let found = lister.fleets("default").get("a").unwrap();
    assert_eq!(found.spec.harbor, "Cadiz");
    assert!(matches!(lister.fleets("elsewhere").get("a"), Err(LookupError::NotFound { .. })));
    assert_eq!(lister.fleets("default").list().unwrap().len(), 1);
    running.shutdown().await;
    plane.stop().await;
}
