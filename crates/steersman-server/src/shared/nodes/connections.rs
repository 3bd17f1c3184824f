//! Connections to kubelets, and to what listens on nodes, in Pods and behind Services.
//!
//! Kubelets are called over HTTPS with a certificate of this server, as in kube-apiserver
//! (kubernetes' `pkg/kubelet/client/kubelet_client.go`). Everything else gets no certificate, and its own is not verified,
//! since nobody can know it. Nothing is read of an answer but its head; dropping the answer ends the request.

use crate::shared::request::unread::UnreadBody;
use crate::shared::webhook::transport::{self, Connecting, HttpsClient, Protocols};
use crate::shared::webhook::{EndpointError, Identity, tls};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;
use tower::timeout::error::Elapsed;

/// The port of a kubelet whose Node names none.
const KUBELET_PORT: u16 = 10_250;
/// The time within which a kubelet must take a connection, unless the options say otherwise.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of idle connections to one kubelet. Their number is that of nodes at most.
const IDLE_TO_KUBELET_MAX: usize = 4;
/// How kubelets are called.
#[derive(Clone, Debug)]
pub struct KubeletClient {
    /// The certificate that kubelets are shown. Without it they know no user for a request, and usually refuse it.
    pub identity: Option<Identity>,
    /// The certificates of the authorities for kubelets' own certificates, in PEM. Without it these are not verified.
    pub authority: Option<Vec<u8>>,
    /// The types of the addresses of a Node, the most preferred one first.
    pub address_types: Vec<String>,
    /// The port of a kubelet whose Node names none.
    pub port: u16,
    /// The time within which a kubelet must take a connection.
    pub dial_timeout: Duration,
}

/// The other side of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Peer {
    Kubelet,
    /// Anything else that listens on a node, in a Pod or behind a Service.
    Other,
    /// A kubelet whose certificate the client does not want verified.
    UnverifiedKubelet,
}

/// The clients for each kind of peer. Each is made when it is first needed.
pub(crate) struct Connections {
    pub(crate) options: KubeletClient,
    kubelets: OnceLock<Client>,
    unverified_kubelets: OnceLock<Client>,
    others: OnceLock<Client>,
}

type Client = HttpsClient<UnreadBody>;

/// Why there is no answer, in Go's words, which clients and people know.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no connection.
    #[error("{0}")]
    Dial(String),
    /// The connection ended before there was an answer.
    #[error("{0}")]
    Request(String),
}

impl KubeletClient {
    /// The types of a node's addresses in the order of preference. kube-apiserver alone begins with names, which often do not
    /// resolve; kubeadm has it begin with addresses too.
    pub const ADDRESS_TYPES: [&str; 5] = ["InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname"];
}

impl Default for KubeletClient {
    fn default() -> KubeletClient {
        KubeletClient {
            identity: None,
            authority: None,
            address_types: KubeletClient::ADDRESS_TYPES.map(str::to_owned).to_vec(),
            port: KUBELET_PORT,
            dial_timeout: DIAL_TIMEOUT,
        }
    }
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(options: KubeletClient) -> Connections {
        let (kubelets, unverified_kubelets, others) = Default::default();
        Connections { options, kubelets, unverified_kubelets, others }
    }

    /// Checks that kubelets can be called.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        self.client(Peer::Kubelet).map(drop)
    }

    /// Sends a request, whose URI names the other side. The answer is not read yet. Dropping the future or the answer ends
    /// the request.
    ///
    /// # Errors
    /// When there is no answer.
    pub(crate) async fn send(&self, peer: Peer, request: Request<UnreadBody>) -> Result<Response<Incoming>, SendError> {
        let client = self.client(peer).map_err(|error| SendError::Dial(error.to_string()))?;
        let uri = request.uri();
        let (host, authority) = (uri.host().unwrap_or_default(), uri.authority().map_or("", |name| name.as_str()));
        let (host, authority) = (host.to_owned(), authority.to_owned());
        client.request(request).await.map_err(|error| match error.is_connect() {
            true => SendError::Dial(why_not_connected(&error, &host, &authority)),
            // The library's own message names only the stage of the call.
            false => SendError::Request(error.source().map_or_else(|| error.to_string(), transport::chain)),
        })
    }

    fn client(&self, peer: Peer) -> Result<&Client, EndpointError> {
        let made = match peer {
            Peer::Kubelet => &self.kubelets,
            Peer::Other => &self.others,
            Peer::UnverifiedKubelet => &self.unverified_kubelets,
        };
        if let Some(client) = made.get() {
            return Ok(client);
        }
        let KubeletClient { identity, authority, dial_timeout, .. } = &self.options;
        let tls = match (peer, authority) {
            (Peer::Kubelet, Some(pem)) => tls::config(pem, identity.clone())?,
            (Peer::Kubelet | Peer::UnverifiedKubelet, _) => tls::unverified(identity.clone())?,
            (Peer::Other, _) => tls::unverified(None)?,
        };
        let connecting = match peer {
            Peer::Kubelet | Peer::UnverifiedKubelet => {
                Connecting { timeout: *dial_timeout, idle_max: IDLE_TO_KUBELET_MAX, ..Connecting::to(Protocols::Http1) }
            }
            // Users choose these addresses, so that their number has no other bound.
            Peer::Other => Connecting { idle_max: 0, ..Connecting::to(Protocols::Http1OrPlain) },
        };
        let client = transport::client(tls, connecting)?;
        Ok(made.get_or_init(|| client))
    }
}

/// The reason why there is no connection to an address.
fn why_not_connected(error: &legacy::Error, host: &str, authority: &str) -> String {
    let Some(cause) = error.source() else { return format!("dial tcp {authority}: {error}") };
    let causes = std::iter::successors(Some(cause), |cause: &&(dyn std::error::Error + 'static)| (**cause).source());
    if causes.clone().any(|cause| cause.is::<Elapsed>()) {
        return "net/http: TLS handshake timeout".to_owned();
    }
    let mut io_errors = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).map(innermost);
    let Some(cause_io) = io_errors.next() else { return format!("dial tcp {authority}: {}", transport::chain(cause)) };
    if let Some(refused) = cause_io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return match refused {
            rustls::Error::InvalidCertificate(_) => format!("tls: failed to verify certificate: {refused}"),
            _ => format!("tls: {refused}"),
        };
    }
    let why = match cause_io.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ if cause.to_string().starts_with("dns error") => {
            return format!("dial tcp: lookup {host}: no such host ({cause_io})");
        }
        _ => cause_io.to_string(),
    };
    format!("dial tcp {authority}: {why}")
}

/// The error that others wrap.
fn innermost(error: &io::Error) -> &io::Error {
    let mut innermost = error;
    while let Some(inner) = innermost.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>()) {
        innermost = inner;
    }
    innermost
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("options", &self.options).finish_non_exhaustive()
    }
}
