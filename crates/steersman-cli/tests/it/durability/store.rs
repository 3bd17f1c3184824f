//! The store of a real server: damage is found, reported and repaired, and a limit of file sizes does not end the
//! server.

use crate::support::plane::{Plane, run};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, Status};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn config_maps() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"))
}

async fn client(plane: &Plane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // A test examines a refusal instead of retrying.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Random letters, which lz4 does not compress.
fn letters(mut seed: u64, length: usize) -> String {
    let letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + ((seed >> 40) % 26) as u8)
    };
    (0..length).map(letter).collect()
}

fn config_map(name: &str, text: &str) -> DynamicObject {
    DynamicObject::new(name, &config_maps()).within("default").data(json!({"data": {"text": text}}))
}

fn refusal(error: kube::Error) -> Box<Status> {
    match error {
        kube::Error::Api(response) => response,
        error => panic!("{error:?}"),
    }
}

fn file(home: &Path) -> PathBuf {
    home.join("data/store/store.redb")
}

/// Flips two bits some bytes behind every place of some bytes that fulfils a condition: one alone is put right. Pages that are no
/// longer in use may have copies.
fn flip(home: &Path, at: &[u8], behind: usize, is_wanted: impl Fn(&[u8]) -> bool) {
    let mut image = std::fs::read(file(home)).unwrap();
    let found = image.windows(at.len()).enumerate().filter(|(_, bytes)| *bytes == at).map(|(place, _)| place);
    let places: Vec<usize> = found.filter(|place| is_wanted(&image[*place..])).collect();
    assert!(!places.is_empty(), "the file does not have the bytes");
    for place in places {
        image[place + behind] ^= 3;
    }
    std::fs::write(file(home), image).unwrap();
}

fn check(home: &Path) -> (Option<i32>, Value) {
    let ended = run(home, ["store", "check", "--data-dir", "data", "--output", "json"]);
    (ended.status.code(), serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:#?}")))
}

#[test]
fn damage_is_named_by_a_check_and_by_the_server_and_costs_nothing_else() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path();
    let text = letters(1, 2_000);
    let plane = Plane::server(home, &[]);
    runtime.block_on(async {
        let api = Api::<DynamicObject>::namespaced_with(client(&plane).await, "default", &config_maps());
        for (name, text) in [("a", "a"), ("bad", &*text), ("z", "z")] {
            api.create(&PostParams::default(), &config_map(name, text)).await.unwrap();
        }
    });
    let open = run(home, ["store", "check", "--data-dir", "data"]);
    assert_eq!(open.status.code(), Some(2), "{open:#?}");
    plane.stop();
    let (code, report) = check(home);
    assert_eq!((code, &report["isSound"], &report["damaged"]), (Some(0), &json!(true), &json!([])));

    let newest = file(home).with_file_name("store.newest");
    let intact = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, b"damaged").unwrap();
    let ended = run(home, ["store", "check", "--data-dir", "data"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    let way_out = "start the server: no object is lost, and it writes anew what is damaged";
    assert!(ended.stdout.contains("store.newest") && ended.stdout.ends_with(way_out), "{ended:#?}");
    std::fs::write(&newest, intact).unwrap();

    flip(home, text.as_bytes(), 1_000, |_| true);
    // A role of the server itself is damaged too; lz4 does not change the beginning of a value.
    let role = b"rbac.authorization.k8s.io/clusterroles/view";
    flip(home, role, role.len() + 60, |behind| {
        behind.iter().take(300).copied().collect::<Vec<_>>().windows(13).any(|bytes| bytes == b"\"ClusterRole\"")
    });
    let (code, report) = check(home);
    assert_eq!((code, &report["isSound"]), (Some(1), &json!(false)));
    let damaged: BTreeSet<_> =
        report["damaged"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(damaged, ["clusterroles.rbac.authorization.k8s.io view", "configmaps default/bad"].into());
    let ended = run(home, ["store", "check", "--data-dir", "data"]);
    assert!(ended.stdout.contains("damaged: configmaps default/bad, written at revision "), "{ended:#?}");

    let plane = Plane::server(home, &[]);
    runtime.block_on(async {
        let client = client(&plane).await;
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &config_maps());
        let error = refusal(api.get("bad").await.unwrap_err());
        assert_eq!((error.code, &*error.reason), (500, "StorageReadError"));
        let list = api.list(&ListParams::default()).await.unwrap();
        let names: Vec<_> = list.items.into_iter().filter_map(|object| object.metadata.name).collect();
        assert!(names.contains(&"a".to_owned()) && names.contains(&"z".to_owned()), "{names:?}");
        assert!(!names.contains(&"bad".to_owned()), "{names:?}");
        let roles = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"));
        let view = Api::<DynamicObject>::all_with(client.clone(), &roles).get("view").await.unwrap();
        assert!(view.data["rules"].as_array().is_some_and(|rules| !rules.is_empty()), "it is made anew");
        let error = refusal(api.delete("bad", &DeleteParams::default()).await.unwrap_err());
        assert_eq!((error.code, &*error.reason), (500, "StorageReadError"));
        let path = "/api/v1/namespaces/default/configmaps/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true";
        let request = http::Request::delete(path).body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap();
        api.create(&PostParams::default(), &config_map("bad", "good")).await.unwrap();
    });
    plane.stop();
    let (code, report) = check(home);
    assert_eq!((code, &report["isSound"]), (Some(0), &json!(true)), "{report:#}");
}

#[test]
fn a_data_directory_without_a_store_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let ended = run(scratch.path(), ["store", "check", "--data-dir", "nothing"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("there is no store at nothing/store/store.redb"), "{ended:#?}");
}

#[test]
fn a_limit_of_file_sizes_refuses_writes_in_one_sentence_and_ends_nothing() {
    const KIB: u64 = 12 * 1_024;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path();
    let plane = Plane::server_limited(home, KIB);
    let acknowledged = runtime.block_on(async {
        let api = Api::<DynamicObject>::namespaced_with(client(&plane).await, "default", &config_maps());
        let mut acknowledged = Vec::new();
        let error = loop {
            let name = format!("large-{}", acknowledged.len());
            let text = letters(acknowledged.len() as u64, 900_000);
            match api.create(&PostParams::default(), &config_map(&name, &text)).await {
                Ok(_) => acknowledged.push(name),
                Err(error) => break refusal(error),
            }
            assert!(acknowledged.len() < 40, "the limit is never reached");
        };
        assert_eq!((error.code, &*error.reason), (503, "ServiceUnavailable"));
        assert!(error.message.contains("raise that (ulimit -f) and restart to recover"), "{}", error.message);
        for name in &acknowledged {
            api.get(name).await.unwrap();
        }
        acknowledged
    });
    assert!(!acknowledged.is_empty());
    plane.process.signal("TERM");
    let ended = plane.process.end();
    assert!(ended.status.code().is_some(), "no signal ended it: {ended:#?}");
    let plane = Plane::server(home, &[]);
    runtime.block_on(async {
        let api = Api::<DynamicObject>::namespaced_with(client(&plane).await, "default", &config_maps());
        for name in &acknowledged {
            api.get(name).await.unwrap();
        }
        api.create(&PostParams::default(), &config_map("after", "the limit")).await.unwrap();
    });
    plane.stop();
}
