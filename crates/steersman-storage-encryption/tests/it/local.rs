//! Providers with keys of their own.

use crate::support::{File, PLAIN, create, has, key, provider, resource, secrets, store, stored};
use bytes::Bytes;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use steersman_machinery::Draft;
use steersman_storage::kv::Kv;
use steersman_storage::kv::key_map::KeyMap;
use steersman_storage::kv::transformed::Transformer as _;
use steersman_storage::{Disk, Memory, check};
use steersman_storage_encryption::{Encryption, Reload};

/// Whether the files of a directory have the text somewhere.
fn files_have(dir: &Path, text: &str) -> bool {
    let files = fs::read_dir(dir).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    files.into_iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[tokio::test]
async fn plain_text_is_nowhere_in_the_files_and_a_restart_reads_what_was_written() {
    for name in ["aescbc", "aesgcm", "secretbox"] {
        let file = File::new(&secrets(&format!("[{}]", provider(name, &[("a", 1)]))));
        let dir = file.dir().join("store");
        let disk: Arc<dyn Kv> = Arc::new(Disk::open(&dir).unwrap());
        let open = store(&disk, &file.open().await).await;
        create(&open, "secrets", "a").await;
        open.close().await.unwrap();
        drop((open, disk));
        assert!(!files_have(&dir, PLAIN), "{name}");
        assert!(files_have(&dir, &format!("k8s:enc:{name}:v1:a:")), "{name}");
        let check = check(&dir).unwrap();
        assert_eq!((check.n_sealed, check.n_objects, check.unreadable.len()), (1, 0, 0), "{name}");
        let disk: Arc<dyn Kv> = Arc::new(Disk::open(&dir).unwrap());
        let open = store(&disk, &file.open().await).await;
        assert!(has(&open, "secrets", "a").await, "{name}");
        create(&open, "configmaps", "a").await;
        open.close().await.unwrap();
        drop((open, disk));
        assert!(files_have(&dir, PLAIN), "{name}: what the file does not name is plain");
    }
}

/// The keys of kube-apiserver, for Secrets alone.
#[derive(Debug)]
struct Upstream;

impl KeyMap for Upstream {
    fn stored(&self, key: &[u8]) -> Bytes {
        Bytes::copy_from_slice(&key[1..])
    }

    fn has_prefix(&self, _prefix: &[u8]) -> bool {
        true
    }

    fn key(&self, stored: &Bytes) -> Option<Bytes> {
        Some([b"/", &**stored].concat().into())
    }
}

/// `storage/value/encrypt/aes`: the key in etcd is authenticated beside the value.
#[tokio::test]
async fn a_value_is_bound_to_the_key_of_kube_apiserver() {
    let file = File::new(&secrets(&format!("[{}]", provider("aesgcm", &[("a", 1)]))));
    let ours = Encryption::open(&file.path()).await.unwrap().bound_to("/registry", Arc::new(Upstream));
    let value = Bytes::from_static(b"k8s\0");
    let sealed = ours.seal(b"/secrets/a/b", &value).unwrap();
    assert_eq!(ours.open(b"/secrets/a/b", &sealed).unwrap().value, value);
    let elsewhere = Encryption::open(&file.path()).await.unwrap().bound_to("/other", Arc::new(Upstream));
    assert!(elsewhere.open(b"/secrets/a/b", &sealed).is_err());
    // The rules are for keys of the form group/resource/key, so this one has the form of a group with that resource.
    let file = File::new(&format!("- resources: ['*.*']\n  providers: [{}]\n", provider("aesgcm", &[("a", 1)])));
    let plain = Encryption::open(&file.path()).await.unwrap();
    assert_eq!(plain.open(b"/registry/secrets/a/b", &sealed).unwrap().value, value);
}

#[tokio::test]
async fn the_most_specific_rule_holds_and_entries_of_the_server_itself_are_as_secrets() {
    let secretbox = |key| provider("secretbox", &[(key, 7)]);
    let file = File::new(&format!(
        "- resources: ['*.apps']\n  providers: [{}]\n- resources: [events]\n  providers: [{{identity: {{}}}}]\n\
         - resources: [secrets]\n  providers: [{}]\n- resources: ['*.*']\n  providers: [{}]\n",
        secretbox("apps"),
        secretbox("secrets"),
        secretbox("rest"),
    ));
    let (kv, encryption): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file.open().await);
    let store = store(&kv, &encryption).await;
    for (group, name) in
        [("apps", "deployments"), ("", "events"), ("", "secrets"), ("example.com", "pandas"), ("steersman", "keys")]
    {
        let resource = steersman_machinery::GroupResource::new(group, name);
        store.create(&resource, &key("a"), crate::support::json("a")).await.unwrap();
    }
    for (key, prefix) in [
        ("apps/deployments/default/a", "k8s:enc:secretbox:v1:apps:"),
        ("/secrets/default/a", "k8s:enc:secretbox:v1:secrets:"),
        ("example.com/pandas/default/a", "k8s:enc:secretbox:v1:rest:"),
        ("steersman/keys/default/a", "k8s:enc:secretbox:v1:secrets:"),
    ] {
        assert!(stored(&kv, key).await.starts_with(prefix.as_bytes()), "{key}");
    }
    assert!(!stored(&kv, "/events/default/a").await.starts_with(b"k8s:enc:"));
}

#[tokio::test]
async fn a_rule_that_an_earlier_one_leaves_nothing_is_refused() {
    let file = File::new(
        "- resources: ['*.apps']\n  providers: [{identity: {}}]\n- resources: [deployments.apps]\n  providers: [{identity: {}}]\n",
    );
    let error = Encryption::open(&file.path()).await.unwrap_err();
    assert_eq!(error.to_string(), "resource \"deployments.apps\" is masked by earlier rule \"*.apps\"");
}

#[tokio::test]
async fn a_value_without_its_key_is_counted_and_not_served_and_is_read_when_the_key_is_there() {
    let kv: Arc<dyn Kv> = Arc::new(Memory::new());
    let right = File::new(&secrets(&format!("[{}]", provider("aesgcm", &[("a", 1)]))));
    create(&store(&kv, &right.open().await).await, "secrets", "a").await;
    let before = stored(&kv, "/secrets/default/a").await;
    for providers in [
        // Another key under its name, another name, another provider, none.
        format!("[{}]", provider("aesgcm", &[("a", 2)])),
        format!("[{}]", provider("aesgcm", &[("b", 1)])),
        format!("[{}, {{identity: {{}}}}]", provider("secretbox", &[("a", 1)])),
        "[{identity: {}}]".to_owned(),
    ] {
        let file = File::new(&secrets(&providers));
        let encryption = file.open().await;
        let open = store(&kv, &encryption).await;
        create(&open, "configmaps", "other").await;
        assert!(open.get(&resource("secrets"), &key("a")).await.is_err(), "{providers}");
        assert_eq!((open.stats().unreadable, open.count(&resource("secrets"))), (1, 0), "{providers}");
        assert_eq!(open.unreadable()[0].object, Some((resource("secrets"), key("a"))));
        assert!(open.create(&resource("secrets"), &key("a"), crate::support::json("a")).await.is_err(), "{providers}");
        assert_eq!(stored(&kv, "/secrets/default/a").await, before, "it is left as it is");
        file.write(&secrets(&format!("[{}]", provider("aesgcm", &[("c", 3), ("a", 1)]))));
        assert_eq!(encryption.reload().await.unwrap(), Reload::Exchanged);
        encryption.news().await;
        assert_eq!(open.read_again().await.unwrap(), 1);
        assert!(has(&open, "secrets", "a").await);
        assert_eq!(open.stats().unreadable, 0);
        // For the next: as it was, and without the other object.
        let revision = kv.read().await.unwrap().revision;
        let put = steersman_storage::kv::Op::Put { key: "/secrets/default/a".into(), value: before.clone() };
        let gone = steersman_storage::kv::Op::Delete { key: "/configmaps/default/other".into() };
        let txn = steersman_storage::kv::Txn { compares: Vec::new(), ops: vec![put, gone] };
        kv.txn(txn).await.unwrap();
        assert!(revision < kv.revision().await.unwrap());
    }
}

#[tokio::test]
async fn plain_values_are_read_only_where_identity_is_listed() {
    let kv: Arc<dyn Kv> = Arc::new(Memory::new());
    create(&store(&kv, &File::new(&secrets("[{identity: {}}]")).open().await).await, "secrets", "a").await;
    let key = provider("aescbc", &[("a", 1)]);
    let strict = store(&kv, &File::new(&secrets(&format!("[{key}]"))).open().await).await;
    assert_eq!((has(&strict, "secrets", "a").await, strict.stats().unreadable), (false, 1));
    let lenient = store(&kv, &File::new(&secrets(&format!("[{key}, {{identity: {{}}}}]"))).open().await).await;
    assert!(has(&lenient, "secrets", "a").await);
}

#[tokio::test]
async fn a_flipped_bit_of_a_stored_value_is_unreadable() {
    let kv: Arc<dyn Kv> = Arc::new(Memory::new());
    let file = File::new(&secrets(&format!("[{}]", provider("aesgcm", &[("a", 1)]))));
    create(&store(&kv, &file.open().await).await, "secrets", "a").await;
    let mut value = stored(&kv, "/secrets/default/a").await.to_vec();
    *value.last_mut().unwrap() ^= 1;
    let put = steersman_storage::kv::Op::Put { key: "/secrets/default/a".into(), value: value.into() };
    kv.txn(steersman_storage::kv::Txn { compares: Vec::new(), ops: vec![put] }).await.unwrap();
    let open = store(&kv, &file.open().await).await;
    assert_eq!((has(&open, "secrets", "a").await, open.stats().unreadable), (false, 1));
}

#[tokio::test]
async fn keys_are_rotated_without_a_restart() {
    let kv: Arc<dyn Kv> = Arc::new(Memory::new());
    let file = File::new(&secrets("[{identity: {}}]"));
    let encryption = file.open().await;
    let open = store(&kv, &encryption).await;
    create(&open, "secrets", "a").await;
    let steps = [
        (format!("[{}, {{identity: {{}}}}]", provider("aescbc", &[("a", 1)])), "k8s:enc:aescbc:v1:a:"),
        (format!("[{}]", provider("aescbc", &[("b", 2), ("a", 1)])), "k8s:enc:aescbc:v1:b:"),
        (
            format!("[{}, {}]", provider("secretbox", &[("b", 2)]), provider("aescbc", &[("b", 2)])),
            "k8s:enc:secretbox:v1:b:",
        ),
        (format!("[{{identity: {{}}}}, {}]", provider("secretbox", &[("b", 2)])), ""),
    ];
    for (providers, prefix) in steps {
        let before = stored(&kv, "/secrets/default/a").await;
        file.write(&secrets(&providers));
        assert_eq!(encryption.reload().await.unwrap(), Reload::Exchanged);
        assert_eq!(encryption.reload().await.unwrap(), Reload::Unchanged);
        assert!(has(&open, "secrets", "a").await);
        assert_eq!(stored(&kv, "/secrets/default/a").await, before);
        let object = open.get(&resource("secrets"), &key("a")).await.unwrap().unwrap();
        assert!(object.revision < open.refresh(&resource("secrets"), &object).await.unwrap().revision);
        let after = stored(&kv, "/secrets/default/a").await;
        assert!(after.starts_with(prefix.as_bytes()) && after != before, "{providers}");
        let object = open.get(&resource("secrets"), &key("a")).await.unwrap().unwrap();
        assert_eq!(object.revision, open.refresh(&resource("secrets"), &object).await.unwrap().revision);
    }
    assert_eq!(encryption.reloads(), (4, 0));
    let reopened = store(&kv, &File::new(&secrets("[{identity: {}}]")).open().await).await;
    assert!(has(&reopened, "secrets", "a").await);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing_and_is_counted() {
    let kv: Arc<dyn Kv> = Arc::new(Memory::new());
    let file = File::new(&secrets(&format!("[{}]", provider("aescbc", &[("a", 1)]))));
    let encryption = file.open().await;
    let open = store(&kv, &encryption).await;
    fs::write(file.path(), "kind: [").unwrap();
    assert!(encryption.reload().await.is_err());
    fs::remove_file(file.path()).unwrap();
    assert!(encryption.reload().await.unwrap_err().to_string().starts_with("it cannot be read: "));
    assert_eq!(encryption.reloads(), (0, 2));
    create(&open, "secrets", "a").await;
    assert!(stored(&kv, "/secrets/default/a").await.starts_with(b"k8s:enc:aescbc:v1:a:"));
}

/// Upstream's code made the value: `testdata/upstream.txt`.
#[tokio::test]
async fn a_store_serves_what_upstreams_code_has_encrypted() {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let text = include_str!("../../testdata/upstream.txt");
    let rows = text.lines().filter(|line| line.starts_with("aes") || line.starts_with("secretbox"));
    for row in rows {
        let [name, secret, value] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let kv: Arc<dyn Kv> = Arc::new(Memory::new());
        let value = Bytes::from(base64.decode(value).unwrap());
        let put = steersman_storage::kv::Op::Put { key: "/secrets/default/a".into(), value };
        let txn = steersman_storage::kv::Txn { compares: Vec::new(), ops: vec![put] };
        kv.txn(txn).await.unwrap();
        let cipher = name.trim_end_matches(char::is_numeric);
        let file = File::new(&secrets(&format!("[{{{cipher}: {{keys: [{{name: k, secret: {secret}}}]}}}}]")));
        let open = store(&kv, &file.open().await).await;
        let object = open.get(&resource("secrets"), &key("a")).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(object.json()).starts_with(r#"{"kind":"Secret","metadata":{"#), "{name}");
        let draft = Draft::read(crate::support::json("b")).unwrap();
        open.create_with(&resource("secrets"), &key("b"), draft, &[]).await.unwrap();
    }
}
