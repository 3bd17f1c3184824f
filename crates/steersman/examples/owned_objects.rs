//! A Deployment and a ConfigMap that it owns: every change of the ConfigMap is repaired, and the garbage collector
//! removes it with its owner.
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use steersman::cache::Selection;
use steersman::write::try_create_or_update;
use steersman::{Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope, owners};

struct Context {
    client: kube::Client,
    deployments: Lister<Deployment>,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let deployment = cx.deployments.get(&key)?;
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let metadata = ObjectMeta {
        name: Some(format!("{}-scale", key.name())),
        namespace: key.namespace().map(str::to_owned),
        ..ObjectMeta::default()
    };
    let config = ConfigMap { metadata, ..ConfigMap::default() };
    try_create_or_update(&cx.client, config, |config| -> Result<(), BoxError> {
        config.data.get_or_insert_default().insert("replicas".to_owned(), replicas.to_string());
        owners::set_controller(&*deployment, config)?;
        Ok(())
    })
    .await?;
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(client: kube::Client, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let selected = Selection::new(Scope::All).labels("publish-scale=true");
    let manager = Manager::new(client.clone());
    let deployments = manager.informers().informer(selected);
    let context = Context { client, deployments: deployments.lister() };
    let controller = Controller::of(&deployments, reconcile, context).owns::<ConfigMap>();
    manager.controller(controller).run(end).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    Ok(run(client, steersman::shutdown_signal()).await?)
}
