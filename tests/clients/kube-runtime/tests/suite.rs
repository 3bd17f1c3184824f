//! kube and kube-runtime against the server that `KUBECONFIG` names: watchers with both kinds of list, a reflector, and a
//! controller with a finalizer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "kube-runtime.example.com", version = "v1", kind = "Lamp", namespaced, status = "LampStatus")]
struct LampSpec {
    brightness: u8,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
struct LampStatus {
    shines: u8,
}

async fn place(name: &str) -> anyhow::Result<(Client, String)> {
    let client = Client::try_default().await?;
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(format!("kube-runtime-{name}")), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok((client, made.name_any()))
}

fn map(name: &str, n: u32) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("suite".to_owned(), "yes".to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("n".to_owned(), n.to_string())])),
        ..ConfigMap::default()
    }
}

async fn watched(name: &str, config: watcher::Config) -> anyhow::Result<()> {
    let (client, namespace) = place(name).await?;
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    for n in 0..3 {
        maps.create(&PostParams::default(), &map(&format!("before-{n}"), n)).await?;
    }
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(maps.clone(), config.labels("suite=yes"))).applied_objects();
    // The store is filled by whoever polls the stream.
    let (sender, mut events) = mpsc::unbounded();
    let polling = tokio::spawn(stream.map(Ok).forward(sender));
    for _ in 0..3 {
        events.next().await.context("the watch ended")??;
    }
    reader.wait_until_ready().await?;
    assert_eq!(reader.len(), 3);
    maps.patch("before-1", &PatchParams::default(), &Patch::Merge(serde_json::json!({"data": {"n": "9"}}))).await?;
    let changed = events.next().await.context("the watch ended")??;
    assert_eq!(changed.data.unwrap()["n"], "9");
    maps.delete("before-2", &DeleteParams::default()).await?;
    maps.create(&PostParams::default(), &map("after", 0)).await?;
    assert_eq!(events.next().await.context("the watch ended")??.name_any(), "after");
    assert!(reader.get(&ObjectRef::new("before-2").within(&namespace)).is_none());
    assert_eq!(reader.len(), 3);
    polling.abort();
    Ok(())
}

#[tokio::test]
async fn a_reflector_holds_what_a_paged_list_and_a_watch_tell() -> anyhow::Result<()> {
    tokio::time::timeout(PATIENCE, watched("paged", watcher::Config::default().page_size(2))).await?
}

#[tokio::test]
async fn a_reflector_holds_what_a_streamed_list_and_a_watch_tell() -> anyhow::Result<()> {
    tokio::time::timeout(PATIENCE, watched("streamed", watcher::Config::default().streaming_lists())).await?
}

#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Says in the status what the spec asks for; says in a ConfigMap that it has cleaned up.
async fn reconcile(lamp: Arc<Lamp>, client: Arc<Client>) -> Result<Action, Failed> {
    let namespace = lamp.namespace().ok_or_else(|| Failed("no namespace".to_owned()))?;
    let lamps = Api::<Lamp>::namespaced((*client).clone(), &namespace);
    let maps = Api::<ConfigMap>::namespaced((*client).clone(), &namespace);
    finalizer(&lamps, "kube-runtime.example.com/off", lamp, async |event| match event {
        Event::Apply(lamp) => {
            let status = serde_json::json!({"status": {"shines": lamp.spec.brightness}});
            lamps.patch_status(&lamp.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
            Ok(Action::await_change())
        }
        Event::Cleanup(lamp) => {
            maps.create(&PostParams::default(), &map(&format!("{}-is-off", lamp.name_any()), 0)).await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
    })
    .await
    .map_err(|error| Failed(error.to_string()))
}

#[tokio::test]
async fn a_controller_makes_it_so_and_cleans_up() -> anyhow::Result<()> {
    let (client, namespace) = place("controller").await?;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.patch(Lamp::crd_name(), &PatchParams::apply("suite"), &Patch::Apply(Lamp::crd())).await?;
    let established = await_condition(definitions, Lamp::crd_name(), conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await??;

    let lamps = Api::<Lamp>::namespaced(client.clone(), &namespace);
    let controller = Controller::new(lamps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client.clone()))
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(controller);

    let lamp = Lamp::new("desk", LampSpec { brightness: 7 });
    lamps.patch("desk", &PatchParams::apply("suite"), &Patch::Apply(&lamp)).await?;
    let shines = |want: u8| {
        await_condition(lamps.clone(), "desk", move |lamp: Option<&Lamp>| {
            lamp.and_then(|lamp| lamp.status.as_ref()).is_some_and(|status| status.shines == want)
        })
    };
    tokio::time::timeout(PATIENCE, shines(7)).await??;
    let lamp = Lamp::new("desk", LampSpec { brightness: 3 });
    lamps.patch("desk", &PatchParams::apply("suite"), &Patch::Apply(&lamp)).await?;
    tokio::time::timeout(PATIENCE, shines(3)).await??;

    let uid = lamps.get("desk").await?.uid().context("no uid")?;
    lamps.delete("desk", &DeleteParams::default()).await?;
    let gone = await_condition(lamps.clone(), "desk", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await??;
    Api::<ConfigMap>::namespaced(client, &namespace).get("desk-is-off").await?;
    running.abort();
    Ok(())
}
