//! The control plane in this process: store, server and socket, from start to end.

pub(crate) mod advertised;
pub(crate) mod cloud;
pub(crate) mod controllers;
pub(crate) mod encryption;
pub(crate) mod engine;
pub(crate) mod nodes;
mod opened;
mod seen;
pub(crate) mod shown;

use crate::Failure;
use crate::access::access_log::{AccessLog, Writer};
use crate::access::account_keys::NewKeys;
use crate::access::admission;
use crate::access::audit;
use crate::access::authentication::Authentication;
use crate::access::authorization;
use crate::access::client_certificate;
use crate::access::front_proxy;
use crate::access::kubelets;
use crate::args::{InEtcd, Output, ServerOptions};
use crate::connections::accept;
use crate::connections::tls_policy::TlsPolicy;
use crate::data_dir::DataDir;
use crate::data_dir::pki;
use crate::data_dir::pki::Tls;
use crate::data_dir::renewal::{Renewal, write_kubeconfig};
use crate::data_dir::shared_ca;
use crate::plane::controllers::{Controllers, SERVICE_ACCOUNT_TOKEN};
use crate::plane::encryption::AtRest;
use crate::plane::nodes::{Nodes, Simulated};
use crate::plane::opened::Opened;
use crate::plane::seen::Seen;
use crate::plane::shown::Shown;
use crate::process::compute_threads::ComputeThreads;
use crate::process::host;
use crate::process::output::Ready;
use crate::process::usage;
use anyhow::Context as _;
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steersman_controllers::ControlLoop;
use steersman_controllers::certificates::Authority;
use steersman_server::Ranges;
use steersman_server::admission::Plugins;
use steersman_server::authn::{Peer, TokenSecrets};
use steersman_server::authz::Authorization;
use steersman_server::user::User;
use steersman_server::webhook::{Identity, Services};
use steersman_server::{Agents, Body, Concurrency, KubeletClient, RuntimeConfig, Server, Web, Writes};
use steersman_storage::Store;
use steersman_storage::kv;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

/// How often it is checked that etcd is still the one that was opened.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// The checked options, before anything is opened but the audit log.
#[derive(Debug)]
pub(crate) struct Plan {
    authentication: Authentication,
    authorization: Authorization,
    admission: Plugins,
    audit: Option<audit::Plan>,
    tls: TlsPolicy,
    web: Web,
    service_ranges: Ranges,
    webhook_services: Services,
    /// The certificate of the front proxy, if the options name one.
    proxy_identity: Option<Identity>,
    /// How kubelets are called; with the certificate that the options name, if any.
    kubelet_client: KubeletClient,
    runtime_config: RuntimeConfig,
    /// Whether the server fills Secrets with tokens.
    fills_token_secrets: bool,
    /// Whether kubelets get their serving certificates here, so that they can be verified by the own CA.
    signs_kubelets: bool,
    /// The dump whose objects are shown, in place of those of a store.
    shown: Option<Shown>,
    options: ServerOptions,
}

/// A running control plane.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) data_dir: DataDir,
    server: Server,
    store: Store,
    address: SocketAddr,
    in_memory: bool,
    etcd: Option<InEtcd>,
    /// The newest revision that was seen in etcd.
    seen: Option<Mutex<Seen>>,
    output: Output,
    stop_delay: Duration,
    sockets: JoinHandle<()>,
    renewal: JoinHandle<()>,
    /// Follows the encryption configuration.
    encryption: Option<JoinHandle<()>>,
    /// Ends the sockets, the renewal and the task of the encryption.
    stop: CancellationToken,
    access_log: Option<AccessLog>,
    access_log_writer: Option<Writer>,
    audit_writers: Option<audit::Writers>,
    /// Kept alive until the server has stopped.
    _compute_threads: ComputeThreads,
}

impl Plan {
    /// Checks the options. The admission plugins on which the controllers rely are on unless the options disable them.
    pub(crate) fn new(options: ServerOptions, controllers: &Controllers, nodes: &Nodes) -> Result<Plan, Failure> {
        let authentication = Authentication::read(options.authentication.clone())?;
        let authorization = authorization::read(&options.authorization)?;
        nodes.check(&authorization)?;
        let (tls, web) = (TlsPolicy::read(&options.serving)?, options.serving.web()?);
        let service_ranges = options.services.ranges()?;
        let webhook_services = options.webhooks.services()?;
        let proxy_identity = front_proxy::given(&options.aggregation)?;
        let kubelet_client = kubelets::given(options.kubelets.clone())?;
        let runtime_config = options.served.read()?;
        let admission = admission::read(&options.admission, &controllers.plugins())?;
        // Checked before the port, because the process that holds the directory most likely has the port too.
        DataDir::check_free(&options.data_dir)?;
        // Read last, because this creates the file of the log.
        let audit = audit::Plan::new(&options.audit)?;
        Ok(Plan {
            authentication,
            authorization,
            admission,
            audit,
            tls,
            web,
            service_ranges,
            webhook_services,
            proxy_identity,
            kubelet_client,
            runtime_config,
            fills_token_secrets: controllers.has(SERVICE_ACCOUNT_TOKEN),
            signs_kubelets: controllers.has(ControlLoop::KUBELET_SERVING_APPROVER),
            shown: None,
            options,
        })
    }

    /// Shows a dump, and takes no writes.
    pub(crate) fn showing(self, shown: Shown) -> Plan {
        Plan { shown: Some(shown), ..self }
    }

    /// Starts the control plane on etcd, if the options name it, or on an engine of its own.
    pub(crate) async fn start(self, nodes: &Nodes) -> Result<Plane, Failure> {
        let Plan { authentication, options, .. } = self;
        let at_rest = AtRest::open(&options.encryption, options.etcd.authenticated_prefix()).await?;
        let listener = TcpListener::bind(options.listen).await.map_err(|error| no_listener(options.listen, &error))?;
        let access_log = options.access_log.as_deref().map(AccessLog::open).transpose()?;
        let data_dir = DataDir::take(&options.data_dir)?;
        let own_ca = pki::read_ca(&data_dir.pki())?;
        let Opened { etcd, seen, store } = match &self.shown {
            Some(shown) => Opened::shown(shown).await?,
            None => Opened::open(&options, &data_dir, &self.runtime_config, at_rest.as_ref()).await?,
        };
        let ca = match store.is_shared() {
            true => Some(shared_ca::find(&store, own_ca, &data_dir.pki(), Timestamp::now()).await?),
            false => own_ca,
        };
        let proxies = authentication.proxies.clone();
        let keys_dir = data_dir.account_keys();
        let mut authentication = authentication.with_keys_in(match options.in_memory {
            true => NewKeys::InMemory(&keys_dir),
            false if store.is_shared() => NewKeys::Shared(&store),
            false => NewKeys::Stored(&keys_dir),
        })?;
        let address = listener.local_addr().context("the address of the socket is unknown")?;
        let mut names = names(address, options.advertise_address, self.service_ranges.server_address());
        names.extend(options.tls_san.iter().cloned());
        let pki = pki::prepare(&data_dir.pki(), ca, &names, Timestamp::now())
            .context("the certificates cannot be prepared")?;
        let Tls { config, serving, clients } =
            pki.server_config(proxies.as_deref(), &self.tls).context("the certificates cannot be used")?;
        authentication.client_ca = Some(pki.ca.clone());
        let (proxy_identity, own_ca) = match self.proxy_identity {
            Some(given) => (given, None),
            None => {
                let own = pki::front_proxy(&data_dir.pki(), front_proxy::NAME, Timestamp::now());
                let own = own.context("the certificates of the front proxy cannot be prepared")?;
                (client_certificate::made(&own.client), Some(own.ca))
            }
        };
        let mut kubelet_client = self.kubelet_client;
        if kubelet_client.identity.is_none() {
            let ca = pki::read_ca(&data_dir.pki())?.context("the CA that was made is not there any more")?;
            let own = pki::kubelet_client(&data_dir.pki(), &ca, Timestamp::now());
            let own = own.context("the certificate for kubelets cannot be prepared")?;
            kubelet_client.identity = Some(client_certificate::made(&own));
        }
        if self.signs_kubelets {
            kubelet_client.authority.get_or_insert_with(|| pki.ca.clone().into_bytes());
        }
        let (given_ca, headers) = (proxies.as_deref(), authentication.request_header.as_ref());
        authentication.published_proxies = front_proxy::published(given_ca, headers, own_ca.as_deref());
        authentication.service_accounts.token_secrets =
            self.fills_token_secrets.then(|| TokenSecrets { ca: Some(pki.ca.clone()) });
        let audit = self.audit.map(audit::Plan::start).transpose()?;
        let (audit, audit_writers) = audit.unzip();
        let (writes, agents): (_, Arc<dyn Agents>) = match self.shown {
            Some(shown) => (Writes::Refused { why: shown.why }, Arc::new(shown.logs)),
            None => (Writes::Accepted, Arc::new(Simulated(nodes.agent.clone()))),
        };
        let compute_threads = ComputeThreads::new().context("the threads for large requests cannot be started")?;
        let server = Server::start(steersman_server::Options {
            store: store.clone(),
            authentication,
            authorization: self.authorization,
            admission: self.admission,
            address: reachable(address).to_string(),
            host: host::name(),
            advertised: advertised::find(options.advertise_address, address.ip()),
            audit,
            service_ranges: self.service_ranges,
            webhook_services: self.webhook_services,
            proxy_identity: Some(proxy_identity),
            kubelet_client,
            runtime_config: self.runtime_config,
            writes,
            concurrency: Concurrency {
                has_priority_and_fairness: options.enable_priority_and_fairness,
                reads_max: options.max_requests_inflight,
                writes_max: options.max_mutating_requests_inflight,
            },
            compute: compute_threads.compute(),
            timeouts: options.serving.timeouts(),
            watch_authorization: options.serving.watch_authorization(),
            event_ttl: options.serving.event_ttl,
            web: self.web,
            agents: Some(agents),
            resource_metrics: nodes.resource_metrics(),
            clock: Timestamp::now,
        });
        let server = server.await.context("the server cannot be started")?;
        server.report_process(usage::read);
        if let Some(at_rest) = &at_rest {
            server.report_encryption(Arc::new(at_rest.clone()));
        }
        let address_text = reachable(address).to_string();
        write_kubeconfig(&data_dir.kubeconfig(), &address_text, &pki)?;
        let (access_log, access_log_writer) = access_log.unzip();
        let stop = CancellationToken::new();
        let sockets = accept::serve(listener, config, clients, server.service(), access_log.clone(), stop.clone());
        let encryption = at_rest.map(|at_rest| tokio::spawn(at_rest.run(store.clone(), stop.clone())));
        let renewal = Renewal {
            dir: data_dir.pki(),
            names,
            kubeconfig: data_dir.kubeconfig(),
            address: address_text,
            serving,
            pki,
        };
        Ok(Plane {
            data_dir,
            server,
            store,
            address,
            in_memory: options.in_memory,
            etcd,
            seen: seen.map(Mutex::new),
            output: options.output,
            stop_delay: options.serving.shutdown_delay_duration,
            sockets: tokio::spawn(sockets),
            encryption,
            renewal: tokio::spawn(renewal.run(Timestamp::now, stop.clone())),
            stop,
            access_log,
            access_log_writer,
            audit_writers,
            _compute_threads: compute_threads,
        })
    }
}

impl Plane {
    /// Maintains the status of ValidatingAdmissionPolicies from now on.
    pub(crate) fn check_policies(&mut self) {
        self.server.check_policies();
    }

    /// Clients within the process, which are users of the server like any other. The second argument is the field manager
    /// of their writes.
    pub(crate) fn clients(&self) -> impl Fn(User, &'static str) -> kube::Client + Send + Sync + use<> {
        let (service, log) = (self.server.service(), self.access_log.clone());
        move |user, agent| {
            let service = service.with_peer(Some(Peer::new(user)));
            kube::Client::new(named(AccessLog::layer(log.clone(), None, service), agent), "default")
        }
    }

    /// The CA of the data directory, which signs clients' certificates.
    pub(crate) fn authority(&self) -> Result<Authority, Failure> {
        let ca = pki::read_ca(&self.data_dir.pki())?.context("the CA that was made is not there any more")?;
        Ok(Authority::new(&ca.certificate, &ca.key).context("the CA cannot sign certificates")?)
    }

    /// The certificate of the CA in PEM, with which pods verify the server.
    pub(crate) fn root_ca(&self) -> Result<String, Failure> {
        Ok(pki::read_ca(&self.data_dir.pki())?.context("the CA that was made is not there any more")?.certificate)
    }

    /// Checks by a request that the server is ready.
    pub(crate) async fn check_ready(&self) -> anyhow::Result<()> {
        let request = Request::get("/readyz").body(Body::empty())?;
        let response = self.server.service_as(User::master("system:readiness")).oneshot(request).await?;
        anyhow::ensure!(
            response.status().is_success(),
            "the server is not ready: /readyz answers {}",
            response.status()
        );
        Ok(())
    }

    /// The URL of the API on this machine.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", reachable(self.address))
    }

    /// Whether other servers may work on the same objects.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Prints on standard output that the server is ready.
    pub(crate) fn say_ready(
        &self,
        controllers: Vec<&'static str>,
        neutron: Option<String>,
        nodes: Option<String>,
        metrics_address: Option<SocketAddr>,
    ) {
        let ready = Ready {
            kubeconfig: self.data_dir.kubeconfig(),
            listen: self.address.to_string(),
            url: self.url(),
            data_dir: self.data_dir.path().to_owned(),
            in_memory: self.in_memory,
            etcd: self.etcd.clone(),
            controllers,
            neutron,
            nodes,
            metrics_address,
            version: env!("CARGO_PKG_VERSION"),
        };
        ready.say(self.output);
    }

    /// Waits until etcd was exchanged for another: then this server can do nothing more. Never happens without etcd.
    pub(crate) async fn replaced(&self) -> anyhow::Error {
        if self.etcd.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(HEALTH_INTERVAL).await;
            note_seen(self.seen.as_ref(), &self.store);
            if let Err(error @ kv::Error::Replaced { .. }) = self.store.health() {
                return anyhow::Error::new(error);
            }
        }
    }

    /// From now on `/readyz` fails; other requests are still answered, and this returns after the delay that the
    /// options set.
    pub(crate) async fn withdraw(&self) {
        self.server.withdraw();
        tokio::time::sleep(self.stop_delay).await;
    }

    /// Stops: new requests are refused, those in flight end, the store is closed.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.server.begin_stop();
        self.stop.cancel();
        self.sockets.await.context("the socket's task failed")?;
        self.renewal.await.context("the task that renews certificates failed")?;
        if let Some(encryption) = self.encryption {
            encryption.await.context("the task of the encryption failed")?;
        }
        self.server.stop().await;
        note_seen(self.seen.as_ref(), &self.store);
        let closed = self.store.close().await.context("the store could not be closed");
        if let Some(writer) = self.access_log_writer {
            tokio::task::spawn_blocking(move || writer.close()).await.context("the access log could not be ended")?;
        }
        if let Some(writers) = self.audit_writers {
            writers.close().await?;
        }
        closed
    }
}

/// Notes the newest revision, if the objects are in etcd.
fn note_seen(seen: Option<&Mutex<Seen>>, store: &Store) {
    if let Some(seen) = seen
        && store.health().is_ok()
    {
        seen.lock().unwrap_or_else(PoisonError::into_inner).note(store.revision());
    }
}

/// Sets the user agent of requests that have none.
fn named<S>(
    service: S,
    agent: &'static str,
) -> impl Service<Request<kube::client::Body>, Response = S::Response, Error = S::Error, Future = S::Future>
+ Clone
+ Send
+ 'static
where
    S: Service<Request<kube::client::Body>> + Clone + Send + 'static,
{
    service.map_request(move |mut request: Request<kube::client::Body>| {
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        request
    })
}

/// The failure of a server whose address cannot be listened on.
fn no_listener(address: SocketAddr, error: &io::Error) -> Failure {
    let way = match error.kind() {
        io::ErrorKind::AddrInUse => "another program has the port: stop it, or choose another with --listen 127.0.0.1:PORT (0 takes any that is free)".to_owned(),
        _ => format!("{error}; choose another address with --listen"),
    };
    Failure::Refused(format!("cannot listen on {address}: {way}"))
}

/// The address at which this machine reaches the socket.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The addresses for which the server's certificate must be valid.
fn names(address: SocketAddr, advertised: Option<IpAddr>, service: Option<IpAddr>) -> Vec<ServerName<'static>> {
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
    let own = if address.ip().is_unspecified() { advertised::outgoing(address.ip()) } else { Some(address.ip()) };
    let advertised = advertised.filter(|advertised| !advertised.is_unspecified());
    for own in own.into_iter().chain(advertised).chain(service) {
        if !addresses.contains(&own) {
            addresses.push(own);
        }
    }
    addresses.into_iter().map(|address| ServerName::IpAddress(address.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_all_addresses_at_which_clients_reach_the_server() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let names_of = |advertised, service| {
            let names = names("10.0.0.7:6443".parse().unwrap(), advertised, service);
            names.iter().map(|name| name.to_str().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names_of(None, None), ["127.0.0.1", "::1", "10.0.0.7"]);
        // Programs in Pods call the address of the Service.
        let all = names_of(Some(ip("192.0.2.1")), Some(ip("10.96.0.1")));
        assert_eq!(all, ["127.0.0.1", "::1", "10.0.0.7", "192.0.2.1", "10.96.0.1"]);
        assert_eq!(names_of(Some(ip("0.0.0.0")), Some(ip("10.0.0.7"))), ["127.0.0.1", "::1", "10.0.0.7"]);
    }
}
