//! Encryption at rest in a real server: what is in its file, and how its keys are rotated.

use crate::durability::etcd::Etcd;
use crate::support::eventually;
use crate::support::plane::{Plane, run};
use http::Request;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;
use tokio::runtime::Runtime;

/// 32 bytes each, in base64.
const KEY_A: &str = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
const KEY_B: &str = "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";
/// The data of a Secret, as they are in its JSON.
const DATA: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";

fn write(home: &Path, providers: &str) {
    write_for(home, "secrets", providers);
}

fn write_for(home: &Path, resource: &str, providers: &str) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['{resource}']\n  providers: {providers}\n"
    );
    std::fs::write(home.join("encryption.yaml"), text).unwrap();
}

fn aescbc(keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}")).collect();
    format!("{{aescbc: {{keys: [{}]}}}}", keys.join(", "))
}

async fn client(plane: &Plane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // A test examines a refusal instead of retrying.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"))
}

fn secrets(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &resource())
}

async fn get(client: &Client, path: &str) -> String {
    client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

fn file_has(home: &Path, text: &str) -> bool {
    let bytes = std::fs::read(home.join("data/store/store.redb")).unwrap();
    memchr::memmem::find(&bytes, text.as_bytes()).is_some()
}

#[test]
fn a_key_is_rotated_in_a_running_server_by_writing_the_same_again() {
    let (runtime, scratch) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let home = scratch.path();
    let flags = ["--encryption-provider-config", "encryption.yaml", "--encryption-provider-config-automatic-reload"];
    write(home, &format!("[{}]", aescbc(&[("a", KEY_A)])));
    let plane = Plane::server(home, &flags);
    let client = runtime.block_on(client(&plane));
    let secret = DynamicObject::new("s", &resource()).within("default").data(json!({"data": {"password": DATA}}));
    let stored = runtime.block_on(secrets(&client).create(&PostParams::default(), &secret)).unwrap();
    assert!(!file_has(home, DATA) && file_has(home, "k8s:enc:aescbc:v1:a:"));
    let put = || runtime.block_on(secrets(&client).replace("s", &PostParams::default(), &stored)).unwrap();
    assert_eq!(put().metadata.resource_version, stored.metadata.resource_version, "its form is current");

    write(home, &format!("[{}]", aescbc(&[("b", KEY_B), ("a", KEY_A)])));
    let written = eventually("the new key is in force", || {
        Some(put()).filter(|same| same.metadata.resource_version != stored.metadata.resource_version)
    });
    assert_eq!(written.data["data"]["password"], DATA);
    assert!(file_has(home, "k8s:enc:aescbc:v1:b:"));
    let metrics = || runtime.block_on(get(&client, "/metrics"));
    let reloads = "apiserver_encryption_config_controller_automatic_reloads_total";
    assert!(metrics().contains(&format!("{reloads}{{status=\"success\"}} 1\n")), "{}", metrics());
    assert!(runtime.block_on(get(&client, "/readyz?verbose")).contains("[+]kms-providers ok\n"));

    std::fs::write(home.join("encryption.yaml"), "no configuration").unwrap();
    let unfailed = format!("{reloads}{{status=\"failure\"}} 0\n");
    eventually("the bad file is counted", || (!metrics().contains(&unfailed)).then_some(()));
    let found = runtime.block_on(secrets(&client).get("s")).unwrap();
    assert_eq!(found.data["data"]["password"], DATA, "the keys before are still in force");
    plane.stop();

    // With the new key alone.
    write(home, &format!("[{}]", aescbc(&[("b", KEY_B)])));
    let plane = Plane::server(home, &flags[..2]);
    runtime.block_on(async {
        let client = self::client(&plane).await;
        assert_eq!(secrets(&client).get("s").await.unwrap().data["data"]["password"], DATA);
        assert!(!get(&client, "/readyz?verbose").await.contains("kms-providers"), "there is nothing to check");
    });
    plane.stop();
}

/// No client can write the CA of the servers and the keys of tokens again.
#[test]
fn entries_of_the_servers_are_written_again_with_each_new_key() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path();
    let Some(etcd) = Etcd::start(home) else { return };
    let keys = [("a", KEY_A), ("b", KEY_B)];
    let flags = ["--etcd-servers", &etcd.url, "--encryption-provider-config", "encryption.yaml"];
    let ca = || etcd.value("/registry/steersman/certificateauthorities/clients");
    Plane::server(home, &flags[..2]).stop();
    assert!(ca().starts_with(b"{"), "it is plain");
    for (providers, prefix) in [
        (format!("[{}, {{identity: {{}}}}]", aescbc(&keys[..1])), "k8s:enc:aescbc:v1:a:"),
        (format!("[{}]", aescbc(&[keys[1], keys[0]])), "k8s:enc:aescbc:v1:b:"),
    ] {
        write(home, &providers);
        let plane = Plane::server(home, &flags);
        eventually("it is written again", || ca().starts_with(prefix.as_bytes()).then_some(()));
        plane.stop();
    }
    write(home, &format!("[{}]", aescbc(&keys[1..])));
    Plane::server(home, &flags).stop();
}

#[test]
fn without_its_key_a_secret_is_named_and_counted_and_everything_else_is_served() {
    let (runtime, scratch) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let home = scratch.path();
    write(home, &format!("[{}]", aescbc(&[("a", KEY_A)])));
    let plane = Plane::server(home, &["--encryption-provider-config", "encryption.yaml"]);
    runtime.block_on(async {
        let secret = DynamicObject::new("s", &resource()).within("default").data(json!({"data": {"password": DATA}}));
        secrets(&client(&plane).await).create(&PostParams::default(), &secret).await.unwrap();
    });
    plane.stop();
    let checked = run(home, ["store", "check", "--data-dir", "data", "--output", "json"]);
    let report: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!((checked.status.code(), &report["encrypted"], &report["isSound"]), (Some(0), &json!(1), &json!(true)));

    let plane = Plane::server(home, &[]);
    runtime.block_on(async {
        let client = client(&plane).await;
        let kube::Error::Api(status) = secrets(&client).get("s").await.unwrap_err() else { panic!() };
        assert_eq!((status.code, &*status.reason), (500, "StorageReadError"));
        assert!(status.message.contains("if it is encrypted, give the server its key"), "{}", status.message);
        assert!(secrets(&client).list(&kube::api::ListParams::default()).await.unwrap().items.is_empty());
        assert!(get(&client, "/metrics").await.contains("steersman_store_unreadable_entries 1\n"));
        assert!(get(&client, "/readyz?verbose").await.contains("secrets at revision "));
    });
    plane.stop();
}

#[test]
fn a_server_without_the_key_of_its_own_objects_does_not_start_and_makes_none_anew() {
    let (runtime, scratch) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let home = scratch.path();
    let flags = ["--encryption-provider-config", "encryption.yaml"];
    write_for(home, "*.*", &format!("[{}]", aescbc(&[("a", KEY_A)])));
    let plane = Plane::server(home, &flags);
    let uid = |plane: &Plane| {
        let namespace = runtime.block_on(async { get(&client(plane).await, "/api/v1/namespaces/kube-system").await });
        serde_json::from_str::<Value>(&namespace).unwrap()["metadata"]["uid"].clone()
    };
    let before = uid(&plane);
    plane.stop();
    assert!(!file_has(home, "system:masters") && !file_has(home, "ClusterRole"));
    let command = ["server", "--listen", "127.0.0.1:0", "--data-dir", "data"];
    for flags in [&[], &flags[..]] {
        write_for(home, "*.*", &format!("[{}]", aescbc(&[("a", KEY_B)])));
        let ended = run(home, [&command, flags].concat());
        assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
        assert!(ended.stderr.contains("if it is encrypted, give the server its key"), "{ended:#?}");
    }
    write_for(home, "*.*", &format!("[{}]", aescbc(&[("a", KEY_A)])));
    let plane = Plane::server(home, &flags);
    assert_eq!(uid(&plane), before);
    plane.stop();
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_in_one_sentence() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path();
    let refused = |flags: &[&str], wanted: &str| {
        let ended = run(home, [&["server", "--listen", "127.0.0.1:0"], flags].concat());
        assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
        assert!(ended.stderr.trim_end().ends_with(wanted), "{ended:#?}");
    };
    refused(
        &["--encryption-provider-config-automatic-reload"],
        "steersman: --encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
    );
    let flags = ["--encryption-provider-config", "encryption.yaml"];
    refused(
        &flags,
        "cannot use --encryption-provider-config encryption.yaml: it cannot be read: No such file or directory (os error 2)",
    );
    write(home, "[{secretbox: {keys: [{name: a, secret: c2hvcnQ=}]}}]");
    refused(
        &flags,
        "resources[0].providers[0].secretbox.keys[0].secret: secret is not of the expected length, got 5, expected one of [32]",
    );
    write(home, "[{kms: {name: a, endpoint: 'unix:///run/kms.sock'}}]");
    refused(&flags, "KMS v1 is deprecated and not supported here: use a plugin of KMS v2, and say apiVersion: v2");
    eventually("nothing is left behind", || (!home.join(".steersman").exists()).then_some(()));
}
