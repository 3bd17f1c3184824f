//! `secretbox`: a random nonce of 24 bytes, then NaCl's secretbox, which is XSalsa20 with Poly1305, its tag first. The storage key is not
//! authenticated.

use crate::ciphers::{Cipher, Fault, Unopened, random};
use crypto_secretbox::aead::generic_array::GenericArray;
use crypto_secretbox::{AeadInPlace as _, KeyInit as _, XSalsa20Poly1305};
use std::fmt;
use steersman_storage::kv::transformed::Form;

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

pub(crate) struct Secretbox(XSalsa20Poly1305);

impl Secretbox {
    /// `None` if the key has not 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Secretbox> {
        XSalsa20Poly1305::new_from_slice(key).ok().map(Secretbox)
    }
}

impl Cipher for Secretbox {
    fn seal(&self, _key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let nonce = random::<NONCE_BYTES>()?;
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        let body_at = tag_at + TAG_BYTES;
        out.resize(body_at, 0);
        out.extend_from_slice(value);
        let nonce = GenericArray::from_slice(&nonce);
        let tag = self.0.encrypt_in_place_detached(nonce, b"", &mut out[body_at..]);
        out[tag_at..body_at].copy_from_slice(&tag.map_err(|_| Fault::NotAuthentic)?);
        Ok(())
    }

    fn open(&self, _key: &[u8], body: &[u8]) -> Result<(Vec<u8>, Form), Unopened> {
        let (nonce, sealed) = body.split_at_checked(NONCE_BYTES).ok_or(Fault::Short)?;
        let (tag, sealed) = sealed.split_at_checked(TAG_BYTES).ok_or(Fault::Short)?;
        let mut value = sealed.to_vec();
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        self.0.decrypt_in_place_detached(nonce, b"", &mut value, tag).map_err(|_| Fault::NotAuthentic)?;
        Ok((value, Form::Current))
    }
}

impl fmt::Debug for Secretbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secretbox")
    }
}
