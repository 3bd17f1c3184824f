//! `aescbc`: a random block, then AES in CBC mode with PKCS#7 padding. It authenticates nothing, the storage key included; upstream's
//! documentation advises against it for that.

use crate::ciphers::{Cipher, Fault, Unopened, random};
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecryptMut as _, BlockEncryptMut as _, InnerIvInit as _, KeyInit as _};
use aes::{Aes128, Aes192, Aes256};
use std::fmt;
use steersman_storage::kv::transformed::Form;

const BLOCK_BYTES: usize = 16;

pub(crate) struct AesCbc(Key);

enum Key {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl AesCbc {
    /// `None` if AES has no keys of this length.
    pub(crate) fn new(key: &[u8]) -> Option<AesCbc> {
        Some(AesCbc(match key.len() {
            16 => Key::Aes128(Aes128::new_from_slice(key).ok()?),
            24 => Key::Aes192(Aes192::new_from_slice(key).ok()?),
            32 => Key::Aes256(Aes256::new_from_slice(key).ok()?),
            _ => return None,
        }))
    }
}

/// Runs an expression with the block cipher of the key's length.
macro_rules! with_cipher {
    ($key:expr, $cipher:ident => $run:expr) => {
        match $key {
            Key::Aes128($cipher) => $run,
            Key::Aes192($cipher) => $run,
            Key::Aes256($cipher) => $run,
        }
    };
}

impl Cipher for AesCbc {
    fn seal(&self, _key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = random::<BLOCK_BYTES>()?;
        out.extend_from_slice(&start);
        let body_at = out.len();
        out.extend_from_slice(value);
        out.resize(body_at + (value.len() / BLOCK_BYTES + 1) * BLOCK_BYTES, 0);
        let start = GenericArray::from_slice(&start);
        let sealed = with_cipher!(&self.0, cipher => cbc::Encryptor::inner_iv_init(cipher, start)
            .encrypt_padded_mut::<Pkcs7>(&mut out[body_at..], value.len())
            .map(<[u8]>::len));
        // The room is that of the padded value.
        sealed.map(|_| ()).map_err(|_| Fault::Padding)
    }

    fn open(&self, _key: &[u8], body: &[u8]) -> Result<(Vec<u8>, Form), Unopened> {
        let (start, sealed) = body.split_at_checked(BLOCK_BYTES).ok_or(Fault::Short)?;
        let mut value = sealed.to_vec();
        let start = GenericArray::from_slice(start);
        let length = with_cipher!(&self.0, cipher => cbc::Decryptor::inner_iv_init(cipher, start)
            .decrypt_padded_mut::<Pkcs7>(&mut value)
            .map(<[u8]>::len));
        value.truncate(length.map_err(|_| Fault::Padding)?);
        Ok((value, Form::Current))
    }
}

impl fmt::Debug for AesCbc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AesCbc")
    }
}
