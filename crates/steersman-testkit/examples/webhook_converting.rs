//! A conversion webhook: the first version of a timer counts minutes and the next one seconds, without loss in either
//! direction.

use std::net::SocketAddr;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman::webhook::{Conversion, SelfSigned, Webhooks};
use steersman::{Manager, ObjectKey};
use steersman_testkit::ControlPlane;

mod v1beta1 {
    use kube::CustomResource;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Timer", namespaced, schema = "disabled")]
    pub(crate) struct TimerSpec {
        pub(crate) minutes: u64,
    }
}

mod v1 {
    use kube::CustomResource;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
    #[kube(group = "example.com", version = "v1", kind = "Timer", namespaced, schema = "disabled")]
    pub(crate) struct TimerSpec {
        pub(crate) seconds: u64,
    }
}

/// The annotation that keeps, in v1beta1, the seconds beyond full minutes.
const SECONDS: &str = "example.com/seconds";

impl From<v1beta1::Timer> for v1::Timer {
    fn from(mut old: v1beta1::Timer) -> Self {
        let kept = old.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(SECONDS));
        let odd: u64 = kept.and_then(|kept| kept.parse().ok()).unwrap_or(0);
        Self { metadata: old.metadata, spec: v1::TimerSpec { seconds: old.spec.minutes * 60 + odd } }
    }
}

impl From<v1::Timer> for v1beta1::Timer {
    fn from(mut new: v1::Timer) -> Self {
        let odd = new.spec.seconds % 60;
        if odd > 0 {
            new.metadata.annotations.get_or_insert_default().insert(SECONDS.to_owned(), odd.to_string());
        }
        Self { metadata: new.metadata, spec: v1beta1::TimerSpec { minutes: new.spec.seconds / 60 } }
    }
}

/// Serves until `end` completes, which gets the address.
async fn run<E: Future<Output = ()>>(
    client: kube::Client,
    end: impl FnOnce(SocketAddr) -> E,
) -> Result<(), Box<dyn std::error::Error>> {
    let certificates =
        SelfSigned::new(client.clone(), "default", "timers").host("127.0.0.1").definition("timers.example.com");
    let server = Webhooks::new()
        .convert("/convert", Conversion::hub::<v1::Timer>().version::<v1beta1::Timer>())
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates)?;
    let end = end(server.address());
    Manager::new(client).webhooks(server).run(end).await?;
    Ok(())
}

/// It has no `caBundle`: the server writes it.
fn definition(address: SocketAddr) -> String {
    let version = |name: &str, field: &str, storage: bool| {
        let spec = json!({"type": "object", "properties": {(field): {"type": "integer", "minimum": 0}}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "timers.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Timer", "plural": "timers"},
            "scope": "Namespaced",
            "versions": [version("v1", "seconds", true), version("v1beta1", "minutes", false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"url": format!("https://{address}/convert")}
                }
            }
        }
    });
    definition.to_string()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plane = ControlPlane::start().await;
    let story = async |address| {
        plane.apply(&definition(address)).await;
        let is_trusted = |definition: &CustomResourceDefinition| {
            let webhook = definition.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
            webhook.and_then(|webhook| webhook.client_config.as_ref()).is_some_and(|client| client.ca_bundle.is_some())
        };
        plane.until(&ObjectKey::cluster("timers.example.com"), is_trusted).await;

        let old: Api<v1beta1::Timer> = Api::namespaced(plane.client(), "default");
        let new: Api<v1::Timer> = Api::namespaced(plane.client(), "default");
        let tea = v1beta1::Timer::new("tea", v1beta1::TimerSpec { minutes: 3 });
        old.create(&PostParams::default(), &tea).await.expect("the timer is converted to be stored");
        let egg = v1::Timer::new("egg", v1::TimerSpec { seconds: 390 });
        new.create(&PostParams::default(), &egg).await.expect("the timer needs no conversion");

        let tea = new.get("tea").await.expect("it was stored as v1");
        assert_eq!(tea.spec.seconds, 180);
        let egg = old.get("egg").await.expect("it is converted to be read");
        assert_eq!((egg.spec.minutes, egg.metadata.annotations.as_ref().map(|kept| &*kept[SECONDS])), (6, Some("30")));
        // An object that is written back unchanged loses nothing.
        old.replace("egg", &PostParams::default(), &egg).await.expect("it is converted there and back");
        let egg = new.get("egg").await.expect("it was stored as v1");
        assert_eq!(egg.spec.seconds, 390);
        println!("390 seconds are 6 minutes and an annotation");
    };
    run(plane.client(), story).await?;
    plane.stop().await;
    Ok(())
}

#[test]
fn timers_are_read_and_written_in_both_versions() {
    main().unwrap();
}
