//! Tokens that look like those of a ServiceAccount: some are signed by the server's own key, which the test provides,
//! others by keys without that right.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Makes tokens modelled on a valid one.
pub(crate) struct Forger<'a> {
    /// The RSA key with which the server signs.
    pub(crate) key: &'a KeyPair,
    /// A token that the server has issued.
    pub(crate) good: &'a str,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A part of a token as JSON.
pub(crate) fn part(token: &str, index: usize) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(index).unwrap()).unwrap()).unwrap()
}

/// HMAC (RFC 2104).
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block.resize(64, 0);
    let pad = |byte: u8| block.iter().map(|of_key| of_key ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

impl Forger<'_> {
    /// A token of these parts, signed like a valid one.
    fn sign(&self, header: &Value, claims: impl AsRef<[u8]>, key: &KeyPair) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims));
        format!("{signed}.{}", encode(key.sign(signed.as_bytes()).unwrap()))
    }

    /// The claims of the valid token with changes; null removes a claim.
    fn claims(&self, changes: Value) -> String {
        let mut claims = part(self.good, 1);
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
            };
        }
        claims.to_string()
    }

    /// A token signed with the server's key, so that only the claims can be wrong.
    fn claiming(&self, changes: Value) -> String {
        self.sign(&part(self.good, 0), self.claims(changes), self.key)
    }

    fn header(&self, changes: Value) -> Value {
        let mut header = part(self.good, 0);
        for (name, value) in changes.as_object().unwrap() {
            header[name] = value.clone();
        }
        header
    }

    /// All forged tokens, by their names in the tables.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let now = jiff::Timestamp::now().as_second();
        let account = part(self.good, 1)["kubernetes.io"].clone();
        let of = |namespace: &str, name: &str| {
            let mut of = account.clone();
            of["namespace"] = namespace.into();
            of["serviceaccount"]["name"] = name.into();
            of
        };
        let (header, claims) = (part(self.good, 0), part(self.good, 1));
        let mut parts = self.good.split('.');
        let [head, body, signature] = [(); 3].map(|()| parts.next().unwrap());
        let stranger = KeyPair::generate().unwrap();
        let unsigned = |header: Value, signature: &str| format!("{}.{body}.{signature}", encode(header.to_string()));
        let by_hmac = |secret: &[u8]| {
            let signed = format!("{}.{body}", encode(self.header(json!({"alg": "HS256"})).to_string()));
            format!("{signed}.{}", encode(hmac_sha256(secret, signed.as_bytes())))
        };
        let pem = self.key.public_key_pem();
        let of_es256 = self.header(json!({"alg": "ES256"}));
        let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
        flipped[7] ^= 1;
        let with_master =
            self.claims(json!({"sub": "system:serviceaccount:kube-system:admin", "groups": ["system:masters"]}));
        vec![
            ("as-issued", self.claiming(json!({}))),
            ("expired", self.claiming(json!({"exp": now - 120}))),
            ("without-end", self.claiming(json!({"exp": null}))),
            ("end-as-text", self.claiming(json!({"exp": "9999999999"}))),
            ("end-beyond-time", self.claiming(json!({"exp": 1e300}))),
            ("not-yet", self.claiming(json!({"nbf": now + 3600}))),
            ("issued-tomorrow", self.claiming(json!({"iat": now + 86_400}))),
            ("other-issuer", self.claiming(json!({"iss": "https://elsewhere.example"}))),
            ("without-issuer", self.claiming(json!({"iss": null}))),
            ("issuer-with-slash", self.claiming(json!({"iss": "https://kubernetes.default.svc/"}))),
            ("other-audience", self.claiming(json!({"aud": ["vault"]}))),
            ("audience-in-part", self.claiming(json!({"aud": ["https://kubernetes.default.svc.example"]}))),
            ("subject-of-another", self.claiming(json!({"sub": "system:serviceaccount:kube-system:admin"}))),
            ("subject-a-user", self.claiming(json!({"sub": "admin"}))),
            ("namespace-of-another", self.claiming(json!({"kubernetes.io": of("other", "robot")}))),
            (
                "account-of-another",
                self.claiming(json!({"sub": "system:serviceaccount:team:spare", "kubernetes.io": of("team", "spare")})),
            ),
            ("without-account", self.claiming(json!({"kubernetes.io": null}))),
            ("claims-a-list", self.sign(&header, "[]", self.key)),
            ("claims-no-json", self.sign(&header, "robot", self.key)),
            ("claims-twice", self.sign(&header, format!("{{\"sub\":\"admin\",{}", &claims.to_string()[1..]), self.key)),
            ("legacy-of-no-secret", {
                let uid = account["serviceaccount"]["uid"].clone();
                let legacy = json!({
                    "iss": "kubernetes/serviceaccount",
                    "kubernetes.io/serviceaccount/namespace": "team",
                    "kubernetes.io/serviceaccount/secret.name": "no-such-secret",
                    "kubernetes.io/serviceaccount/service-account.name": "robot",
                    "kubernetes.io/serviceaccount/service-account.uid": uid,
                    "sub": "system:serviceaccount:team:robot",
                });
                self.sign(&header, legacy.to_string(), self.key)
            }),
            ("unsigned", unsigned(json!({"alg": "none"}), "")),
            ("unsigned-with-key-id", unsigned(self.header(json!({"alg": "none"})), "")),
            ("unsigned-in-odd-case", unsigned(json!({"alg": "nOnE"}), "")),
            ("none-with-signature", unsigned(json!({"alg": "none"}), signature)),
            ("without-algorithm", unsigned(json!({"typ": "JWT"}), signature)),
            ("empty-signature", format!("{head}.{body}.")),
            ("zero-signature", format!("{head}.{body}.{}", encode([0; 256]))),
            ("flipped-signature", format!("{head}.{body}.{}", encode(flipped))),
            ("short-signature", format!("{head}.{body}.{}", &signature[..signature.len() - 4])),
            ("zero-ecdsa-signature", format!("{}.{body}.{}", encode(of_es256.to_string()), encode([0; 64]))),
            ("other-algorithm", unsigned(self.header(json!({"alg": "RS512"})), signature)),
            ("hmac-by-public-pem", by_hmac(pem.as_bytes())),
            ("hmac-by-trimmed-pem", by_hmac(pem.trim().as_bytes())),
            ("hmac-by-public-der", by_hmac(&rcgen::PublicKeyData::subject_public_key_info(self.key))),
            ("hmac-by-nothing", by_hmac(b"")),
            ("by-a-stranger", self.sign(&self.header(json!({"alg": "ES256"})), self.claims(json!({})), &stranger)),
            (
                "by-a-key-it-brings",
                self.sign(
                    &json!({"alg": "ES256", "jwk": {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}}),
                    &with_master,
                    &stranger,
                ),
            ),
            (
                "by-a-key-elsewhere",
                self.sign(&json!({"alg": "ES256", "jku": "https://127.0.0.1:1/keys"}), &with_master, &stranger),
            ),
            (
                "unknown-key-id",
                self.sign(&self.header(json!({"kid": "../../dev/null"})), self.claims(json!({})), self.key),
            ),
            (
                "demands-an-extension",
                self.sign(&self.header(json!({"crit": ["b64"], "b64": false})), self.claims(json!({})), self.key),
            ),
            ("spliced", format!("{head}.{}.{signature}", encode(with_master))),
            ("other-alphabet", {
                let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
                // The padding makes it differ from the token, whatever the bytes are.
                format!("{head}.{body}.{}==", STANDARD_NO_PAD.encode(bytes))
            }),
            ("padded", format!("{head}.{body}.{signature}=")),
            ("four-parts", format!("{}.more", self.good)),
            ("five-parts", format!("{head}.{body}.{signature}.{body}.{signature}")),
            ("two-parts", format!("{head}.{body}")),
            ("part-of-a-good-one", self.good[..self.good.len() - 1].to_owned()),
            ("good-one-in-upper-case", self.good.to_ascii_uppercase()),
        ]
    }
}
