//! Approves requests for the serving certificates of kubelets, by which the API server knows that it talks to the right
//! node when it fetches logs or carries an `exec`.
//!
//! kube-controller-manager leaves these to people or programs, since only they can know which addresses a machine has. Here
//! a request is approved if the node itself makes it, for its own name (or a name below it, such as `node-1.example.com`) and
//! for addresses that its Node reports and no other Node has. Addresses of Services, of the API server and of loopback are
//! never approved, since every client trusts the CA: a node could pass for the API server. A Node says itself which
//! addresses it has, so it can still get a certificate for one that belongs to no node, such as that of a load balancer. All
//! other requests stay as they are, for people to decide.

use crate::loops::access::certificates::approver::{approve, is_open};
use crate::loops::access::certificates::signer::{self, Signer};
use crate::settings::Parts;
use ipnet::IpNet;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Client;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman::{Action, BoxError, Controller, Lister, LookupError, Manager, ObjectKey, Scope};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;

/// The user that the loop acts as. The bootstrap roles include one for it.
pub(crate) const USER: &str = "system:steersman:kubelet-serving-approver";
/// The name of the loop, also as the `User-Agent` of its requests.
pub(crate) const NAME: &str = "kubelet-serving-approver";

const MESSAGE: &str = "Auto approving kubelet serving certificate: the names are those of its Node, which reports the addresses, and no other Node does.";
/// The first and the longest pause before a request is looked at again: a Node may report its addresses later.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(300));

struct Context {
    client: Client,
    requests: Lister<CertificateSigningRequest>,
    nodes: Lister<Node>,
    ranges: Lister<ServiceCIDR>,
    slices: Lister<EndpointSlice>,
}

/// A kubelet's request for its own serving certificate.
#[derive(Debug, Eq, PartialEq)]
struct Wanted {
    node: String,
    /// The DNS names of the certificate, which are the node's name or below it.
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All);
    let nodes = manager.informers().informer::<Node>(Scope::All).lister();
    let ranges = manager.informers().informer::<ServiceCIDR>(Scope::All).lister();
    let slices = manager.informers().informer::<EndpointSlice>(Scope::All).lister();
    let context = Context { client, requests: requests.lister(), nodes, ranges, slices };
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
    if !has_reserved(cx, &wanted.addresses)? && wanted.is_of_its_node_alone(nodes.iter().map(|node| &**node)) {
        return Ok(approve(&cx.client, &request, MESSAGE).await?);
    }
    Ok(Action::Requeue)
}

/// The certificate that a kubelet asks for itself. `None` for any other request.
fn wanted(spec: &CertificateSigningRequestSpec) -> Option<Wanted> {
    Signer::KubeletServing.read(spec, |request| of_kubelet(request, spec.username.as_deref())).flatten()
}

fn of_kubelet(request: &X509CertificationRequest<'_>, requestor: Option<&str>) -> Option<Wanted> {
    let user = signer::common_name(request);
    let node = user.strip_prefix("system:node:").filter(|_| requestor == Some(&user))?.to_owned();
    let mut wanted = Wanted { node, names: BTreeSet::new(), addresses: BTreeSet::new() };
    for name in &signer::alternative_names(request)?.general_names {
        match name {
            GeneralName::DNSName(name) if is_name_of(&wanted.node, name) => {
                wanted.names.insert((*name).to_owned());
            }
            GeneralName::IPAddress(bytes) => {
                wanted.addresses.insert(address(bytes)?);
            }
            _ => return None,
        }
    }
    Some(wanted)
}

/// Whether a DNS name is that of the node, or below it. So it has no wildcard, and is none of the API server's names, which a
/// node called `kubernetes` could have.
fn is_name_of(node: &str, name: &str) -> bool {
    let is_own = name == node || name.strip_prefix(node).is_some_and(|rest| rest.starts_with('.'));
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte));
    let first = node.split('.').next().unwrap_or_default();
    is_own && is_plain && !name.ends_with('.') && !["kubernetes", "localhost"].contains(&first)
}

/// An address of its own. An IPv4 address as one of IPv6 is refused, since clients take both for the same.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()?;
    let is_own = address.to_canonical() == address && !address.is_loopback() && !address.is_unspecified();
    is_own.then_some(address)
}

/// Whether one of the addresses may be that of a Service, or is the API server's.
fn has_reserved(cx: &Context, addresses: &BTreeSet<IpAddr>) -> Result<bool, LookupError> {
    let (ranges, slices) = (cx.ranges.list()?, cx.slices.list()?);
    let cidrs = ranges.iter().filter_map(|range| range.spec.as_ref()?.cidrs.as_deref()).flatten();
    let mut nets = cidrs.filter_map(|cidr| cidr.parse::<IpNet>().ok());
    let is_of_server = |slice: &EndpointSlice| {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name"));
        slice.metadata.namespace.as_deref() == Some("default") && service.is_some_and(|name| name == "kubernetes")
    };
    let servers = slices.iter().filter(|slice| is_of_server(slice)).flat_map(|slice| slice.endpoints.iter().flatten());
    let mut servers = servers.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok());
    let is_of_service = nets.any(|net| addresses.iter().any(|address| net.contains(address)));
    Ok(is_of_service || servers.any(|server| addresses.contains(&server)))
}

/// The addresses that a Node reports.
fn reported(node: &Node) -> impl Iterator<Item = IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    addresses.iter().filter_map(|reported| Some(reported.address.parse::<IpAddr>().ok()?.to_canonical()))
}

impl Wanted {
    /// Whether the node reports all addresses, and no other node any of them.
    fn is_of_its_node_alone<'a>(&self, nodes: impl Iterator<Item = &'a Node>) -> bool {
        let mut own = BTreeSet::new();
        for node in nodes {
            if node.metadata.name.as_ref() == Some(&self.node) {
                own = reported(node).collect();
            } else if reported(node).any(|address| self.addresses.contains(&address)) {
                return false;
            }
        }
        self.addresses.is_subset(&own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::access::certificates::signer::fixture;
    use serde_json::json;

    const SIGNER: &str = "kubernetes.io/kubelet-serving";

    /// A request of `user` for a certificate of the node `a`, for a host name and an address.
    fn spec(user: &str, organization: &str) -> CertificateSigningRequestSpec {
        fixture::spec(SIGNER, "server auth", user, organization, &["a.example", "10.0.0.1"])
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
        assert_eq!(found.names, ["a.example".to_owned()].into());
        assert_eq!(found.addresses, [IpAddr::from([10, 0, 0, 1])].into());
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
    fn names_of_others_are_never_asked_for() {
        let asked = |name: &str| {
            wanted(&fixture::spec(SIGNER, "server auth", "system:node:a", "system:nodes", &[name])).is_some()
        };
        for own in ["a", "a.example", "10.0.0.1", "fd00::1"] {
            assert!(asked(own), "{own}");
        }
        for other in
            ["b", "*.example", "a.*", "ab", "kubernetes.default.svc", "127.0.0.1", "::1", "0.0.0.0", "::ffff:10.0.0.2"]
        {
            assert!(!asked(other), "{other}");
        }
        assert!(!is_name_of("kubernetes", "kubernetes.default.svc") && !is_name_of("localhost", "localhost"));
    }

    #[test]
    fn a_certificate_has_the_names_of_its_node_and_of_no_other() {
        let wanted = wanted(&spec("system:node:a", "system:nodes")).unwrap();
        let is_approved = |nodes: &[Node]| wanted.is_of_its_node_alone(nodes.iter());
        let own = || node("a", &["10.0.0.1", "10.0.0.9"]);
        assert!(is_approved(&[own(), node("b", &["10.0.0.2"])]));
        assert!(!is_approved(&[]), "the Node is not there yet");
        assert!(!is_approved(&[node("a", &["10.0.0.9"])]), "an address that it does not report");
        assert!(!is_approved(&[own(), node("b", &["10.0.0.1"])]), "an address of another node");
        assert!(!is_approved(&[node("b", &["::ffff:10.0.0.1"]), own()]), "in another form");
    }
}
