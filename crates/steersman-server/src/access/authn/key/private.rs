//! Private keys: generated, parsed from PEM files, and used to sign.

use crate::access::authn::key::der::{self, Reader};
use crate::access::authn::key::public::{Numbers, P256, P384};
use crate::access::authn::key::{Algorithm, KeyError, PublicKey, blocks, unusable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use rsa::pkcs8::EncodePrivateKey as _;
use std::fmt;
use x509_parser::pem::Pem;

/// The size of generated RSA keys.
const RSA_BITS: usize = 2048;

pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

impl SigningKey {
    /// Generates a key for ES256 or RS256, with its PEM. An RSA key takes some hundred milliseconds.
    ///
    /// # Errors
    /// When the system provides no random numbers, or for another algorithm.
    pub fn generate(algorithm: Algorithm) -> Result<(SigningKey, String), KeyError> {
        let der = match algorithm {
            Algorithm::Es256 => {
                EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                    .map_err(|_| KeyError::Random)?
                    .as_ref()
                    .to_vec()
            }
            Algorithm::Rs256 => {
                // ring generates no RSA keys. The crate rsa has a timing side channel when it signs and decrypts
                // (RUSTSEC-2023-0071), so it only generates the key.
                let key =
                    rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, RSA_BITS).map_err(|_| KeyError::Random)?;
                key.to_pkcs8_der().map_err(|error| unusable("PRIVATE KEY", error))?.as_bytes().to_vec()
            }
            other => return Err(unusable("PRIVATE KEY", format!("keys for {} are not made here", other.as_str()))),
        };
        let pem = pem("PRIVATE KEY", &der);
        Ok((SigningKey::read(&pem)?, pem))
    }

    /// Parses the key of a PEM file.
    ///
    /// # Errors
    /// When there is none or more than one, or it is unusable.
    pub fn read(pem: &str) -> Result<SigningKey, KeyError> {
        match blocks(pem)?.as_slice() {
            [block] => SigningKey::of_block(block),
            [first, ..] => Err(unusable(&first.label, "the file has more than one: want the one key that signs")),
            [] => Err(KeyError::Empty),
        }
    }

    pub(super) fn of_block(block: &Pem) -> Result<SigningKey, KeyError> {
        let (label, der) = (block.label.as_str(), block.contents.as_slice());
        let refused = |error: ring::error::KeyRejected| unusable(label, error);
        match label {
            "RSA PRIVATE KEY" => SigningKey::of_rsa(RsaKeyPair::from_der(der).map_err(refused)?),
            "EC PRIVATE KEY" => of_sec1(der).ok_or_else(|| unusable(label, "want a key on P-256 or P-384")),
            "PRIVATE KEY" => {
                // Each parser refuses the keys of the others.
                if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
                    return SigningKey::of_rsa(pair);
                }
                let key = of_pkcs8_ec(der);
                key.ok_or_else(|| {
                    unusable(label, "want an RSA key of 2048 to 4096 bits, or an EC key on P-256 or P-384")
                })
            }
            _ => {
                let wanted = "PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY";
                Err(KeyError::Label { label: label.to_owned(), wanted })
            }
        }
    }

    fn of_rsa(pair: RsaKeyPair) -> Result<SigningKey, KeyError> {
        let numbers = Numbers::of_rsa(pair.public_key().as_ref());
        let numbers = numbers.ok_or_else(|| unusable("RSA PRIVATE KEY", "want 2048 to 8192 bits"))?;
        Ok(SigningKey { public: PublicKey::of_issuer(numbers), pair: Pair::Rsa(Box::new(pair)) })
    }

    fn of_ec(curve: &[u8], pair: EcdsaKeyPair) -> Option<SigningKey> {
        let numbers = Numbers::of_point(curve, pair.public_key().as_ref())?;
        Some(SigningKey { public: PublicKey::of_issuer(numbers), pair: Pair::Ec(Box::new(pair)) })
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signing algorithm.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.public.algorithm()
    }

    /// The signature of a text, in the form of tokens. `None` if the system provides no random numbers.
    pub(crate) fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, text).ok().map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, text, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

fn signing(curve: &[u8]) -> Option<&'static signature::EcdsaSigningAlgorithm> {
    match curve {
        P256 => Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
        P384 => Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        _ => None,
    }
}

/// An `ECPrivateKey` that names its curve, as written by openssl.
fn of_sec1(der: &[u8]) -> Option<SigningKey> {
    let mut curve = None;
    let (private, public) = sec1(der, &mut curve)?;
    let curve = curve?;
    let pair =
        EcdsaKeyPair::from_private_key_and_public_key(signing(curve)?, private, public, &SystemRandom::new()).ok()?;
    SigningKey::of_ec(curve, pair)
}

/// An `ECPrivateKey` in a `PrivateKeyInfo`.
fn of_pkcs8_ec(der: &[u8]) -> Option<SigningKey> {
    let mut info = Reader::new(Reader::new(der).take(der::SEQUENCE)?);
    info.take(der::INTEGER)?;
    let mut algorithm = Reader::new(info.take(der::SEQUENCE)?);
    algorithm.take(der::OBJECT_ID)?;
    let curve = algorithm.take(der::OBJECT_ID)?;
    let (private, public) = sec1(info.take(der::OCTET_STRING)?, &mut None)?;
    let pair =
        EcdsaKeyPair::from_private_key_and_public_key(signing(curve)?, private, public, &SystemRandom::new()).ok()?;
    SigningKey::of_ec(curve, pair)
}

/// The private and the public key in an `ECPrivateKey`, and its curve if it is named.
fn sec1<'a>(der: &'a [u8], curve: &mut Option<&'a [u8]>) -> Option<(&'a [u8], &'a [u8])> {
    const CURVE: u8 = 0xa0;
    const PUBLIC: u8 = 0xa1;
    let mut key = Reader::new(Reader::new(der).take(der::SEQUENCE)?);
    key.take(der::INTEGER)?;
    let private = key.take(der::OCTET_STRING)?;
    let mut public = None;
    while let Some((tag, contents)) = key.next() {
        match tag {
            CURVE => *curve = Reader::new(contents).take(der::OBJECT_ID),
            PUBLIC => public = Reader::new(contents).bits(),
            _ => return None,
        }
    }
    Some((private, public?))
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}
