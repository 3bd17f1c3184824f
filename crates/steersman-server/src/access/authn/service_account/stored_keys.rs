//! The keys of service account tokens in the store, for servers that share one: each verifies what the others have signed.
//!
//! They are entries of the store and not objects of the API: their group has no dot, so that no definition can have it.

use crate::access::authn::service_account::keyring::{Keeper, Keyring, StoredKey};
use crate::shared::conversion;
use crate::shared::follower::{self, Followed};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use steersman_machinery::value::str_at;
use steersman_machinery::{Draft, GroupResource, Object, ObjectKey, Revision};
use steersman_storage::{At, Event, Kind as EventKind, Page, ReadError, Scope, Store, WriteError};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Keeps keys in a store.
#[derive(Debug)]
pub(super) struct StoreKeeper(pub(super) Store);

/// Passes on the keys that other servers make.
struct KeyFollower(Arc<Keyring>);

/// Starts the task that follows the keys in the store, if they are there, until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    keys: &Arc<Keyring>,
    stopping: &CancellationToken,
) -> Result<Option<JoinHandle<()>>, ReadError> {
    if !keys.is_followed() {
        return Ok(None);
    }
    follower::start(store, Box::new(KeyFollower(keys.clone())), stopping).map(Some)
}

/// The keys in the store, as far as they can be read.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn read(store: &Store) -> Result<Vec<StoredKey>, ReadError> {
    let listed = store.list(&resource(), &Scope::All, At::Latest, Page::ALL)?;
    Ok(listed.objects.iter().filter_map(|object| stored_key(object)).collect())
}

/// The resource of the keys in a store that several servers share.
pub fn resource() -> GroupResource {
    GroupResource::new("steersman", "serviceaccountkeys")
}

/// The name of a key: it says nothing about the key.
fn key_of(stored: &StoredKey) -> ObjectKey {
    let mut name = String::new();
    for byte in &Sha256::digest(&stored.pem)[..16] {
        // Writes to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    ObjectKey::cluster(name)
}

fn stored_key(object: &Object) -> Option<StoredKey> {
    let parsed = conversion::parse(object).ok()?;
    let read = StoredKey::parse(str_at(&parsed, &["text"]).unwrap_or_default());
    read.inspect_err(|error| {
        let error: &dyn std::error::Error = error;
        tracing::error!(key = %object.key, error, "a key of service account tokens in the store cannot be read");
    })
    .ok()
}

impl StoreKeeper {
    async fn put(&self, key: &StoredKey) -> Result<(), WriteError> {
        let name = key_of(key);
        loop {
            let stored = self.0.get(&resource(), &name).await?;
            let needed = stored.as_ref().and_then(|stored| stored_key(stored)).map(|stored| stored.needed_until);
            // Other servers may have signed tokens with it that live longer.
            let needed_until = match needed {
                Some(needed) => Option::zip(key.needed_until, needed).map(|(a, b)| a.max(b)),
                None => key.needed_until,
            };
            let text = StoredKey { needed_until, ..key.clone() }.to_text();
            let object = json!({
                "kind": "ServiceAccountKey", "apiVersion": "steersman/v1", "metadata": {"name": &*name.name}, "text": text,
            });
            let draft = Draft::read(object.to_string().into()).map_err(WriteError::Object)?;
            let written = match stored {
                Some(stored) => self.0.update_with(&resource(), &name, stored.revision, draft, &[]).await,
                None => self.0.create_with(&resource(), &name, draft, &[]).await,
            };
            match written {
                Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => {}
                written => return written.map(|_| ()),
            }
        }
    }

    async fn take(&self, key: &StoredKey) -> Result<(), WriteError> {
        let name = key_of(key);
        let Some(stored) = self.0.get(&resource(), &name).await? else { return Ok(()) };
        // Another server may have signed a token with it that lives longer.
        let is_needed = stored_key(&stored).is_some_and(|stored| stored.needed_until != key.needed_until);
        if is_needed {
            return Ok(());
        }
        match self.0.delete(&resource(), &name, stored.revision).await {
            // Another server uses it, or has removed it.
            Err(WriteError::Conflict { .. }) => Ok(()),
            deleted => deleted.map(|_| ()),
        }
    }
}

impl Keeper for StoreKeeper {
    fn save(&self, key: &StoredKey) -> io::Result<()> {
        Handle::current().block_on(self.put(key)).map_err(io::Error::other)
    }

    fn remove(&self, key: &StoredKey) -> io::Result<()> {
        Handle::current().block_on(self.take(key)).map_err(io::Error::other)
    }
}

impl Followed for KeyFollower {
    fn resource(&self) -> GroupResource {
        resource()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        let keys = &self.0;
        keys.replace_made(objects.iter().filter_map(|object| stored_key(object)).collect());
        keys.progress().report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        let keys = &self.0;
        for event in events {
            let Some(stored) = stored_key(&event.object) else { continue };
            match event.kind {
                EventKind::Added | EventKind::Modified => keys.add_made(stored),
                EventKind::Deleted => keys.remove_made(&stored),
            }
        }
        if let Some(last) = events.last() {
            keys.progress().report(last.revision);
        }
    }
}

impl Drop for KeyFollower {
    fn drop(&mut self) {
        self.0.progress().end();
    }
}
