//! Injectors that are dead, start again, or have a ConfigMap that is broken or changes.

use serde_json::Value;
use steersman_mesh::inject::{FRAGMENT, Fragment, NAME};

use crate::environment::{Environment, Ways, containers, eventually, is_waiting, pod};

const BROKEN: &str = "containers: [{name: envoy}]";

#[tokio::test]
async fn without_an_initializer_a_pod_waits_and_the_next_one_adds_the_sidecar() {
    let environment = Environment::start().await;
    environment.initialize().await;
    let first = environment.inject(Ways::Initializer).await;
    assert_eq!(containers(&environment.create(&pod("one")).await.unwrap()).len(), 2);
    first.kill().await;
    let (two, create) = (pod("two"), environment.client());
    let creation = tokio::spawn(async move {
        let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(create, "default");
        pods.create(&Default::default(), &serde_json::from_value(two).unwrap()).await
    });
    eventually("the Pod waits", async || is_waiting(&environment, "two").await).await;
    let second = environment.inject(Ways::Initializer).await;
    let made = serde_json::to_value(creation.await.unwrap().unwrap()).unwrap();
    assert_eq!(containers(&made), ["web", "envoy"]);
    second.stop().await;
}

#[tokio::test]
async fn without_a_webhook_pods_are_refused_until_it_is_back() {
    let environment = Environment::start().await;
    let first = environment.inject(Ways::Webhook).await;
    assert_eq!(containers(&environment.create(&pod("one")).await.unwrap()).len(), 2);
    first.kill().await;
    let (code, message) = environment.refused(&pod("two")).await;
    assert_eq!(code, 500);
    assert!(message.contains("failed calling webhook"), "{message}");
    // It has another port now; the certificate is the stored one.
    let second = environment.inject(Ways::Webhook).await;
    assert_eq!(containers(&environment.create(&pod("two")).await.unwrap()).len(), 2);
    second.stop().await;
}

#[tokio::test]
async fn a_broken_config_map_changes_nothing_until_the_next_start() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    assert_eq!(containers(&environment.create(&pod("one")).await.unwrap()).len(), 2);
    environment.fragment(BROKEN).await;
    injector.until_metric("fragment_invalid 1").await;
    environment
        .until_event(&format!(
            "ConfigMap/envoy-initializer FragmentInvalid: the ConfigMap default/envoy-initializer cannot be used: containers[0].image: an image is missing; the fragment {} stays in force",
            Fragment::parse(crate::environment::DOCUMENT).unwrap().hash()
        ))
        .await;
    let made = environment.create(&pod("two")).await.unwrap();
    assert_eq!(made["spec"]["containers"][1]["image"], "lyft/envoy");
    injector.stop().await;

    for ways in [Ways::Webhook, Ways::Initializer] {
        if ways == Ways::Initializer {
            environment.no_longer_call(NAME).await;
            environment.initialize().await;
        }
        let injector = environment.inject(ways).await;
        let (code, message) = environment.refused(&pod("three")).await;
        assert_eq!(code, 503, "{message}");
        let why = "the Pod is to get the sidecar, but there is no usable fragment: the ConfigMap default/envoy-initializer cannot be used: containers[0].image: an image is missing";
        assert!(message.ends_with(why), "{message}");
        // A Pod that does not want it is none of its business.
        let mut refusing = pod(&format!("refusing-{}", format!("{ways:?}").to_lowercase()));
        refusing["metadata"]["labels"] = serde_json::json!({"mesh.steersman.dev/inject": "false"});
        assert_eq!(containers(&environment.create(&refusing).await.unwrap()).len(), 1);
        injector.stop().await;
    }
    let injector = environment.inject(Ways::Initializer).await;
    environment.fragment(crate::environment::DOCUMENT).await;
    injector.until_fragment(crate::environment::DOCUMENT).await;
    assert_eq!(containers(&environment.create(&pod("three")).await.unwrap()).len(), 2);
    injector.stop().await;
}

#[tokio::test]
async fn without_a_config_map_pods_are_refused_and_where_it_goes_the_last_good_one_stays() {
    let environment = Environment::without_fragment().await;
    let injector = environment.inject(Ways::Webhook).await;
    let (_, message) = environment.refused(&pod("one")).await;
    let why = "the ConfigMap default/envoy-initializer, which has the sidecar, does not exist";
    assert!(message.ends_with(why), "{message}");
    // One that has it already needs none.
    let fragment = Fragment::parse(crate::environment::DOCUMENT).unwrap();
    let injected = steersman_mesh::inject::inject(&pod("injected"), &fragment).unwrap();
    assert_eq!(containers(&environment.create(&injected).await.unwrap()).len(), 2);
    environment.fragment(crate::environment::DOCUMENT).await;
    injector.until_fragment(crate::environment::DOCUMENT).await;
    assert_eq!(containers(&environment.create(&pod("one")).await.unwrap()).len(), 2);
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(environment.client(), "default");
    maps.delete("envoy-initializer", &Default::default()).await.unwrap();
    injector.until_metric("fragment_invalid 1").await;
    assert_eq!(containers(&environment.create(&pod("two")).await.unwrap()).len(), 2);
    injector.stop().await;
}

/// A fragment of several parts that all have the number of its version.
fn version(n: usize) -> String {
    format!(
        "containers: [{{name: envoy, image: e:{n}}}, {{name: agent, image: a:{n}}}]\nmetadata: {{labels: {{version: v{n}}}}}\n"
    )
}

#[tokio::test]
async fn pods_that_are_created_while_it_changes_have_one_whole_version() {
    let environment = Environment::without_fragment().await;
    environment.fragment(&version(0)).await;
    environment.initialize().await;
    let injector = environment.inject(Ways::Both).await;
    let hashes: Vec<String> = (0..6).map(|n| Fragment::parse(&version(n)).unwrap().hash().to_owned()).collect();
    let change = async {
        for n in 1..6 {
            environment.fragment(&version(n)).await;
            injector.until_fragment(&version(n)).await;
        }
    };
    let create = async {
        let mut made: Vec<Value> = Vec::new();
        for n in 0..40 {
            made.push(environment.create(&pod(&format!("pod-{n}"))).await.unwrap());
        }
        made
    };
    let ((), made) = futures::join!(change, create);
    for pod in &made {
        let n: usize = pod["metadata"]["labels"]["version"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(pod["spec"]["containers"][1]["image"], format!("e:{n}"));
        assert_eq!(pod["spec"]["containers"][2]["image"], format!("a:{n}"));
        assert_eq!(pod["metadata"]["annotations"][FRAGMENT], *hashes[n]);
    }
    // The annotation says which version a Pod has.
    let last = environment.create(&pod("last")).await.unwrap();
    assert_eq!(last["metadata"]["annotations"][FRAGMENT], *hashes[5]);
    injector.stop().await;
}
