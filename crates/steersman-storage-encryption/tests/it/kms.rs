//! A key management service.

use crate::plugin::Plugin;
use crate::support::{File, create, has, key, provider, resource, secrets, store, stored};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::Kv;
use steersman_storage::{Memory, WriteError, kv};
use steersman_storage_encryption::{Encryption, Reload};

fn kms(dir: &Path, name: &str, timeout: &str) -> String {
    let socket = Plugin::socket(dir);
    format!("{{kms: {{apiVersion: v2, name: {name}, endpoint: 'unix://{}', timeout: {timeout}}}}}", socket.display())
}

/// A file whose Secrets are encrypted by the plugin beside it.
fn file() -> File {
    let file = File::new("");
    file.write(&secrets(&format!("[{}]", kms(file.dir(), "plugin", "300ms"))));
    file
}

/// Waits until the service is found to be as a test wants it. Time is the runtime's, which is paused: it advances to the next probe.
async fn until(encryption: &Encryption, is_well: bool) {
    while encryption.health().is_ok() != is_well {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_value_is_written_and_read_and_a_restart_asks_for_its_key_once() {
    let (kv, file): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file());
    let plugin = Plugin::start(file.dir(), "1");
    let encryption = file.open().await;
    assert_eq!((encryption.health(), encryption.has_services()), (Ok(()), true));
    let open = store(&kv, &encryption).await;
    for name in ["a", "b", "c"] {
        create(&open, "secrets", name).await;
    }
    assert!(stored(&kv, "/secrets/default/a").await.starts_with(b"k8s:enc:kms:v2:plugin:\n"));
    assert_eq!(plugin.n_decrypted(), 0, "it has made the key itself");
    let again = store(&kv, &file.open().await).await;
    for name in ["a", "b", "c"] {
        assert!(has(&again, "secrets", name).await);
    }
    assert_eq!(plugin.n_decrypted(), 1);
}

#[tokio::test]
async fn the_keys_of_many_values_are_asked_for_at_the_same_time() {
    let (kv, file): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file());
    let plugin = Plugin::start(file.dir(), "1");
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        // Each start makes a key of its own.
        create(&store(&kv, &file.open().await).await, "secrets", name).await;
    }
    let encryption = file.open().await;
    plugin.await_decryptions(plugin.n_decrypted() + names.len());
    let open = store(&kv, &encryption).await;
    for name in names {
        assert!(has(&open, "secrets", name).await, "{name}");
    }
}

#[tokio::test]
async fn another_key_of_the_service_makes_values_stale() {
    let (kv, file): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file());
    let plugin = Plugin::start(file.dir(), "1");
    create(&store(&kv, &file.open().await).await, "secrets", "a").await;
    plugin.say_key("2");
    let open = store(&kv, &file.open().await).await;
    let object = open.get(&resource("secrets"), &key("a")).await.unwrap().unwrap();
    let written = open.refresh(&resource("secrets"), &object).await.unwrap();
    assert!(object.revision < written.revision);
    assert_eq!(open.refresh(&resource("secrets"), &written).await.unwrap().revision, written.revision);
    assert!(stored(&kv, "/secrets/default/a").await.windows(2).any(|window| window == b"2|"));
}

#[tokio::test]
async fn without_the_service_values_are_unreadable_and_writes_fail_until_it_is_back() {
    let (kv, file): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file());
    let plugin = Plugin::start(file.dir(), "1");
    create(&store(&kv, &file.open().await).await, "secrets", "a").await;
    plugin.stop().await;
    let encryption = file.open().await;
    let fault = encryption.health().unwrap_err();
    assert!(fault.starts_with("plugin: nothing answers at /") && fault.contains("within 300 ms"), "{fault}");
    let open = store(&kv, &encryption).await;
    assert_eq!((has(&open, "secrets", "a").await, open.stats().unreadable), (false, 1));
    let refused = open.create(&resource("secrets"), &key("b"), crate::support::json("b")).await.unwrap_err();
    let WriteError::Kv(kv::Error::Unsealed { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().starts_with("the key management service plugin gives no key for writes: "), "{source}");
    create(&open, "configmaps", "b").await;
    let _plugin = Plugin::start(file.dir(), "1");
    encryption.news().await;
    assert_eq!((encryption.health(), open.read_again().await.unwrap()), (Ok(()), 1));
    assert!(has(&open, "secrets", "a").await);
    create(&open, "secrets", "b").await;
}

#[tokio::test]
async fn a_service_that_says_it_is_not_well_is_not() {
    let file = file();
    let plugin = Plugin::start(file.dir(), "1");
    plugin.say_health("no quota");
    let encryption = file.open().await;
    assert_eq!(encryption.health(), Err("plugin: got unexpected healthz status: no quota".to_owned()));
    plugin.say_health("ok");
    plugin.say_key("");
    let encryption = file.open().await;
    assert_eq!(encryption.health(), Err("plugin: got an invalid key id: keyID is empty".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_seed_is_used_for_three_minutes_after_the_service_was_last_well() {
    let (kv, file): (Arc<dyn Kv>, _) = (Arc::new(Memory::new()), file());
    let plugin = Plugin::start(file.dir(), "1");
    let encryption = file.open().await;
    let open = store(&kv, &encryption).await;
    plugin.say_health("down");
    plugin.stop().await;
    until(&encryption, false).await;
    create(&open, "secrets", "a").await;
    tokio::time::advance(Duration::from_secs(181)).await;
    let refused = open.create(&resource("secrets"), &key("b"), crate::support::json("b")).await.unwrap_err();
    let WriteError::Kv(kv::Error::Unsealed { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("it was last well more than 180 s ago"), "{source}");
    assert!(has(&open, "secrets", "a").await);
}

#[tokio::test]
async fn a_new_configuration_is_in_force_only_when_its_services_are_well() {
    let (kv, file): (Arc<dyn Kv>, _) =
        (Arc::new(Memory::new()), File::new("- resources: [secrets]\n  providers: [{identity: {}}]\n"));
    let encryption = file.open().await;
    let open = store(&kv, &encryption).await;
    let plugin = Plugin::start(file.dir(), "1");
    file.write(&secrets(&format!("[{}, {}]", kms(file.dir(), "plugin", "1s"), provider("aescbc", &[("a", 1)]))));
    assert_eq!(encryption.reload().await.unwrap(), Reload::Exchanged);
    create(&open, "secrets", "a").await;
    assert!(stored(&kv, "/secrets/default/a").await.starts_with(b"k8s:enc:kms:v2:plugin:"));
    plugin.say_health("down");
    tokio::time::pause();
    file.write(&secrets(&format!("[{}]", kms(file.dir(), "other", "1s"))));
    let error = encryption.reload().await.unwrap_err();
    assert_eq!(error.to_string(), "the key management service other is not well: got unexpected healthz status: down");
    assert_eq!(encryption.reloads(), (1, 1));
    create(&open, "secrets", "b").await;
    assert!(stored(&kv, "/secrets/default/b").await.starts_with(b"k8s:enc:kms:v2:plugin:"));
}
