//! Bootstrap tokens: an id, which names the Secret, and a secret.

use crate::Failure;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use rand::Rng as _;
use serde_json::json;
use std::fmt;

/// The group of the nodes that join, to which kubeadm's roles are bound.
pub(super) const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// A bootstrap token. Its text form is `ID.SECRET`.
pub(super) struct Token {
    id: String,
    secret: String,
}

impl Token {
    pub(super) fn random() -> Token {
        let mut random = rand::rng();
        let mut text =
            |length| (0..length).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect();
        Token { id: text(ID_LENGTH), secret: text(SECRET_LENGTH) }
    }

    /// Makes the Secret of the token.
    pub(super) async fn create(&self, client: &Client, expires: Option<Timestamp>) -> Result<(), Failure> {
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{}", self.id), "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "auth-extra-groups": GROUP,
                "description": "made by steersman node token",
                "token-id": self.id,
                "token-secret": self.secret,
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
            },
        });
        let mut secret: Secret = serde_json::from_value(secret).map_err(anyhow::Error::from)?;
        if let Some(expires) = expires {
            let text = format!("{expires:.0}");
            secret.string_data.get_or_insert_default().insert("expiration".to_owned(), text);
        }
        let secrets = Api::<Secret>::namespaced(client.clone(), "kube-system");
        let created = secrets.create(&PostParams::default(), &secret).await;
        created.map(drop).map_err(|error| {
            Failure::Refused(format!("the token's Secret cannot be created: {}", crate::chain(&error)))
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_form_that_kubernetes_reads() {
        let (one, other) = (Token::random().to_string(), Token::random().to_string());
        let (id, secret) = one.split_once('.').unwrap();
        assert_eq!((id.len(), secret.len()), (ID_LENGTH, SECRET_LENGTH));
        assert!(id.bytes().chain(secret.bytes()).all(|byte| ALPHABET.contains(&byte)), "{one}");
        assert_ne!(one, other);
    }
}
