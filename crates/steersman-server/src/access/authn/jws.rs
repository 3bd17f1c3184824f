//! Signed tokens in the compact form: header, claims and signature, separated by dots (RFC 7515).

use crate::access::authn::key::{Algorithm, PublicKey, SigningKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A token whose signature is not verified yet.
#[derive(Debug)]
pub(crate) struct Jws<'a> {
    /// The signed part: header and claims as sent.
    signed: &'a str,
    algorithm: Algorithm,
    key_id: Option<String>,
    /// The claims as JSON. Untrusted until [`Jws::is_signed_by`] is true.
    pub(crate) claims: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
struct IssuedHeader<'a> {
    alg: &'a str,
    kid: &'a str,
}

impl<'a> Jws<'a> {
    /// Parses a token. `None` if it does not have this form, uses an algorithm that is not supported (such as `none`),
    /// or requires extensions.
    pub(crate) fn parse(token: &'a str) -> Option<Jws<'a>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        Some(Jws {
            signed,
            algorithm: Algorithm::named(&header.alg)?,
            key_id: header.kid.filter(|id| !id.is_empty()),
            claims: decode(claims)?,
            signature: decode(signature)?,
        })
    }

    /// The id of the key that the token names.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether one of the keys signed it: the named one, or any if it names none.
    pub(crate) fn is_signed_by<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> bool {
        let is_named = |key: &&PublicKey| self.key_id().is_none_or(|id| id == key.id());
        let verifies = |key: &PublicKey| key.verifies(self.algorithm, self.signed.as_bytes(), &self.signature);
        keys.into_iter().filter(is_named).any(verifies)
    }
}

/// Signs a token with these claims. `None` if the system provides no random numbers.
pub(crate) fn sign(key: &SigningKey, claims: &impl Serialize) -> Option<String> {
    let header = IssuedHeader { alg: key.algorithm().as_str(), kid: key.public().id() };
    let encode = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
    let header = encode(serde_json::to_vec(&header).ok()?);
    let claims = encode(serde_json::to_vec(claims).ok()?);
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Some(format!("{signed}.{signature}"))
}
