//! Other webhooks beside the injector.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod};
use steersman::Manager;
use steersman::webhook::{Admission, Denial, SelfSigned, Webhooks};
use tokio_util::sync::CancellationToken;

use crate::environment::{Environment, Ways, containers, pod};

/// Adds a container, unless it is there: with the port of a label.
async fn add_logger(mut pod: Pod, _: &Admission<Pod>, _: &()) -> Result<Pod, Denial> {
    let port = pod.metadata.labels.as_ref().and_then(|labels| labels.get("port")).and_then(|port| port.parse().ok());
    let spec = pod.spec.get_or_insert_default();
    if spec.containers.iter().all(|container| container.name != "logger") {
        let ports = port.map(|container_port| vec![ContainerPort { container_port, ..ContainerPort::default() }]);
        let image = Some("logger".to_owned());
        spec.containers.push(Container { name: "logger".to_owned(), image, ports, ..Container::default() });
    }
    Ok(pod)
}

#[tokio::test]
async fn a_webhook_that_is_called_later_sees_the_sidecar_and_the_injector_sees_what_it_added() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    // Configurations are asked in the order of their names.
    let certificates =
        SelfSigned::new(environment.client(), "default", "zz-logger").host("127.0.0.1").mutating("zz-logger");
    let server = Webhooks::new().mutate("/log", add_logger, ());
    let server = server.bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates).unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let manager = Manager::new(environment.client()).webhooks(server);
    let logger = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
    environment.call("zz-logger", address, "/log", "Fail").await;

    let made = environment.create(&pod("one")).await.unwrap();
    assert_eq!(containers(&made), ["web", "envoy", "logger"]);
    // It was called again, and changed nothing.
    assert!(injector.has_metric("pods_injected_total{way=\"webhook\"} 1"));
    assert!(injector.has_metric("pods_skipped_total{way=\"webhook\",reason=\"injected\"} 1"));

    let mut late = pod("two");
    late["metadata"]["labels"] = serde_json::json!({"port": "80"});
    let (code, message) = environment.refused(&late).await;
    assert_eq!(code, 403);
    let why = "the sidecar's container envoy and the Pod's container logger both listen on port 80/TCP: change one";
    assert!(message.ends_with(why), "{message}");
    stop.cancel();
    logger.await.unwrap().unwrap();
    injector.stop().await;
}
