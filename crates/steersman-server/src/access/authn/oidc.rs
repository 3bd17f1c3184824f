//! Verifies JWTs of OIDC and other issuers: the audience, the signature, and the user.
//!
//! An issuer's keys are fetched in the background (`oidc/keys`), so a request waits for them only for a bounded time. A
//! signature is verified once for each version of the keys; the claims of the token are cached by its digest until it
//! expires. Follows apiserver's `plugin/pkg/authenticator/token/oidc`. Not supported: claims that refer to another
//! server (`_claim_names`), and CEL expressions, which the configuration refuses.

mod keys;

use crate::access::authn::jws::Jws;
use crate::access::authn::key::Algorithm;
use crate::access::authn::oidc::keys::{KeySet, Keys};
use crate::shared::identity::digest_cache::{Digest, DigestCache};
use crate::shared::webhook::EndpointError;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_kinds::user::User;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The allowed clock difference for the `nbf` of a token. Its `exp` has no leeway.
const BEGIN_LEEWAY_SECONDS: i64 = 300;
/// The maximum size of the cache of verified tokens of one issuer.
const VERIFIED_MAX: usize = 4096;
const VERIFIED_BYTES_MAX: usize = 16 << 20;
/// The maximum size of the cache of tokens with a bad signature.
const REFUSED_MAX: usize = 1024;
const REFUSED_BYTES: usize = 64;
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// The URL of the issuer, as its tokens name it.
    pub url: String,
    /// The URL of the discovery document, if it is not below the issuer's URL.
    pub discovery_url: Option<String>,
    /// The PEM certificates of the authorities for the issuer's certificate. Empty: the system's authorities.
    pub ca: Vec<u8>,
    /// The audiences; a token must be for one of them.
    pub audiences: Vec<String>,
    /// The algorithms with which tokens may be signed.
    pub algorithms: Vec<Algorithm>,
    /// The claim with the name of the user.
    pub username: PrefixedClaim,
    /// The claim with the groups of the user, a string or a list of strings.
    pub groups: Option<PrefixedClaim>,
    /// The claim with the uid of the user.
    pub uid: Option<String>,
    /// Claims that a token must have with these values.
    pub required: BTreeMap<String, String>,
}

/// A claim, and the prefix of its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrefixedClaim {
    pub claim: String,
    pub prefix: String,
}

/// Verifies the tokens of one issuer.
#[derive(Debug)]
pub struct Oidc {
    issuer: Issuer,
    keys: Arc<Keys>,
    verified: DigestCache<Arc<Verified>>,
    refused: DigestCache<Timestamp>,
}

/// A token whose signature is verified.
#[derive(Debug)]
struct Verified {
    /// The version of the keys that verified it.
    version: u64,
    user: Arc<User>,
    end: i64,
    begin: Option<i64>,
}

impl Oidc {
    /// # Errors
    /// When the URL or the certificates of the issuer cannot be used.
    pub fn new(issuer: Issuer) -> Result<Oidc, EndpointError> {
        let keys = Arc::new(Keys::new(&issuer)?);
        Ok(Oidc {
            issuer,
            keys,
            verified: DigestCache::new(VERIFIED_MAX, VERIFIED_BYTES_MAX),
            refused: DigestCache::new(REFUSED_MAX, REFUSED_MAX * REFUSED_BYTES),
        })
    }

    /// Starts the task that fetches the keys.
    pub(crate) fn start(&self, stopping: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(self.keys.clone().run(stopping))
    }

    /// The user of a token. `None` if it is not a token of this issuer.
    ///
    /// # Errors
    /// With the reason why a token of this issuer is not valid.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        digest: &Digest,
        now: Timestamp,
    ) -> Result<Option<Arc<User>>, String> {
        let version = self.keys.current().version;
        let known = self.verified.get(digest).filter(|verified| verified.version == version);
        let verified = match known {
            Some(verified) => verified,
            None => {
                let Some(jws) = Jws::parse(token) else { return Ok(None) };
                let claims: Map<String, Value> = match serde_json::from_slice(&jws.claims) {
                    Ok(claims) => claims,
                    Err(_) => return Ok(None),
                };
                if claims.get("iss").and_then(Value::as_str) != Some(self.issuer.url.as_str()) {
                    return Ok(None);
                }
                self.verify(&jws, &claims, digest, now).await?
            }
        };
        let second = now.as_second();
        if verified.end <= second {
            return Err("oidc: the token has expired".to_owned());
        }
        if verified.begin.is_some_and(|begin| second + BEGIN_LEEWAY_SECONDS < begin) {
            return Err("oidc: the token is not valid yet".to_owned());
        }
        Ok(Some(verified.user.clone()))
    }

    async fn verify(
        &self,
        jws: &Jws<'_>,
        claims: &Map<String, Value>,
        digest: &Digest,
        now: Timestamp,
    ) -> Result<Arc<Verified>, String> {
        if !self.issuer.algorithms.contains(&jws.algorithm()) {
            return Err(format!("oidc: tokens signed by {} are not taken", jws.algorithm().as_str()));
        }
        if self.refused.get(digest).is_some_and(|until| now < until) {
            return Err(unsigned(&self.issuer));
        }
        let mut keys = self.keys.current();
        if !keys.verifies(jws) && self.keys.may_have_changed(jws, &keys) {
            keys = self.keys.newer(&keys).await;
        }
        if keys.keys.is_empty() {
            return Err(format!("oidc: the keys of the issuer {:?} are not known yet", self.issuer.url));
        }
        if !keys.verifies(jws) {
            self.refused.insert(*digest, now + REFUSED_FOR, REFUSED_BYTES);
            return Err(unsigned(&self.issuer));
        }
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_f64).map(|seconds| seconds as i64);
        let user = user(&self.issuer, claims)?;
        let end = seconds("exp").ok_or("oidc: the token has no end")?;
        let verified = Arc::new(Verified { version: keys.version, user: Arc::new(user), end, begin: seconds("nbf") });
        self.verified.insert(*digest, verified.clone(), 512 + jws.claims.len());
        Ok(verified)
    }
}

fn unsigned(issuer: &Issuer) -> String {
    format!("oidc: the signature is not of a key of the issuer {:?}", issuer.url)
}

/// The user described by the claims of a token.
///
/// # Errors
/// When it is not for this server, or the claims are not such as the issuer's are to be.
pub(crate) fn user(issuer: &Issuer, claims: &Map<String, Value>) -> Result<User, String> {
    let audiences = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !issuer.audiences.iter().any(|wanted| audiences.contains(&wanted.as_str())) {
        return Err(format!("oidc: expected audience in {:?} got {audiences:?}", issuer.audiences));
    }
    for (claim, wanted) in &issuer.required {
        match claims.get(claim) {
            None => return Err(format!("oidc: required claim {claim} not present in ID token")),
            Some(Value::String(value)) if value == wanted => {}
            Some(value) => {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}"
                ));
            }
        }
    }
    let PrefixedClaim { claim, prefix } = &issuer.username;
    let name = claims.get(claim).and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("oidc: the token has no claim {claim:?} with the name of the user"))?;
    // With an unverified address anyone could claim to be another user.
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != Value::Bool(true)) {
        return Err("oidc: email not verified".to_owned());
    }
    let groups = match &issuer.groups {
        Some(groups) => of_list(groups, claims)?,
        None => Vec::new(),
    };
    let uid = match &issuer.uid {
        Some(claim) => {
            let uid = claims.get(claim).and_then(Value::as_str);
            uid.ok_or_else(|| format!("oidc: the token has no claim {claim:?} with the uid of the user"))?.to_owned()
        }
        None => String::new(),
    };
    let id = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.map(|id| ("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]));
    Ok(User { uid, extra: id.into_iter().collect(), ..User::authenticated(format!("{prefix}{name}"), groups) })
}

/// The values of a claim that is a string or a list of strings.
fn of_list(of: &PrefixedClaim, claims: &Map<String, Value>) -> Result<Vec<String>, String> {
    let PrefixedClaim { claim, prefix } = of;
    let bad = || format!("oidc: the claim {claim:?} is no text, nor a list of them");
    match claims.get(claim) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) if one.is_empty() => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![format!("{prefix}{one}")]),
        Some(Value::Array(many)) => {
            let texts = many.iter().map(|one| one.as_str().map(|one| format!("{prefix}{one}")));
            texts.collect::<Option<_>>().ok_or_else(bad)
        }
        Some(_) => Err(bad()),
    }
}

impl KeySet {
    fn verifies(&self, jws: &Jws<'_>) -> bool {
        jws.is_signed_by(&self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn::jws;
    use crate::access::authn::key::SigningKey;
    use crate::shared::identity::digest_cache::digest;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;

    fn issuer() -> Issuer {
        Issuer {
            url: "https://issuer.example".to_owned(),
            discovery_url: None,
            ca: Vec::new(),
            audiences: vec!["steersman".to_owned()],
            algorithms: vec![Algorithm::Es256],
            username: PrefixedClaim { claim: "sub".to_owned(), prefix: "oidc:".to_owned() },
            groups: Some(PrefixedClaim { claim: "groups".to_owned(), prefix: "g:".to_owned() }),
            uid: None,
            required: BTreeMap::new(),
        }
    }

    /// An authenticator with a key that need not be fetched.
    fn oidc(issuer: Issuer, key: &SigningKey) -> Oidc {
        let oidc = Oidc::new(issuer).unwrap();
        oidc.keys.set(vec![key.public().clone()]);
        oidc
    }

    fn claims(changes: &Value) -> Value {
        let mut claims = json!({"iss": "https://issuer.example", "aud": "steersman", "sub": "jane", "exp": NOW + 60, "groups": ["a"]});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims
    }

    async fn check(oidc: &Oidc, token: &str, second: i64) -> Result<Option<Arc<User>>, String> {
        oidc.authenticate(token, &digest(token), Timestamp::from_second(second).unwrap()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_for_its_audience_until_its_end() {
        let (key, _) = SigningKey::generate(Algorithm::Es256).unwrap();
        let (other, _) = SigningKey::generate(Algorithm::Es256).unwrap();
        let verifier = oidc(issuer(), &key);
        let sign = |changes: Value| jws::sign(&key, &claims(&changes)).unwrap();
        let good = sign(json!({"jti": "7"}));
        let user = check(&verifier, &good, NOW).await.unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("oidc:jane", &["g:a", "system:authenticated"].map(str::to_owned)[..])
        );
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=7"]);
        assert_eq!(check(&verifier, &good, NOW + 60).await, Err("oidc: the token has expired".to_owned()));
        assert_eq!(check(&verifier, &sign(json!({"iss": "https://elsewhere"})), NOW).await, Ok(None));
        for (what, token) in [
            ("another audience", sign(json!({"aud": ["vault"]}))),
            ("no audience", sign(json!({"aud": null}))),
            ("no end", sign(json!({"exp": null}))),
            ("not yet", sign(json!({"nbf": NOW + 301}))),
            ("another key", jws::sign(&other, &claims(&json!({}))).unwrap()),
            ("no name", sign(json!({"sub": ""}))),
            ("odd groups", sign(json!({"groups": [1]}))),
        ] {
            assert!(check(&verifier, &token, NOW).await.is_err(), "{what}");
        }
        let narrow = Issuer { algorithms: vec![Algorithm::Rs256], ..issuer() };
        let narrow = oidc(narrow, &key);
        assert_eq!(check(&narrow, &good, NOW).await, Err("oidc: tokens signed by ES256 are not taken".to_owned()));
    }

    #[tokio::test]
    async fn a_key_that_the_issuer_takes_back_ends_what_is_remembered_of_it() {
        let (key, _) = SigningKey::generate(Algorithm::Es256).unwrap();
        let (other, _) = SigningKey::generate(Algorithm::Es256).unwrap();
        let verifier = oidc(issuer(), &key);
        let token = jws::sign(&key, &claims(&json!({}))).unwrap();
        assert!(check(&verifier, &token, NOW).await.is_ok());
        verifier.keys.set(vec![other.public().clone()]);
        assert!(check(&verifier, &token, NOW).await.is_err());
    }

    #[test]
    fn claims_are_what_the_issuer_says_they_are() {
        let of = |issuer: &Issuer, changes: Value| user(issuer, claims(&changes).as_object().unwrap());
        let by_email =
            Issuer { username: PrefixedClaim { claim: "email".to_owned(), prefix: String::new() }, ..issuer() };
        assert_eq!(of(&by_email, json!({"email": "j@x"})).unwrap().name, "j@x");
        assert_eq!(of(&by_email, json!({"email": "j@x", "email_verified": true})).unwrap().name, "j@x");
        assert!(of(&by_email, json!({"email": "j@x", "email_verified": false})).is_err());
        assert!(of(&by_email, json!({"email": "j@x", "email_verified": "true"})).is_err());
        let required = Issuer { required: [("hd".to_owned(), "x".to_owned())].into(), ..issuer() };
        assert!(of(&required, json!({"hd": "x"})).is_ok());
        assert!(of(&required, json!({"hd": "y"})).is_err());
        assert!(of(&required, json!({})).is_err());
        let with_uid = Issuer { uid: Some("sub".to_owned()), ..issuer() };
        assert_eq!(of(&with_uid, json!({})).unwrap().uid, "jane");
        assert_eq!(of(&issuer(), json!({"groups": "one"})).unwrap().groups, ["g:one", "system:authenticated"]);
    }
}
