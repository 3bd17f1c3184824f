//! Approves requests for the serving certificates of kubelets, by which the API server knows that it talks to the right
//! node when it fetches logs or carries an `exec`.
//!
//! kube-controller-manager leaves these to people or programs, since only they can know which addresses a machine has. Here
//! a request is approved if it is made by the node itself, for names and addresses that its Node reports and that no other
//! Node has. So a node cannot get a certificate for another one; it can still get one for an address that belongs to no
//! node. All other requests stay as they are, for people to decide.

use crate::loops::access::certificates::approver::{approve, is_open};
use crate::loops::access::certificates::signer::{self, Signer};
use crate::settings::Parts;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

/// The user that the loop acts as. The bootstrap roles include one for it.
pub(crate) const USER: &str = "system:steersman:kubelet-serving-approver";
/// The name of the loop, also as the `User-Agent` of its requests.
pub(crate) const NAME: &str = "kubelet-serving-approver";

const MESSAGE: &str =
    "Auto approving kubelet serving certificate: its Node reports these names and addresses, and no other Node does.";
/// The first and the longest pause before a request is looked at again: a Node may report its addresses later.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(300));

struct Context {
    client: Client,
    requests: Lister<CertificateSigningRequest>,
    nodes: Lister<Node>,
}

/// A kubelet's request for its own serving certificate.
#[derive(Debug, Eq, PartialEq)]
struct Wanted {
    node: String,
    /// The DNS names and addresses of the certificate, as text.
    names: BTreeSet<String>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All);
    let nodes = manager.informers().informer::<Node>(Scope::All).lister();
    let context = Context { client, requests: requests.lister(), nodes };
    let controller = Controller::<CertificateSigningRequest>::of(&requests, reconcile, context)
        .name(NAME)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1));
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let request = cx.requests.get(&key)?;
    let wanted = wanted(&request.spec).filter(|_| is_open(&request));
    let Some(wanted) = wanted else { return Ok(Action::AwaitChange) };
    let nodes = cx.nodes.list()?;
    if wanted.is_of_its_node_alone(nodes.iter().map(|node| &**node)) {
        return Ok(approve(&cx.client, &request, MESSAGE).await?);
    }
    Ok(Action::Requeue)
}

/// The certificate that a kubelet asks for itself. `None` for any other request.
fn wanted(spec: &CertificateSigningRequestSpec) -> Option<Wanted> {
    if Signer::of(&spec.signer_name) != Some(Signer::KubeletServing) {
        return None;
    }
    let block = Pem::iter_from_buffer(&spec.request.0).next()?.ok()?;
    let (_, request) = X509CertificationRequest::from_der(&block.contents).ok()?;
    if Signer::KubeletServing.fault(&request, spec.usages.as_deref().unwrap_or_default()).is_some() {
        return None;
    }
    let user = signer::common_name(&request);
    let node = user.strip_prefix("system:node:").filter(|_| spec.username.as_ref() == Some(&user))?.to_owned();
    let names = signer::alternative_names(&request)?.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => Some(address(bytes)?.to_string()),
        _ => None,
    });
    Some(Wanted { node, names: names.collect::<Option<_>>()? })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The names and addresses that a Node reports, in the form in which they are compared.
fn reported(node: &Node) -> impl Iterator<Item = String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    addresses.iter().map(|reported| match reported.address.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => reported.address.to_ascii_lowercase(),
    })
}

impl Wanted {
    /// Whether the node reports all names, and no other node any of them.
    fn is_of_its_node_alone<'a>(&self, nodes: impl Iterator<Item = &'a Node>) -> bool {
        let mut own = BTreeSet::new();
        for node in nodes {
            if node.metadata.name.as_ref() == Some(&self.node) {
                own = reported(node).collect();
            } else if reported(node).any(|name| self.names.contains(&name)) {
                return false;
            }
        }
        self.names.is_subset(&own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    const SIGNER: &str = "kubernetes.io/kubelet-serving";

    /// A request of `user` for a certificate of the node `a`, for a host name and an address.
    fn spec(user: &str, organization: &str) -> CertificateSigningRequestSpec {
        let names = ["a.example".to_owned(), "10.0.0.1".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:a");
        let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap();
        CertificateSigningRequestSpec {
            request: ByteString(request.pem().unwrap().into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["server auth".to_owned(), "digital signature".to_owned()]),
            username: Some(user.to_owned()),
            ..CertificateSigningRequestSpec::default()
        }
    }

    fn node(name: &str, addresses: &[&str]) -> Node {
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap()
    }

    #[test]
    fn only_a_kubelet_itself_asks_for_its_certificate() {
        let found = wanted(&spec("system:node:a", "system:nodes")).unwrap();
        assert_eq!(found.node, "a");
        assert_eq!(found.names, ["10.0.0.1".to_owned(), "a.example".to_owned()].into());
        assert_eq!(wanted(&spec("system:node:b", "system:nodes")), None);
        assert_eq!(wanted(&spec("admin", "system:nodes")), None);
        assert_eq!(wanted(&spec("system:node:a", "system:masters")), None);
        let client = CertificateSigningRequestSpec {
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            ..spec("system:node:a", "system:nodes")
        };
        assert_eq!(wanted(&client), None);
    }

    #[test]
    fn a_certificate_has_the_names_of_its_node_and_of_no_other() {
        let wanted = wanted(&spec("system:node:a", "system:nodes")).unwrap();
        let is_approved = |nodes: &[Node]| wanted.is_of_its_node_alone(nodes.iter());
        let own = || node("a", &["10.0.0.1", "A.example", "10.0.0.9"]);
        assert!(is_approved(&[own(), node("b", &["10.0.0.2"])]));
        assert!(!is_approved(&[]), "the Node is not there yet");
        assert!(!is_approved(&[node("a", &["10.0.0.1"])]), "a name that it does not report");
        assert!(!is_approved(&[own(), node("b", &["10.0.0.1"])]), "an address of another node");
        assert!(!is_approved(&[node("b", &["10.0.0.1"]), own()]));
    }
}
