//! The port of health checks: real sockets on loopback, in real time.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::health::{Endpoints, Health};
use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::metrics::counter::Counter;
use steersman::{Manager, Scope};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::server::{Fault, Server, Verb};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The whole answer to a GET.
async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_manager_serves_health_and_metrics_before_its_caches_fill_and_until_it_ends() {
    let server = Server::new();
    server.fail(Verb::Watch, Fault::Silence);
    let manager = Manager::new(server.client()).serve(any_port()).unwrap();
    manager.informers().informer::<ConfigMap>(Scope::All);
    manager.health().live("database", || Err("no database"));
    let address = manager.address().unwrap();
    assert_ne!(address.port(), 0);
    // A client that never sends a request does not disturb others.
    let silent = TcpStream::connect(address).await.unwrap();
    let (shutdown, asked) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.run(async { drop(asked.await) }));
    let live = get(address, "/healthz").await;
    assert!(
        live.starts_with("HTTP/1.1 500 ")
            && live.ends_with("[-]database failed: reason withheld\nhealthz check failed\n")
    );
    let ready = get(address, "/readyz?verbose").await;
    assert!(ready.starts_with("HTTP/1.1 500 "), "{ready}");
    assert!(
        ready.ends_with("[-]informer-sync failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"),
        "{ready}"
    );
    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.contains("\ncontent-type: text/plain; version=0.0.4"));
    assert!(metrics.contains(r#"informer_queued_items{name="manager",group="",version="v1",resource="configmaps"} 0"#));
    shutdown.send(()).unwrap();
    running.await.unwrap().unwrap();
    TcpStream::connect(address).await.unwrap_err();
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answer_is_sent_away() {
    let metrics = Metrics::new();
    let help = "x".repeat(32 << 20);
    metrics.register(|registry| registry.register("large", &help, Counter::<u64>::default()));
    let endpoints = Endpoints::bind(any_port(), Health::new()).unwrap().with_metrics(metrics);
    let address = endpoints.address();
    let (stop, asked) = oneshot::channel::<()>();
    let serving = tokio::spawn(endpoints.serve(async { drop(asked.await) }));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut answer = Vec::new();
    // The answer ends early, with or without an error.
    drop(stream.read_to_end(&mut answer).await);
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.len() < help.len(), "{}", answer.len());
    assert!(get(address, "/healthz").await.ends_with("\r\n\r\nok"));
    stop.send(()).unwrap();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_before_anything_starts() {
    let server = Server::new();
    let one = Manager::new(server.client()).serve(any_port()).unwrap();
    let address = one.address().unwrap();
    let error = Manager::new(server.client()).serve(address).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot serve health and metrics on {address}"));
    let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let server = Server::new();
    let (stopping, stopped) = oneshot::channel();
    let (began, begun) = oneshot::channel();
    let manager =
        Manager::new(server.client()).grace(Duration::from_secs(600)).run_always("stubborn", |stop| async move {
            began.send(()).unwrap();
            stop.cancelled().await;
            stopping.send(()).unwrap();
            std::future::pending::<Result<(), std::convert::Infallible>>().await
        });
    let running = tokio::spawn(manager.run_until_signal());
    begun.await.unwrap();
    send(rustix::process::Signal::TERM);
    stopped.await.unwrap();
    assert!(!running.is_finished());
    send(rustix::process::Signal::INT);
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "interrupted; all work was dropped");
}

/// Sends this process a signal.
fn send(signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
}
