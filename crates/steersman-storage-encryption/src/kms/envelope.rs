//! The envelope of a value, and the key within it.
//!
//! With a seed (KEP-3299, `aes_extended_nonce.go`): 32 random bytes come first, HKDF-Expand with SHA-256 makes the key of the value of them and of
//! the seed, and what follows is `aesgcm`.

use crate::ciphers::{AesGcm, Cipher as _, Fault, Unopened, random};
use crate::kms::proto::{EncryptedObject, SourceType};
use prost::Message as _;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::sync::Arc;
use steersman_machinery::name;

pub(crate) const SEED_BYTES: usize = 32;
const INFO_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES_MAX: usize = 1024;
const SOURCE_BYTES_MAX: usize = 1024;
const ANNOTATIONS_BYTES_MAX: usize = 32 * 1024;

/// The secret that the service has decrypted.
#[derive(Clone)]
pub(crate) enum DataKey {
    Key(Arc<AesGcm>),
    Seed(Arc<Prk>),
}

/// The length of a derived key.
#[derive(Debug)]
struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl DataKey {
    /// `None` if it has no length that its type allows.
    pub(crate) fn new(source_type: SourceType, plain: &[u8]) -> Option<DataKey> {
        match source_type {
            SourceType::AesGcmKey => AesGcm::new(plain).map(|key| DataKey::Key(Arc::new(key))),
            SourceType::HkdfSeed => DataKey::seed(plain),
        }
    }

    /// `None` if it is too short.
    pub(crate) fn seed(plain: &[u8]) -> Option<DataKey> {
        (SEED_BYTES <= plain.len()).then(|| DataKey::Seed(Arc::new(Prk::new_less_safe(HKDF_SHA256, plain))))
    }

    pub(crate) fn seal(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, Fault> {
        match self {
            // Upstream never writes with a key that was decrypted either.
            DataKey::Key(_) => Err(Fault::Envelope("a key of this type is for reading only".to_owned())),
            DataKey::Seed(seed) => {
                let info = random::<INFO_BYTES>()?;
                let mut out = Vec::with_capacity(INFO_BYTES + value.len() + 32);
                out.extend_from_slice(&info);
                derived(seed, &info)?.seal(key, value, &mut out)?;
                Ok(out)
            }
        }
    }

    pub(crate) fn open(&self, key: &[u8], data: &[u8]) -> Result<Vec<u8>, Unopened> {
        let opened = match self {
            DataKey::Key(cipher) => cipher.open(key, data)?,
            DataKey::Seed(seed) => {
                let (info, data) = data.split_at_checked(INFO_BYTES).ok_or(Fault::Short)?;
                derived(seed, info)?.open(key, data)?
            }
        };
        Ok(opened.0)
    }
}

fn derived(seed: &Prk, info: &[u8]) -> Result<AesGcm, Fault> {
    let mut key = [0; KEY_BYTES];
    let info = [info];
    let filled = seed.expand(&info, KeyLength).and_then(|okm| okm.fill(&mut key));
    // HKDF gives up to 255 times its hash.
    let cipher = filled.ok().and_then(|()| AesGcm::new(&key));
    cipher.ok_or_else(|| Fault::Envelope("no key can be derived of its seed".to_owned()))
}

pub(crate) fn write(envelope: &EncryptedObject, out: &mut Vec<u8>) {
    out.extend_from_slice(&envelope.encode_to_vec());
}

pub(crate) fn read(body: &[u8]) -> Result<EncryptedObject, String> {
    let envelope = EncryptedObject::decode(body).map_err(|error| error.to_string())?;
    if envelope.encrypted_data.is_empty() {
        return Err("encrypted data is empty".to_owned());
    }
    check_source(&envelope)?;
    Ok(envelope)
}

/// Checks everything but the data, by upstream's rules.
pub(crate) fn check_source(envelope: &EncryptedObject) -> Result<(), String> {
    if SourceType::try_from(envelope.encrypted_dek_source_type).is_err() {
        return Err(format!("unknown encryptedDEKSourceType: {}", envelope.encrypted_dek_source_type));
    }
    match envelope.encrypted_dek_source.len() {
        0 => return Err("encrypted DEK source is empty".to_owned()),
        length if SOURCE_BYTES_MAX < length => {
            return Err(format!(
                "encrypted DEK source is {length} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"
            ));
        }
        _ => {}
    }
    check_key_id(&envelope.key_id)?;
    let length: usize = envelope.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if ANNOTATIONS_BYTES_MAX < length {
        return Err(format!(
            "total size of annotations is {length}, which exceeds the max size of {ANNOTATIONS_BYTES_MAX}"
        ));
    }
    let is_qualified = |key: &String| key.contains('.') && name::dns1123_subdomain(key).is_empty();
    match envelope.annotations.keys().find(|key| !is_qualified(key)) {
        Some(key) => Err(format!("annotation {key:?} is no fully qualified domain name")),
        None => Ok(()),
    }
}

pub(crate) fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        length if KEY_ID_BYTES_MAX < length => {
            Err(format!("keyID is {length} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}
