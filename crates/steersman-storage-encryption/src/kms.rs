//! A key management service (KMS v2): a plugin behind a unix socket that encrypts and decrypts the seeds of keys.
//!
//! As upstream (`encryptionconfig/config.go`, `envelope/kmsv2`): one seed, made here and encrypted by the service, is used for all
//! writes until the service's key changes; each value gets a key derived from it. The service is asked for its state in the background. A
//! seed may be used for writes for three minutes after the service was last well; after that writes fail, so that an operator who
//! has changed the service's key can rely on it. What was decrypted once stays readable.

mod client;
mod envelope;
mod proto;
mod sources;

use crate::ciphers::{Cipher, Fault, Unopened, random};
use crate::configuration::Kms;
use crate::kms::client::{CallError, Client};
use crate::kms::envelope::{DataKey, SEED_BYTES};
use crate::kms::proto::{EncryptedObject, SourceType};
use crate::kms::sources::{SourceId, Sources};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use steersman_storage::kv::transformed::Form;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// How often a service that is well is asked for its state.
const WELL_INTERVAL: Duration = Duration::from_secs(20);
/// How often one that is not well is asked.
const UNWELL_INTERVAL: Duration = Duration::from_secs(3);
/// How long a seed is used for writes after the service was last well.
const WRITES_MAX: Duration = Duration::from_secs(3 * 60);
/// The keys that the service is asked to decrypt at a time.
const DECRYPTED_AT_ONCE: usize = 16;
/// The versions of the API that a service may name.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];
/// The state that a healthy service reports.
const WELL: &str = "ok";

pub(crate) struct Service {
    name: String,
    prefix: Bytes,
    client: Client,
    news: Arc<Notify>,
    sources: Sources,
    state: Mutex<State>,
    writing: ArcSwapOption<Writing>,
    prober: Mutex<Option<AbortHandle>>,
}

struct State {
    /// The fault that the service had when it was last asked.
    fault: Option<String>,
    /// Whether values could not be opened because the service refused to decrypt their keys, or was silent. They are read again when it
    /// is well again; a refusal of one that was well all the time is final.
    has_lacked: bool,
    was_silent: bool,
    version: Option<String>,
}

/// The service did not answer in time, and would not answer the next call either.
struct Silence;

/// The seed for writes.
struct Writing {
    data_key: DataKey,
    /// The envelope without data.
    envelope: EncryptedObject,
    expires: Instant,
}

impl Service {
    /// Connects when it is first used.
    pub(crate) fn new(kms: &Kms, news: Arc<Notify>) -> Service {
        Service {
            name: kms.name.clone(),
            prefix: format!("k8s:enc:kms:v2:{}:", kms.name).into(),
            client: Client::new(&kms.socket, kms.timeout),
            news,
            sources: Sources::default(),
            state: Mutex::new(State {
                fault: Some("it was not asked yet".to_owned()),
                has_lacked: false,
                was_silent: false,
                version: None,
            }),
            writing: ArcSwapOption::empty(),
            prober: Mutex::new(None),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    /// The fault that it had when it was last asked.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Asks for its state again and again, until the service is dropped.
    pub(crate) fn keep_probing(self: &Arc<Service>) {
        let task = tokio::spawn(probe_for_ever(Arc::downgrade(self)));
        *self.prober.lock() = Some(task.abort_handle());
    }

    /// Asks for its state, and makes a new seed if its key is another one.
    pub(crate) async fn probe(&self) {
        let fault = self.examine().await.err();
        let mut state = self.state.lock();
        if let Some(fault) = &fault {
            tracing::warn!(name = self.name, "the key management service is not well: {fault}");
        } else if state.has_lacked && (state.was_silent || state.fault.is_some()) {
            (state.has_lacked, state.was_silent) = (false, false);
            self.news.notify_one();
        }
        state.fault = fault;
    }

    async fn examine(&self) -> Result<(), String> {
        // Counted from before the call, because this is an upper bound.
        let expires = Instant::now() + WRITES_MAX;
        let status = self.client.status().await.map_err(|error| error.to_string())?;
        let mut faults = Vec::new();
        if status.healthz != WELL {
            faults.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        faults.extend(self.fault_of_version(&status.version));
        match envelope::check_key_id(&status.key_id) {
            Ok(()) => faults.extend(self.rotate(&status.key_id, expires).await.err()),
            Err(why) => faults.push(format!("got an invalid key id: {why}")),
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join(", ")) }
    }

    fn fault_of_version(&self, version: &str) -> Option<String> {
        if !VERSIONS.contains(&version) {
            return Some(format!("expected KMSv2 API version v2, got {version}"));
        }
        let mut state = self.state.lock();
        let first = state.version.get_or_insert_with(|| version.to_owned());
        (first != version)
            .then(|| format!("its API version was {first} first and is {version} now, and should not change"))
    }

    /// Goes on with the seed if the service's key is still the one that encrypted it, or makes another.
    async fn rotate(&self, key_id: &str, expires: Instant) -> Result<(), String> {
        if let Some(writing) = self.writing.load_full().filter(|writing| writing.envelope.key_id == key_id) {
            let Writing { data_key, envelope, .. } = &*writing;
            let (data_key, envelope) = (data_key.clone(), envelope.clone());
            self.writing.store(Some(Arc::new(Writing { data_key, envelope, expires })));
            return Ok(());
        }
        let seed = random::<SEED_BYTES>().map_err(|fault| fault.to_string())?;
        let answer = self.client.encrypt(&seed).await.map_err(|error| format!("failed to encrypt DEK: {error}"))?;
        let envelope = EncryptedObject {
            encrypted_data: Bytes::new(),
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: SourceType::HkdfSeed.into(),
        };
        envelope::check_source(&envelope)?;
        if envelope.key_id != key_id {
            return Err("its state names another key than the one that it encrypts with".to_owned());
        }
        let data_key = DataKey::seed(&seed).ok_or("the seed is too short")?;
        self.sources.insert(SourceId::of(&envelope), data_key.clone());
        self.writing.store(Some(Arc::new(Writing { data_key, envelope, expires })));
        Ok(())
    }

    /// Asks the service for the keys of values that are not known yet. Ends at the first call that is not answered.
    pub(crate) async fn obtain(&self, bodies: impl Iterator<Item = &[u8]>) {
        let mut unknown = HashMap::new();
        for envelope in bodies.filter_map(|body| envelope::read(body).ok()) {
            let id = SourceId::of(&envelope);
            if self.sources.get(&id).is_none() {
                unknown.entry(id).or_insert(envelope);
            }
        }
        let decrypted = stream::iter(unknown.into_iter().map(Ok))
            .try_for_each_concurrent(DECRYPTED_AT_ONCE, |(id, envelope)| self.decrypt(id, envelope));
        // Its prober has the rest asked for again once it is well.
        let _silent: Result<(), Silence> = decrypted.await;
    }

    /// Asks the service for the key of one envelope. A refusal is logged, and leaves the key unknown.
    async fn decrypt(&self, id: SourceId, envelope: EncryptedObject) -> Result<(), Silence> {
        let source_type = envelope.source_type();
        let outcome = match self.client.decrypt(envelope).await {
            Ok(plain) => DataKey::new(source_type, &plain).ok_or(CallError::Key),
            Err(error) => Err(error),
        };
        let error = match outcome {
            Ok(data_key) => {
                self.sources.insert(id, data_key);
                return Ok(());
            }
            Err(error) => error,
        };
        tracing::error!(name = self.name, "the key management service has not decrypted a key: {error}");
        let mut state = self.state.lock();
        state.has_lacked = true;
        state.was_silent |= error.is_silence();
        if error.is_silence() { Err(Silence) } else { Ok(()) }
    }
}

async fn probe_for_ever(service: Weak<Service>) {
    loop {
        let Some(is_well) = service.upgrade().map(|service| service.fault().is_none()) else { return };
        sleep(if is_well { WELL_INTERVAL } else { UNWELL_INTERVAL }).await;
        let Some(service) = service.upgrade() else { return };
        service.probe().await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(prober) = self.prober.get_mut() {
            prober.abort();
        }
    }
}

impl Cipher for Service {
    fn seal(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let unready = |why: String| Fault::Unready { name: self.name.clone(), why };
        let Some(writing) = self.writing.load_full() else {
            return Err(unready(self.fault().unwrap_or_default()));
        };
        if writing.expires < Instant::now() {
            let why = self.fault().unwrap_or_default();
            return Err(unready(format!("it was last well more than {} s ago: {why}", WRITES_MAX.as_secs())));
        }
        let encrypted_data = writing.data_key.seal(key, value)?.into();
        envelope::write(&EncryptedObject { encrypted_data, ..writing.envelope.clone() }, out);
        Ok(())
    }

    fn open(&self, key: &[u8], body: &[u8]) -> Result<(Vec<u8>, Form), Unopened> {
        let envelope = envelope::read(body).map_err(Fault::Envelope)?;
        let Some(data_key) = self.sources.get(&SourceId::of(&envelope)) else { return Err(Unopened::Lacking) };
        let value = data_key.open(key, &envelope.encrypted_data)?;
        let writing = self.writing.load();
        let is_current = writing.as_ref().is_some_and(|writing| {
            writing.envelope.key_id == envelope.key_id
                && writing.envelope.encrypted_dek_source_type == envelope.encrypted_dek_source_type
        });
        Ok((value, if is_current { Form::Current } else { Form::Stale }))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
