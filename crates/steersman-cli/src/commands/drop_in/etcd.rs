//! `etcd`, as far as envtest needs it: it answers health checks, and stores nothing.
//!
//! The control plane that stands in for kube-apiserver keeps the objects itself.

use crate::Failure;
use crate::commands::drop_in::Ended;
use crate::commands::drop_in::flags::{Flags, Given};
use crate::process::logging;
use crate::process::signals::Signals;
use anyhow::Context as _;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpListener;

const TABLE: &str = include_str!("etcd/flags.txt");
/// The version that envtest installs with Kubernetes 1.36 reports this.
const VERSION: &str = "3.6.8";
const CLIENT_URL: &str = "http://localhost:2379";
/// The most connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;

pub(super) fn run(arguments: &[String]) -> Result<(), Ended> {
    let flags = Flags::read(TABLE, |_| false);
    let given = flags.parse(arguments).map_err(|problem| {
        let help =
            || format!("Usage:\n  etcd [flags]\n    Says that it is healthy, and holds nothing.\n\n{}", flags.help());
        Ended::of(problem, help, &format!("etcd Version: {VERSION}\nGit SHA: steersman-{}", env!("CARGO_PKG_VERSION")))
    })?;
    logging::init(None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the runtime could not be started")?;
    runtime.block_on(serve(&given))?;
    runtime.shutdown_background();
    Ok(())
}

async fn serve(given: &Given) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let mut urls = given.list("listen-client-urls");
    if urls.is_empty() {
        urls.push(CLIENT_URL.to_owned());
    }
    let mut listeners = Vec::new();
    for url in &urls {
        let address = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).ok_or_else(|| {
            Failure::Refused(format!("cannot listen on {url}: this etcd holds nothing and speaks http:// only"))
        })?;
        let listener = TcpListener::bind(address).await;
        listeners.push(listener.map_err(|error| Failure::Refused(format!("cannot listen on {url}: {error}")))?);
    }
    tracing::info!(urls = urls.join(","), "this etcd says that it is healthy, and holds nothing");
    let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let tasks = listeners.into_iter().map(|listener| tokio::spawn(accept(listener, permits.clone())));
    let tasks: Vec<_> = tasks.collect();
    signals.next().await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

async fn accept(listener: TcpListener, permits: std::sync::Arc<tokio::sync::Semaphore>) {
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            let _permit = permit;
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            // A client that disconnects early is no error.
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let (status, body) = match request.uri().path() {
        "/health" => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        "/livez" | "/readyz" => (StatusCode::OK, "ok\n".to_owned()),
        "/version" => (StatusCode::OK, format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"3.6.0"}}"#)),
        path => (StatusCode::NOT_FOUND, format!("{path} is not here: this etcd holds nothing\n")),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    Ok(response)
}
