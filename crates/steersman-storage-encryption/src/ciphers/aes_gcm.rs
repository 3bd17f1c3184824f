//! `aesgcm`: a random nonce of 12 bytes, then AES-GCM, whose additional data are the storage key.
//!
//! As upstream says, a key should not encrypt more than 200,000 values before it is rotated, because nonces are random.

use crate::ciphers::{Cipher, Fault, Unopened, random};
use aes::Aes192;
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{AeadInPlace as _, KeyInit as _};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce, Tag};
use std::fmt;
use steersman_storage::kv::transformed::Form;

const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

pub(crate) struct AesGcm(Box<Key>);

enum Key {
    Aes128(Aes128Gcm),
    Aes192(aes_gcm::AesGcm<Aes192, U12>),
    Aes256(Aes256Gcm),
}

impl AesGcm {
    /// `None` if AES has no keys of this length.
    pub(crate) fn new(key: &[u8]) -> Option<AesGcm> {
        Some(AesGcm(Box::new(match key.len() {
            16 => Key::Aes128(Aes128Gcm::new_from_slice(key).ok()?),
            24 => Key::Aes192(aes_gcm::AesGcm::new_from_slice(key).ok()?),
            32 => Key::Aes256(Aes256Gcm::new_from_slice(key).ok()?),
            _ => return None,
        })))
    }
}

impl Cipher for AesGcm {
    fn seal(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let nonce = random::<NONCE_BYTES>()?;
        let nonce = Nonce::from_slice(&nonce);
        out.extend_from_slice(nonce);
        let body_at = out.len();
        out.extend_from_slice(value);
        let body = &mut out[body_at..];
        let tag = match &*self.0 {
            Key::Aes128(cipher) => cipher.encrypt_in_place_detached(nonce, key, body),
            Key::Aes192(cipher) => cipher.encrypt_in_place_detached(nonce, key, body),
            Key::Aes256(cipher) => cipher.encrypt_in_place_detached(nonce, key, body),
        };
        // Only values of more than 64 GiB are refused.
        out.extend_from_slice(&tag.map_err(|_| Fault::NotAuthentic)?);
        Ok(())
    }

    fn open(&self, key: &[u8], body: &[u8]) -> Result<(Vec<u8>, Form), Unopened> {
        let (nonce, sealed) = body.split_at_checked(NONCE_BYTES).ok_or(Fault::Short)?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(Fault::Short)?;
        let (nonce, tag) = (Nonce::from_slice(nonce), Tag::from_slice(tag));
        let mut value = sealed.to_vec();
        let opened = match &*self.0 {
            Key::Aes128(cipher) => cipher.decrypt_in_place_detached(nonce, key, &mut value, tag),
            Key::Aes192(cipher) => cipher.decrypt_in_place_detached(nonce, key, &mut value, tag),
            Key::Aes256(cipher) => cipher.decrypt_in_place_detached(nonce, key, &mut value, tag),
        };
        opened.map_err(|_| Fault::NotAuthentic)?;
        Ok((value, Form::Current))
    }
}

impl fmt::Debug for AesGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AesGcm")
    }
}
