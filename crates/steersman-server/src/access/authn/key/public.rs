//! Public keys: parsed from PEM files and key sets, published in key sets, and used to verify signatures.

use crate::access::authn::key::der::{self, Reader};
use crate::access::authn::key::{Algorithm, KeyError, SigningKey, blocks, unusable};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// `1.2.840.113549.1.1.1`, with its NULL.
const RSA_ALGORITHM: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// `1.2.840.10045.2.1`.
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
pub(super) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
pub(super) const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// A key that verifies signatures.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    id: String,
    numbers: Numbers,
    /// The only algorithm of the key; `None`: any that its type supports.
    only: Option<Algorithm>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Numbers {
    /// The uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

impl PublicKey {
    /// The key of a service account issuer: it has one algorithm, and its id is the digest of its DER, as upstream.
    pub(super) fn of_issuer(numbers: Numbers) -> PublicKey {
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(numbers.to_spki()));
        let only = Some(numbers.default_algorithm());
        PublicKey { id, numbers, only }
    }

    /// The keys of a PEM file: public keys, the public parts of private keys, and the keys of certificates.
    ///
    /// # Errors
    /// When there is none, or one is unusable.
    pub fn read_all(pem: &str) -> Result<Vec<PublicKey>, KeyError> {
        let mut keys = Vec::new();
        for block in blocks(pem)? {
            let label = block.label.as_str();
            let odd = || unusable(label, "want an RSA key of 2048 bits or more, or an EC key on P-256 or P-384");
            keys.push(match label {
                "PUBLIC KEY" => PublicKey::of_issuer(Numbers::of_spki(&block.contents).ok_or_else(odd)?),
                "RSA PUBLIC KEY" => PublicKey::of_issuer(Numbers::of_rsa(&block.contents).ok_or_else(odd)?),
                "CERTIFICATE" => {
                    let (_, certificate) =
                        x509_parser::parse_x509_certificate(&block.contents).map_err(|error| unusable(label, error))?;
                    PublicKey::of_issuer(Numbers::of_spki(certificate.public_key().raw).ok_or_else(odd)?)
                }
                "EC PRIVATE KEY" | "PRIVATE KEY" | "RSA PRIVATE KEY" => SigningKey::of_block(&block)?.public().clone(),
                _ => {
                    let wanted = "PUBLIC KEY, RSA PUBLIC KEY, CERTIFICATE or a private key";
                    return Err(KeyError::Label { label: label.to_owned(), wanted });
                }
            });
        }
        Ok(keys)
    }

    /// A key of a key set. `None` if it is not for signatures, or of an unknown type.
    pub(crate) fn from_jwk(jwk: &Value) -> Option<PublicKey> {
        let text = |key: &str| jwk.get(key).and_then(Value::as_str);
        let bytes = |key: &str| URL_SAFE_NO_PAD.decode(text(key)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let point = |len: usize| -> Option<Vec<u8>> {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == len && y.len() == len).then(|| [&[4], &*x, &*y].concat())
        };
        let numbers = match (text("kty")?, text("crv")) {
            ("EC", Some("P-256")) => Numbers::P256(point(32)?),
            ("EC", Some("P-384")) => Numbers::P384(point(48)?),
            ("RSA", _) => Numbers::Rsa { n: bytes("n")?, e: bytes("e")? },
            _ => return None,
        };
        let only = match text("alg") {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        Some(PublicKey { id: text("kid").unwrap_or_default().to_owned(), numbers, only })
    }

    /// The key as published in key sets.
    pub(crate) fn to_jwk(&self) -> Value {
        let base64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let alg = self.only.unwrap_or(self.numbers.default_algorithm()).as_str();
        let ec = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at(point.len() / 2);
            json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": curve, "alg": alg, "x": base64(x), "y": base64(y)})
        };
        match &self.numbers {
            Numbers::P256(point) => ec("P-256", point),
            Numbers::P384(point) => ec("P-384", point),
            Numbers::Rsa { n, e } => {
                json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": alg, "n": base64(n), "e": base64(e)})
            }
        }
    }

    /// The id by which tokens name the key.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm of the key.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.only.unwrap_or(self.numbers.default_algorithm())
    }

    /// Whether a signature of this text is valid, by an algorithm that the key allows.
    pub(crate) fn verifies(&self, algorithm: Algorithm, text: &[u8], signature: &[u8]) -> bool {
        if self.only.is_some_and(|only| only != algorithm) {
            return false;
        }
        let is_good = match (&self.numbers, algorithm) {
            (Numbers::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(text, signature)
            }
            (Numbers::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(text, signature)
            }
            (Numbers::Rsa { n, e }, _) => match algorithm.rsa() {
                Some(parameters) => RsaPublicKeyComponents { n, e }.verify(parameters, text, signature),
                None => return false,
            },
            _ => return false,
        };
        is_good.is_ok()
    }
}

// === impl Numbers ===

impl Numbers {
    /// The key in a `SubjectPublicKeyInfo`.
    fn of_spki(der: &[u8]) -> Option<Numbers> {
        let mut info = Reader::new(Reader::new(der).take(der::SEQUENCE)?);
        let mut algorithm = Reader::new(info.take(der::SEQUENCE)?);
        match algorithm.take(der::OBJECT_ID)? {
            RSA => Numbers::of_rsa(info.bits()?),
            EC => Numbers::of_point(algorithm.take(der::OBJECT_ID)?, info.bits()?),
            _ => None,
        }
    }

    /// The key in an `RSAPublicKey`.
    pub(super) fn of_rsa(der: &[u8]) -> Option<Numbers> {
        let mut key = Reader::new(Reader::new(der).take(der::SEQUENCE)?);
        let (n, e) = (key.unsigned()?.to_vec(), key.unsigned()?.to_vec());
        // The sizes with which ring verifies.
        (2048..=8192).contains(&(n.len() * 8)).then_some(Numbers::Rsa { n, e })
    }

    /// A point on the curve with this object identifier.
    pub(super) fn of_point(curve: &[u8], point: &[u8]) -> Option<Numbers> {
        match (curve, point.len(), point.first()) {
            (P256, 65, Some(4)) => Some(Numbers::P256(point.to_vec())),
            (P384, 97, Some(4)) => Some(Numbers::P384(point.to_vec())),
            _ => None,
        }
    }

    fn default_algorithm(&self) -> Algorithm {
        match self {
            Numbers::P256(_) => Algorithm::Es256,
            Numbers::P384(_) => Algorithm::Es384,
            Numbers::Rsa { .. } => Algorithm::Rs256,
        }
    }

    fn to_spki(&self) -> Vec<u8> {
        let ec = |curve: &[u8], point: &[u8]| {
            let ids = [der::element(der::OBJECT_ID, &[EC]), der::element(der::OBJECT_ID, &[curve])].concat();
            der::element(der::SEQUENCE, &[&der::element(der::SEQUENCE, &[&ids]), &der::bits(point)])
        };
        match self {
            Numbers::P256(point) => ec(P256, point),
            Numbers::P384(point) => ec(P384, point),
            Numbers::Rsa { n, e } => {
                let key = der::element(der::SEQUENCE, &[&der::unsigned(n), &der::unsigned(e)]);
                der::element(der::SEQUENCE, &[&der::element(der::SEQUENCE, &[RSA_ALGORITHM]), &der::bits(&key)])
            }
        }
    }
}
