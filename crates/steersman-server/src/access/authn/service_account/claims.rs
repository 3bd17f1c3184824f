//! The claims of service account tokens: the account, the expiration, the audiences, and the objects that the token is
//! bound to.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The claims of a token from a TokenRequest.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Claims {
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) aud: Vec<String>,
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) exp: Option<i64>,
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) iat: Option<i64>,
    #[serde(default)]
    pub(crate) iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) jti: String,
    #[serde(default, rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) nbf: Option<i64>,
    #[serde(default)]
    pub(crate) sub: String,
}

/// The claims that are specific to Kubernetes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Kubernetes {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Bound>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Bound>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Bound>,
    #[serde(default)]
    pub(crate) serviceaccount: Bound,
    /// The time after which uses of the token are noted, since its kubelet should have replaced it by then.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// An object to which the token is bound.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Bound {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// The claims of a token in a Secret, which does not expire.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LegacyClaims {
    #[serde(default)]
    pub(crate) iss: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/namespace")]
    pub(crate) namespace: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(crate) secret: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(crate) account: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(crate) account_uid: String,
    #[serde(default)]
    pub(crate) sub: String,
}

/// The issuer of a token, read before its other claims.
#[derive(Deserialize)]
pub(crate) struct Issuer {
    #[serde(default)]
    pub(crate) iss: String,
}

/// The user name of an account.
pub(crate) fn username(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The groups of every account of a namespace.
pub(crate) fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

impl Kubernetes {
    /// The extra fields of the token's user.
    pub(crate) fn extra(&self, token_id: &str) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: String| {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        };
        if !token_id.is_empty() {
            add("credential-id", format!("JTI={token_id}"));
        }
        for (kind, bound) in [("pod", &self.pod), ("node", &self.node)] {
            let Some(Bound { name, uid }) = bound else { continue };
            add(&format!("{kind}-name"), name.clone());
            // A pod's node may have been unknown when the token was issued.
            if !uid.is_empty() {
                add(&format!("{kind}-uid"), uid.clone());
            }
        }
        extra
    }
}

/// Audiences: a string, or a list of strings.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audiences {
        Many(Vec<String>),
        One(String),
    }
    Ok(match Audiences::deserialize(deserializer)? {
        Audiences::Many(many) => many,
        Audiences::One(one) => vec![one],
    })
}

/// Seconds, which some issuers write with a fraction.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    Ok(number.and_then(|number| number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))))
}
