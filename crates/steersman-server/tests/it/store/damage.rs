//! Objects whose stored form is damaged: reads report them, lists leave them out, and the deletion of unreadable
//! objects removes them. The server starts whatever is damaged, and makes its own objects again.

use crate::support::{CONFIGS, TestServer, config};
use serde_json::json;
use std::sync::Arc;
use steersman_storage::kv::{Kv, Op, Outcome, Txn};
use steersman_storage::{Memory, Options, Store};

async fn damage(kv: &dyn Kv, key: bytes::Bytes) {
    let txn = Txn { compares: Vec::new(), ops: vec![Op::Put { key, value: "\u{1}damaged".into() }] };
    assert!(matches!(kv.txn(txn).await.unwrap(), Outcome::Committed { .. }));
}

/// A server with some ConfigMaps, one of which is damaged while no server runs.
async fn test() -> TestServer {
    let kv = Arc::new(Memory::new());
    let first = TestServer::on(kv.clone()).await;
    for name in ["a", "damaged", "z"] {
        first.http().post(CONFIGS, &config(name)).await.ok();
    }
    damage(&*kv, "/configmaps/default/damaged".into()).await;
    TestServer::on(kv).await
}

/// A Service that cannot be read may be one that is encrypted with a key that the server does not have.
#[tokio::test]
async fn nothing_of_a_service_that_cannot_be_read_is_given_to_another() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let service = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_200}],
        }})
    };
    let kv = Arc::new(Memory::new());
    let first = TestServer::on(kv.clone()).await;
    first.http().post(SERVICES, &service("lost")).await.ok();
    first.server.stop().await;
    damage(&*kv, "/services/default/lost".into()).await;
    let test = TestServer::on(kv).await;
    let refused = test.http().post(SERVICES, &service("other")).await;
    assert_eq!(refused.refusal(), (422, "Invalid".to_owned()));
    let message = refused.json()["message"].to_string();
    assert!(message.contains("10.96.7.7") && message.contains("spec.ports[0].nodePort"), "{message}");
}

#[tokio::test]
async fn a_damaged_object_is_an_error_by_name_and_left_out_of_lists() {
    let test = test().await;
    let http = test.http();
    let path = format!("{CONFIGS}/damaged");
    let answer = http.get(&path).await;
    assert_eq!(answer.refusal(), (500, "StorageReadError".to_owned()));
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("the object default/damaged, stored at revision "), "{message}");
    assert!(message.contains("otherwise restore it from a copy of the store, or delete it"), "{message}");
    for list in
        [http.get(CONFIGS).await, http.get("/api/v1/configmaps").await, http.get(&format!("{CONFIGS}?limit=2")).await]
    {
        let items = list.ok();
        let names: Vec<_> =
            items["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect();
        assert!(names.contains(&"a".into()) && !names.contains(&"damaged".into()), "{names:?}");
    }
    let refused = http.post(CONFIGS, &config("damaged")).await;
    assert_eq!(refused.refusal(), (500, "StorageReadError".to_owned()));
    assert_eq!(http.put(&path, &config("damaged")).await.refusal(), (500, "StorageReadError".to_owned()));
    assert_eq!(http.delete(&path).await.refusal(), (500, "StorageReadError".to_owned()));
}

#[tokio::test]
async fn a_damaged_object_is_removed_when_the_deletion_says_so() {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    let test = test().await;
    let http = test.http();
    let refused = http.delete(&format!("{CONFIGS}/damaged?{OPTION}&gracePeriodSeconds=0")).await;
    assert_eq!(refused.refusal(), (422, "Invalid".to_owned()));
    let refused = http.delete(&format!("{CONFIGS}/a?{OPTION}")).await;
    assert_eq!(refused.refusal(), (422, "Invalid".to_owned()), "it can be read");
    assert_eq!(http.delete(&format!("{CONFIGS}/damaged?{OPTION}")).await.ok()["status"], "Success");
    assert_eq!(http.get(&format!("{CONFIGS}/damaged")).await.code, 404);
    http.post(CONFIGS, &config("damaged")).await.ok();
    assert_eq!(test.store.stats().unreadable, 0);
}

#[tokio::test]
async fn readiness_tells_of_damage_and_does_not_fail() {
    let test = test().await;
    let answer = test.http().get("/readyz?verbose").await;
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    assert_eq!(answer.code, 200, "{text}");
    let line = text.lines().find(|line| line.starts_with("[+]storage-integrity ok: 1 damaged entries")).unwrap();
    assert!(line.contains("configmaps at revision ") && !line.contains("default/damaged"), "{line}");
    let sound = TestServer::new().await;
    let text = String::from_utf8(sound.http().get("/readyz?verbose").await.bytes.to_vec()).unwrap();
    assert!(text.contains("[+]storage-integrity ok\n"), "{text}");
    let metrics = String::from_utf8(test.http().get("/metrics").await.bytes.to_vec()).unwrap();
    assert!(metrics.contains("steersman_store_unreadable_entries 1\n"));
}

#[tokio::test]
async fn the_server_starts_whatever_is_damaged_and_makes_its_own_objects_anew() {
    let kv = Arc::new(Memory::new());
    let first = TestServer::on(kv.clone()).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let n_roles = first.http().get(roles).await.ok()["items"].as_array().unwrap().len();
    let keys: Vec<bytes::Bytes> = kv.read().await.unwrap().entries.into_iter().map(|entry| entry.key).collect();
    assert!(100 < keys.len());
    for key in keys {
        damage(&*kv, key).await;
    }
    let second = TestServer::on(kv.clone()).await;
    assert_eq!(second.http().get(roles).await.ok()["items"].as_array().unwrap().len(), n_roles);
    for path in ["/api/v1/namespaces/default", "/api/v1/namespaces/default/services/kubernetes"] {
        second.http().get(path).await.ok();
    }
    let store = Store::open(kv, Options::default()).await.unwrap();
    assert_eq!(store.unreadable(), []);
}
