//! The metrics that a scraper reads: names, types, labels and values.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::client::ClientBuilder;
use steersman::election::ElectionOptions;
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::queue::{Priority, RateLimiter, WorkQueue};
use steersman::{Action, Controller, InformerFactory, Manager, ObjectKey, ReconcileError, Scope};
use tokio::sync::oneshot;

use crate::server::{Fault, Server, Verb, bookmark, eventually, settle};

#[derive(Debug, thiserror::Error)]
#[error("scripted")]
struct Scripted {
    is_terminal: bool,
}

impl ReconcileError for Scripted {
    fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

/// Acts by the name of the key.
async fn reconcile(key: ObjectKey, _: &()) -> Result<Action, Scripted> {
    match key.name() {
        "again" => Ok(Action::Requeue),
        "later" => Ok(Action::RequeueAfter(Duration::from_secs(1_000_000))),
        "error" => Err(Scripted { is_terminal: false }),
        "hopeless" => Err(Scripted { is_terminal: true }),
        "panic" => panic!("scripted"),
        "hang" => std::future::pending().await,
        _ => Ok(Action::AwaitChange),
    }
}

/// A rate limiter under which nothing runs twice during a test.
fn slow() -> RateLimiter {
    RateLimiter::exponential(Duration::from_secs(1_000_000), Duration::from_secs(1_000_000))
}

/// Values by `name{labels}`.
fn samples(metrics: &Metrics) -> BTreeMap<String, f64> {
    let text = metrics.encode(MetricsFormat::Prometheus);
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

#[track_caller]
fn check(metrics: &Metrics, expected: &[(&str, f64)]) {
    let samples = samples(metrics);
    for (series, value) in expected {
        assert_eq!(samples.get(*series), Some(value), "{series} in {samples:#?}");
    }
}

fn start(server: &Server, metrics: &Metrics, name: &str) -> (oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let controller = Controller::<ConfigMap>::new(reconcile, ())
        .name(name)
        .workers(3)
        .rate_limiter(slow())
        .timeout(Duration::from_secs(5));
    let election = ElectionOptions::new(name, "kube-system").identity(name.to_owned());
    let manager = Manager::new(server.client())
        .name("test")
        .with_metrics(metrics.clone())
        .elect_with(election)
        .controller(controller);
    let (shutdown, asked) = oneshot::channel();
    let task = tokio::spawn(async move {
        manager.run(async { drop(asked.await) }).await.unwrap();
    });
    (shutdown, task)
}

#[tokio::test(start_paused = true)]
async fn every_result_of_a_reconcile_counts_under_its_name() {
    let server = Server::new();
    for name in ["again", "later", "error", "hopeless", "panic", "hang", "fine", "well"] {
        server.put(&format!("a/{name}"), "1");
    }
    let metrics = Metrics::new();
    let (shutdown, task) = start(&server, &metrics, "cm");
    let done = r#"controller_runtime_reconcile_time_seconds_count{controller="cm"}"#;
    eventually("all ran", || samples(&metrics).get(done) == Some(&8.0)).await;
    settle().await;
    check(
        &metrics,
        &[
            (r#"controller_runtime_reconcile_total{controller="cm",result="success"}"#, 2.0),
            (r#"controller_runtime_reconcile_total{controller="cm",result="requeue"}"#, 1.0),
            (r#"controller_runtime_reconcile_total{controller="cm",result="requeue_after"}"#, 1.0),
            (r#"controller_runtime_reconcile_total{controller="cm",result="error"}"#, 4.0),
            (r#"controller_runtime_reconcile_errors_total{controller="cm"}"#, 4.0),
            (r#"controller_runtime_terminal_reconcile_errors_total{controller="cm"}"#, 1.0),
            (r#"controller_runtime_reconcile_panics_total{controller="cm"}"#, 1.0),
            (r#"controller_runtime_reconcile_timeouts_total{controller="cm"}"#, 1.0),
            (r#"controller_runtime_reconcile_time_seconds_bucket{le="4.5",controller="cm"}"#, 7.0),
            (r#"controller_runtime_reconcile_time_seconds_bucket{le="+Inf",controller="cm"}"#, 8.0),
            (r#"controller_runtime_max_concurrent_reconciles{controller="cm"}"#, 3.0),
            (r#"controller_runtime_active_workers{controller="cm"}"#, 0.0),
            (r#"workqueue_adds_total{name="cm",controller="cm"}"#, 8.0),
            (r#"workqueue_retries_total{name="cm",controller="cm"}"#, 4.0),
            (r#"leader_election_master_status{name="cm"}"#, 1.0),
            (r#"leader_election_slowpath_total{name="cm"}"#, 0.0),
            (r#"informer_queued_items{name="test",group="",version="v1",resource="configmaps"}"#, 0.0),
            (r#"informer_store_resource_version{name="test",group="",version="v1",resource="configmaps"}"#, 108.0),
        ],
    );
    shutdown.send(()).unwrap();
    task.await.unwrap();
    // Parts that have ended are no longer reported.
    assert_eq!(metrics.encode(MetricsFormat::OpenMetrics), "# EOF\n");
}

#[tokio::test(start_paused = true)]
async fn families_have_the_names_of_the_ecosystem_and_begin_at_zero() {
    let server = Server::new();
    let metrics = Metrics::new();
    let (shutdown, task) = start(&server, &metrics, "cm");
    settle().await;
    let text = metrics.encode(MetricsFormat::Prometheus);
    let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let expected = [
        "workqueue_depth gauge",
        "workqueue_adds_total counter",
        "workqueue_queue_duration_seconds histogram",
        "workqueue_work_duration_seconds histogram",
        "workqueue_unfinished_work_seconds gauge",
        "workqueue_longest_running_processor_seconds gauge",
        "workqueue_retries_total counter",
        "controller_runtime_reconcile_total counter",
        "controller_runtime_reconcile_errors_total counter",
        "controller_runtime_terminal_reconcile_errors_total counter",
        "controller_runtime_reconcile_panics_total counter",
        "controller_runtime_reconcile_timeouts_total counter",
        "controller_runtime_reconcile_time_seconds histogram",
        "controller_runtime_max_concurrent_reconciles gauge",
        "controller_runtime_active_workers gauge",
        "leader_election_master_status gauge",
        "leader_election_slowpath_total counter",
        "informer_queued_items gauge",
        "informer_store_resource_version gauge",
        "steersman_informer_staleness_seconds gauge",
    ];
    assert_eq!(types, expected);
    for expected in &expected {
        let name = expected.split(' ').next().unwrap();
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    let counters = samples(&metrics).into_iter().filter(|(series, _)| series.contains("_total"));
    assert_eq!(counters.map(|(_, value)| value).collect::<Vec<_>>(), [0.0; 11]);
    // In OpenMetrics, a family's name has no `_total` but its samples' names do; and the text ends with a mark.
    let text = metrics.encode(MetricsFormat::OpenMetrics);
    assert!(text.contains("# TYPE workqueue_adds counter\nworkqueue_adds_total{"), "{text}");
    assert!(text.ends_with("\n# EOF\n"));
    drop(shutdown);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cache_tells_how_long_nothing_was_heard_and_why_it_was_listed_again() {
    let server = Server::new();
    server.put("a/x", "1");
    let (metrics, factory) = (Metrics::new(), InformerFactory::new(server.client()));
    metrics.observe_informers("test", &factory);
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let labels = r#"name="test",group="",version="v1",resource="configmaps""#;
    let since_heard = || samples(&metrics).get(&format!("steersman_informer_staleness_seconds{{{labels}}}")).copied();
    let relists = || -> BTreeMap<String, f64> {
        let prefix = format!("steersman_informer_relists_total{{{labels},reason=");
        let all = samples(&metrics).into_iter();
        all.filter_map(|(series, n)| Some((series.strip_prefix(&prefix)?.to_owned(), n))).collect()
    };
    assert_eq!(since_heard(), None);
    let _running = factory.start();
    informer.wait_synced(Duration::from_secs(60)).await.unwrap();
    assert_eq!((since_heard(), relists()), (Some(0.0), BTreeMap::new()));
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(since_heard().map(f64::round), Some(40.0));
    // An event, and then a bookmark.
    server.put("a/x", "2");
    settle().await;
    assert!(since_heard() < Some(1.0));
    tokio::time::sleep(Duration::from_secs(40)).await;
    server.say(&bookmark(102, serde_json::json!({})));
    settle().await;
    assert!(since_heard() < Some(1.0));
    // The watch cannot be resumed, because the server has dropped its version; then it is refused.
    server.compact();
    server.end_watches();
    eventually("a list", || relists().get("\"expired\"}") == Some(&1.0)).await;
    server.fail(Verb::Watch, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    server.end_watches();
    eventually("another list", || relists().get("\"refused\"}") == Some(&1.0)).await;
    assert_eq!(relists().len(), 2, "{:?}", relists());
}

#[tokio::test(start_paused = true)]
async fn a_queue_tells_how_long_keys_wait_and_take() {
    let metrics = Metrics::new();
    let queue: WorkQueue<&str> = WorkQueue::new("q", slow());
    metrics.observe_queue(&queue);
    queue.add_with("low", Priority::Low);
    queue.add("a");
    queue.add("a");
    queue.add_after("delayed", Duration::from_secs(1));
    check(&metrics, &[(r#"workqueue_depth{name="q",controller="q",priority="-100"}"#, 1.0)]);
    check(&metrics, &[(r#"workqueue_depth{name="q",controller="q",priority="0"}"#, 1.0)]);
    tokio::time::advance(Duration::from_secs(2)).await;
    let a = queue.get().await.unwrap();
    assert_eq!(*a.key(), "a");
    tokio::time::advance(Duration::from_secs(3)).await;
    let delayed = queue.get().await.unwrap();
    assert_eq!(*delayed.key(), "delayed");
    queue.add("a");
    tokio::time::advance(Duration::from_secs(1)).await;
    check(
        &metrics,
        &[
            (r#"workqueue_depth{name="q",controller="q",priority="-100"}"#, 1.0),
            (r#"workqueue_depth{name="q",controller="q",priority="0"}"#, 0.0),
            // "a" waited two seconds, and "delayed" four since its time had come.
            (r#"workqueue_queue_duration_seconds_sum{name="q",controller="q"}"#, 6.0),
            (r#"workqueue_queue_duration_seconds_count{name="q",controller="q"}"#, 2.0),
            (r#"workqueue_unfinished_work_seconds{name="q",controller="q"}"#, 5.0),
            (r#"workqueue_longest_running_processor_seconds{name="q",controller="q"}"#, 4.0),
            (r#"workqueue_work_duration_seconds_count{name="q",controller="q"}"#, 0.0),
            (r#"workqueue_adds_total{name="q",controller="q"}"#, 3.0),
        ],
    );
    drop((a, delayed));
    tokio::time::advance(Duration::from_secs(1)).await;
    let again = queue.get().await.unwrap();
    assert_eq!(*again.key(), "a");
    check(
        &metrics,
        &[
            // The second "a" waited from its add, while the first was processed.
            (r#"workqueue_queue_duration_seconds_sum{name="q",controller="q"}"#, 8.0),
            (r#"workqueue_work_duration_seconds_sum{name="q",controller="q"}"#, 5.0),
            (r#"workqueue_work_duration_seconds_bucket{le="1",name="q",controller="q"}"#, 1.0),
            (r#"workqueue_work_duration_seconds_bucket{le="10",name="q",controller="q"}"#, 2.0),
            (r#"workqueue_unfinished_work_seconds{name="q",controller="q"}"#, 0.0),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn two_managers_share_only_what_they_are_given() {
    let (one, two, shared) = (Metrics::new(), Metrics::new(), Metrics::new());
    let queues: Vec<WorkQueue> = (0..4).map(|_| WorkQueue::new("q", slow())).collect();
    one.observe_queue(&queues[0]);
    two.observe_queue(&queues[1]);
    for queue in &queues[2..] {
        shared.observe_queue(queue);
        shared.observe_queue(queue);
    }
    for queue in &queues {
        queue.add(ObjectKey::cluster("a"));
    }
    let adds = r#"workqueue_adds_total{name="q",controller="q"}"#;
    check(&one, &[(adds, 1.0)]);
    check(&two, &[(adds, 1.0)]);
    check(&shared, &[(adds, 2.0)]);
}

#[tokio::test(start_paused = true)]
async fn requests_count_by_status_and_watches_have_no_duration() {
    let server = Server::new();
    server.put("a/x", "1");
    let metrics = Metrics::new();
    let layer = metrics.request_layer().host("api.example:6443");
    let client = ClientBuilder::new(server.clone(), "a").with_layer(&layer).build();
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client);
    config_maps.list(&ListParams::default()).await.unwrap();
    server.fail(Verb::List, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    config_maps.list(&ListParams::default()).await.unwrap_err();
    server.fail(Verb::List, Fault::Cut);
    config_maps.list(&ListParams::default()).await.unwrap_err();
    drop(config_maps.watch(&WatchParams::default(), "101").await.unwrap());
    config_maps.create(&kube::api::PostParams::default(), &named("y")).await.unwrap();
    check(
        &metrics,
        &[
            (r#"rest_client_requests_total{code="200",method="GET",host="api.example:6443"}"#, 2.0),
            (r#"rest_client_requests_total{code="500",method="GET",host="api.example:6443"}"#, 1.0),
            (r#"rest_client_requests_total{code="<error>",method="GET",host="api.example:6443"}"#, 1.0),
            (r#"rest_client_requests_total{code="200",method="POST",host="api.example:6443"}"#, 1.0),
            (r#"rest_client_request_duration_seconds_count{verb="GET",host="api.example:6443"}"#, 2.0),
            (r#"rest_client_response_size_bytes_count{verb="GET",host="api.example:6443"}"#, 2.0),
            (r#"rest_client_request_size_bytes_bucket{le="64",verb="POST",host="api.example:6443"}"#, 1.0),
            (r#"rest_client_response_size_bytes_bucket{le="64",verb="POST",host="api.example:6443"}"#, 0.0),
            (r#"rest_client_response_size_bytes_bucket{le="256",verb="POST",host="api.example:6443"}"#, 1.0),
        ],
    );
}

fn named(name: &str) -> ConfigMap {
    let metadata = kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test]
async fn a_client_that_is_given_metrics_counts_its_requests_under_its_server() {
    let metrics = Metrics::new();
    let master = Some("http://127.0.0.1:1".to_owned());
    let options = steersman::ClientOptions::default().master(master).metrics(metrics.clone());
    let client = steersman::client(&options).await.unwrap();
    client.apiserver_version().await.unwrap_err();
    check(&metrics, &[(r#"rest_client_requests_total{code="<error>",method="GET",host="127.0.0.1:1"}"#, 1.0)]);
}

#[test]
fn labels_of_any_kind_are_escaped() {
    let metrics = Metrics::new();
    let queue: WorkQueue = WorkQueue::new("a \"b\"\\\nc", RateLimiter::default());
    metrics.observe_queue(&queue);
    let series = r#"workqueue_adds_total{name="a \"b\"\\\nc",controller="a \"b\"\\\nc"}"#;
    check(&metrics, &[(series, 0.0)]);
}
