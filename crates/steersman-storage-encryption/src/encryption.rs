//! The configuration in force, and its exchange when the file changes.

use crate::chain::{Chain, Link};
use crate::ciphers::{AesCbc, AesGcm, Cipher, Secretbox, Unopened as Refused};
use crate::configuration::{Configuration, ConfigurationError, Key, Provider};
use crate::kms::Service;
use crate::rules::Rules;
use arc_swap::ArcSwap;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steersman_storage::kv::key_map::KeyMap;
use steersman_storage::kv::transformed::{Opened, Transformer, Unopened};
use steersman_storage::kv::{BoxFuture, Cause};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// How long the services of a new configuration may take at least until all of them are well.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a service that is not well is asked again.
const READY_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The encryption of values, by a file.
#[derive(Debug)]
pub struct Encryption {
    active: ArcSwap<Active>,
    /// The prefix and the stored keys to which values are bound; `None` for the keys of the store.
    bound_to: Option<(String, Arc<dyn KeyMap>)>,
    news: Arc<Notify>,
    path: PathBuf,
    n_failed: AtomicU64,
    n_reloaded: AtomicU64,
}

/// The configuration in force.
#[derive(Debug)]
struct Active {
    /// The digest of the file, which is kept in the place of its text, because that has the keys.
    digest: [u8; 32],
    rules: Rules,
    services: Vec<Arc<Service>>,
}

/// The outcome of reading the file again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reload {
    /// The new file is in force.
    Exchanged,
    /// The file is the one in force.
    Unchanged,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration has a fault.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The file cannot be read.
    #[error("it cannot be read: {source}")]
    Io {
        /// The cause.
        source: io::Error,
    },
    /// A key management service of a new configuration is not well.
    #[error("the key management service {name} is not well: {why}")]
    Service {
        /// The name of the service.
        name: String,
        /// The cause.
        why: String,
    },
}

impl Encryption {
    /// Reads a file. Each key management service is asked for its state once; one that does not answer is asked again later. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(path: &Path) -> Result<Encryption, OpenError> {
        let news = Arc::new(Notify::new());
        let (digest, text) = read(path).await?;
        let active = Active::new(digest, &Configuration::read(&text)?, &news)?;
        for service in &active.services {
            service.probe().await;
            service.keep_probing();
        }
        Ok(Encryption {
            active: ArcSwap::from_pointee(active),
            bound_to: None,
            news,
            path: path.to_owned(),
            n_failed: AtomicU64::new(0),
            n_reloaded: AtomicU64::new(0),
        })
    }

    /// Binds values to other keys than those of the store, below a prefix: with those of kube-apiserver, either decrypts what the other
    /// has encrypted. Only some ciphers bind a value to its key.
    #[must_use]
    pub fn bound_to(self, prefix: &str, keys: Arc<dyn KeyMap>) -> Encryption {
        Encryption { bound_to: Some((format!("{}/", prefix.trim_end_matches('/')), keys)), ..self }
    }

    /// The data that a cipher authenticates beside the value of a key.
    fn authenticated<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.bound_to {
            Some((prefix, keys)) => Cow::Owned([prefix.as_bytes(), &keys.stored(key)].concat()),
            None => Cow::Borrowed(key),
        }
    }

    /// Reads the file again, and puts it in force if it has changed. A file that cannot be used changes nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn reload(&self) -> Result<Reload, OpenError> {
        let reloaded = self.exchange().await;
        match &reloaded {
            Ok(Reload::Exchanged) => drop(self.n_reloaded.fetch_add(1, Ordering::Relaxed)),
            Ok(Reload::Unchanged) => {}
            Err(_) => drop(self.n_failed.fetch_add(1, Ordering::Relaxed)),
        }
        reloaded
    }

    async fn exchange(&self) -> Result<Reload, OpenError> {
        let (digest, text) = read(&self.path).await?;
        if digest == self.active.load().digest {
            return Ok(Reload::Unchanged);
        }
        let active = Active::new(digest, &Configuration::read(&text)?, &self.news)?;
        active.until_well().await?;
        active.services.iter().for_each(Service::keep_probing);
        // The services of the earlier configuration end when their last use does.
        self.active.store(Arc::new(active));
        self.news.notify_one();
        Ok(Reload::Exchanged)
    }

    /// The number of times that a changed file was put in force, and that it could not be used.
    pub fn reloads(&self) -> (u64, u64) {
        (self.n_reloaded.load(Ordering::Relaxed), self.n_failed.load(Ordering::Relaxed))
    }

    /// Waits until values may be readable that were not before: a new configuration is in force, or a service is well again.
    ///
    /// # Cancel safety
    /// News that was not returned is returned by the next call.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Whether the key management services are well. Without any, they are.
    ///
    /// # Errors
    /// With what is wrong with each that is not.
    pub fn health(&self) -> Result<(), String> {
        let active = self.active.load();
        let faults =
            active.services.iter().filter_map(|service| Some(format!("{}: {}", service.name(), service.fault()?)));
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    /// Whether a key management service is configured.
    pub fn has_services(&self) -> bool {
        !self.active.load().services.is_empty()
    }
}

async fn read(path: &Path) -> Result<([u8; 32], String), OpenError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|source| OpenError::Io { source })?;
    Ok((Sha256::digest(&text).into(), text))
}

impl Active {
    fn new(digest: [u8; 32], configuration: &Configuration, news: &Arc<Notify>) -> Result<Active, ConfigurationError> {
        let (mut rules, mut services) = (Rules::new(), Vec::new());
        for entry in &configuration.entries {
            let mut links = Vec::new();
            for provider in &entry.providers {
                match provider {
                    Provider::AesCbc(keys) => links.extend(of_keys("aescbc", keys, |key| wrap(AesCbc::new(key)))),
                    Provider::AesGcm(keys) => links.extend(of_keys("aesgcm", keys, |key| wrap(AesGcm::new(key)))),
                    Provider::Identity => links.push(Link::Identity),
                    Provider::Kms(kms) => {
                        let service = Arc::new(Service::new(kms, news.clone()));
                        links.push(Link::Cipher { prefix: service.prefix().clone(), cipher: service.clone() });
                        services.push(service);
                    }
                    Provider::Secretbox(keys) => {
                        links.extend(of_keys("secretbox", keys, |key| wrap(Secretbox::new(key))));
                    }
                }
            }
            for named in &entry.resources {
                rules.add(named, &links).map_err(|earlier| ConfigurationError::Masked {
                    later: named.to_string(),
                    earlier: earlier.to_string(),
                })?;
            }
        }
        Ok(Active { digest, rules, services })
    }

    /// Waits until all services are well, as upstream does before it puts a new configuration in force.
    async fn until_well(&self) -> Result<(), OpenError> {
        let timeouts: Duration = self.services.iter().map(|service| service.timeout()).sum();
        let give_up = Instant::now() + READY_TIMEOUT.max(2 * timeouts);
        for service in &self.services {
            service.probe().await;
            while let Some(why) = service.fault() {
                if give_up <= Instant::now() {
                    return Err(OpenError::Service { name: service.name().to_owned(), why });
                }
                sleep(READY_AGAIN_AFTER).await;
                service.probe().await;
            }
        }
        Ok(())
    }

    fn chain(&self, key: &[u8]) -> &Chain {
        self.rules.of(key)
    }
}

/// The links of keys of one provider.
fn of_keys<'a>(
    provider: &'a str,
    keys: &'a [Key],
    cipher: impl Fn(&[u8]) -> Option<Arc<dyn Cipher>> + 'a,
) -> impl Iterator<Item = Link> + 'a {
    keys.iter().filter_map(move |Key { name, secret }| {
        // The configuration has only keys of lengths that there are.
        let cipher = cipher(secret)?;
        Some(Link::Cipher { prefix: format!("k8s:enc:{provider}:v1:{name}:").into(), cipher })
    })
}

fn wrap<C: Cipher + 'static>(cipher: Option<C>) -> Option<Arc<dyn Cipher>> {
    cipher.map(|cipher| Arc::new(cipher) as Arc<dyn Cipher>)
}

impl Transformer for Encryption {
    fn seal(&self, key: &[u8], value: &Bytes) -> Result<Bytes, Cause> {
        let active = self.active.load();
        let chain = active.chain(key);
        if !chain.has_cipher() {
            return Ok(value.clone());
        }
        chain.seal(&self.authenticated(key), value).map_err(|fault| Arc::new(fault) as Cause)
    }

    fn open(&self, key: &[u8], stored: &Bytes) -> Result<Opened, Unopened> {
        self.active.load().chain(key).open(&self.authenticated(key), stored).map_err(|refused| match refused {
            Refused::Fault(fault) => Unopened::Sealed(Arc::new(fault)),
            Refused::Lacking => Unopened::Lacking,
        })
    }

    fn may_be_stale(&self, key: &[u8]) -> bool {
        self.active.load().chain(key).has_cipher()
    }

    fn fetch(&self, lacking: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, ()> {
        let active = self.active.load_full();
        Box::pin(async move {
            for service in &active.services {
                let bodies = lacking.iter().filter_map(|(_, stored)| stored.strip_prefix(&**service.prefix()));
                service.obtain(bodies).await;
            }
        })
    }
}
