//! `kube-apiserver`: the control plane with upstream's flags. Flags that apply here have upstream's meaning; the others
//! are ignored, and named once in the log.
//!
//! It keeps the objects in memory, whatever etcd is configured: programs that start it this way discard the objects at
//! the end. It runs no controllers, as kube-apiserver runs none.

mod certificate;

use crate::Failure;
use crate::access::account_keys::NewKeys;
use crate::access::admission;
use crate::access::audit;
use crate::access::authentication::Authentication;
use crate::access::authorization;
use crate::access::front_proxy;
use crate::access::kubelets;
use crate::args::{
    AdmissionOptions, AggregationOptions, AuditOptions, AuthenticationOptions, AuthorizationOptions, KubeletOptions,
    ServedOptions, ServiceOptions, ServingOptions, WebhookOptions,
};
use crate::commands::drop_in::Ended;
use crate::commands::drop_in::flags::{Flags, Given};
use crate::connections::accept;
use crate::connections::client_certificates::ClientCertificates;
use crate::connections::serving::ServingCertificate;
use crate::connections::tls_policy::TlsPolicy;
use crate::data_dir::pki;
use crate::plane::advertised;
use crate::process::compute_threads::ComputeThreads;
use crate::process::host;
use crate::process::logging;
use crate::process::signals::Signals;
use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use futures::future::LocalBoxFuture;
use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steersman_server::admission::Plugins;
use steersman_server::authz::{Authorization, WatchAuthorization};
use steersman_server::version::KUBERNETES_VERSION;
use steersman_server::webhook::{Identity, Services};
use steersman_server::{Concurrency, KubeletClient, Ranges, RuntimeConfig, Server, Timeouts, Web, Writes};
use steersman_storage::{Memory, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TABLE: &str = include_str!("api_server/flags.txt");
const SECURE_PORT: u16 = 6443;
/// From this verbosity on upstream logs details for debugging, and from the next one everything.
const VERBOSITY_DEBUG: i64 = 4;
const VERBOSITY_TRACE: i64 = 8;
/// Upstream's default allows everything.
const ALLOWS_ALL: &str = "AlwaysAllow";
/// Upstream's default of the Service addresses.
const SERVICE_RANGE: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 24));
/// The values of a token lifetime that mean no limit.
const NO_LIMIT: [&str; 2] = ["0", "0s"];

/// The flags that `steersman server` has under the same names.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true, no_binary_name = true)]
struct Shared {
    #[command(flatten)]
    admission: AdmissionOptions,
    #[command(flatten)]
    audit: AuditOptions,
    #[command(flatten)]
    authentication: AuthenticationOptions,
    #[command(flatten)]
    authorization: AuthorizationOptions,
    #[command(flatten)]
    served: ServedOptions,
    #[command(flatten)]
    services: ServiceOptions,
    #[command(flatten)]
    serving: ServingOptions,
    #[command(flatten)]
    webhooks: WebhookOptions,
    #[command(flatten)]
    aggregation: AggregationOptions,
    #[command(flatten)]
    kubelets: KubeletOptions,
}

/// The checked values of the flags.
struct Plan {
    address: SocketAddr,
    advertised: IpAddr,
    /// The address at which other machines reach the server.
    others_reach: Option<IpAddr>,
    clients: ClientCertificates,
    serving: ServingCertificate,
    authentication: Authentication,
    authorization: Authorization,
    admission: Plugins,
    /// The PEM of `--client-ca-file`.
    client_ca: Option<String>,
    audit: Option<audit::Plan>,
    service_ranges: Ranges,
    webhook_services: Services,
    /// The certificate of the front proxy.
    proxy_identity: Option<Identity>,
    kubelet_client: KubeletClient,
    runtime_config: RuntimeConfig,
    concurrency: Concurrency,
    timeouts: Timeouts,
    watch_authorization: WatchAuthorization,
    event_ttl: Duration,
    web: Web,
    tls: TlsPolicy,
    /// The time for which requests are still answered after the signal to end.
    stop_delay: Duration,
    cert_dir: Option<PathBuf>,
}

pub(super) fn run(arguments: &[String]) -> Result<(), Ended> {
    let shared = Shared::command();
    let flags = Flags::read(TABLE, |name| shared.get_arguments().any(|argument| argument.get_long() == Some(name)));
    let given = flags.parse(arguments).map_err(|problem| {
        let help = || {
            format!(
                "Steersman's control plane, in the place of kube-apiserver.\n\nUsage:\n  kube-apiserver [flags]\n\nFlags:\n{}",
                flags.help()
            )
        };
        Ended::of(problem, help, &format!("Kubernetes {KUBERNETES_VERSION}"))
    })?;
    let filter = std::env::var("STEERSMAN_LOG").ok();
    logging::init(filter.as_deref().or_else(|| verbosity(&given)))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("the runtime could not be started")?;
    let outcome = runtime.block_on(Box::pin(serve(&given)) as LocalBoxFuture<'_, Result<(), Failure>>);
    runtime.shutdown_background();
    Ok(outcome?)
}

fn verbosity(given: &Given) -> Option<&'static str> {
    match given.number("v")? {
        VERBOSITY_TRACE.. => Some("trace"),
        VERBOSITY_DEBUG.. => Some("debug"),
        _ => None,
    }
}

async fn serve(given: &Given) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let plan = Plan::read(given)?;
    report(given);
    let Plan { address, advertised, clients, serving, authentication, authorization, admission, .. } = plan;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::Refused(format!("failed to create listener: failed to listen on {address}: {error}"))
    })?;
    // Without a key file, a key is made that lasts as long as the objects.
    let keys = plan.cert_dir.unwrap_or_default().join("account-keys");
    let proxies = authentication.proxies.clone();
    let mut authentication = authentication.with_keys_in(NewKeys::InMemory(&keys))?;
    authentication.client_ca = plan.client_ca;
    authentication.published_proxies =
        front_proxy::published(proxies.as_deref(), authentication.request_header.as_ref(), None);
    let audit = plan.audit.map(audit::Plan::start).transpose()?;
    let (audit, audit_writers) = audit.unzip();
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default());
    let store = store.await.context("the store cannot be opened")?;
    let compute_threads = ComputeThreads::new().context("the threads for large requests cannot be started")?;
    let server = Server::start(steersman_server::Options {
        store: store.clone(),
        authentication,
        authorization,
        admission,
        address: SocketAddr::new(advertised, address.port()).to_string(),
        host: host::name(),
        advertised: plan.others_reach,
        audit,
        service_ranges: plan.service_ranges,
        webhook_services: plan.webhook_services,
        proxy_identity: plan.proxy_identity,
        kubelet_client: plan.kubelet_client,
        runtime_config: plan.runtime_config,
        writes: Writes::Accepted,
        concurrency: plan.concurrency,
        compute: compute_threads.compute(),
        timeouts: plan.timeouts,
        watch_authorization: plan.watch_authorization,
        event_ttl: plan.event_ttl,
        web: plan.web,
        agents: None,
        resource_metrics: None,
        clock: Timestamp::now,
    });
    let server = server.await.context("the server cannot be started")?;
    let stop = CancellationToken::new();
    let clients = Arc::new(clients);
    let tls = Arc::new(pki::tls(clients.clone(), Arc::new(serving), &plan.tls)?);
    let sockets = tokio::spawn(accept::serve(listener, tls, clients, server.service(), None, stop.clone()));
    tracing::info!(%address, version = KUBERNETES_VERSION, "ready");
    let signal = signals.next().await;
    tracing::info!(signal, "stopping");
    let stopped = async {
        server.withdraw();
        tokio::time::sleep(plan.stop_delay).await;
        server.begin_stop();
        stop.cancel();
        sockets.await.context("the socket's task failed")?;
        server.stop().await;
        if let Some(writers) = audit_writers {
            writers.close().await?;
        }
        store.close().await.context("the store could not be closed")
    };
    tokio::select! {
        stopped = stopped => stopped?,
        signal = signals.next() => return Err(Failure::stopped_at_once(signal)),
    }
    Ok(())
}

/// Logs once how the server differs from the flags.
fn report(given: &Given) {
    if !given.passed_over.is_empty() {
        let flags: Vec<String> = given.passed_over.iter().map(|name| format!("--{name}")).collect();
        tracing::info!(flags = flags.join(" "), "flags that mean nothing here are passed over");
    }
    let etcd = given.list("etcd-servers");
    if !etcd.is_empty() {
        tracing::info!(
            etcd_servers = etcd.join(","),
            "objects are kept in the memory of this process, and not in the etcd of --etcd-servers"
        );
    }
    let plugins = [given.list("enable-admission-plugins"), given.list("admission-control")].concat();
    let absent = admission::absent(&plugins);
    if !absent.is_empty() {
        tracing::info!(plugins = absent.join(","), "admission plugins that do not exist here are passed over");
    }
}

impl Plan {
    /// Reads the files that the flags name. Makes a certificate if none is given.
    fn read(given: &Given) -> Result<Plan, Failure> {
        let port = match given.number("secure-port") {
            None => SECURE_PORT,
            Some(port) => u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
                Failure::Refused(format!("--secure-port {port} must be between 1 and 65535, inclusive"))
            })?,
        };
        let bound = ip(given, "bind-address").unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let advertised = ip(given, "advertise-address").unwrap_or(match bound {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        });
        let cert_dir = given.one("cert-dir").map(PathBuf::from);
        let Shared {
            admission,
            audit,
            authentication,
            authorization,
            served,
            services,
            serving,
            webhooks,
            aggregation,
            kubelets,
        } = shared(given)?;
        let client_ca = given.one("client-ca-file").map(|path| read(Path::new(path))).transpose()?;
        let authentication = Authentication::read(authentication)?;
        let clients =
            ClientCertificates::new(client_ca.as_deref(), authentication.proxies.as_deref(), &pki::provider())
                .map_err(|error| Failure::Refused(format!("cannot use --client-ca-file: {error:#}")))?;
        let (runtime_config, unknown) = served.read_known()?;
        if !unknown.is_empty() {
            tracing::info!(runtime_config = unknown.join(","), "there is nothing here that these switch on or off");
        }
        let concurrency = Concurrency::default();
        let number = |name: &str, default: u32| match given.number(name) {
            None => Ok(default),
            Some(number) => u32::try_from(number)
                .map_err(|_| Failure::Refused(format!("--{name} {number} can not be negative value"))),
        };
        Ok(Plan {
            address: SocketAddr::new(bound, port),
            advertised,
            others_reach: advertised::find(ip(given, "advertise-address"), bound),
            clients,
            serving: certificate::find(given, cert_dir.as_deref(), &[bound, advertised])?,
            authentication,
            authorization: authorization::read(&authorization)?,
            admission: admission::read_upstream(&admission, &given.list("admission-control"))?,
            client_ca,
            audit: audit::Plan::new(&audit)?,
            service_ranges: services.ranges()?,
            webhook_services: webhooks.services()?,
            proxy_identity: front_proxy::given(&aggregation)?,
            kubelet_client: kubelets::given(kubelets)?,
            runtime_config,
            concurrency: Concurrency {
                has_priority_and_fairness: given
                    .is_on("enable-priority-and-fairness")
                    .unwrap_or(concurrency.has_priority_and_fairness),
                reads_max: number("max-requests-inflight", concurrency.reads_max)?,
                writes_max: number("max-mutating-requests-inflight", concurrency.writes_max)?,
            },
            timeouts: serving.timeouts(),
            watch_authorization: serving.watch_authorization(),
            event_ttl: serving.event_ttl,
            web: serving.web()?,
            tls: TlsPolicy {
                has_http2: given.is_on("disable-http2-serving") != Some(true),
                ..TlsPolicy::read(&serving)?
            },
            stop_delay: serving.shutdown_delay_duration,
            cert_dir,
        })
    }
}

fn ip(given: &Given, name: &str) -> Option<IpAddr> {
    given.one(name)?.parse().ok()
}

/// The flags that are shared with `steersman server`, with upstream's defaults.
fn shared(given: &Given) -> Result<Shared, Failure> {
    let command = Shared::command();
    let mut arguments = Vec::new();
    // Upstream records nothing without a policy or without a destination.
    let has_policy = given.one("audit-policy-file").is_some();
    let has_log = has_policy && given.one("audit-log-path").is_some();
    let has_webhook = has_policy && given.one("audit-webhook-config-file").is_some();
    let is_wanted = |name: &&str| match name.split('-').take(2).collect::<Vec<_>>()[..] {
        ["audit", "log"] => has_log,
        ["audit", "webhook"] => has_webhook,
        ["audit", _] => has_log || has_webhook,
        _ => true,
    };
    for argument in command.get_arguments() {
        let Some(name) = argument.get_long().filter(is_wanted) else { continue };
        for value in given.each(name) {
            let is_unlimited = name == "service-account-max-token-expiration" && NO_LIMIT.contains(&value.as_str());
            if argument.get_action().takes_values() {
                arguments.extend((!is_unlimited).then(|| format!("--{name}={value}")));
            } else {
                arguments.extend(given.is_on(name).filter(|is_on| *is_on).map(|_| format!("--{name}")));
                break;
            }
        }
    }
    let refused = |error: clap::Error| {
        let text = error.render().to_string();
        let what = text.lines().next().unwrap_or("the flags cannot be read");
        Failure::Refused(what.trim_start_matches("error: ").to_owned())
    };
    let matches = command.try_get_matches_from(arguments).map_err(refused)?;
    let mut shared = Shared::from_arg_matches(&matches).map_err(refused)?;
    if given.one("service-cluster-ip-range").is_none() {
        shared.services.service_cluster_ip_range = vec![SERVICE_RANGE];
    }
    let authorization = &mut shared.authorization;
    if authorization.authorization_mode.is_empty() && authorization.authorization_config.is_none() {
        authorization.authorization_mode.push(ALLOWS_ALL.to_owned());
    }
    // As upstream: where everything is allowed, requests without credentials are refused.
    let allows_all = authorization.authorization_mode.iter().any(|mode| mode == ALLOWS_ALL);
    shared.authentication.anonymous_auth = given.is_on("anonymous-auth").map(|is_on| is_on && !allows_all);
    shared.authentication.anonymous_default = !allows_all;
    Ok(shared)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::Refused(format!("unable to load client CA file {:?}: {error}", path.display().to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flag_that_is_given_twice_the_last_value_counts_or_all_of_a_list() {
        let arguments = [
            "--request-timeout=1m",
            "--request-timeout=2m",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-cluster-ip-range=10.1.0.0/24",
            "--authorization-mode=Node",
            "--authorization-mode=RBAC",
        ];
        let given = Flags::read(TABLE, |_| true).parse(&arguments.map(str::to_owned)).unwrap();
        let shared = shared(&given).unwrap();
        assert_eq!(shared.serving.request_timeout, Duration::from_secs(120));
        assert_eq!(shared.services.service_cluster_ip_range, ["10.1.0.0/24".parse().unwrap()]);
        assert_eq!(shared.authorization.authorization_mode, ["Node", "RBAC"]);
    }
    #[test]
    fn a_file_says_who_comes_without_credentials_unless_a_flag_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("authentication.yaml");
        let text =
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n";
        std::fs::write(&path, text).unwrap();
        let read = |more: &[&str]| {
            let of_file = format!("--authentication-config={}", path.display());
            let mut arguments = vec![of_file, "--authorization-mode=RBAC".to_owned()];
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            let given = Flags::read(TABLE, |_| true).parse(&arguments).unwrap();
            Authentication::read(shared(&given).unwrap().authentication).map(|_| ())
        };
        assert!(read(&[]).is_ok());
        let Err(Failure::Refused(why)) = read(&["--anonymous-auth=true"]) else { panic!("both say it") };
        assert!(why.contains("so does --anonymous-auth"), "{why}");
    }
}
