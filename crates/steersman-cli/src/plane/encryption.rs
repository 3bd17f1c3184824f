//! Encryption at rest: what is put between the store and its engine, and the task that follows its configuration.

use crate::Failure;
use crate::args::EncryptionOptions;
use crate::data_dir::shared_ca;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use steersman_server::{Reloads, StorageEncryption};
use steersman_storage::kv::Kv;
use steersman_storage::kv::transformed::Transformed;
use steersman_storage::{Store, WriteError};
use steersman_storage_encryption::{Encryption, Reload};
use steersman_storage_kubernetes as kubernetes;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether the file is another one.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often the file is read whether it looks like another one or not: its times need not tell, and a key management service of a file that
/// could not be used may be there by now. As often as upstream.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// The encryption of a store.
#[derive(Clone, Debug)]
pub(crate) struct AtRest {
    encryption: Arc<Encryption>,
    path: PathBuf,
    /// Whether the file is read again when it changes.
    is_followed: bool,
}

/// The properties by which a change of a file is noticed.
#[derive(Debug, Eq, PartialEq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl AtRest {
    /// Reads the file, if the options name one. Values are bound to their keys below a prefix.
    pub(crate) async fn open(options: &EncryptionOptions, prefix: &str) -> Result<Option<AtRest>, Failure> {
        let is_followed = options.encryption_provider_config_automatic_reload;
        let Some(path) = &options.encryption_provider_config else {
            return match is_followed {
                true => Err(Failure::Refused(
                    "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                        .to_owned(),
                )),
                false => Ok(None),
            };
        };
        let encryption = Encryption::open(path).await.map_err(|error| {
            Failure::Refused(format!("cannot use --encryption-provider-config {}: {error}", path.display()))
        })?;
        let encryption = encryption.bound_to(prefix, Arc::new(kubernetes::keys()));
        Ok(Some(AtRest { encryption: Arc::new(encryption), path: path.clone(), is_followed }))
    }

    /// The engine with encrypted values.
    pub(crate) fn over(&self, kv: Arc<dyn Kv>) -> Arc<dyn Kv> {
        Arc::new(Transformed::new(kv, self.encryption.clone()))
    }

    /// Follows the file, and tells the store what becomes readable, until `stop`. A reading of the file may wait long for a key management
    /// service; when it is dropped, the configuration before stays in force.
    pub(crate) async fn run(self, store: Store, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow(store)).await;
    }

    async fn follow(self, store: Store) {
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stamp = stamp(&self.path).await;
        // The file is read at once, because it may have changed since the first reading.
        let mut read_at: Option<Instant> = None;
        // Whether the store has not taken up yet what may have become readable.
        let mut is_behind = false;
        // Whether the entries of the servers themselves, which no client can write again, may have another form than a write would give.
        let mut is_stale = true;
        loop {
            // All arms are cancel-safe.
            tokio::select! {
                () = self.encryption.news() => is_behind = true,
                _ = look.tick(), if self.is_followed || is_behind || is_stale => {}
            }
            if self.is_followed {
                let seen = self::stamp(&self.path).await;
                let is_due = read_at.is_none_or(|read_at| READ_INTERVAL <= read_at.elapsed());
                if is_due || seen != stamp {
                    (stamp, read_at) = (seen, Some(Instant::now()));
                    is_stale |= self.reload().await == Some(Reload::Exchanged);
                }
            }
            if is_stale {
                match refresh_own(&store).await {
                    Ok(()) => is_stale = false,
                    Err(error) => tracing::warn!(%error, "the CA and the keys of tokens are not written again yet"),
                }
            }
            if is_behind {
                match store.read_again().await {
                    Ok(0) => is_behind = false,
                    Ok(n_entries) => {
                        is_behind = false;
                        tracing::info!(n_entries, "entries that could not be decrypted before are written again");
                    }
                    Err(error) => tracing::warn!(%error, "entries that could not be decrypted are not read again yet"),
                }
            }
        }
    }

    /// Reads the file again; `None` if it cannot be used.
    async fn reload(&self) -> Option<Reload> {
        match self.encryption.reload().await {
            Ok(reload) => {
                if reload == Reload::Exchanged {
                    tracing::info!(file = %self.path.display(), "the encryption configuration has changed and is in force");
                }
                Some(reload)
            }
            Err(error) => {
                tracing::error!(
                    file = %self.path.display(),
                    "the encryption configuration cannot be used, and the one before stays in force: {error}"
                );
                None
            }
        }
    }
}

/// Writes the entries that servers on one store share again, as far as they are not encrypted with the first key.
async fn refresh_own(store: &Store) -> Result<(), WriteError> {
    for resource in [shared_ca::resource(), steersman_server::authn::stored_keys()] {
        store.refresh_all(&resource).await?;
    }
    Ok(())
}

async fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    Some(Stamp { length: metadata.len(), modified: metadata.modified().ok() })
}

impl StorageEncryption for AtRest {
    fn health(&self) -> Option<Result<(), String>> {
        (self.is_followed || self.encryption.has_services()).then(|| self.encryption.health())
    }

    fn reloads(&self) -> Option<Reloads> {
        let (succeeded, failed) = self.encryption.reloads();
        self.is_followed.then_some(Reloads { failed, succeeded })
    }
}
