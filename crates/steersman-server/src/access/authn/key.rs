//! The keys of signed tokens: signing keys, and verifying keys.
//!
//! A key is bound to its algorithm: an RSA key of a service account only signs and verifies RS256, a P-256 key only
//! ES256, so that a token cannot choose how it is verified. The cryptography is ring's; the `rsa` crate generates RSA
//! keys, which ring cannot.

mod der;
mod private;
mod public;

pub use crate::access::authn::key::private::SigningKey;
pub use crate::access::authn::key::public::PublicKey;
use ring::signature;
use x509_parser::pem::Pem;

/// A signing algorithm of tokens.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Algorithm {
    Es256,
    Es384,
    Ps256,
    Ps384,
    Ps512,
    Rs256,
    Rs384,
    Rs512,
}

/// Why a key cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "there is no PEM block in it: want PRIVATE KEY, RSA PRIVATE KEY, EC PRIVATE KEY, PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE"
    )]
    Empty,
    #[error("it is no PEM: {0}")]
    Pem(String),
    #[error("a PEM block {label:?} is no key that this server reads: want {wanted}")]
    Label { label: String, wanted: &'static str },
    #[error("a PEM block {label:?} cannot be used: {why}")]
    Unusable { label: String, why: String },
    #[error("the system gave no random numbers for a new key")]
    Random,
}

// === impl Algorithm ===

impl Algorithm {
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
    ];

    /// The name in a token's header.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
        }
    }

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        match self {
            Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Es256 | Algorithm::Es384 => None,
        }
    }
}

/// The blocks of a PEM file, without the parameters that some tools write before an EC key.
fn blocks(pem: &str) -> Result<Vec<Pem>, KeyError> {
    let mut blocks = Vec::new();
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|error| KeyError::Pem(error.to_string()))?;
        if block.label != "EC PARAMETERS" {
            blocks.push(block);
        }
    }
    if blocks.is_empty() { Err(KeyError::Empty) } else { Ok(blocks) }
}

fn unusable(label: &str, why: impl ToString) -> KeyError {
    KeyError::Unusable { label: label.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_by_its_one_algorithm_and_its_public_half_verifies() {
        for algorithm in [Algorithm::Es256, Algorithm::Rs256] {
            let (key, pem) = SigningKey::generate(algorithm).unwrap();
            let read = SigningKey::read(&pem).unwrap();
            assert_eq!((key.algorithm(), key.public()), (algorithm, read.public()));
            let signature = read.sign(b"text").unwrap();
            assert!(key.public().verifies(algorithm, b"text", &signature));
            assert!(!key.public().verifies(algorithm, b"other", &signature));
            for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
                assert!(!key.public().verifies(other, b"text", &signature), "{other:?}");
            }
            let published = PublicKey::from_jwk(&key.public().to_jwk()).unwrap();
            assert!(published.verifies(algorithm, b"text", &signature) && published.id() == key.public().id());
            assert_eq!(PublicKey::read_all(&pem).unwrap(), [key.public().clone()]);
        }
    }

    #[test]
    fn what_is_no_key_is_named() {
        assert_eq!(PublicKey::read_all("nothing"), Err(KeyError::Empty));
        let dhparams = "-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n";
        assert!(
            matches!(PublicKey::read_all(dhparams), Err(KeyError::Label { label, .. }) if label == "DH PARAMETERS")
        );
        let empty = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(SigningKey::read(empty), Err(KeyError::Unusable { .. })));
    }
}
