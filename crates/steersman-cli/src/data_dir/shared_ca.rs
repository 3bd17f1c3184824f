//! The CA of servers that share a store: it is in the store, so that each server's certificates are good for the clients of
//! all.
//!
//! It is an entry of the store and not an object of the API: its group has no dot, so that no definition can have it.
//! Whoever can read the store can read it, as they can every Secret.

use crate::Failure;
use crate::data_dir::pki::{self, Pair};
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::Path;
use steersman_machinery::{Draft, GroupResource, ObjectKey};
use steersman_storage::{Store, WriteError};

/// The CA in the store: that of `own`, the CA of the data directory, or a new one if there is none yet.
///
/// # Errors
/// When the data directory has another CA than the store, or the store cannot be read or written.
pub(crate) async fn find(store: &Store, own: Option<Pair>, dir: &Path, now: Timestamp) -> Result<Pair, Failure> {
    let (resource, key) = (resource(), ObjectKey::cluster("clients"));
    loop {
        let stored = store.get(&resource, &key).await.context(
            "the CA of the servers cannot be read from the store; if it is encrypted, --encryption-provider-config must have its key",
        )?;
        if let Some(stored) = stored {
            let ca = read(stored.json())?;
            return match own {
                Some(own) if own.certificate != ca.certificate => Err(Failure::Refused(format!(
                    "the CA in {} is not that of the servers on this etcd: move its ca.crt and ca.key away to get theirs, which ends the use of kubeconfigs handed out by this server before",
                    dir.display()
                ))),
                Some(_) | None => Ok(ca),
            };
        }
        let ca = match &own {
            Some(own) => Pair { certificate: own.certificate.clone(), key: own.key.clone() },
            None => pki::new_ca(now)?,
        };
        let object = json!({
            "kind": "CertificateAuthority", "apiVersion": "steersman/v1", "metadata": {"name": &*key.name},
            "certificate": ca.certificate, "key": ca.key,
        });
        let draft = Draft::read(object.to_string().into()).context("the CA cannot be stored")?;
        match store.create_with(&resource, &key, draft, &[]).await {
            Ok(_) => return Ok(ca),
            // Another server was faster.
            Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(anyhow::Error::new(error).context("the CA cannot be stored").into()),
        }
    }
}

pub(crate) fn resource() -> GroupResource {
    GroupResource::new("steersman", "certificateauthorities")
}

fn read(json: &[u8]) -> Result<Pair, Failure> {
    let object: Value = serde_json::from_slice(json).context("the CA in the store cannot be read")?;
    let text = |field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
    let (certificate, key) = text("certificate").zip(text("key")).context("the CA in the store is not complete")?;
    Ok(Pair { certificate, key })
}
