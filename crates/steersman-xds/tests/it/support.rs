//! A control plane on loopback whose view a test sets, and what tests wait for.

pub(crate) mod process;
pub(crate) mod upstream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_xds::resources::cluster::CircuitBreakers;
use steersman_xds::resources::endpoints::{HealthStatus, LbEndpoint};
use steersman_xds::resources::listener::Filter;
use steersman_xds::resources::route::{
    Action, ClusterSpecifier, ClusterWeight, PathSpecifier, Route, RouteAction, RouteMatch, VirtualHost,
    WeightedCluster,
};
use steersman_xds::resources::{
    Address, Cluster, ClusterLoadAssignment, HttpConnectionManager, Listener, RouteConfiguration,
};
use steersman_xds::{
    Kind, Options, Peer, ProxyReport, Refusal, Resource, Server, Set, Source, StreamId, Subscriber, Subscription,
    Token, View,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a fact may take to become true.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The views of the proxies, and their reports. A stream belongs to whoever its token names.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) views: watch::Sender<Option<Arc<View>>>,
    pub(crate) reports: watch::Sender<HashMap<StreamId, ProxyReport>>,
    pub(crate) refusal: Mutex<Option<Refusal>>,
    pub(crate) ended: Mutex<Vec<StreamId>>,
}

/// A served [`Plane`].
pub(crate) struct Running {
    pub(crate) plane: Arc<Plane>,
    pub(crate) server: Server<Plane>,
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Source for Plane {
    async fn subscribe(&self, _stream: StreamId, subscriber: &Arc<Subscriber>) -> Result<Subscription, Refusal> {
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let owner = subscriber.token.as_ref().map_or(&*subscriber.node.id, Token::expose).into();
        Ok(Subscription { owner, views: self.views.subscribe() })
    }

    fn report(&self, stream: StreamId, report: &ProxyReport) {
        self.reports.send_modify(|reports| drop(reports.insert(stream, report.clone())));
    }

    fn ended(&self, stream: StreamId) {
        self.ended.lock().unwrap().push(stream);
        self.reports.send_modify(|reports| drop(reports.remove(&stream)));
    }
}

impl Running {
    /// Serves on an address, or on any port of loopback.
    pub(crate) async fn start(address: Option<SocketAddr>, options: Options) -> Running {
        let plane = Plane {
            views: watch::Sender::new(None),
            reports: watch::Sender::default(),
            refusal: Mutex::default(),
            ended: Mutex::default(),
        };
        let plane = Arc::new(plane);
        let server = Server::new(plane.clone(), options);
        let listener = TcpListener::bind(address.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap())).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn({
            let server = server.clone();
            async move {
                loop {
                    let (stream, peer) = listener.accept().await.unwrap();
                    let server = server.clone();
                    tokio::spawn(async move {
                        let peer = Peer { address: Some(peer), certificate: None };
                        server.serve(stream, peer).await
                    });
                }
            }
        });
        Running { plane, server, address, accepting }
    }

    pub(crate) fn set(&self, view: &Arc<View>) {
        self.plane.views.send_replace(Some(view.clone()));
    }

    /// Waits until a proxy has a report that fulfils a condition.
    #[track_caller]
    pub(crate) fn until(
        &self,
        what: &str,
        condition: impl Fn(&ProxyReport) -> bool,
    ) -> impl Future<Output = ProxyReport> {
        let mut reports = self.plane.reports.subscribe();
        async move {
            let found = async {
                let reports = reports.wait_for(|reports| reports.values().any(&condition)).await.unwrap();
                reports.values().find(|report| condition(report)).unwrap().clone()
            };
            match tokio::time::timeout(SOON, found).await {
                Ok(report) => report,
                Err(_) => panic!("no proxy with {what}: {:#?}", self.plane.reports.borrow().values()),
            }
        }
    }

    /// Waits until a proxy has all of this view.
    #[track_caller]
    pub(crate) fn until_settled(&self, view: &Arc<View>) -> impl Future<Output = ProxyReport> {
        self.until("the view", |report| report.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, view)))
    }

    pub(crate) async fn stop(self) {
        self.accepting.abort();
        let _ = self.accepting.await;
        self.server.shutdown().await;
    }
}

/// A listener whose requests go to clusters by weight. Each cluster has one endpoint.
pub(crate) fn view(port: u16, clusters: &[(&str, SocketAddr)], weights: &[(&str, u32)]) -> Arc<View> {
    let cluster = |name: &str| {
        let mut cluster = Cluster::eds(name);
        cluster.circuit_breakers = Some(CircuitBreakers::unlimited());
        cluster.to_resource()
    };
    let endpoints = |(name, address): &(&str, SocketAddr)| {
        ClusterLoadAssignment::new(*name, vec![LbEndpoint::new(*address, HealthStatus::Healthy)]).to_resource()
    };
    let manager = HttpConnectionManager::routed_by("web", "web");
    let listener = Listener::new("web", Address::tcp("127.0.0.1".parse().unwrap(), port), vec![Filter::http(&manager)]);
    View::new()
        .with(Kind::Cluster, set(clusters.iter().map(|(name, _)| cluster(name))))
        .with(Kind::Endpoints, set(clusters.iter().map(endpoints)))
        .with(Kind::Listener, set([listener.to_resource()]))
        .with(Kind::Route, set([routes(weights).to_resource()]))
        .into()
}

pub(crate) fn routes(weights: &[(&str, u32)]) -> RouteConfiguration {
    let clusters = weights.iter().map(|(name, weight)| ClusterWeight::new(*name, *weight)).collect();
    let action = RouteAction {
        cluster: Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters })),
        ..RouteAction::default()
    };
    let route = Route {
        r#match: Some(RouteMatch::new(PathSpecifier::Prefix("/".to_owned()))),
        action: Some(Action::Route(Box::new(action))),
        ..Route::default()
    };
    let host = VirtualHost {
        name: "all".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..VirtualHost::default()
    };
    RouteConfiguration { name: "web".to_owned(), virtual_hosts: vec![host], ..RouteConfiguration::default() }
}

pub(crate) fn set(resources: impl IntoIterator<Item = Resource>) -> Set {
    resources.into_iter().map(Arc::new).collect()
}

/// A port of loopback that was free a moment ago, for programs that cannot be given a socket.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The program, or `None`, with a message, if this machine has none.
pub(crate) fn envoy_program() -> Option<PathBuf> {
    use std::io::Write;
    if let Some(program) = std::env::var_os("STEERSMAN_ENVOY") {
        return Some(program.into());
    }
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false");
    assert!(!ci, "STEERSMAN_ENVOY names no program, and CI is set");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let words = format!("!!! SKIPPED {test}: STEERSMAN_ENVOY names no Envoy (cargo xtask test sets it up)\n");
    // Not `eprintln!`, whose output is hidden if the test passes; in one write, because tests run concurrently.
    std::io::stderr().write_all(words.as_bytes()).unwrap();
    None
}
