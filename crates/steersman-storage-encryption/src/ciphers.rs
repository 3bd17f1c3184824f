//! The ciphers with a key of their own, in the forms of kube-apiserver.

mod aes_cbc;
mod aes_gcm;
mod secretbox;

pub(crate) use crate::ciphers::aes_cbc::AesCbc;
pub(crate) use crate::ciphers::aes_gcm::AesGcm;
pub(crate) use crate::ciphers::secretbox::Secretbox;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Debug;
use steersman_storage::kv::transformed::Form;

/// Makes the bytes that follow a prefix, and reads them.
pub(crate) trait Cipher: Debug + Send + Sync {
    /// Appends the encrypted value. `key` is the storage key.
    fn seal(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault>;

    /// The value, and whether [`Cipher::seal`] would make the same form of it.
    fn open(&self, key: &[u8], body: &[u8]) -> Result<(Vec<u8>, Form), Unopened>;
}

/// Why a value was not opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    Fault(Fault),
    /// It takes a key that must be asked for first.
    Lacking,
}

/// The fault of a value, or of a cipher. It never has a part of a key or of a value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the envelope cannot be used: {0}")]
    Envelope(String),
    #[error(
        "it is not what was written with this key under this name, or another key of the same name has encrypted it"
    )]
    NotAuthentic,
    #[error(
        "no listed provider has its prefix: list the key that has encrypted it under the same name, or, if it is not encrypted, the provider identity"
    )]
    NoProvider,
    #[error("the padding is not what was written, or another key of the same name has encrypted it")]
    Padding,
    #[error("the system has no random bytes")]
    Random,
    #[error("it is shorter than anything encrypted can be")]
    Short,
    #[error("the key management service {name} gives no key for writes: {why}")]
    Unready { name: String, why: String },
}

impl From<Fault> for Unopened {
    fn from(fault: Fault) -> Unopened {
        Unopened::Fault(fault)
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Fault::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
