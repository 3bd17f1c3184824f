//! What a service account's token says: of an account, until when, to whom, and bound to what.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The claims of a token that was asked for.
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

/// The claims that only Kubernetes has.
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
    /// From when on the use of the token is noted, since its kubelet should have fetched another by then.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// An object that the token is good with.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Bound {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// The claims of a token in a Secret, which has no end.
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

/// The issuer of a token, before anything else of it is looked at.
#[derive(Deserialize)]
pub(crate) struct Issuer {
    #[serde(default)]
    pub(crate) iss: String,
}

/// The name that an account acts under.
pub(crate) fn username(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The groups that every account of a namespace is in.
pub(crate) fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

impl Kubernetes {
    /// What a server makes known of the token beside its user, for extra fields.
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
            // The node of a pod may have been unknown when the token was issued.
            if !uid.is_empty() {
                add(&format!("{kind}-uid"), uid.clone());
            }
        }
        extra
    }
}

/// Audiences: a text, or a list of them.
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
