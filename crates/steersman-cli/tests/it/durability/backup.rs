//! Backups of real servers, and what is restored from them.

use crate::durability::etcd::Etcd;
use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run};
use crate::support::process::Ended;
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The content of each ConfigMap of the namespace `default`, and the version of the list.
type State = (BTreeMap<String, String>, u64);

fn config_maps() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"))
}

async fn api(plane: &Plane) -> Api<DynamicObject> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Api::namespaced_with(Client::try_from(config).unwrap(), "default", &config_maps())
}

async fn create(api: &Api<DynamicObject>, name: &str) -> u64 {
    let object = DynamicObject::new(name, &config_maps()).within("default").data(json!({"data": {"text": name}}));
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    made.metadata.resource_version.unwrap().parse().unwrap()
}

async fn state(api: &Api<DynamicObject>) -> State {
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap().parse().unwrap();
    let content = |object: DynamicObject| {
        let uid = object.metadata.uid.unwrap();
        (object.metadata.name.unwrap(), format!("{uid} {}", object.data["data"]["text"]))
    };
    // That one is written by a control loop, some time after the start.
    let all = list.items.into_iter().map(content).filter(|(name, _)| name != "kube-root-ca.crt");
    (all.collect(), version)
}

/// The code of the error with which a watch from a version begins.
async fn watch_error(api: &Api<DynamicObject>, version: u64) -> Option<u16> {
    let mut events = Box::pin(api.watch(&WatchParams::default(), &version.to_string()).await.unwrap());
    match events.next().await {
        Some(Ok(WatchEvent::Error(status))) => Some(status.code),
        Some(Err(kube::Error::Api(status))) => Some(status.code),
        _ => None,
    }
}

fn copy_pki(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("data")).unwrap();
    assert!(
        Command::new("cp").arg("-r").arg(from.join("data/pki")).arg(to.join("data/pki")).status().unwrap().success()
    );
}

#[track_caller]
fn ok(ended: Ended) -> String {
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    ended.stdout
}

#[track_caller]
fn refused(ended: &Ended, code: i32, sentence: &str) {
    assert_eq!(ended.status.code(), Some(code), "{ended:#?}");
    assert!(ended.stderr.contains(sentence) && ended.stderr.lines().count() == 1, "{ended:#?}");
}

#[test]
fn what_was_backed_up_while_the_server_ran_is_there_after_a_restore_and_clients_list_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| scratch.path().join(name));
    fs::create_dir_all(&old).unwrap();
    let plane = Plane::server(&old, &[]);
    let before = runtime.block_on(async {
        let api = api(&plane).await;
        for n in 0..30 {
            create(&api, &format!("c{n}")).await;
        }
        state(&api).await
    });
    let said = ok(run(&old, ["backup", "../backup", "--data-dir", "data"]));
    assert!(said.starts_with("../backup: ") && said.contains(" objects at revision "), "{said}");
    let after = runtime.block_on(async {
        let api = api(&plane).await;
        create(&api, "later").await;
        state(&api).await
    });
    assert!(before.1 < after.1);
    plane.stop();
    // The store of a server that does not run can be backed up too, and is not changed by it.
    let image = fs::read(old.join("data/store/store.redb")).unwrap();
    ok(run(&old, ["store", "export", "--to", "../stopped", "--data-dir", "data"]));
    assert_eq!(fs::read(old.join("data/store/store.redb")).unwrap(), image);
    for (file, engine) in [("../backup", "embedded"), ("../stopped", "embedded")] {
        let said = ok(run(&old, ["backup", "--verify", file]));
        assert!(said.contains(engine) && said.ends_with("everything is as it was written"), "{said}");
    }
    refused(
        &run(&old, ["restore", "../backup", "--data-dir", "data"]),
        2,
        "exists already: restore into an empty data directory",
    );

    copy_pki(&old, &new);
    let said = ok(run(&new, ["restore", "../backup", "--data-dir", "data"]));
    assert!(said.contains("and clients list again"), "{said}");
    let plane = Plane::server(&new, &[]);
    runtime.block_on(async {
        let api = api(&plane).await;
        let restored = state(&api).await;
        assert_eq!(restored.0, before.0, "the state of the backup, and nothing later");
        assert!(after.1 + 1_000_000_000 <= restored.1, "{} after {}", restored.1, after.1);
        for old in [before.1, after.1] {
            assert_eq!(watch_error(&api, old).await, Some(410), "a watch from {old}");
        }
        assert!(restored.1 < create(&api, "anew").await);
    });
    plane.stop();
    ok(run(&new, ["store", "check", "--data-dir", "data"]));
}

#[test]
fn a_damaged_backup_is_named_and_not_restored_unless_that_is_wanted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path();
    let plane = Plane::server(home, &[]);
    runtime.block_on(async {
        let api = api(&plane).await;
        for name in ["sound", "spoilt"] {
            create(&api, name).await;
        }
    });
    ok(run(home, ["backup", "backup", "--data-dir", "data"]));
    plane.stop();
    let mut bytes = fs::read(home.join("backup")).unwrap();
    let at = bytes.windows(26).position(|window| window == b"/configmaps/default/spoilt").unwrap();
    bytes[at + 60] ^= 4;
    fs::write(home.join("backup"), &bytes).unwrap();
    let ended = run(home, ["backup", "--verify", "backup"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("damaged: the value of \"/configmaps/default/spoilt\", at byte "), "{ended:#?}");
    refused(&run(home, ["restore", "backup", "--data-dir", "other"]), 1, "restore what is whole with --skip-damaged");
    assert!(!home.join("other").exists(), "nothing is left of a restore that was refused");
    let said = ok(run(home, ["store", "import", "--from", "backup", "--data-dir", "other", "--skip-damaged"]));
    assert!(said.contains("not restored: the value of \"/configmaps/default/spoilt\""), "{said}");
    assert!(said.contains("there is no directory pki"), "{said}");
    fs::rename(home.join("data"), home.join("damaged")).unwrap();
    fs::rename(home.join("other"), home.join("data")).unwrap();
    let plane = Plane::server(home, &[]);
    let (found, _) = runtime.block_on(async { state(&api(&plane).await).await });
    assert!(found.contains_key("sound") && !found.contains_key("spoilt"), "{found:?}");
    plane.stop();

    fs::write(home.join("cut"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&run(home, ["restore", "cut", "--data-dir", "third"]), 1, "the backup or a copy of it was interrupted");
    let mut headless = bytes.clone();
    headless["steersman backup".len() + 3] ^= 4;
    fs::write(home.join("headless"), &headless).unwrap();
    let flags = ["--data-dir", "third", "--skip-damaged"];
    refused(&run(home, ["restore", "headless"].iter().chain(&flags)), 1, "its header is damaged; use another backup");
    fs::write(home.join("short"), &bytes[..30]).unwrap();
    refused(&run(home, ["restore", "short"].iter().chain(&flags)), 1, "its end is missing");
    fs::write(home.join("text"), "something else").unwrap();
    refused(&run(home, ["restore", "text", "--data-dir", "third"]), 2, "it is no backup of Steersman");
    refused(&run(home, ["restore", "absent", "--data-dir", "third"]), 2, "cannot read absent");
    refused(&run(home, ["restore", "backup"]), 2, "--data-dir");
    refused(&run(home, ["backup", "b", "--data-dir", "third"]), 2, "there is no store at third/store");
    assert!(!home.join("b").exists() && !home.join("b.new").exists() && !home.join("third").exists());
}

/// A layout of etcd, with its flags, its default prefix, and how far a restore is to be beyond the backup.
struct InLayout {
    flags: &'static [&'static str],
    prefix: &'static str,
    bump: &'static str,
}

#[test]
fn objects_go_from_etcd_to_a_file_and_to_etcd_again_while_a_server_works() {
    go_through_files(&InLayout { flags: &[], prefix: "/registry", bump: "3000" });
}

#[test]
fn the_same_in_the_layout_of_steersman() {
    let flags = &["--etcd-layout", "steersman"];
    go_through_files(&InLayout { flags, prefix: "/steersman", bump: "1000000000" });
}

fn go_through_files(layout: &InLayout) {
    let (runtime, home) = (tokio::runtime::Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let [first, second, third] = ["first", "second", "third"].map(|name| home.path().join(name));
    fs::create_dir_all(&first).unwrap();
    let flags = [&["--etcd-servers", &etcd.url], layout.flags].concat();
    let plane = Plane::server(&first, &flags);
    let before = runtime.block_on(async {
        let api = api(&plane).await;
        create(&api, "a").await;
        state(&api).await
    });
    ok(run(&first, ["backup", "../backup"].iter().chain(&flags)));
    ok(run(&first, ["backup", "../asked", "--data-dir", "data"]));
    for file in ["../backup", "../asked"] {
        let said = ok(run(&first, ["backup", "--verify", file]));
        assert!(said.contains(", etcd, revision "), "{said}");
    }
    let occupied = format!("etcd has keys below {:?}", layout.prefix);
    refused(&run(&first, ["restore", "../backup"].iter().chain(&flags)), 2, &occupied);
    let nothing = ["backup", "../nothing", "--etcd-prefix", "/nothing"];
    refused(&run(&first, nothing.iter().chain(&flags)), 2, "etcd has nothing below \"/nothing\"");
    plane.stop();

    copy_pki(&first, &second);
    let flags = [&flags, &["--etcd-prefix", "/restored"][..]].concat();
    ok(run(&second, ["restore", "../backup", "--bump-revision", layout.bump].iter().chain(&flags)));
    let plane = Plane::server(&second, &flags);
    let after = runtime.block_on(async {
        let api = api(&plane).await;
        let restored = state(&api).await;
        assert_eq!(restored.0, before.0);
        assert!(before.1 + layout.bump.parse::<u64>().unwrap() <= restored.1, "{} after {}", restored.1, before.1);
        assert_eq!(watch_error(&api, before.1).await, Some(410));
        create(&api, "b").await;
        state(&api).await
    });
    ok(run(&second, ["backup", "../again"].iter().chain(&flags)));
    plane.stop();

    copy_pki(&first, &third);
    ok(run(&third, ["restore", "../again", "--data-dir", "data", "--bump-revision", "5"]));
    let plane = Plane::server(&third, &[]);
    runtime.block_on(async {
        let restored = state(&api(&plane).await).await;
        assert_eq!(restored.0, after.0);
        assert!(after.1 < restored.1);
    });
    plane.stop();
}

/// The group comes before that of definitions in every order, and the definition says by which fields its objects are found.
const BOATS: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.a.example"},
"spec": {"group": "a.example", "scope": "Cluster", "names": {"kind": "Boat", "plural": "boats", "singular": "boat"}, "versions": [
{"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".color"}],
"schema": {"openAPIV3Schema": {"type": "object", "properties": {"color": {"type": "string"}}}}}]}}"#;

#[test]
fn custom_objects_move_between_the_layouts_with_their_fields() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let homes = ["first", "second", "third"].map(|name| home.path().join(name));
    homes.iter().for_each(|home| fs::create_dir_all(home).unwrap());
    let [first, second, third] = &homes;
    let reds = |plane: &Plane| {
        let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
        eventually("the red boats are found", || {
            let found = kubectl.run("get boats --field-selector color=red -o name");
            (found.stdout.trim() == "boat.a.example/a").then_some(())
        });
    };
    // From the layout of Steersman to that of kube-apiserver, on the same etcd.
    let own = ["--etcd-servers", &etcd.url, "--etcd-layout", "steersman"];
    let plane = Plane::server(first, &own);
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.apply(BOATS);
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let boat = format!(
            r#"{{"apiVersion": "a.example/v1", "kind": "Boat", "metadata": {{"name": "{name}"}}, "color": "{color}"}}"#
        );
        eventually("a boat is made", || kubectl.with_manifest("apply -f -", &boat).status.success().then_some(()));
    }
    reds(&plane);
    plane.stop();
    let upstream = ["--etcd-servers", &etcd.url];
    refused(
        &run(second, ["server", "--data-dir", "data"].iter().chain(&upstream)),
        2,
        "use it with --etcd-layout steersman",
    );
    ok(run(first, ["backup", "../own"].iter().chain(&own)));
    copy_pki(first, second);
    ok(run(second, ["restore", "../own", "--bump-revision", "10"].iter().chain(&upstream)));
    let plane = Plane::server(second, &upstream);
    reds(&plane);
    plane.stop();
    // And from there into a data directory.
    ok(run(second, ["backup", "../upstream"].iter().chain(&upstream)));
    copy_pki(first, third);
    ok(run(third, ["restore", "../upstream", "--data-dir", "data"]));
    let plane = Plane::server(third, &[]);
    reds(&plane);
    plane.stop();
}

#[test]
fn a_snapshot_of_etcd_is_restored_into_a_data_directory() {
    let (runtime, home) = (tokio::runtime::Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let [first, second] = ["first", "second"].map(|name| home.path().join(name));
    fs::create_dir_all(&first).unwrap();
    let plane = Plane::server(&first, &["--etcd-servers", &etcd.url]);
    let before = runtime.block_on(async {
        let api = api(&plane).await;
        for n in 0..20 {
            create(&api, &format!("c{n}")).await;
        }
        state(&api).await
    });
    plane.stop();
    // A file as `etcdctl snapshot save` writes it: the database, and its SHA-256.
    let mut snapshot = etcd.database(home.path());
    let copied = snapshot.clone();
    snapshot.extend_from_slice(&Sha256::digest(&copied));
    fs::write(home.path().join("snapshot"), &snapshot).unwrap();
    fs::write(home.path().join("copied"), &copied).unwrap();
    copy_pki(&first, &second);
    refused(&run(&second, ["restore", "../copied", "--data-dir", "data"]), 2, "has no SHA-256 at its end");
    let other = ["restore", "../snapshot", "--data-dir", "data", "--snapshot-prefix", "/steersman"];
    refused(&run(&second, other), 2, "has nothing below \"/steersman\", but for example \"/registry/");
    ok(run(&second, ["store", "import", "--from", "../snapshot", "--data-dir", "data"]));
    let plane = Plane::server(&second, &[]);
    runtime.block_on(async {
        let api = api(&plane).await;
        let restored = state(&api).await;
        assert_eq!(restored.0, before.0);
        assert!(before.1 + 1_000_000_000 <= restored.1);
        assert_eq!(watch_error(&api, before.1).await, Some(410));
    });
    plane.stop();
}
