//! The command line.

mod admission;
mod aggregation;
mod audit;
mod authentication;
mod authorization;
mod codegen;
pub(crate) mod duration;
mod encryption;
mod etcd;
mod kubelets;
mod served;
mod services;
mod serving;
mod size;
mod store;
mod webhooks;

pub(crate) use crate::args::admission::AdmissionOptions;
pub(crate) use crate::args::aggregation::AggregationOptions;
pub(crate) use crate::args::audit::{AuditMode, AuditOptions, AuditWebhookOptions};
pub(crate) use crate::args::authentication::{AuthenticationOptions, WebhookVersion};
pub(crate) use crate::args::authorization::AuthorizationOptions;
pub(crate) use crate::args::codegen::{
    ClientsOptions, CodegenCommand, CrdOptions, DefinitionsOptions, Enums, NewOptions, TypesOptions,
};
pub(crate) use crate::args::encryption::EncryptionOptions;
pub(crate) use crate::args::etcd::{EtcdOptions, InEtcd};
pub(crate) use crate::args::kubelets::KubeletOptions;
pub(crate) use crate::args::served::ServedOptions;
pub(crate) use crate::args::services::ServiceOptions;
pub(crate) use crate::args::serving::ServingOptions;
pub(crate) use crate::args::store::{
    BackupOptions, CheckOptions, OpenOptions, RestoreOptions, SourceOptions, StoreCommand, TargetOptions,
};
pub(crate) use crate::args::webhooks::WebhookOptions;
use crate::commands::development::run_as;
use crate::commands::mesh::MeshCommand;
use crate::commands::node::NodeCommand;
use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum, value_parser};
use rustls::pki_types::ServerName;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A Kubernetes-compatible control plane in one process, and controllers for it.
#[derive(Debug, Parser)]
#[command(name = "steersman", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The messages to log: error, warn, info, debug or trace, or a filter such as `steersman_server=debug`.
    #[arg(long, global = true, env = "STEERSMAN_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes all objects at one revision into one file, while the server runs or while it does not.
    ///
    /// The file has the objects alone, Secrets too: keep the directory `pki` of the data directory with it. The exit code is 1 if the store has
    /// lost objects, which are named and not in the file; with --verify if FILE is damaged.
    Backup(BackupOptions),
    /// Generates code and manifests out of CustomResourceDefinitions: from files, directories or a running server.
    #[command(subcommand)]
    Codegen(CodegenCommand),
    /// Makes a folder with kube-apiserver, etcd and kubectl for controller-runtime's envtest, and prints its path:
    /// `KUBEBUILDER_ASSETS=$(steersman envtest) go test ./...`
    Envtest(EnvtestOptions),
    /// Prints the roles and bindings that would allow the requests that authorization refused.
    ///
    /// Reads them from an access log (--access-log of `up` and `server`), or from any text that quotes them, such as
    /// kubectl's output. For each user and namespace it prints the smallest Role or ClusterRole, and its binding.
    ExplainDenied(ExplainOptions),
    /// One address for several servers on one etcd, for clients that know only one.
    ///
    /// Passes each connection on to the next server that takes one. TLS is between clients and servers, whose certificates must be valid for the
    /// name by which clients reach this address (--tls-san of `server` and `up`).
    Forward(ForwardOptions),
    /// Parts of a mesh of Envoys, against any Kubernetes.
    #[command(subcommand)]
    Mesh(MeshCommand),
    /// Creates a project: an operator with its kind, controller, tests, manifests, image and CI.
    New(NewOptions),
    /// The Network controller alone, against any Kubernetes.
    Network(NetworkOptions),
    /// Commands for the nodes of a cluster.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Shows a dump of a cluster to kubectl: an API server in memory that only reads.
    ///
    /// FILE may be a snapshot of etcd (`etcdctl snapshot save`, or a copy of its file), the output of `kubectl get -A -o yaml` or `-o json`, a
    /// must-gather or the directory of `oc adm inspect`, a Velero backup, a support bundle of Troubleshoot, the directory of `kubectl cluster-info
    /// dump` or a backup of `steersman backup`; directories may be in a tar, compressed or not. It is recognized by its content. The objects are
    /// shown as they are in it, `kubectl logs` shows the logs that it has, and writes are refused. Ctrl-C ends it, and nothing is left behind.
    Open(OpenOptions),
    /// Makes the store of a server out of a backup: in a data directory without objects, or in etcd.
    ///
    /// Revisions go on behind all that the old server can have given, and history before that is gone, so that clients list again. FILE is read
    /// and checked before anything is written.
    Restore(RestoreOptions),
    /// Runs a command as a ServiceAccount, with the files and variables that its pods have.
    ///
    /// The token is renewed while the command runs. Signals are passed on to the command, and steersman exits with the
    /// command's code. /var/run/secrets/kubernetes.io/serviceaccount exists for the command alone, where the system
    /// allows a mount namespace; KUBECONFIG names the same credentials everywhere.
    RunAs(RunAsOptions),
    #[command(name = run_as::mount::SUBCOMMAND, hide = true)]
    RunAsMounted(RunAsMountedOptions),
    /// The control plane alone, with the control loops that belong to it.
    Server(ServerCommand),
    /// Commands on what a server stores.
    #[command(subcommand)]
    Store(StoreCommand),
    /// The control plane with the controllers in the same process.
    Up(UpOptions),
    /// Prints which admission webhooks the server has called since it started, how often, how long and with what outcome.
    ///
    /// CALLS is the sum of the next four: ALLOWED; DENIED by the webhook; FAILED, where the write failed because the
    /// webhook could not be called or its answer not used; IGNORED, where the call failed likewise but failurePolicy is
    /// Ignore. SKIPPED counts the writes that its matchConditions excluded. MEAN and P99 are times of calls; P99 is the
    /// bound of a bucket of the server's metrics.
    Webhooks(WebhooksOptions),
}

/// The options of `envtest`.
#[derive(ClapArgs, Debug)]
pub(crate) struct EnvtestOptions {
    /// The directory to make; without it, one in ~/.cache.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// The options of `forward`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ForwardOptions {
    /// The address to listen on; port 0 takes any free port, which is printed.
    #[arg(long, default_value = "127.0.0.1:6443", value_parser = address, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// The servers, such as 10.0.0.1:6443,10.0.0.2:6443. May be repeated, or a list with commas.
    #[arg(long, required = true, value_delimiter = ',', value_parser = host_and_port, value_name = "HOST:PORT")]
    pub(crate) servers: Vec<String>,
}

/// The options of the control plane.
#[derive(ClapArgs, Debug)]
pub(crate) struct ServerOptions {
    /// The directory of the certificates, the kubeconfig and the objects.
    #[arg(long, default_value = "./.steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The address to listen on; port 0 takes any free port. With 0.0.0.0 or [::] the certificate is valid for the
    /// loopback addresses and for the address with which this machine reaches its default route.
    #[arg(long, default_value = "127.0.0.1:6443", value_parser = address, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// The address at which other machines reach the server; the Service `kubernetes` leads to it. Without it, the
    /// address of --listen, or for 0.0.0.0, [::] and loopback the address with which this machine reaches its default
    /// route.
    #[arg(long, value_parser = advertised, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Another host name or address by which clients reach the server, such as that of a load balancer: its certificate
    /// is valid for it too. May be repeated, or a list with commas.
    #[arg(long, value_delimiter = ',', value_parser = server_name, value_name = "NAME")]
    pub(crate) tls_san: Vec<ServerName<'static>>,
    /// Keep the objects in memory only: they are gone when the process ends.
    #[arg(long, conflicts_with = "etcd_servers")]
    pub(crate) in_memory: bool,
    #[command(flatten)]
    pub(crate) etcd: EtcdOptions,
    #[command(flatten)]
    pub(crate) encryption: EncryptionOptions,
    /// The time for which old states of objects are kept: lists at an old resourceVersion, further pages and resumed
    /// watches reach back this far. From 1m to 30d, such as 90s, 5m, 1h30m or 3d; the longer, the larger the store.
    #[arg(long, default_value = "5m", value_parser = duration::history, value_name = "DURATION")]
    pub(crate) history: Duration,
    /// The most bytes of old states of objects that are kept: beyond it the oldest are removed, whatever --history
    /// says. At least 1Mi, such as 64Mi or 2Gi; without it four times the size of the current objects, and at least
    /// 256Mi.
    #[arg(long, value_parser = size::history, value_name = "SIZE")]
    pub(crate) history_size: Option<u64>,
    /// Share the requests in flight fairly among users, by the FlowSchemas and PriorityLevelConfigurations of the
    /// cluster.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false")]
    pub(crate) enable_priority_and_fairness: bool,
    /// The maximum number of read-only requests in flight. With priority and fairness only its sum with
    /// --max-mutating-requests-inflight counts.
    #[arg(long, default_value_t = 400, value_parser = value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    pub(crate) max_requests_inflight: u32,
    /// The maximum number of mutating requests in flight.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    pub(crate) max_mutating_requests_inflight: u32,
    #[command(flatten)]
    pub(crate) served: ServedOptions,
    #[command(flatten)]
    pub(crate) services: ServiceOptions,
    /// Write a line of JSON for every request to this file: time, audit id, user, method, path, status, bytes,
    /// duration, and why authorization refused it. `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) audit: AuditOptions,
    /// Serve the controllers' /metrics for Prometheus, /healthz and /readyz on this address, without TLS; port 0 takes
    /// any free port.
    #[arg(long, value_parser = address, value_name = "ADDR")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// The format in which the server reports that it is ready.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) serving: ServingOptions,
    #[command(flatten)]
    pub(crate) authentication: AuthenticationOptions,
    #[command(flatten)]
    pub(crate) authorization: AuthorizationOptions,
    #[command(flatten)]
    pub(crate) admission: AdmissionOptions,
    #[command(flatten)]
    pub(crate) webhooks: WebhookOptions,
    #[command(flatten)]
    pub(crate) aggregation: AggregationOptions,
    #[command(flatten)]
    pub(crate) kubelets: KubeletOptions,
    /// The profiles and extenders of the scheduler: a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, as
    /// kube-scheduler takes with --config. docs/real-cluster.md says what it may contain.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: Option<PathBuf>,
}

/// The options of the control plane alone.
#[derive(ClapArgs, Debug)]
pub(crate) struct ServerCommand {
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// The controllers to run, such as `namespace` (without it, deleted namespaces stay): `*` for all, `-*` for none,
    /// `-NAME` for all but one. An unknown name is refused with a list of the known ones. Names of
    /// kube-controller-manager, such as `namespace-controller`, are accepted too.
    #[arg(long, default_value = "*", value_delimiter = ',', allow_hyphen_values = true, value_name = "a,-b")]
    pub(crate) controllers: Vec<String>,
    /// Simulate this many nodes, with a scheduler: Pods are bound to them and run, although no program does. Kubelets may
    /// join besides (--enable-bootstrap-token-auth). Without either, Pods are neither bound nor run.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..=10_000), value_name = "N")]
    pub(crate) simulate_nodes: u32,
}

/// The options of the control plane with controllers.
#[derive(ClapArgs, Debug)]
pub(crate) struct UpOptions {
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// The controllers to run, such as `namespace` or `network`: `*` for all, `-*` for none, `-NAME` for all but one.
    /// An unknown name is refused with a list of the known ones. Names of kube-controller-manager, such as
    /// `namespace-controller`, are accepted too.
    #[arg(long, default_value = "*", value_delimiter = ',', allow_hyphen_values = true, value_name = "a,b,-c")]
    pub(crate) controllers: Vec<String>,
    /// Simulate this many nodes, with a scheduler: Pods are bound to them and run, although no program does. With 0
    /// Pods are neither bound nor run.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(0..=10_000), value_name = "N")]
    pub(crate) simulate_nodes: u32,
}

/// The options of `explain-denied`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ExplainOptions {
    /// The file to read; standard input without it or with `-`.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Allow the same on all objects, not only on those that were requested by name.
    #[arg(long)]
    pub(crate) any_name: bool,
}

/// The options of `run-as`.
#[derive(ClapArgs, Debug)]
pub(crate) struct RunAsOptions {
    /// The account, as NAMESPACE/NAME.
    #[arg(value_name = "NAMESPACE/SERVICEACCOUNT", value_parser = account)]
    pub(crate) account: (String, String),
    /// The kubeconfig of the cluster; without it: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// An audience of the token; without it, the server. May be given more than once.
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) audience: Vec<String>,
    /// The lifetime of a token; it is renewed before its end.
    #[arg(long, default_value = "1h", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) duration: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The options of `webhooks`.
#[derive(ClapArgs, Debug)]
pub(crate) struct WebhooksOptions {
    /// The kubeconfig of the cluster; without it: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// The options of the second step of `run-as`, in its mount namespace.
#[derive(ClapArgs, Debug)]
pub(crate) struct RunAsMountedOptions {
    pub(crate) dir: PathBuf,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

fn account(text: &str) -> Result<(String, String), String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok((namespace.to_owned(), name.to_owned())),
        _ => Err("want NAMESPACE/NAME".to_owned()),
    }
}

/// The options of the Network controller.
#[derive(ClapArgs, Debug)]
pub(crate) struct NetworkOptions {
    /// The kubeconfig of the cluster; without it and --master: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The URL of the API server, instead of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
    /// Serve /metrics for Prometheus, /healthz and /readyz on this address, without TLS; port 0 takes any free port.
    #[arg(long, value_parser = address, value_name = "ADDR")]
    pub(crate) metrics_address: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// The interval at which everything in Neutron is listed, to find networks that were changed there and those whose
    /// objects are gone.
    #[arg(long, default_value = "60s", value_parser = duration::more_than_none, value_name = "DURATION")]
    pub(crate) drift_interval: Duration,
    /// The time for which a network that this cluster's operator made stays in Neutron without an object, as after a
    /// lost answer.
    #[arg(long, default_value = "10m", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) orphan_grace: Duration,
    /// The name of this cluster in the markers by which the operator recognizes its own networks; without it, the uid
    /// of the namespace kube-system. Two clusters in one project need two names.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_id: Option<steersman_network::ClusterId>,
    /// Work only while holding the Lease network-controller, so that one replica works and the others wait.
    #[arg(long)]
    pub(crate) leader_elect: bool,
    /// The namespace of the Lease; without it, that of the pod or of the kubeconfig.
    #[arg(long, requires = "leader_elect", value_name = "NAMESPACE")]
    pub(crate) leader_elect_namespace: Option<String>,
    /// The time for which a leader that has vanished blocks the others; it renews the Lease eight times as often.
    #[arg(long, default_value = "15s", value_parser = duration::lease, value_name = "DURATION")]
    pub(crate) leader_elect_lease_duration: Duration,
}

/// The Neutron to use, and the way to sign in to it.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct CloudOptions {
    /// Use a simulated Neutron. `up` does so unless a real one is configured, and keeps it in its data directory;
    /// `network` keeps it in memory.
    #[arg(long, conflicts_with_all = ["neutron_url", "neutron_auth", "os_cloud"])]
    pub(crate) simulated: bool,
    /// The URL of a Neutron.
    #[arg(long, value_name = "URL")]
    pub(crate) neutron_url: Option<String>,
    /// The way to sign in: not at all, or with Keystone as the OS_* variables or a clouds.yaml say.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) neutron_auth: Option<NeutronAuth>,
    /// The entry of clouds.yaml.
    #[arg(long, value_name = "NAME")]
    pub(crate) os_cloud: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum NeutronAuth {
    Keystone,
    None,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Output {
    /// One line of JSON.
    Json,
    /// For people.
    Text,
}

impl From<ServerCommand> for UpOptions {
    fn from(command: ServerCommand) -> UpOptions {
        let ServerCommand { server, controllers, simulate_nodes } = command;
        UpOptions { server, cloud: CloudOptions::default(), controllers, simulate_nodes }
    }
}

/// Prints one sentence that says what is wrong with a command line; help and version are printed unchanged.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed standard output is not an error.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let command = started_with();
            let names: Vec<&str> = command.subcommands.iter().map(String::as_str).collect();
            eprintln!("steersman: a command is missing: {}; see {} --help", names.join(", "), command.words.join(" "));
            ExitCode::from(2)
        }
        _ => {
            let text = error.render().to_string();
            // Clap explains in paragraphs: the first says what is wrong, a tip says what to do.
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let what = lines.next().unwrap_or("the command line cannot be read");
            let mut what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
            if what.ends_with(':') {
                // Clap lists missing arguments on lines of their own.
                for argument in lines.clone().take_while(|line| line.starts_with(['-', '<'])) {
                    what = format!("{what} {argument}");
                }
            }
            let tip = lines.find_map(|line| {
                line.strip_prefix("tip: ")
                    .or_else(|| line.strip_prefix("[possible values: ").map(|line| line.trim_end_matches(']')))
            });
            let tip = tip.map(|tip| format!(" ({tip})")).unwrap_or_default();
            eprintln!("steersman: {what}{tip}; see {} --help", started_with().words.join(" "));
            ExitCode::from(2)
        }
    }
}

/// A command of the program.
struct Named {
    /// The names that lead to it.
    words: Vec<String>,
    /// The names of its own commands.
    subcommands: Vec<String>,
}

/// The command that the process was started with: each word that names a command of the one before leads further.
fn started_with() -> Named {
    let program = <Args as clap::CommandFactory>::command();
    let (mut command, mut words) = (&program, vec!["steersman".to_owned()]);
    for word in std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()) {
        if let Some(next) = command.find_subcommand(&word) {
            command = next;
            words.push(next.get_name().to_owned());
        }
    }
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    Named { words, subcommands: shown.map(|one| one.get_name().to_owned()).collect() }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let authority: Option<http::uri::Authority> = text.parse().ok();
    match authority.filter(|authority| authority.port_u16().is_some_and(|port| port != 0) && !text.contains('@')) {
        Some(_) => Ok(text.to_owned()),
        None => Err("want HOST:PORT such as 10.0.0.1:6443".to_owned()),
    }
}

/// An address under which other machines reach the server. Loopback is refused, because objects publish the address.
fn advertised(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|_| "want an IP address, such as 192.0.2.7".to_owned())?;
    if ip.is_loopback() || ip.is_multicast() {
        return Err(format!(
            "{ip} leads to no other machine: want an address of this machine's network, such as 192.0.2.7"
        ));
    }
    Ok(ip)
}

/// A host name or an address for which a certificate is valid.
fn server_name(text: &str) -> Result<ServerName<'static>, &'static str> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| "want a host name or an IP address, such as api.example.com or 192.0.2.7")
}

/// An address to listen on.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "want an IP address and a port, such as 127.0.0.1:6443 or [::1]:0")
}
