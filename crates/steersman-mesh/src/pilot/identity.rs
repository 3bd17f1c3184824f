//! Which Pod a proxy belongs to. What a proxy says of itself counts for nothing unless the options trust it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use steersman::ObjectKey;
use steersman::cache::LookupError;
use steersman_xds::{Refusal, Subscriber, Token};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::pilot::caches::Caches;

/// The audience of the tokens of proxies, unless the options say another.
pub const AUDIENCE: &str = "mesh.steersman.dev";

/// The beginning of the common name in the certificate of a proxy; namespace and Pod follow.
const CERTIFICATE_PREFIX: &str = "mesh:proxy:";
/// How long a token is checked at most.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The claims by which the server names the Pod that a token is bound to.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// How proxies show which Pod they belong to. A token of the Pod's ServiceAccount is always enough, and so is a client certificate
/// that the server has verified, with the common name `mesh:proxy:NAMESPACE:POD`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trust {
    /// The audience that tokens must be for.
    pub token_audience: String,
    /// Whether a connection from the address of a Pod comes from that Pod. Only where nobody can take the address of
    /// another.
    pub pod_addresses: bool,
    /// Whether the id of a node, `sidecar~ADDRESS~POD.NAMESPACE`, is taken for true. Only where whoever can connect may see
    /// everything, as at a Unix socket or in a test.
    pub node_ids: bool,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { token_audience: AUDIENCE.to_owned(), pod_addresses: false, node_ids: false }
    }
}

/// Finds the Pods of proxies.
pub(crate) struct Identities {
    client: Client,
    caches: Caches,
    trust: Trust,
}

impl Identities {
    pub(crate) fn new(client: Client, caches: Caches, trust: Trust) -> Identities {
        Identities { client, caches, trust }
    }

    /// The Pod of a proxy.
    ///
    /// # Errors
    /// The proxy shows none, or none that is known.
    pub(crate) async fn pod(&self, subscriber: &Subscriber) -> Result<Arc<Pod>, Refusal> {
        if let Some(token) = &subscriber.token {
            return self.of_token(token).await;
        }
        if let Some(certificate) = &subscriber.peer.certificate {
            let key = pod_of_certificate(certificate).ok_or_else(|| {
                let message = format!(
                    "the certificate of the proxy names no Pod: want the common name {CERTIFICATE_PREFIX}NAMESPACE:POD"
                );
                Refusal::Unauthenticated(message)
            })?;
            return self.known(&key, None);
        }
        if let Some(address) = subscriber.peer.address.filter(|_| self.trust.pod_addresses) {
            let pods = self.caches.pods_at(address.ip().to_canonical()).map_err(|_| Refusal::NotReady)?;
            match &*pods {
                [pod] => return Ok(Arc::clone(pod)),
                [] if self.trust.node_ids => {}
                [] => return Err(Refusal::Unknown(format!("no Pod has the address {}", address.ip()))),
                [_, _, ..] => {
                    return Err(Refusal::Unknown(format!("more than one Pod has the address {}", address.ip())));
                }
            }
        }
        if self.trust.node_ids {
            let id = &subscriber.node.id;
            let key = pod_of_node(id).ok_or_else(|| {
                Refusal::Unauthenticated(format!("the node id {id:?} names no Pod: want sidecar~ADDRESS~POD.NAMESPACE"))
            })?;
            return self.known(&key, None);
        }
        Err(Refusal::Unauthenticated(
            "the proxy does not show which Pod it belongs to: it needs a token of its ServiceAccount in the header authorization, or a client certificate"
                .to_owned(),
        ))
    }

    async fn of_token(&self, token: &Token) -> Result<Arc<Pod>, Refusal> {
        let audience = &self.trust.token_audience;
        let spec = TokenReviewSpec { audiences: Some(vec![audience.clone()]), token: token.expose().to_owned() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let params = PostParams::default();
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, reviews.create(&params, &review)).await;
        // Nobody knows yet who asks: the reason is for the log.
        let unavailable = |why: &dyn std::fmt::Display| {
            tracing::warn!(error = %why, "the token of a proxy cannot be checked");
            Refusal::Unknown("the token of the proxy cannot be checked now; ask again".to_owned())
        };
        let answer = answer.map_err(|_| unavailable(&"the API server does not answer"))?;
        let status = answer.map_err(|error| unavailable(&error))?.status.unwrap_or_default();
        let is_meant = status.audiences.iter().flatten().any(|granted| granted == audience);
        if status.authenticated != Some(true) || !is_meant {
            let why = status.error.unwrap_or_else(|| format!("it is not for the audience {audience}"));
            return Err(Refusal::Unauthenticated(format!("the token of the proxy is not valid: {why}")));
        }
        let user = status.user.unwrap_or_default();
        let username = user.username.unwrap_or_default();
        let namespace =
            username.strip_prefix(ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':')).map(|parts| parts.0);
        let extra = user.extra.unwrap_or_default();
        let claim = |name: &str| extra.get(name).and_then(|values| values.first());
        let (Some(namespace), Some(pod)) = (namespace, claim(POD_NAME)) else {
            let message = format!("the token of {username:?} is not bound to a Pod: use a projected volume of the Pod");
            return Err(Refusal::Forbidden(message));
        };
        self.known(&ObjectKey::namespaced(namespace, pod), claim(POD_UID).map(String::as_str))
    }

    /// The Pod at `key`, if it is the one with this uid.
    fn known(&self, key: &ObjectKey, uid: Option<&str>) -> Result<Arc<Pod>, Refusal> {
        let pod = match self.caches.pod(key) {
            Ok(pod) => pod,
            Err(LookupError::NotSynced { .. }) => return Err(Refusal::NotReady),
            Err(_) => return Err(Refusal::Unknown(format!("Pod {key} is not known"))),
        };
        if uid.is_some_and(|uid| pod.metadata.uid.as_deref() != Some(uid)) {
            return Err(Refusal::Unknown(format!("Pod {key} is another one than the token is bound to")));
        }
        Ok(pod)
    }
}

/// The Pod that the common name of a verified certificate names.
fn pod_of_certificate(der: &[u8]) -> Option<ObjectKey> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    let (namespace, pod) = name.strip_prefix(CERTIFICATE_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !pod.is_empty()).then(|| ObjectKey::namespaced(namespace, pod))
}

/// The Pod that a node id names: its third part, as in Istio.
fn pod_of_node(id: &str) -> Option<ObjectKey> {
    let (name, namespace) = id.split('~').nth(2)?.rsplit_once('.')?;
    (!name.is_empty() && !namespace.is_empty()).then(|| ObjectKey::namespaced(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(name: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_names_its_pod() {
        let pod = |name| pod_of_certificate(&certificate(name)).map(|key| key.to_string());
        assert_eq!(pod("mesh:proxy:shop:web-1"), Some("shop/web-1".to_owned()));
        for wrong in ["shop:web-1", "mesh:proxy:shop", "mesh:proxy::web", "mesh:proxy:shop:"] {
            assert_eq!(pod(wrong), None, "{wrong}");
        }
        assert_eq!(pod_of_certificate(b"x"), None);
    }

    #[test]
    fn a_node_id_names_its_pod() {
        let pod = |id| pod_of_node(id).map(|key| key.to_string());
        assert_eq!(pod("sidecar~10.0.0.1~web-1.shop"), Some("shop/web-1".to_owned()));
        assert_eq!(pod("sidecar~10.0.0.1~a.b.shop~shop.svc.cluster.local"), Some("shop/a.b".to_owned()));
        for wrong in ["", "web", "sidecar~x", "sidecar~x~web", "sidecar~x~.shop", "sidecar~x~web."] {
            assert_eq!(pod(wrong), None, "{wrong}");
        }
    }
}
