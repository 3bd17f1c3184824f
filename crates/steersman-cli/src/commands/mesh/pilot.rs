//! `steersman mesh pilot`: the pilot of the mesh.

use crate::Failure;
use crate::args::duration;
use crate::commands::mesh::address::{listen, loopback, socket};
use crate::commands::standalone::{election, until_signal};
use crate::process::signals::Signals;
use clap::Args as ClapArgs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steersman::metrics::Metrics;
use steersman::{ClientOptions, Manager};
use steersman_mesh::pilot::serve::{Address, Listening, STATE_PATH, serve, serve_state};
use steersman_mesh::pilot::{self, AUDIENCE, Options, Trust, resources};
use steersman_xds::Server;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The options of the pilot.
#[derive(ClapArgs, Debug)]
pub(crate) struct PilotOptions {
    /// The kubeconfig of the cluster; without it and --master: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The URL of the API server, instead of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// Where Envoys connect: an address such as 0.0.0.0:15010, or unix:PATH. Port 0 takes any free port, which is printed. Beyond loopback and
    /// Unix sockets, --tls-cert-file is needed.
    #[arg(long, default_value = "127.0.0.1:15010", value_parser = listen, value_name = "ADDR")]
    listen: Address,
    /// The certificate of the pilot in PEM: Envoys then connect with TLS.
    #[arg(long, requires = "tls_private_key_file", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file.
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// The authority of the client certificates of Envoys, in PEM. One with the common name mesh:proxy:NAMESPACE:POD stands for a token.
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Serve without TLS beyond loopback: whoever is in between reads the tokens of Envoys.
    #[arg(long, conflicts_with = "tls_cert_file")]
    allow_plaintext: bool,
    /// The audience of the tokens by which Envoys show their Pod, as in a projected volume.
    #[arg(long, default_value = AUDIENCE, value_name = "AUDIENCE")]
    token_audience: String,
    /// Take a connection from the address of a Pod for one of that Pod. Only where no Pod can use the address of another.
    #[arg(long)]
    trust_pod_addresses: bool,
    /// Believe the node id of an Envoy, `sidecar~ADDRESS~POD.NAMESPACE`. Only on loopback and at a Unix socket, where all may see everything.
    #[arg(long)]
    trust_node_ids: bool,
    /// Let Envoys also listen on this address, as an explicit proxy (HTTP_PROXY), for programs whose traffic to Service addresses is not routed to
    /// the proxy.
    #[arg(long, value_parser = socket, value_name = "ADDR")]
    explicit_proxy: Option<SocketAddr>,
    /// The domain of the cluster, for names of Services at the explicit proxy.
    #[arg(long, default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    /// Serve what `steersman mesh proxies` and `routes` print, on this address of loopback, without a login; port 0 takes any free port, which is
    /// printed.
    #[arg(long, default_value = "127.0.0.1:15014", value_parser = loopback, value_name = "ADDR")]
    debug_address: SocketAddr,
    /// Serve /metrics for Prometheus, /healthz and /readyz on this address, without TLS; port 0 takes any free port.
    #[arg(long, value_parser = socket, value_name = "ADDR")]
    metrics_address: Option<SocketAddr>,
    /// Write the statuses of routes only while holding the Lease steersman-mesh-pilot, so that one replica does. Envoys are served by all.
    #[arg(long)]
    leader_elect: bool,
    /// The namespace of the Lease; without it, that of the pod or of the kubeconfig.
    #[arg(long, requires = "leader_elect", value_name = "NAMESPACE")]
    leader_elect_namespace: Option<String>,
    /// The time for which a leader that has vanished blocks the others; it renews the Lease eight times as often.
    #[arg(long, default_value = "15s", value_parser = duration::lease, value_name = "DURATION")]
    leader_elect_lease_duration: Duration,
}

/// Runs until a signal arrives. A second signal ends the process at once.
pub(super) async fn run(options: PilotOptions) -> Result<(), Failure> {
    let tls = tls(&options)?;
    if let Address::Tcp(address) = &options.listen
        && options.trust_node_ids
        && !address.ip().is_loopback()
    {
        let want = "--listen with an address of loopback or unix:PATH, or no --trust-node-ids";
        return Err(Failure::Refused(format!("whoever reaches {address} could say to be any Pod: want {want}")));
    }
    if let Address::Tcp(address) = &options.listen
        && tls.is_none()
        && !address.ip().is_loopback()
        && !options.allow_plaintext
    {
        let way = "--tls-cert-file and --tls-private-key-file, an address of loopback, unix:PATH, or --allow-plaintext";
        return Err(Failure::Refused(format!("tokens of Envoys would travel to {address} without TLS: want {way}")));
    }
    let metrics = Metrics::new();
    let client_options = ClientOptions::default()
        .kubeconfig(options.kubeconfig.clone())
        .master(options.master.clone())
        .user_agent(pilot::NAME.to_owned())
        .metrics(metrics.clone());
    let client = steersman::client(&client_options).await.map_err(|error| Failure::Refused(crate::chain(&error)))?;
    let namespace = client.default_namespace().to_owned();
    let mut manager = Manager::new(client).name(pilot::NAME).with_metrics(metrics);
    if options.leader_elect {
        let namespace = options.leader_elect_namespace.clone().unwrap_or(namespace);
        manager = manager.elect_with(election(pilot::NAME, &namespace, options.leader_elect_lease_duration));
    }
    let refused = |flag: &str, error: &(dyn std::error::Error + 'static)| {
        Failure::Refused(format!("{}; choose another with {flag}", crate::chain(error)))
    };
    if let Some(address) = options.metrics_address {
        manager = manager.serve(address).map_err(|error| refused("--metrics-address", &error))?;
    }
    let listening = Listening::bind(&options.listen).await.map_err(|error| refused("--listen", &error))?;
    let state = TcpListener::bind(options.debug_address).await.map_err(|error| {
        let what = format!("cannot listen on {}: {error}", options.debug_address);
        Failure::Refused(format!("{what}; choose another with --debug-address"))
    })?;
    let signals = Signals::new()?;
    announce(&options.listen, &listening, &state, manager.address());

    let work = Options {
        trust: Trust {
            token_audience: options.token_audience,
            pod_addresses: options.trust_pod_addresses,
            node_ids: options.trust_node_ids,
        },
        resources: resources::Options {
            explicit_proxy: options.explicit_proxy,
            cluster_domain: options.cluster_domain,
        },
    };
    let (manager, proxies) = pilot::add_to(manager, &work);
    let server = Server::new(Arc::clone(&proxies), steersman_xds::Options::default());
    let manager = manager
        .run_always("proxies", move |stop| serve(listening, tls, server, stop))
        .run_always("state", move |stop| serve_state(state, proxies, stop));
    tracing::info!("the pilot is running");
    let stop = CancellationToken::new();
    let running = manager.run(stop.clone().cancelled_owned());
    until_signal(signals, stop, running).await
}

/// Says where the sockets are: ports may be random ones. A closed standard output is no reason to end.
fn announce(wanted: &Address, listening: &Listening, state: &TcpListener, metrics: Option<SocketAddr>) {
    let mut out = std::io::stdout();
    let _ = match (wanted, listening.address()) {
        (_, Some(address)) => writeln!(out, "proxies: {address}"),
        (Address::Unix(path), None) => writeln!(out, "proxies: unix:{}", path.display()),
        (Address::Tcp(address), None) => writeln!(out, "proxies: {address}"),
    };
    if let Ok(address) = state.local_addr() {
        let _ = writeln!(out, "state: http://{address}{STATE_PATH}");
    }
    if let Some(address) = metrics {
        let _ = writeln!(out, "metrics and health: http://{address}");
    }
}

fn tls(options: &PilotOptions) -> Result<Option<TlsAcceptor>, Failure> {
    let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file) else {
        return Ok(None);
    };
    let refused = |flag: &str, path: &Path, error: &dyn std::fmt::Display| {
        Failure::Refused(format!("{flag}: {} cannot be used: {error}", path.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| refused("--tls-cert-file", certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| refused("--tls-private-key-file", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("--tls-cert-file", certificate, &error))?;
    let builder = match &options.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let authorities = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for authority in authorities.map_err(|error| refused("--client-ca-file", path, &error))? {
                roots.add(authority).map_err(|error| refused("--client-ca-file", path, &error))?;
            }
            // Envoys with a token need no certificate.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| refused("--client-ca-file", path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, secret).map_err(|error| refused("--tls-cert-file", certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
