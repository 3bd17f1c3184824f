//! Signed tokens in the compact form: header, claims and signature, parted by dots (RFC 7515).

use crate::authn::key::{Algorithm, PublicKey, SigningKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A token whose signature is yet to be verified.
#[derive(Debug)]
pub(crate) struct Jws<'a> {
    /// What is signed: header and claims as they were sent.
    signed: &'a str,
    algorithm: Algorithm,
    key_id: Option<String>,
    /// The claims as JSON. Nobody vouches for them before [`Jws::is_signed_by`].
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
    /// Reads a token. `None` for one that is not of that form, is signed by an algorithm that is not known here (`none` is one of
    /// them), or demands extensions.
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

    /// The key that the token names.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether one of the keys signed it: the one that it names, or any if it names none.
    pub(crate) fn is_signed_by<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> bool {
        let is_named = |key: &&PublicKey| self.key_id().is_none_or(|id| id == key.id());
        let verifies = |key: &PublicKey| key.verifies(self.algorithm, self.signed.as_bytes(), &self.signature);
        keys.into_iter().filter(is_named).any(verifies)
    }
}

/// A token of these claims. `None` if the system gives no random numbers.
pub(crate) fn sign(key: &SigningKey, claims: &impl Serialize) -> Option<String> {
    let header = IssuedHeader { alg: key.algorithm().as_str(), kid: key.public().id() };
    let encode = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
    let header = encode(serde_json::to_vec(&header).ok()?);
    let claims = encode(serde_json::to_vec(claims).ok()?);
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Some(format!("{signed}.{signature}"))
}
