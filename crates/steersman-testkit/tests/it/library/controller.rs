//! A controller under faults: whatever happens, the desired state is reached.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;
use steersman::{Action, Controller, Manager, ObjectKey, ReconcileError, WriteError, patch};
use steersman_testkit::{ControlPlane, Fault, Options};

#[derive(Debug, thiserror::Error)]
#[error("cannot write the greeting")]
struct Error(#[from] WriteError);

impl ReconcileError for Error {}

async fn greet(key: ObjectKey, client: &kube::Client) -> Result<Action, Error> {
    patch::apply::<ConfigMap>(client, &key, "greeter", patch::Force::Yes, &json!({"data": {"hello": "world"}})).await?;
    Ok(Action::AwaitChange)
}

async fn until_greeted(plane: &ControlPlane, name: &str) {
    plane.apply(&format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}}}}}")).await;
    let key = ObjectKey::namespaced("default", name);
    plane.until(&key, |config: &ConfigMap| config.data.as_ref().is_some_and(|data| data["hello"] == "world")).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_lives_through_bad_days() {
    // Watches that break repeatedly begin again after up to a minute.
    let options = Options { patience: Duration::from_secs(3600), ..Options::default() };
    let plane = ControlPlane::try_start(options).await.unwrap();
    let days = async {
        until_greeted(&plane, "good").await;
        plane.cut_watches();
        until_greeted(&plane, "cut").await;
        plane.restart().await;
        until_greeted(&plane, "restart").await;
        // The new watch begins at a version whose history is gone.
        plane.fail_next_where(2, Fault::Refused(500), |method, _| method == "GET");
        plane.cut_watches();
        plane.apply("{kind: Secret, apiVersion: v1, metadata: {name: s}}").await;
        plane.compact().await;
        until_greeted(&plane, "forgotten").await;
        for fault in [Fault::Refused(429), Fault::Refused(503), Fault::Unsent, Fault::Unanswered] {
            plane.fail_next_where(3, fault, |method, _| method == "PATCH");
            until_greeted(&plane, &format!("{fault:?}").to_lowercase().replace(['(', ')'], "")).await;
        }
        // The watch gets these faults too, and lists are refused.
        plane.fail_next(5, Fault::Refused(500));
        plane.cut_watches();
        until_greeted(&plane, "refused").await;
    };
    let controller = Controller::<ConfigMap>::new(greet, plane.client());
    Manager::new(plane.client()).controller(controller).run(days).await.unwrap();
    assert_eq!(plane.n_faults_left(), 0);
    plane.stop().await;
}
