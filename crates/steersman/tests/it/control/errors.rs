//! The errors of a reconciler, and the reaction of the controller to each.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use parking_lot::Mutex;
use steersman::controller::ControllerStats;
use steersman::queue::RateLimiter;
use steersman::reconcile::ReconcileFn;
use steersman::{Action, BoxError, Controller, InformerFactory, Lister, ObjectKey, Scope};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server, Verb, settle};

struct Context {
    client: kube::Client,
    configs: Lister<ConfigMap>,
    secrets: Lister<Secret>,
    runs: Mutex<Vec<String>>,
}

/// Runs a controller of config maps for an hour.
async fn an_hour<E, F>(server: &Server, reconcile: F) -> (Arc<Context>, Arc<ControllerStats>)
where
    E: Into<BoxError> + 'static,
    F: for<'a> ReconcileFn<'a, Arc<Context>, E> + 'static,
{
    server.serve("/api/v1/secrets", true);
    let factory = InformerFactory::new(server.client());
    let context = Arc::new(Context {
        client: server.client(),
        configs: factory.informer(Scope::All).lister(),
        secrets: factory.informer(Scope::All).lister(),
        runs: Mutex::default(),
    });
    let controller = Controller::<ConfigMap>::new(reconcile, Arc::clone(&context))
        .rate_limiter(RateLimiter::exponential(Duration::from_secs(1), Duration::from_secs(60)));
    let (stats, stop) = (controller.stats(), CancellationToken::new());
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { controller.run(&factory, stop).await }
    });
    settle().await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    stop.cancel();
    task.await.unwrap().unwrap();
    (context, stats)
}

fn begin(key: &ObjectKey, cx: &Context) {
    cx.runs.lock().push(key.to_string());
}

#[tokio::test(start_paused = true)]
async fn an_error_of_kube_is_retried_as_the_server_asks() {
    async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, kube::Error> {
        begin(&key, cx);
        let configs = Api::<ConfigMap>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
        configs.delete("y", &kube::api::DeleteParams::default()).await?;
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    server.put("a/x", "1");
    server.put("a/y", "1");
    server.fail(Verb::Write, Fault::Status { code: 503, reason: "ServiceUnavailable", retry_after: None });
    let (context, stats) = an_hour(&server, reconcile).await;
    assert!(context.runs.lock().iter().filter(|key| *key == "a/x").count() >= 2);
    assert_eq!(stats.n_terminal(), 0);
    assert!(stats.n_succeeded() >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_is_not_tried_again() {
    async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, BoxError> {
        begin(&key, cx);
        Api::<ConfigMap>::namespaced(cx.client.clone(), "a").get("").await?;
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    server.put("a/x", "1");
    let (context, stats) = an_hour(&server, reconcile).await;
    assert_eq!(*context.runs.lock(), ["a/x"]);
    assert_eq!((stats.n_failed(), stats.n_terminal()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_deleted_is_no_failure_but_another_that_is_missing_is() {
    async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, BoxError> {
        begin(&key, cx);
        cx.configs.get(&key)?;
        if key.name() == "needy" {
            cx.secrets.get(&key)?;
        }
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    server.put("a/needy", "1");
    let (context, stats) = an_hour(&server, reconcile).await;
    let n_runs = context.runs.lock().len();
    assert!(n_runs > 30, "a secret may come without an event: {n_runs} runs");
    assert_eq!(stats.n_failed(), n_runs as u64);

    let server = Server::new();
    server.put("a/x", "1");
    let deleting = {
        let server = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            server.delete("a/x");
        })
    };
    let (context, stats) = an_hour(&server, reconcile).await;
    deleting.await.unwrap();
    assert_eq!(*context.runs.lock(), ["a/x", "a/x"]);
    assert_eq!((stats.n_succeeded(), stats.n_failed()), (2, 0));
}

#[cfg(feature = "anyhow")]
#[tokio::test(start_paused = true)]
async fn an_anyhow_error_is_retried_unless_it_is_terminal() {
    async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> anyhow::Result<Action> {
        begin(&key, cx);
        anyhow::ensure!(key.name() != "x" || cx.runs.lock().len() > 3, "not yet");
        if key.name() == "y" {
            return Err(steersman::reconcile::Terminal::new("spec.cidr is missing").into());
        }
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    server.put("a/x", "1");
    server.put("a/y", "1");
    let (context, stats) = an_hour(&server, reconcile).await;
    assert_eq!(context.runs.lock().iter().filter(|key| *key == "a/y").count(), 1);
    assert_eq!((stats.n_terminal(), stats.n_succeeded()), (1, 1));
}
